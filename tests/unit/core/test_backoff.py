"""Tests of when a signal is asked next."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.core.backoff import JITTER, MAX_RETRY_AFTER, TRIP_AFTER, Pacing
from tpuwatch.core.clock import ManualClock

INTERVALS = st.floats(min_value=0.5, max_value=3600.0)
SEEDS = st.integers(min_value=0, max_value=2**32)
OUTCOMES = st.lists(st.one_of(st.none(), st.just(True), st.floats(min_value=0, max_value=5000)), max_size=60)


def pacing(interval: float = 30.0, seed: int = 0, max_pause: float | None = None) -> tuple[Pacing, ManualClock]:
    clock = ManualClock()
    return Pacing(interval, clock=clock, rng=random.Random(seed), max_pause=max_pause), clock


def fail(pace: Pacing, times: int) -> None:
    for _ in range(times):
        pace.failed()


def test_it_is_due_at_once_at_first() -> None:
    pace, _ = pacing()
    assert pace.due_in == 0.0
    assert not pace.held
    assert pace.breaker_notice == ""


@given(INTERVALS, SEEDS)
def test_an_interval_is_shortened_a_little_and_never_stretched(interval: float, seed: int) -> None:
    pace, _ = pacing(interval, seed)
    pace.succeeded()
    assert interval * (1 - JITTER) <= pace.due_in <= interval


def test_intervals_differ_from_each_other() -> None:
    pace, _ = pacing()
    seen = set()
    for _ in range(20):
        pace.succeeded()
        seen.add(pace.due_in)
    assert len(seen) == 20


def test_due_in_counts_down_with_the_clock_to_nothing() -> None:
    pace, clock = pacing()
    pace.succeeded()
    before = pace.due_in
    clock.advance(10)
    assert pace.due_in == pytest.approx(before - 10)
    clock.advance(100)
    assert pace.due_in == 0.0


def test_a_jump_of_the_wall_clock_changes_nothing() -> None:
    pace, clock = pacing()
    pace.succeeded()
    before = pace.due_in
    clock.wall += 86_400
    assert pace.due_in == before


@given(INTERVALS, SEEDS, st.integers(min_value=1, max_value=TRIP_AFTER - 1))
def test_the_bound_of_a_retry_doubles_with_each_failure(interval: float, seed: int, failures: int) -> None:
    pace, _ = pacing(interval, seed)
    fail(pace, failures)
    assert 0.0 <= pace.due_in <= interval / 16 * 2 ** (failures - 1)


def test_a_retry_takes_any_time_up_to_its_bound() -> None:
    delays = []
    for seed in range(400):
        pace, _ = pacing(16.0, seed)
        pace.failed()
        delays.append(pace.due_in)
    assert min(delays) < 0.05
    assert max(delays) > 0.95
    assert sum(delays) / len(delays) == pytest.approx(0.5, abs=0.05)


@given(INTERVALS, SEEDS, st.integers(min_value=1, max_value=3000), st.floats(min_value=1.0, max_value=1e5))
def test_no_pause_is_longer_than_the_longest(interval: float, seed: int, failures: int, max_pause: float) -> None:
    pace, _ = pacing(interval, seed, max_pause)
    fail(pace, failures)
    assert pace.due_in <= max_pause


def test_a_long_outage_is_not_asked_into_more_often_than_a_well_service() -> None:
    pace, clock = pacing(30.0)
    asked = 0
    while clock.monotonic() < 3600:
        asked += 1
        pace.failed()
        clock.advance(pace.due_in)
    assert asked <= 3600 / (30 * (1 - JITTER)) + TRIP_AFTER


@given(INTERVALS, SEEDS, st.floats(min_value=0.0, max_value=MAX_RETRY_AFTER), st.integers(1, 50))
def test_it_is_never_asked_sooner_than_the_server_allows(
    interval: float, seed: int, retry_after: float, failures: int
) -> None:
    pace, clock = pacing(interval, seed)
    fail(pace, failures - 1)
    pace.failed(retry_after)
    assert pace.due_in >= retry_after
    clock.advance(retry_after / 2)
    assert pace.held or retry_after == 0.0 or pace.due_in == 0.0


@pytest.mark.parametrize("absurd", [-5.0, math.nan, math.inf, -math.inf, 1e300])
def test_an_absurd_retry_after_neither_stops_nor_hastens_it(absurd: float) -> None:
    pace, _ = pacing(30.0)
    pace.failed(absurd)
    assert 0.0 <= pace.due_in <= MAX_RETRY_AFTER + 30.0


def test_the_breaker_opens_after_failures_in_a_row_and_notifies() -> None:
    pace, clock = pacing()
    fail(pace, TRIP_AFTER - 1)
    assert pace.breaker_notice == ""
    pace.failed()
    assert pace.held
    assert "circuit breaker is open" in pace.breaker_notice
    clock.advance(pace.due_in)
    assert not pace.held
    assert "circuit breaker is open" in pace.breaker_notice


def test_a_failed_trial_opens_it_again_for_longer_up_to_the_longest() -> None:
    pace, clock = pacing(30.0, max_pause=480.0)
    fail(pace, TRIP_AFTER)
    pauses = []
    for _ in range(8):
        pauses.append(pace.due_in)
        clock.advance(pace.due_in)
        assert not pace.held
        pace.failed()
        assert pace.held
    assert pauses[:6] == sorted(pauses[:6])
    for pause, bound in zip(pauses, [15, 30, 60, 120, 240, 480, 480, 480], strict=True):
        assert bound * (1 - JITTER) <= pause <= bound


def test_a_success_closes_it_and_forgets_the_failures() -> None:
    pace, clock = pacing(30.0)
    fail(pace, 20)
    clock.advance(pace.due_in)
    pace.succeeded()
    assert pace.breaker_notice == ""
    assert not pace.held
    pace.failed()
    assert pace.due_in <= 30.0 / 16


@given(INTERVALS, SEEDS, OUTCOMES)
def test_whatever_happens_it_stays_in_its_bounds(
    interval: float, seed: int, outcomes: list[bool | float | None]
) -> None:
    pace, clock = pacing(interval, seed)
    in_a_row = 0
    for outcome in outcomes:
        if outcome is True:
            pace.succeeded()
            in_a_row = 0
        else:
            pace.failed(outcome)
            in_a_row += 1
        assert pace.failures == in_a_row
        assert (pace.breaker_notice == "") == (in_a_row < TRIP_AFTER)
        allowed = interval + min(MAX_RETRY_AFTER, outcome if isinstance(outcome, float) else 0.0)
        assert 0.0 <= pace.due_in <= allowed
        clock.advance(pace.due_in / 2)
