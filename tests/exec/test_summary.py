"""What `tpuwatch exec` says after the command's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuwatch.exec.beginning import Beginning
from tpuwatch.exec.ending import End, launches_of
from tpuwatch.exec.summary import findings_to_tell, tuning, undecided
from tpuwatch.tune.model import SIZE, THRESHOLD, Decision, Plan, Setting, Step
from tpuwatch.tune.plan import Given


def _plan(**values: str) -> Plan:
    settings = tuple(Setting(name, value, "") for name, value in values.items())
    return Plan("job", 0.0, settings, Decision(Step.GROW, None, None, ("It was too small.",)))


def _begun(plan: Plan, environ: dict[str, str], given: dict[str, str]) -> Beginning:
    return Beginning("id", "job", environ, Given(given), plan, None, True, ())


def _end(status: int, *causes: str, oom: bool = False) -> End:
    return End(1, 0.0, 1.0, status, oom, {"findings": [{"cause": cause} for cause in causes]})


def test_nothing_is_said_where_the_next_launch_gets_the_same() -> None:
    plan = _plan(**{SIZE: "4096"})
    assert tuning(_begun(plan, {SIZE: "4096"}, {SIZE: "4096"}), plan) == []
    assert tuning(_begun(plan, {}, {}), None) == []


def test_a_change_is_said_with_what_there_was_and_why() -> None:
    given = {SIZE: "4096"}
    (line,) = tuning(_begun(_plan(**given), given, given), _plan(**{SIZE: str(6 << 30)}))
    assert line == (
        f"this launch had {SIZE}=4096, set by tpuwatch; the next one gets {SIZE}=6442450944 (6 GiB). It was too small."
    )


def test_the_operators_own_value_is_told_from_ours() -> None:
    (line,) = tuning(_begun(_plan(), {SIZE: "1"}, {}), _plan(**{SIZE: "8192"}))
    assert f"{SIZE}=1, your own" in line


def test_a_change_of_the_threshold_alone_is_said_too() -> None:
    (line,) = tuning(_begun(_plan(), {}, {}), _plan(**{THRESHOLD: "4096"}))
    assert line.startswith(f"the next one gets {THRESHOLD}=4096")
    (line,) = tuning(_begun(_plan(**{SIZE: "4096"}), {}, {}), _plan())
    assert line.startswith(f"the next one gets libtpu's own {SIZE}")


def test_what_the_daemon_is_to_decide_is_shown_by_a_command() -> None:
    begun = _begun(_plan(), {}, {})
    assert "by tpuwatch's daemon" in undecided(begun, None)
    assert "`tpuwatch tune --workload job` shows it" in undecided(begun, None)
    assert "`tpuwatch tune --workload job --config '/my own.toml'`" in undecided(begun, Path("/my own.toml"))


@pytest.mark.parametrize(
    ("end", "told"),
    [
        pytest.param(_end(0, "slow_init"), [], id="done"),
        pytest.param(_end(1, "slow_init"), ["slow_init"], id="failed"),
        pytest.param(_end(143, "interrupted", "hang"), ["hang"], id="ended by somebody"),
        pytest.param(End(1, 0.0, 1.0, 1, False, None), [], id="not read"),
    ],
)
def test_findings_are_for_those_whose_command_failed(end: End, told: list[str]) -> None:
    assert [finding["cause"] for finding in findings_to_tell(end)] == told


def test_a_kill_for_want_of_memory_is_a_fault_of_the_launch() -> None:
    launch = {"pid": 1, "started": 0.25, "outcome": "ok", "cause": None}
    end = End(1, 0.0, 1.0, 137, True, {"records": [launch]})
    (known,) = launches_of(_begun(_plan(), {"TPU_X": "1", "HOME": "/"}, {}), end)
    assert known.faults == {"host_oom": 0.75}
    assert (known.exit_status, known.ended, known.environment, known.workload) == (137, 1.0, {"TPU_X": "1"}, "job")
