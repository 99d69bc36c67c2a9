"""What is decided after a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.tune.recorded import NOW, launch, record
from tpuwatch.exec.beginning import Beginning
from tpuwatch.exec.ending import decide
from tpuwatch.tune.model import Decision, Plan, Step
from tpuwatch.tune.plan import Given, read_plan
from tpuwatch.tune.records import write_record

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
