"""What is installed is what was tested: the built wheel holds all that the program needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuwatch import __version__

DEADLINE = 120.0
SHARE = Path("tpuwatch/share")
NAMED = ("config.example.toml", "docs/logs.md", "docs/operations.md", "systemd/tpuwatch-act.conf")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as a user's pip would build it."""
    directory = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory))
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=DEADLINE)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The wheel's content, where Python can import it."""
    directory = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory


def test_holds_every_file_of_the_package_and_nothing_else(installed: Path) -> None:
    ours = {path.relative_to(ROOT) for path in (ROOT / "tpuwatch").rglob("*") if path.is_file()}
    ours = {path for path in ours if "__pycache__" not in path.parts}
    packed = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    shared = {path.relative_to(SHARE) for path in packed if path.is_relative_to(SHARE)}
    assert {path for path in packed if path.parts[0] == "tpuwatch" and not path.is_relative_to(SHARE)} == ours
    pages = {path.relative_to(ROOT) for path in (ROOT / "docs").glob("*.md")}
    units = {path.relative_to(ROOT) for path in (ROOT / "systemd").iterdir()}
    assert shared == {*pages, *units, Path("config.example.toml")}
    beside = {path for path in packed if path.parts[0] != "tpuwatch"}
    (data,) = (path for path in beside if not path.parts[0].endswith(".dist-info"))
    assert data == Path(f"tpuwatch-{__version__}.data/data/share/man/man1/tpuwatch.1")  # beside bin/, where man looks


def test_what_a_message_names_is_there(installed: Path, tmp_path: Path) -> None:
    script = "import sys; from tpuwatch.core import installed; print(*map(installed, sys.argv[1:]), sep='\\n')"
    done = subprocess.run(
        (sys.executable, "-c", script, *NAMED),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    for name, path in zip(NAMED, map(Path, done.stdout.splitlines()), strict=True):
        assert path.is_relative_to(installed)
        assert path.read_bytes() == (ROOT / name).read_bytes()


def test_carries_licence_command_and_readme(installed: Path) -> None:
    (info,) = installed.glob("*.dist-info")
    assert (info / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "tpuwatch = tpuwatch.cli.main:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text()
    assert "Requires-Python: >=3.10" in metadata
    assert "# tpuwatch" in metadata
    core = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not [line for line in core if "tensorflow" in line]


def test_diagnoses_on_its_own(installed: Path, tmp_path: Path) -> None:
    text = "Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm. Exceeded hbm capacity by 4.25G."
    done = subprocess.run(
        (sys.executable, "-m", "tpuwatch", "diagnose", "--json"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    assert [finding["cause"] for finding in json.loads(done.stdout)["findings"]] == ["hbm_oom_compile"]
