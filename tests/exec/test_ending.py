"""What is decided after a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.tune.recorded import NOW, launch, record
from tpuwatch.exec.beginning import Beginning
from tpuwatch.exec.ending import calls_for_another, decide, decided_since
from tpuwatch.model import Outcome
from tpuwatch.tune.model import Decision, Plan, Step
from tpuwatch.tune.plan import Given, read_plan, write_plan
from tpuwatch.tune.records import write_record

if TYPE_CHECKING:
    from pathlib import Path


def test_the_generation_that_the_plan_knew_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[tune]\ndir = "{tmp_path}/none"\nlog_dir = "{tmp_path}/logs"\n')
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    told = launch(chip_kind="", premapped_bytes=None, premapped_failures=0, faults={}, exit_status=0)
    write_record(tmp_path, record(told, exit_status=0, causes=()))
    before = Plan("train", NOW - 500, (), Decision(Step.START, None, None, ("It starts.",)), "", "v4")
    begun = Beginning("a1b2c3", "train", {}, Given({}), before, tmp_path, own=True, notes=())
    plan = decide(begun, config)
    assert (plan.generation, plan.decision.step, plan.decision.before_bytes) == ("v4", Step.KEEP, 0)
    assert read_plan(tmp_path, "train") == plan


def test_what_the_daemon_decided_meanwhile_is_read_and_what_stood_before_is_not(tmp_path: Path) -> None:
    before = Plan("train", NOW - 500, (), Decision(Step.START, None, None, ("It starts.",)))
    begun = Beginning("a1b2c3", "train", {}, Given({}), before, tmp_path, own=False, notes=())
    assert decided_since(begun) is None
    write_plan(tmp_path, before)
    assert decided_since(begun) is None
    after = replace(before, decided=NOW - 1)
    write_plan(tmp_path, after)
    assert decided_since(begun) == after
    assert decided_since(begun._replace(plan=None)) is None  # nothing was tuned


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
    assert calls_for_another((launch(**fields),)) is calls
