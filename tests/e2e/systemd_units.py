"""The units in systemd/, and what systemd itself says of them."""

from __future__ import annotations

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.paths import ROOT

UNITS = ROOT / "systemd"
takes_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def settings(name: str, section: str = "Service") -> dict[str, str]:
    """A section of a unit or of a drop-in."""
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # systemd's keys are case-sensitive
    unit.read(UNITS / name)
    return dict(unit[section])


def installed(directory: Path, name: str, more: str = "", *, drop_in: str = "") -> Path:
    """A unit as it is on a machine that has tpuwatch in another place, with more lines, or with a drop-in."""
    program = directory / "tpuwatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = directory / name
    unit.write_text((UNITS / name).read_text().replace("/opt/tpuwatch/bin/tpuwatch", str(program)) + more)
    if drop_in:
        (directory / f"{name}.d").mkdir()
        (directory / f"{name}.d" / "more.conf").write_text(drop_in)
    return unit


def verify(*units: Path) -> tuple[int, str]:
    """Exit status of systemd-analyze, and what it says."""
    result = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=yes", *map(str, units)],  # noqa: S607 # wherever it is
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stderr
