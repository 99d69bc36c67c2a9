"""The units that go with tuning: the drop-in of a job, and the timer that removes old logs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.systemd_units import installed, settings, takes_systemd, verify
from tpuwatch.cli.main import COMMANDS


@takes_systemd
@pytest.mark.parametrize(("more", "code"), [("", 0), ("Nonsense=1\n", 1)], ids=["as it is", "with nonsense"])
def test_systemd_takes_the_timer_and_its_service_without_a_word(tmp_path: Path, more: str, code: int) -> None:
    units = installed(tmp_path, "tpuwatch-prune.service", more), installed(tmp_path, "tpuwatch-prune.timer")
    assert verify(*units)[0] == code
    if not more:
        assert verify(*units) == (0, "")


@takes_systemd
@pytest.mark.parametrize(("more", "code"), [("", 0), ("Nonsense=1\n", 1)], ids=["as it is", "with nonsense"])
def test_systemd_takes_the_drop_in_of_a_job_without_a_word(tmp_path: Path, more: str, code: int) -> None:
    unit = tmp_path / "train.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    (tmp_path / "train.service.d").mkdir()
    installed(tmp_path / "train.service.d", "tpuwatch-job.conf", more)
    assert verify(unit)[0] == code


@takes_systemd
def test_the_sandbox_of_the_pruning_is_tight(tmp_path: Path) -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=40"]  # 4.0 of 10
    unit = installed(tmp_path, "tpuwatch-prune.service")
    result = subprocess.run([*words, str(unit)], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout[-300:]


def test_the_pruning_sees_all_processes_and_may_only_write_where_logs_are() -> None:
    service = settings("tpuwatch-prune.service", "Service")
    assert service["ExecStart"] == "/opt/tpuwatch/bin/tpuwatch tune --prune-logs"
    assert "tune" in COMMANDS
    assert (service["ProtectProc"], service["ProcSubset"], service["PrivateTmp"]) == ("default", "all", "no")
    assert (service["ProtectSystem"], service["ReadWritePaths"]) == ("strict", "/tmp")  # noqa: S108 (where libtpu writes)
    assert set(service["CapabilityBoundingSet"].split()) == {"CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SYS_PTRACE"}
    assert service["PrivateNetwork"] == "yes"
    assert settings("tpuwatch-prune.timer", "Timer")["OnCalendar"] == "daily"


def test_a_job_starts_where_there_is_no_plan_yet() -> None:
    assert settings("tpuwatch-job.conf", "Service") == {"EnvironmentFile": "-/var/lib/tpuwatch/tune/plans/default.env"}


def test_others_get_through_the_state_directory_and_see_nothing_of_it() -> None:
    service = settings("tpuwatch.service", "Service")
    assert (service["StateDirectoryMode"], service["UMask"]) == ("0711", "0077")
