"""Storms: many nodes that are bad at once have one cause, and to restart them one by one makes it worse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.verdict import STUCK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.health.evidence import CloudNode
    from tpuwatch.health.verdict import Judgement
    from tpuwatch.restart.policy.settings import Settings

CALM_SECONDS: Final = 900.0
# Words of the cloud that count at once here, long before they make a verdict: a storm takes minutes to show.
_BAD_HEALTH: Final = frozenset({"TIMEOUT", "UNHEALTHY_TENSORFLOW", "DEPRECATED_UNHEALTHY"})
_BAD_STATES: Final = frozenset({"UNKNOWN", "REPAIRING"})


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many nodes are watched, and so many of them are bad now."""

    watched: int = 1
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Crowds:
    """All nodes that are watched, and those in one zone."""

    fleet: Crowd = Crowd()
    zone: Crowd = Crowd()


class Peaks:
    """How many nodes were bad at once of late. Kept in memory alone.

    When a storm passes, the last nodes that are still bad are few, and have been bad for long: they are on their way
    back like all others, and are given CALM_SECONDS for it.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}  # by zone: times, and how many were bad; "" is all zones

    def over(self, everywhere: dict[str, Crowds], now: float) -> dict[str, Crowds]:
        """The crowds as they are now, each with the most that were bad at once within CALM_SECONDS."""
        if not everywhere:
            return everywhere
        fleet = self._peak("", next(iter(everywhere.values())).fleet, now)
        return {zone: Crowds(fleet, self._peak(zone, one.zone, now)) for zone, one in everywhere.items()}

    def _peak(self, zone: str, crowd: Crowd, now: float) -> Crowd:
        # One that was passed by a later, larger number is no peak any more, so that the first is the largest.
        seen = [(at, bad) for at, bad in self._seen.get(zone, ()) if bad > crowd.bad and 0 <= now - at <= CALM_SECONDS]
        self._seen[zone] = [*seen, (now, crowd.bad)]
        return replace(crowd, bad=self._seen[zone][0][1])


def crowds(nodes: Iterable[tuple[str, Judgement, CloudNode | None]]) -> dict[str, Crowds]:
    """The crowds by zone, of all watched nodes: zone, verdict, and what the cloud says."""
    watched: dict[str, int] = {}
    bad: dict[str, int] = {}
    for zone, judgement, cloud in nodes:
        watched[zone] = watched.get(zone, 0) + 1
        bad[zone] = bad.get(zone, 0) + is_bad(judgement, cloud)
    fleet = Crowd(sum(watched.values()), sum(bad.values()))
    return {zone: Crowds(fleet, Crowd(watched[zone], bad[zone])) for zone in watched}


def is_bad(judgement: Judgement, cloud: CloudNode | None) -> bool:
    """Whether the node counts as bad here: stuck, or as good as. Stopped and preempted ones are no storm."""
    if judgement.verdict in STUCK:
        return True
    return cloud is not None and (
        cloud.state in _BAD_STATES or (cloud.state == "READY" and cloud.health in _BAD_HEALTH)
    )


def storm(crowds: Crowds, settings: Settings) -> str:
    """What is going on, as a sentence, if so many nodes are bad that nothing is to be restarted; else ""."""
    for crowd, where in ((crowds.zone, "in this zone"), (crowds.fleet, "that are watched")):
        if crowd.bad >= settings.storm_nodes and 100 * crowd.bad >= settings.storm_percent * crowd.watched:
            return (
                f"{crowd.bad} of the {crowd.watched} nodes {where} are or were bad at once, which has one cause for all"
            )
    return ""
