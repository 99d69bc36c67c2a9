"""Intervals of figures that rest on a number of events, which come independently of each other. Pure.

The interval of a rate is Garwood's, which is exact: between the rates at which so many events or more, and so many or
fewer, have a probability of 2.5 %. In terms of chi-squared it is from χ²(2k)/2 to χ²(2k + 2)/2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tpuwatch.model import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ENOUGH: Final = 3  # events, from which an interval is shown
_TAIL: Final = 0.025  # on each side
_TURNS: Final = 100  # of the bisection


def expected_events(count: int) -> tuple[float, float]:
    """The least and the greatest mean number of events at which `count` of them are no surprise, with 95 %."""
    low = _where(lambda mean: 1.0 - _at_most(count - 1, mean) < _TAIL, count) if count else 0.0
    return low, _where(lambda mean: _at_most(count, mean) > _TAIL, count)


def time_between(seconds: float, count: int) -> Estimate:
    """The mean time between `count` events, one or more, in so many seconds."""
    if count < ENOUGH:
        return Estimate(seconds / count)
    low, high = expected_events(count)
    return Estimate(seconds / count, seconds / high, seconds / low)


def mean_duration(durations: Sequence[float]) -> Estimate:
    """The mean of one or more durations. The interval is that of a mean whose durations are exponential."""
    count, whole = len(durations), sum(durations)
    if count < ENOUGH:
        return Estimate(whole / count)
    return Estimate(whole / count, whole / expected_events(count - 1)[1], whole / expected_events(count)[0])


def share_up(seconds: float, lost_seconds: float, count: int) -> Estimate:
    """One less the lost share of the time. Interval: with more or fewer events, each of which costs the same."""
    lost = lost_seconds / seconds
    if count < ENOUGH:
        return Estimate(1.0 - lost)
    low, high = expected_events(count)
    return Estimate(1.0 - lost, max(0.0, 1.0 - lost * high / count), 1.0 - lost * low / count)


def _at_most(count: int, mean: float) -> float:
    """The probability of no more than `count` events."""
    if count < 0:
        return 0.0
    if mean <= 0:
        return 1.0
    return min(1.0, sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)))


def _where(is_below: Callable[[float], bool], count: int) -> float:
    """The mean at which a condition ends that holds for all below it."""
    low, high = 0.0, 20.0 + 3.0 * count
    for _ in range(_TURNS):
        middle = (low + high) / 2
        if is_below(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2
