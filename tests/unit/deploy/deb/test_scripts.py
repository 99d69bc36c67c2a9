"""The Debian package's scripts, as far as they can be tried without installing it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuwatch.config import load_config

DEB = ROOT / "deploy" / "deb"
SCRIPTS = sorted((DEB / "scripts").iterdir())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the package is installed, without the wheels."""
    home = tmp_path / "lib"
    (home / "wheels").mkdir(parents=True)
    (home / "environment").write_text((DEB / "scripts/environment").read_text())
    (home / "version").write_text("1.2-3\n")
    return home


class Installed:
    """The package in a directory. Its version refuses a configuration with "wrong" in it."""

    def __init__(self, root: Path) -> None:
        self.root, self._bin = root, root / "bin"
        self.config = root / "etc/tpuwatch/config.toml"
        self.home = root / "usr/lib/tpuwatch"
        for directory in (self._bin, self.home, root / "run/systemd/system", root / "usr/share/tpuwatch"):
            directory.mkdir(parents=True)
        (root / "usr/share/tpuwatch/config.toml").write_text("# nothing\n")
        for name in ("systemd-sysusers", "deb-systemd-helper", "deb-systemd-invoke", "systemctl"):
            self._command(self._bin / name, "")
        self._command(
            self.home / "environment",
            'case $1 in use) touch "$ROOT/usr/lib/tpuwatch/current" ;; check) ! grep -q wrong "$2" || exit 2 ;; esac',
        )

    def _command(self, path: Path, does: str) -> None:
        path.write_text(f'#!/bin/sh\necho {path.name} "$@" >> "$ROOT/calls"\n{does}\n')
        path.chmod(0o755)

    def configure(self, *before: str) -> subprocess.CompletedProcess[str]:
        """`postinst configure`, of an upgrade from the version `before`, or of the first installation."""
        (self.root / "calls").write_text("")
        script = (DEB / "scripts/postinst").read_text()
        for place in ("/usr/lib/tpuwatch", "/usr/share/tpuwatch", "/etc/tpuwatch", "/run/systemd"):
            script = script.replace(place, f"{self.root}{place}")
        return subprocess.run(
            ("/bin/sh", "-c", script, "postinst", "configure", *before),
            env={"PATH": f"{self._bin}:/usr/bin:/bin", "ROOT": str(self.root)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        return [" ".join(line.split()[:2]) for line in (self.root / "calls").read_text().splitlines()]


def run(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("/bin/sh", str(home / "environment"), *words),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def python(home: Path, version: str) -> str:
    """An interpreter that says that it is of this version, and makes environments that have a pip."""
    path = home / "python3"
    path.write_text(
        "#!/bin/sh\n"
        f'case "$1" in -c) echo {version} ;;\n'
        '-m) shift 3; mkdir -p "$1/bin"; printf \'#!/bin/sh\\ntouch "$(dirname "$0")/tpuwatch"\\n\' > "$1/bin/python"\n'
        'chmod +x "$1/bin/python" ;; esac\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_one_and_may_be_run(script: Path) -> None:
    subprocess.run(("/bin/sh", "-n", str(script)), check=True, timeout=60)
    assert os.access(script, os.X_OK)


def test_the_configuration_of_the_package_is_valid_and_sets_nothing() -> None:
    assert load_config(DEB / "config.toml", {}).model_fields_set <= {"source"}


def test_a_python_without_wheels_is_named(home: Path) -> None:
    done = run(home, "make", PYTHON=python(home, "3.14"))
    assert done.returncode == 1
    assert "no wheels for Python 3.14" in done.stderr


def test_an_environment_is_made_once_and_taken_into_use(home: Path) -> None:
    (home / "wheels/requirements-3.12.lock").touch()
    assert run(home, "make", PYTHON=python(home, "3.12")).returncode == 0
    made = home / "environments/1.2-3-python3.12"
    assert not (home / "current").exists()
    assert run(home, "use", PYTHON=python(home, "3.12")).returncode == 0
    assert (home / "current").resolve() == made
    assert (made / "bin/tpuwatch").exists()
    (made / "bin/tpuwatch").unlink()
    assert run(home, "make", PYTHON=python(home, "3.12")).returncode == 0
    assert not (made / "bin/tpuwatch").exists()


def test_an_environment_that_was_left_half_is_made_again(home: Path) -> None:
    (home / "wheels/requirements-3.12.lock").touch()
    left = home / "environments/1.2-3-python3.12"
    (left / "bin").mkdir(parents=True)
    (left / "half").touch()
    assert run(home, "make", PYTHON=python(home, "3.12")).returncode == 0
    assert (left / "complete").exists()
    assert not (left / "half").exists()


def test_environments_that_nothing_uses_are_removed(home: Path) -> None:
    for name in ("current-one", "old", "used"):
        (home / "environments" / name).mkdir(parents=True)
    (home / "current").symlink_to("environments/current-one")
    used = subprocess.Popen(("/usr/bin/tail", "-f", "/dev/null", "--", str(home / "environments/used/bin/python")))
    try:
        assert run(home, "clean").returncode == 0
        assert {path.name for path in (home / "environments").iterdir()} == {"current-one", "used"}
    finally:
        used.kill()
        used.wait()
    assert run(home, "clean").returncode == 0
    assert {path.name for path in (home / "environments").iterdir()} == {"current-one"}


def test_a_version_that_refuses_the_configuration_is_not_taken_into_use(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    assert installed.configure().returncode == 0
    assert installed.calls[-2:] == ["deb-systemd-invoke start", "environment clean"]
    installed.config.write_text("wrong = true\n")
    refused = installed.configure("0.1-1")
    assert refused.returncode != 0
    assert installed.calls == ["systemd-sysusers tpuwatch.conf", "environment make", "environment check"]
    assert "config.toml" in refused.stderr
    assert "sudo dpkg --configure tpuwatch" in refused.stderr
    installed.config.write_text("right = true\n")
    assert installed.configure("0.1-1").returncode == 0
    assert "environment use" in installed.calls
    assert installed.calls[-2:] == ["deb-systemd-invoke restart", "environment clean"]


def test_a_first_installation_beside_a_wrong_configuration_has_the_commands_and_no_service(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    installed.config.parent.mkdir(parents=True)
    installed.config.write_text("wrong = true\n")
    assert installed.configure().returncode != 0
    assert "environment use" in installed.calls
    assert not any("invoke" in call for call in installed.calls)


def test_a_configuration_is_checked_by_the_environment_of_this_version(home: Path) -> None:
    (home / "wheels/requirements-3.12.lock").touch()
    interpreter = python(home, "3.12")
    assert run(home, "make", PYTHON=interpreter).returncode == 0
    program = home / "environments/1.2-3-python3.12/bin/tpuwatch"
    program.write_text('#!/bin/sh\necho "$@"\nexit 2\n')
    program.chmod(0o755)
    done = run(home, "check", "/etc/tpuwatch/config.toml", PYTHON=interpreter)
    assert (done.returncode, done.stdout) == (2, "config check --config /etc/tpuwatch/config.toml\n")
