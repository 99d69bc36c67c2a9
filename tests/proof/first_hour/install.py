"""The installation of a user: the wheel, in an environment that has nothing else than what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT


def install(environment: Path, scratch: Path) -> Path:
    """Build the wheel, put it into the environment, which has its requirements; return the directory of commands."""
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(scratch))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = scratch.glob("*.whl")
    python = environment / "bin" / "python"
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], cwd=scratch, check=True)
    where = "import tpuwatch; print(tpuwatch.__file__)"
    done = subprocess.run([python, "-I", "-c", where], cwd=scratch, check=True, capture_output=True, text=True)
    assert Path(done.stdout).is_relative_to(environment), done.stdout
    return environment / "bin"
