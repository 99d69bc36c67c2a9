"""Which nodes count for a mass failure, and from how many on it is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.policy_scenes import ALL_ON, cloud, judged
from tpuwatch.model.signals import CloudNode
from tpuwatch.model.verdict import Verdict
from tpuwatch.restart.policy.mass_failure import (
    RECOVERY_SECONDS,
    BadCount,
    BadCounts,
    RecentPeaks,
    count_bad,
    is_bad,
    mass_failure,
)

WELL = judged(Verdict.HEALTHY)


@pytest.mark.parametrize(
    ("verdict", "node", "bad"),
    [
        (Verdict.NODE_STUCK, None, True),
        (Verdict.RUNTIME_STUCK, cloud(health="HEALTHY"), True),
        (Verdict.JOB_STUCK, cloud(health="HEALTHY"), True),
        (Verdict.UNKNOWN, cloud(), True),  # long before it settles into a verdict
        (Verdict.MAINTENANCE, cloud("REPAIRING"), True),
        (Verdict.UNKNOWN, cloud("UNKNOWN"), True),
        (Verdict.UNKNOWN, None, False),
        (Verdict.HEALTHY, cloud(health="HEALTHY"), False),
        (Verdict.STOPPED, cloud("STOPPED", "TIMEOUT"), False),
        (Verdict.PREEMPTED, cloud("PREEMPTED", ""), False),
        (Verdict.MAINTENANCE, cloud(health="UNHEALTHY_MAINTENANCE"), False),
    ],
)
def test_who_counts(verdict: Verdict, node: CloudNode | None, bad: bool) -> None:
    assert is_bad(judged(verdict), node) is bad


def test_counts_are_of_the_fleet_and_of_each_zone() -> None:
    well, sick = cloud(health="HEALTHY"), cloud()
    counted = count_bad([("a", WELL, sick), ("a", WELL, well), ("b", WELL, well)])
    fleet = BadCount(3, 1)
    assert counted == {"a": BadCounts(fleet, BadCount(2, 1)), "b": BadCounts(fleet, BadCount(1, 0))}
    assert count_bad([]) == {}


@pytest.mark.parametrize(
    ("fleet", "zone", "is_mass_failure"),
    [
        (BadCount(100, 9), BadCount(100, 9), False),
        (BadCount(100, 10), BadCount(100, 10), True),
        (BadCount(1000, 20), BadCount(100, 10), True),
        (BadCount(1000, 20), BadCount(300, 20), False),
        (BadCount(4, 2), BadCount(4, 2), False),
        (BadCount(4, 3), BadCount(2, 2), True),
        (BadCount(0, 0), BadCount(0, 0), False),
    ],
)
def test_number_and_share_have_to_be_reached(fleet: BadCount, zone: BadCount, is_mass_failure: bool) -> None:
    assert bool(mass_failure(BadCounts(fleet, zone), ALL_ON)) is is_mass_failure


def test_a_share_of_nothing_leaves_the_number() -> None:
    assert mass_failure(BadCounts(BadCount(5000, 3), BadCount(5000, 3)), replace(ALL_ON, storm_percent=0.0))


def test_a_mass_failure_that_passes_is_one_for_a_while_yet() -> None:
    peaks = RecentPeaks()

    def seen(bad: int, now: float) -> int:
        (now_seen,) = peaks.apply({"a": BadCounts(BadCount(100, bad), BadCount(100, bad))}, now).values()
        assert now_seen.fleet == now_seen.zone
        return now_seen.zone.bad

    assert [seen(30, 0.0), seen(50, 100.0), seen(20, 200.0), seen(2, 300.0)] == [30, 50, 50, 50]
    assert seen(2, 100.0 + RECOVERY_SECONDS) == 50
    assert seen(2, 101.0 + RECOVERY_SECONDS) == 20
    assert seen(2, 201.0 + RECOVERY_SECONDS) == 2
    assert seen(40, 202.0 + RECOVERY_SECONDS) == 40
    assert seen(3, 0.0) == 3  # the clock was set back: what is ahead was not


def test_each_zone_has_its_own_peak_and_none_is_none() -> None:
    peaks = RecentPeaks()
    assert peaks.apply({}, 0.0) == {}
    peaks.apply(
        {"a": BadCounts(BadCount(20, 9), BadCount(10, 9)), "b": BadCounts(BadCount(20, 9), BadCount(10, 0))}, 0.0
    )
    later = peaks.apply(
        {"a": BadCounts(BadCount(20, 1), BadCount(10, 0)), "b": BadCounts(BadCount(20, 1), BadCount(10, 1))}, 60.0
    )
    assert later == {"a": BadCounts(BadCount(20, 9), BadCount(10, 9)), "b": BadCounts(BadCount(20, 9), BadCount(10, 1))}
