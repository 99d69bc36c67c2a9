"""Slow-downs are told, and loops that are well are not called slow: counts on real and on simulated step times."""

from __future__ import annotations

import pytest

from tests.proof.pace.evaluate import (
    REAL,
    faults,
    healthy,
    real_alarms,
    real_explained,
    real_planted,
    recall,
    table,
)

needs_runs = pytest.mark.skipif(not REAL.is_file(), reason=f"the real step times are not beside the repository: {REAL}")


@needs_runs
def test_no_alarm_in_real_runs_without_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    blocks, found = real_alarms()
    with capsys.disabled():
        print(f"\nreal runs without schedules: {len(found)} alarms in {blocks} blocks")
    assert found == []


@needs_runs
@pytest.mark.parametrize("each", [1, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize(("size", "share"), [(0.05, 0.75), (0.07, 0.97), (0.10, 0.97), (0.15, 0.99), (0.25, 0.99)])
def test_slow_downs_planted_into_real_runs_are_told(
    size: float, share: float, each: int, capsys: pytest.CaptureFixture[str]
) -> None:
    result = real_planted(size, each)
    with capsys.disabled():
        print(f"\nplanted {result}")
    assert result.told >= share * result.number
    assert result.off < 6


@needs_runs
@pytest.mark.long
def test_another_run_of_the_program_explains_its_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    counts = real_explained()
    with capsys.disabled():
        print(f"\nreal runs with schedules: {dict(counts)}")
    assert counts["left"] <= 0.02 * counts["alarms"]


def test_simulated_faults_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    results = faults(range(100_000, 100_060), 1.5)
    with capsys.disabled():
        print(f"\n{table(results)}\nfrom 5 %: {recall(results, 0.05)}, from 10 %: {recall(results, 0.10)}")
    told, number = recall(results, 0.05)
    assert told >= 0.90 * number
    assert sum(one.false for one in results) <= 0.05 * told


def test_simulated_loops_that_are_well_are_not_called_slow(capsys: pytest.CaptureFixture[str]) -> None:
    result = healthy(range(200_000, 200_003), 30.0)
    with capsys.disabled():
        print(f"\n{result}")
    assert result.counts["false"] <= 1, result.false


@pytest.mark.long
def test_recall_and_precision_on_many_faults(capsys: pytest.CaptureFixture[str]) -> None:
    results = faults(range(300_000, 300_600), 1.5)
    false = sum(one.false for one in results)
    from_five, from_ten = recall(results, 0.05), recall(results, 0.10)
    with capsys.disabled():
        print(f"\n{table(results)}\nfrom 5 %: {from_five}, from 10 %: {from_ten}, false before the onset: {false}")
    assert from_five[0] >= 0.90 * from_five[1]
    assert from_ten[0] >= 0.97 * from_ten[1]
    assert from_five[0] >= 0.95 * (from_five[0] + false)


@pytest.mark.long
def test_false_alarms_in_a_hundred_node_months(capsys: pytest.CaptureFixture[str]) -> None:
    result = healthy(range(400_000, 400_120), 30.0)
    with capsys.disabled():
        print(f"\n{result}\n" + "\n".join(result.false))
    assert result.rate <= 0.15
