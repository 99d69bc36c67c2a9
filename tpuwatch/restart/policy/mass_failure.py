"""Mass failures: many nodes that are bad at once have one cause, and restarting them one by one makes it worse."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.model import STUCK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import CloudNode, Judgement
    from tpuwatch.restart.policy.settings import PolicySettings

RECOVERY_SECONDS: Final = 900.0
_BAD_STATES: Final = frozenset({"UNKNOWN", "REPAIRING"})


@dataclass(frozen=True, slots=True)
class BadCount:
    """The watched nodes, and those of them that are bad."""

    watched: int = 1
    bad: int = 0


@dataclass(frozen=True, slots=True)
class BadCounts:
    """All nodes that are watched, and those in one zone."""

    fleet: BadCount = BadCount()
    zone: BadCount = BadCount()


class RecentPeaks:
    """How many nodes were bad at once of late. Kept in memory alone.

    When a mass failure passes, the last nodes that are still bad are few, and have been bad for long: they recover like
    all others, and are given RECOVERY_SECONDS for it.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}  # by zone: times, and how many were bad; "" is all zones

    def apply(self, counts: dict[str, BadCounts], now: float) -> dict[str, BadCounts]:
        """The counts, each with the maximum that was bad at once within RECOVERY_SECONDS."""
        if not counts:
            return counts
        fleet = self._peak("", next(iter(counts.values())).fleet, now)
        return {zone: BadCounts(fleet, self._peak(zone, one.zone, now)) for zone, one in counts.items()}

    def _peak(self, zone: str, count: BadCount, now: float) -> BadCount:
        # One that was passed by a later, larger number is no peak any more, so that the first is the largest.
        seen = [
            (at, bad) for at, bad in self._seen.get(zone, ()) if bad > count.bad and 0 <= now - at <= RECOVERY_SECONDS
        ]
        self._seen[zone] = [*seen, (now, count.bad)]
        return replace(count, bad=self._seen[zone][0][1])


def count_bad(nodes: Iterable[tuple[str, Judgement, CloudNode | None]]) -> dict[str, BadCounts]:
    """Count by zone, of all watched nodes, given as zone, judgement and the cloud's answer."""
    watched, bad = Counter[str](), Counter[str]()
    for zone, judgement, cloud in nodes:
        watched[zone] += 1
        bad[zone] += is_bad(judgement, cloud)
    fleet = BadCount(sum(watched.values()), sum(bad.values()))
    return {zone: BadCounts(fleet, BadCount(watched[zone], bad[zone])) for zone in watched}


def is_bad(judgement: Judgement, cloud: CloudNode | None) -> bool:
    """Whether the node counts as bad here: stuck, or as good as. Stopped and preempted nodes do not count."""
    if judgement.verdict in STUCK:
        return True
    # The cloud's word counts at once, long before it makes a verdict: a mass failure takes minutes to show.
    return cloud is not None and (cloud.state in _BAD_STATES or cloud.ill)


def mass_failure(bad_counts: BadCounts, settings: PolicySettings) -> str:
    """Why nothing may be restarted, as a clause, if too many nodes are bad; else ""."""
    for count, where in ((bad_counts.zone, "in this zone"), (bad_counts.fleet, "that are watched")):
        if count.bad >= settings.storm_nodes and 100 * count.bad >= settings.storm_percent * count.watched:
            return (
                f"{count.bad} of the {count.watched} nodes {where} are or were bad at once, which has one cause for all"
            )
    return ""
