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


def run(home: Path, word: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("/bin/sh", str(home / "environment"), word),
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
