"""What is decided in each of many situations, and in which words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.tune import policy_table
from tests.tune.histories import BEGIN, GIB, HOST, MIB, gib, history, lacked, launch
from tests.tune.policy_table import Row
from tpuwatch.tune.model import Bounds, Decision, Step
from tpuwatch.tune.planform import SUMS_VARIABLE
from tpuwatch.tune.policy import decide

TABLES = ("START", "GROW", "STUCK", "BACK", "SHRINK", "PINNED", "KEEP")
ROWS = [pytest.param(row, id=f"{name}-{row.id}") for name in TABLES for row in getattr(policy_table, name)]


def decided(row: Row) -> Decision:
    return decide(history(*row.launches), row.host, Bounds(**row.bounds))


@pytest.mark.parametrize("row", ROWS)
def test_the_decision(row: Row) -> None:
    decision = decided(row)
    size, threshold = decision.size_bytes, decision.threshold_bytes
    told = decision.step, None if size is None else size / GIB, None if threshold is None else threshold / GIB
    assert told == (row.step, row.size, row.threshold), decision.reasons
    assert row.says in " ".join(decision.reasons)
    assert row.conflict in decision.conflict
    assert bool(row.conflict) == bool(decision.conflict)


@pytest.mark.parametrize("row", ROWS)
def test_reasons_are_whole_sentences(row: Row) -> None:
    decision = decided(row)
    assert decision.reasons
    for sentence in (*decision.reasons, *filter(None, [decision.conflict])):
        assert sentence[0].isupper() or sentence[0].isdigit()
        assert sentence.endswith(".")
        assert ".." not in sentence


def test_each_situation_is_there_once() -> None:
    assert len({param.id for param in ROWS}) == len(ROWS) >= 40


def test_a_failure_is_told_with_its_numbers() -> None:
    one = lacked(0.25, 572 / 1024, 0.5)
    one.started = BEGIN - 1200
    decision = decide([one], HOST, Bounds())
    assert decision.reasons == (
        "The launch of 14:02 UTC asked for 512 MiB where 196 MiB were free, in a buffer of 256 MiB: 572 MiB are "
        "needed; with 25 % headroom and rounded that is 768 MiB.",
    )
    assert decision.size_bytes == 768 * MIB
    assert decision.need_bytes == 572 * MIB
    assert decision.before_bytes == 256 * MIB


def test_what_rests_on_the_launches_is_told() -> None:
    decision = decide(history(launch(8, 10.0), launch(16, 18.0)), HOST, Bounds())
    assert decision.ceiling_bytes == 40 * GIB
    assert decision.fit is not None
    assert decision.fast_bytes == pytest.approx(13 * GIB)
    assert decision.need_bytes is None


def test_what_still_comes_up_in_time_is_what_the_reasons_say() -> None:
    first = lacked(None, 9, 2, seconds=24.0, faults={"metadata_unreachable": 1.0, "premapped_exhausted": 90.0})
    decision = decide(history(first, launch(11.25, 24.0)), HOST, Bounds())
    assert decision.fit is None
    assert (decision.fast_bytes, "no more than 7 GiB" in decision.conflict) == (7 * GIB, True)


def test_a_size_is_on_trial_until_it_has_been_tried() -> None:
    first = history(lacked(4, 6, 3))
    assert decide(first, HOST, Bounds()).trial
    assert not decide(history(*first, launch(7.5)), HOST, Bounds()).trial
    assert not decide([], HOST, Bounds()).trial
    back = decide(history(launch(16, 17.0), lacked(8, 9, 1)), HOST, Bounds())
    assert (back.step, back.trial) == (Step.BACK, False)


def test_a_pinned_size_is_judged_all_the_same() -> None:
    pins = {"TPU_PREMAPPED_BUFFER_SIZE": str(gib(4))}
    decision = decide(history(lacked(4, 6, 3)), HOST, Bounds(pins=pins))
    assert decision.step is Step.PINNED
    assert decision.need_bytes == 6 * GIB
    assert any("6 GiB are needed" in reason for reason in decision.reasons)


def test_what_would_help_is_told_with_its_source() -> None:
    decision = decide(history(lacked(20, 50)), HOST, Bounds())
    assert decision.step is Step.STUCK
    assert [one.source.startswith("https://") for one in decision.advice] == [True, True]


def test_it_is_light_to_import() -> None:
    heavy = ("pydantic", "prometheus_client", "hyperscan", "grpc", "sqlite3", "asyncio")
    code = f"import sys, tpuwatch.tune.policy; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_size_that_was_changed_after_tpuwatch_had_set_it_is_the_operators() -> None:
    ours = launch(1)
    changed = launch(1)
    changed.environment = {**changed.environment, SUMS_VARIABLE: "00000000"}  # of another value
    assert decide([ours], HOST, Bounds()).step is Step.KEEP
    made = decide([changed], HOST, Bounds())
    assert (made.step, made.size_bytes) == (Step.START, None)
