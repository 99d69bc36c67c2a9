"""Which nodes count for a storm, and from how many on it is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.restart.policy_scenes import ALL_ON, cloud, judged
from tpuwatch.health.evidence import CloudNode
from tpuwatch.health.verdict import Verdict
from tpuwatch.restart.policy.storm import CALM_SECONDS, Crowd, Crowds, Peaks, crowds, is_bad, storm

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


def test_crowds_are_of_the_fleet_and_of_each_zone() -> None:
    well, sick = cloud(health="HEALTHY"), cloud()
    counted = crowds([("a", WELL, sick), ("a", WELL, well), ("b", WELL, well)])
    fleet = Crowd(3, 1)
    assert counted == {"a": Crowds(fleet, Crowd(2, 1)), "b": Crowds(fleet, Crowd(1, 0))}
    assert crowds([]) == {}


@pytest.mark.parametrize(
    ("fleet", "zone", "is_storm"),
    [
        (Crowd(100, 9), Crowd(100, 9), False),
        (Crowd(100, 10), Crowd(100, 10), True),
        (Crowd(1000, 20), Crowd(100, 10), True),
        (Crowd(1000, 20), Crowd(300, 20), False),
        (Crowd(4, 2), Crowd(4, 2), False),
        (Crowd(4, 3), Crowd(2, 2), True),
        (Crowd(0, 0), Crowd(0, 0), False),
    ],
)
def test_number_and_share_have_to_be_reached(fleet: Crowd, zone: Crowd, is_storm: bool) -> None:
    assert bool(storm(Crowds(fleet, zone), ALL_ON)) is is_storm


def test_a_share_of_nothing_leaves_the_number() -> None:
    assert storm(Crowds(Crowd(5000, 3), Crowd(5000, 3)), replace(ALL_ON, storm_percent=0.0))


def test_a_storm_that_passes_is_one_for_a_while_yet() -> None:
    peaks = Peaks()

    def seen(bad: int, now: float) -> int:
        (now_seen,) = peaks.over({"a": Crowds(Crowd(100, bad), Crowd(100, bad))}, now).values()
        assert now_seen.fleet == now_seen.zone
        return now_seen.zone.bad

    assert [seen(30, 0.0), seen(50, 100.0), seen(20, 200.0), seen(2, 300.0)] == [30, 50, 50, 50]
    assert seen(2, 100.0 + CALM_SECONDS) == 50
    assert seen(2, 101.0 + CALM_SECONDS) == 20
    assert seen(2, 201.0 + CALM_SECONDS) == 2
    assert seen(40, 202.0 + CALM_SECONDS) == 40
    assert seen(3, 0.0) == 3  # the clock was set back: what is ahead was not


def test_each_zone_has_its_own_peak_and_none_is_none() -> None:
    peaks = Peaks()
    assert peaks.over({}, 0.0) == {}
    peaks.over({"a": Crowds(Crowd(20, 9), Crowd(10, 9)), "b": Crowds(Crowd(20, 9), Crowd(10, 0))}, 0.0)
    later = peaks.over({"a": Crowds(Crowd(20, 1), Crowd(10, 0)), "b": Crowds(Crowd(20, 1), Crowd(10, 1))}, 60.0)
    assert later == {"a": Crowds(Crowd(20, 9), Crowd(10, 9)), "b": Crowds(Crowd(20, 9), Crowd(10, 1))}
