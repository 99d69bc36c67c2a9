"""The units in systemd/: what systemd itself says of them, and what they let tpuwatch see and do."""

from __future__ import annotations

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuwatch.cli.main import COMMANDS

UNITS = ROOT / "systemd"
UNIT, ACT, HOLDERS, JOB = "tpuwatch.service", "tpuwatch-act.conf", "tpuwatch-holders.conf", "tpuwatch-job.conf"
PRUNE, TIMER = "tpuwatch-prune.service", "tpuwatch-prune.timer"
TMP = "/tmp"  # noqa: S108 (where libtpu has its logs and its lock file)
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
    text = (UNITS / name).read_text() if (UNITS / name).exists() else "[Service]\nExecStart=/bin/true\n"
    unit.write_text(text.replace("/opt/tpuwatch/bin/tpuwatch", str(program)) + more)
    if drop_in:
        (directory / f"{name}.d").mkdir()
        (directory / f"{name}.d" / "more.conf").write_text(drop_in)
    return unit


@takes_systemd
@pytest.mark.parametrize(
    ("unit", "drop_in"),
    [(UNIT, ""), (UNIT, ACT), (UNIT, HOLDERS), (PRUNE, ""), (TIMER, ""), ("train.service", JOB)],
    ids=lambda name: name or "alone",
)
def test_systemd_accepts_the_unit_and_nothing_that_it_does_not_know(tmp_path: Path, unit: str, drop_in: str) -> None:
    def verify(more: str) -> tuple[int, str]:
        """Exit status of systemd-analyze, and what it says."""
        place = tmp_path / f"with{len(more)}"
        place.mkdir()
        if unit == TIMER:
            installed(place, PRUNE)
        added = (UNITS / drop_in).read_text() + more if drop_in else ""
        path = installed(place, unit, "" if drop_in else more, drop_in=added)
        words = ["systemd-analyze", "verify", "--recursive-errors=yes", str(path)]
        result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return result.returncode, result.stderr

    assert verify("") == (0, "")
    code, words = verify("Nonsense=1\n")
    assert (code, "Nonsense" in words) == (1, True)


@takes_systemd
@pytest.mark.parametrize(("name", "most"), [(UNIT, 21), (PRUNE, 40)])  # tenths, of 10.0 for no sandbox at all
def test_the_sandbox_is_tight(tmp_path: Path, name: str, most: int) -> None:
    words = ["systemd-analyze", "security", "--offline=true", f"--threshold={most}"]
    unit = installed(tmp_path, name)
    result = subprocess.run([*words, str(unit)], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout[-300:]


def test_the_unit_leaves_visible_what_the_daemon_must_see() -> None:
    service = settings(UNIT)
    assert service["PrivateTmp"] == "no"  # /tmp/tpu_logs
    assert (service["ProtectProc"], service["ProcSubset"]) == ("default", "all")  # who holds the TPU
    assert "DynamicUser" not in service  # it forces PrivateTmp
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"] == "CAP_DAC_READ_SEARCH"  # logs of root
    assert "ReadWritePaths" not in service
    assert service["RestartPreventExitStatus"] == "2"


def test_others_get_through_the_state_directory_and_see_nothing_of_it() -> None:
    service = settings(UNIT)
    assert (service["StateDirectoryMode"], service["UMask"]) == ("0711", "0077")


def test_to_see_the_devices_of_others_takes_one_more_capability() -> None:
    added = settings(HOLDERS)
    assert added.pop("SystemCallFilter").startswith("~")  # it forbids more, and allows nothing
    assert added == {"AmbientCapabilities": "CAP_SYS_PTRACE", "CapabilityBoundingSet": "CAP_SYS_PTRACE"}
    assert "PTRACE" not in (UNITS / UNIT).read_text()


def test_to_act_takes_more_capabilities_and_to_write_to_tmp_alone() -> None:
    added = settings(ACT)
    assert added["AmbientCapabilities"] == added["CapabilityBoundingSet"] == "CAP_KILL CAP_SYS_PTRACE CAP_FOWNER"
    assert added["ReadWritePaths"] == TMP
    before, after = (settings(name)["ReadOnlyPaths"].split() for name in (UNIT, ACT))
    assert [*after, TMP] == [*before[1:], before[0]]


def test_the_pruning_sees_all_processes_and_may_only_write_where_logs_are() -> None:
    service = settings(PRUNE)
    assert service["ExecStart"] == "/opt/tpuwatch/bin/tpuwatch tune --prune-logs"
    assert "tune" in COMMANDS
    assert (service["ProtectProc"], service["ProcSubset"], service["PrivateTmp"]) == ("default", "all", "no")
    assert (service["ProtectSystem"], service["ReadWritePaths"]) == ("strict", TMP)
    assert set(service["CapabilityBoundingSet"].split()) == {"CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SYS_PTRACE"}
    assert service["PrivateNetwork"] == "yes"
    assert settings(TIMER, "Timer")["OnCalendar"] == "daily"


def test_a_job_starts_where_there_is_no_plan_yet() -> None:
    assert settings(JOB) == {"EnvironmentFile": "-/var/lib/tpuwatch/tune/plans/default.env"}
