"""Intervals of a number of events, against published tables."""

from __future__ import annotations

import pytest

from tpuwatch.goodput.poisson import expected_events, mean_duration, share_up, time_between
from tpuwatch.model.goodput import Estimate


@pytest.mark.parametrize(  # Garwood 1936, as every table of Poisson limits has them
    ("count", "low", "high"),
    [(0, 0.0, 3.689), (1, 0.02532, 5.572), (3, 0.6187, 8.767), (10, 4.795, 18.390), (100, 81.36, 121.63)],
)
def test_the_limits_of_a_number_of_events(count: int, low: float, high: float) -> None:
    assert expected_events(count) == pytest.approx((low, high), rel=2e-4, abs=1e-6)


@pytest.mark.parametrize("count", [1, 2])
def test_with_fewer_than_three_there_is_no_interval(count: int) -> None:
    assert time_between(100.0, count) == Estimate(100.0 / count)
    assert mean_duration([10.0] * count) == Estimate(10.0)
    assert share_up(100.0, 10.0, count) == Estimate(0.9)


def test_with_three_there_is_one() -> None:
    assert time_between(300.0, 3) == pytest.approx((100.0, 300 / 8.767, 300 / 0.6187), rel=1e-3)
    # of a mean of exponential durations: between 2S/χ²(6) at 97.5 % (14.449) and at 2.5 % (1.2373)
    assert mean_duration([5.0, 10.0, 15.0]) == pytest.approx((10.0, 60 / 14.449, 60 / 1.2373), rel=1e-3)
    assert share_up(100.0, 3.0, 3) == pytest.approx((0.97, 1 - 0.08767, 1 - 0.006187), rel=1e-3)


def test_a_share_is_never_below_nothing() -> None:
    assert share_up(100.0, 60.0, 3).low == 0.0
