"""Which file a command's name means, and what is reported where it is none that can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.exec.running import Place


def _script(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def test_the_first_in_path_that_can_be_executed_is_it(place: Place) -> None:
    (place.root / "one/tool").mkdir(parents=True)
    _script(place.root / "two/tool", "#!/bin/sh\necho two\n", 0o644)
    _script(place.root / "three/tool", 'echo "three $1 and $#"\n')  # nothing says what runs it
    _script(place.root / "four/tool", "#!/bin/sh\necho four\n")
    path = ":".join(str(place.root / name) for name in ("nowhere", "one", "two", "three", "four"))
    done = place.run("tool", "a b", "c", environ={"PATH": path})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"three a b and 2\n", b"")


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        pytest.param(
            "no-such", 127, "tpuwatch: no-such: there is no such command in PATH; check its name", id="nothing"
        ),
        pytest.param("", 127, "an empty name: there is no such command in PATH", id="no name"),
        pytest.param(
            "directory", 127, "directory: there is no such command in PATH; check its name", id="directory in PATH"
        ),
        pytest.param("dangling", 127, "dangling: there is no such command in PATH", id="link to nothing in PATH"),
        pytest.param("plain", 126, "run `chmod +x` on it", id="file in PATH that is not executable"),
        pytest.param("lost", 126, "the program that its first line names is not there", id="script without a runner"),
        pytest.param("./bin/lost", 126, "the program that its first line names is not there", id="path of such"),
        pytest.param("./bin/directory", 126, "it is a directory; name a program in it", id="path of a directory"),
        pytest.param("./bin/none", 127, "there is no such file", id="path of nothing"),
        pytest.param("./bin/plain", 126, "run `chmod +x` on it", id="path of what is not executable"),
    ],
)
def test_what_cannot_be_run_is_reported_as_a_shell_does(place: Place, name: str, code: int, expected: str) -> None:
    folder = place.root / "bin"
    _script(folder / "plain", "", 0o644)
    _script(folder / "lost", "#!/nowhere/interpreter\n")
    (folder / "directory").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    done = place.run(name, environ={"PATH": str(folder)}, cwd=place.root)
    assert done.returncode == code
    assert expected in done.stderr.decode()
