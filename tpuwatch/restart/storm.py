"""Storms: many nodes that are bad at once have one cause, and to restart them one by one makes it worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.health.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.health.evidence import CloudNode
    from tpuwatch.health.verdict import Judgement
    from tpuwatch.restart.settings import Settings

STUCK: Final = frozenset({Verdict.JOB_STUCK, Verdict.RUNTIME_STUCK, Verdict.NODE_STUCK})
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
            return f"{crowd.bad} of the {crowd.watched} nodes {where} are bad at once, which has one cause for all"
    return ""
