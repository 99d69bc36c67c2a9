"""The drop-in that lets the unit see other users' open devices, and no more than that."""

from __future__ import annotations

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

UNITS = Path(__file__).parent.parent / "systemd"
DROP_IN = UNITS / "tpuwatch-holders.conf"


def settings(path: Path) -> dict[str, str]:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # systemd's keys are case-sensitive
    unit.read(path)
    return dict(unit["Service"])


def verify(directory: Path, drop_in: str) -> tuple[int, str]:
    program = directory / "tpuwatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = directory / "tpuwatch.service"
    unit.write_text((UNITS / "tpuwatch.service").read_text().replace("/opt/tpuwatch/bin/tpuwatch", str(program)))
    (directory / "tpuwatch.service.d").mkdir()
    (directory / "tpuwatch.service.d" / "holders.conf").write_text(drop_in)
    result = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=yes", str(unit)],  # noqa: S607 # wherever the system has it
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_drop_in_without_a_word(tmp_path: Path) -> None:
    assert verify(tmp_path, DROP_IN.read_text()) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_does_read_the_drop_in(tmp_path: Path) -> None:
    code, words = verify(tmp_path, DROP_IN.read_text() + "Nonsense=1\n")
    assert (code, "Nonsense" in words) == (1, True)


def test_it_adds_one_capability_which_the_unit_itself_does_not_have() -> None:
    added = settings(DROP_IN)
    assert added.pop("SystemCallFilter").startswith("~")  # it forbids more, and allows nothing
    assert added == {"AmbientCapabilities": "CAP_SYS_PTRACE", "CapabilityBoundingSet": "CAP_SYS_PTRACE"}
    assert "PTRACE" not in (UNITS / "tpuwatch.service").read_text()
