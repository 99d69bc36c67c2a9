"""What is decided after a run."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tune.recorded import NOW, launch, record
from tests.unit.web import samples
from tests.unit.whole_text import findings_in, matches_in
from tpuwatch.exec import ending, next_launch
from tpuwatch.exec.ending import conclude, config_trouble
from tpuwatch.exec.found import NOTHING, FoundDocument
from tpuwatch.exec.messages import PREFIX
from tpuwatch.exec.next_launch import (
    await_answer,
    decide,
    decided_since,
    needs_decision,
    tuning_lines,
    undecided_message,
)
from tpuwatch.exec.oom_finding import with_oom_finding
from tpuwatch.exec.preparation import PreparedRun
from tpuwatch.exec.recording import launches_of
from tpuwatch.exec.run_result import RunResult, findings_to_report
from tpuwatch.host.oom import OomKill, OomLimit
from tpuwatch.launches.exec_records import write_record
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause
from tpuwatch.model.documents.logs import FindingDocument
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.tune import SIZE, THRESHOLD, SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.terminal.console import Console
from tpuwatch.terminal.findings import print_finding
from tpuwatch.tune.environment import LaunchEnvironment
from tpuwatch.tune.plan import read_plan, write_plan

KILL = OomKill(OomLimit.CGROUP, "/sys/fs/cgroup/train/memory.events", 1, "/train", "/train", 1 << 30)


def test_the_generation_that_the_plan_knew_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[tune]\ndir = "{tmp_path}/none"\nlog_dir = "{tmp_path}/logs"\n')
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    one = launch(chip_kind="", premapped_bytes=None, premapped_failures=0, faults={}, exit_status=0)
    write_record(tmp_path, record(one, exit_status=0, causes=()))
    before = TunePlan("train", NOW - 500, (), SizeDecision(SizeStep.START, None, None, ("It starts.",)), "", "v4")
    prepared = PreparedRun("a1b2c3", "train", {}, LaunchEnvironment({}), before, tmp_path, own=True, notes=())
    plan = decide(prepared, config)
    assert (plan.generation, plan.decision.step, plan.decision.before_bytes) == ("v4", SizeStep.KEEP, 0)
    assert read_plan(tmp_path, "train") == plan


def test_a_configuration_that_is_wrong_elsewhere_is_said_in_one_line(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[cloud]\npoll_seconds = "often"\ncolour = "red"\n')
    trouble = config_trouble(config)
    assert trouble.startswith(f"{config}: cloud.")
    assert trouble.endswith(" (1 more). `tpuwatch config check` shows it; the command ran all the same.")
    config.write_text("")
    assert config_trouble(config) == ""


def test_without_a_usable_configuration_the_defaults_decide(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[tune\n")
    one = launch(chip_kind="TPU v4", premapped_bytes=None, premapped_failures=0, faults={}, exit_status=0)
    write_record(tmp_path, record(one, exit_status=0, causes=()))
    prepared = PreparedRun("a1", "train", {}, LaunchEnvironment({}), None, tmp_path, True, (), usable_config=False)
    assert decide(prepared, config).workload == "train"


def test_what_the_daemon_decided_meanwhile_is_read_and_what_stood_before_is_not(tmp_path: Path) -> None:
    before = TunePlan("train", NOW - 500, (), SizeDecision(SizeStep.START, None, None, ("It starts.",)))
    prepared = PreparedRun("a1b2c3", "train", {}, LaunchEnvironment({}), before, tmp_path, own=False, notes=())
    assert decided_since(prepared) is None
    write_plan(tmp_path, before)
    assert decided_since(prepared) is None
    after = replace(before, decided=NOW - 1)
    write_plan(tmp_path, after)
    assert decided_since(prepared) == after
    assert decided_since(prepared._replace(plan=None)) is None  # nothing was tuned


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        pytest.param({"faults": {"premapped_exhausted": 1.0}}, True, id="no room"),
        pytest.param({"faults": {"host_oom": 1.0}}, True, id="no memory"),
        pytest.param({"faults": {}, "outcome": Outcome.SLOW}, True, id="slow"),
        pytest.param({"faults": {"hang": 1.0}}, False, id="something else"),
        pytest.param({"faults": {}}, False, id="well"),
    ],
)
def test_only_what_tuning_answers_calls_for_another_buffer(fields: dict[str, Any], calls: bool) -> None:
    assert needs_decision((launch(**fields),)) is calls


def _plan(**values: str) -> TunePlan:
    settings = tuple(VariableSetting(name, value, "") for name, value in values.items())
    return TunePlan("job", 0.0, settings, SizeDecision(SizeStep.GROW, None, None, ("It was too small.",)))


def _begun(plan: TunePlan, environ: dict[str, str], given: dict[str, str]) -> PreparedRun:
    return PreparedRun("id", "job", environ, LaunchEnvironment(given), plan, None, True, ())


def _end(status: int, *causes: str) -> RunResult:
    plain = FindingDocument.of(samples.finding())
    return RunResult(
        1, 0.0, 1.0, status, None, replace(NOTHING, findings=tuple(replace(plain, cause=one) for one in causes))
    )


def test_nothing_is_printed_where_the_next_launch_gets_the_same() -> None:
    plan = _plan(**{SIZE: "4096"})
    assert tuning_lines(_begun(plan, {SIZE: "4096"}, {SIZE: "4096"}), plan) == []
    assert tuning_lines(_begun(plan, {}, {}), None) == []


def test_a_change_is_printed_with_what_there_was_and_why() -> None:
    given = {SIZE: "4096"}
    (line,) = tuning_lines(_begun(_plan(**given), given, given), _plan(**{SIZE: str(6 << 30)}))
    assert line == (
        f"this launch had {SIZE}=4096, set by tpuwatch; the next one gets {SIZE}=6442450944 (6 GiB). It was too small."
    )


def test_the_operators_own_value_is_distinguished_from_ours() -> None:
    (line,) = tuning_lines(_begun(_plan(), {SIZE: "1"}, {}), _plan(**{SIZE: "8192"}))
    assert f"{SIZE}=1, your own" in line


def test_a_change_of_the_threshold_alone_is_printed_too() -> None:
    (line,) = tuning_lines(_begun(_plan(), {}, {}), _plan(**{THRESHOLD: "4096"}))
    assert line.startswith(f"the next one gets {THRESHOLD}=4096")
    (line,) = tuning_lines(_begun(_plan(**{SIZE: "4096"}), {}, {}), _plan())
    assert line.startswith(f"the next one gets libtpu's own {SIZE}")


def test_what_the_daemon_is_to_decide_is_shown_by_a_command() -> None:
    prepared = _begun(_plan(), {}, {})
    assert "by tpuwatch's daemon" in undecided_message(prepared, None)
    assert "`tpuwatch tune --workload job` shows it" in undecided_message(prepared, None)
    assert "`tpuwatch tune --workload job --config '/my own.toml'`" in undecided_message(prepared, Path("/my own.toml"))


@pytest.mark.parametrize(
    ("end", "causes"),
    [
        pytest.param(_end(0, "slow_init"), [], id="done"),
        pytest.param(_end(1, "slow_init"), ["slow_init"], id="failed"),
        pytest.param(_end(143, "interrupted", "hang"), ["hang"], id="ended by a user"),
        pytest.param(RunResult(1, 0.0, 1.0, 1, None, None), [], id="not read"),
    ],
)
def test_findings_are_for_those_whose_command_failed(end: RunResult, causes: list[str]) -> None:
    assert [finding.cause for finding in findings_to_report(end)] == causes


def test_a_kill_for_want_of_memory_is_a_fault_of_the_launch() -> None:
    started = Launch(pid=1, started=0.25, outcome=Outcome.OK)
    end = RunResult(1, 0.0, 1.0, 137, KILL, replace(NOTHING, records=(started,)))
    (known,) = launches_of(_begun(_plan(), {"TPU_X": "1", "HOME": "/"}, {}), end)
    assert known.faults == {"host_oom": 0.75}
    assert (known.exit_status, known.ended, known.environment, known.workload) == (137, 1.0, {"TPU_X": "1"}, "job")


@pytest.mark.parametrize("limit", OomLimit)
@pytest.mark.parametrize("found", [None, NOTHING], ids=["not read", "read"])
def test_a_kill_that_the_kernel_counted_is_a_finding(limit: OomLimit, found: FoundDocument | None) -> None:
    prepared = _begun(_plan(), {}, {})._replace(command=("/usr/bin/python3", "train.py"))
    end = with_oom_finding(prepared, RunResult(7, 0.0, 1.0, 137, replace(KILL, limit=limit), found, by_signal=True))
    (finding,) = findings_to_report(end)
    assert finding.cause == "host_oom"
    assert {"killed_pid": 7, "process": "python3"}.items() <= finding.details.items()
    assert finding.first.rule == f"host-oom-{limit.value}".replace("unknown", "kernel")


def test_of_a_kill_whose_report_was_in_the_output_that_is_the_finding() -> None:
    plain = FindingDocument.of(samples.finding(samples.event(Cause.HOST_OOM), details={}))
    told, hang = replace(plain, details={"killed_pid": 7}), replace(plain, cause="hang")
    end = RunResult(7, 0.0, 1.0, 137, KILL, replace(NOTHING, findings=(plain, hang, told)))
    assert findings_to_report(with_oom_finding(_begun(_plan(), {}, {}), end)) == [told, hang]


@pytest.mark.slow
def test_the_report_itself_is_no_failure() -> None:
    """Where the output of the job is followed, the report that follows its failure is in it."""
    scanner = Scanner(load_catalogue())
    read_again = 0
    for rule in scanner.catalogue.rules:
        for example in rule.examples:
            printed, findings = io.StringIO(), findings_in(example.encode(), scanner, "job.log")
            console = Console(printed, prefix=PREFIX, width=80)
            for number, finding in enumerate(findings, 1):
                print_finding(console, FindingDocument.of(finding), number=number)
            text = printed.getvalue()
            assert not matches_in(text.encode(), scanner, "job.log"), text
            read_again += bool(matches_in(text.replace(PREFIX, "").encode(), scanner, "job.log"))
    assert read_again > 20  # without the prefix many would be


EXHAUSTED = (
    b"Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate 544.00M. That "
    b"was not possible. There are 288.00M free.\n"
)


@pytest.mark.parametrize("own", [True, False], ids=["alone", "beside-a-daemon"])
def test_a_buffer_without_room_is_answered_with_the_number_that_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, own: bool
) -> None:
    (tmp_path / "c.toml").write_text(f'[tune]\ndir = "{tmp_path}/none"\nlog_dir = "{tmp_path}/logs"\n')
    scanner = Scanner(load_catalogue())
    findings = tuple(map(FindingDocument.of, findings_in(EXHAUSTED, scanner, "<stderr>", NOW)))
    failed = launch(premapped_need_bytes=17 << 28)
    found = replace(NOTHING, findings=findings, records=(failed,))
    before = TunePlan("train", NOW - 500, (), SizeDecision(SizeStep.START, None, None, ("It starts.",)))
    prepared = PreparedRun("a1b2c3", "train", {}, LaunchEnvironment({}), before, tmp_path, own=own, notes=())
    decision = SizeDecision(SizeStep.GROW, 11 << 29, None, ("The launch had no room.",))
    after = replace(before, decided=NOW, decision=decision, settings=(VariableSetting(SIZE, str(11 << 29), "Grown."),))

    def sleep(_: float) -> None:
        write_plan(tmp_path, after)  # the daemon's, a moment later

    monkeypatch.setattr(next_launch.time, "sleep", sleep)
    monkeypatch.setattr(ending, "decide", lambda *_: after)
    end = RunResult(failed.pid, NOW - 60, NOW - 10, 1, None, found)
    conclude(prepared, end, tmp_path / "c.toml", None)
    printed = " ".join(capsys.readouterr().err.replace(PREFIX, "").split())
    assert f"1. Raise TPU_PREMAPPED_BUFFER_SIZE to {11 << 29} (5.5 GiB), as a need of 4.25 GiB was seen" in printed
    assert "tpuwatch exec --workload train -- COMMAND" in printed
    assert "a multiple of 4096" not in printed
    assert f"the next one gets TPU_PREMAPPED_BUFFER_SIZE={11 << 29} (5.5 GiB)." in printed


def test_a_daemon_that_decides_nothing_is_waited_for_for_a_moment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = TunePlan("train", NOW - 500, (), SizeDecision(SizeStep.START, None, None, ("It starts.",)))
    prepared = PreparedRun("a1b2c3", "train", {}, LaunchEnvironment({}), before, tmp_path, own=False, notes=())
    slept: list[float] = []
    monkeypatch.setattr(next_launch.time, "sleep", slept.append)
    monkeypatch.setattr(next_launch.time, "monotonic", lambda: sum(slept))
    assert await_answer(prepared, [launch()]) is None
    assert sum(slept) == pytest.approx(4.0, abs=0.11)
