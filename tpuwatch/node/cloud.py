"""The Cloud TPU API as a witness: state and health of all watched nodes, by one list per zone and poll."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.evidence import Answer, CloudNode, Identity, Problem
from tpuwatch.node.cloudzone import CloudZone
from tpuwatch.node.watchlist import Watch, watches

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.config.schema import Cloud
    from tpuwatch.node.cloudclient import CloudClient
    from tpuwatch.node.cloudmemory import CloudMemory

# While a connection is open gRPC's threads wake several times a second. Over a rest of this length that costs more than
# a new connection does.
LET_GO_SECONDS: Final = 10.0
_OFF: Final = "The Cloud TPU API is not asked: `enabled` under [cloud] is false."
_NOWHERE: Final = (
    "It is not known where to ask the Cloud TPU API: no {lacking} is configured, and the metadata server has told none."
    " Set `project` and `zone` under [cloud]."
)
_NOTHING: Final = (
    "There is no node to ask the Cloud TPU API for: the metadata server tells of none that this machine belongs to, as "
    "it is with TPUs made through Compute Engine, and `nodes` under [cloud] names none. Name those to watch there."
)


class CloudWitness:
    """Asks one server of the Cloud TPU API. Used from one thread; `answers` may be read from any, `close` called."""

    def __init__(
        self,
        cloud: Cloud,
        identity: Callable[[], Identity],
        *,
        clock: Clock,
        dice: random.Random,
        counted: Callable[[str, str], None],
        memory: CloudMemory | None = None,
    ) -> None:
        """`identity` tells who this machine is, as far as is known; `counted` is told method and code of each call.

        With a `memory` it is known from when on nodes are what an earlier run saw already.
        """
        self.answers: Mapping[str, Answer[CloudNode]] = {}  # by label, of all watched nodes, after each ask
        self._cloud = cloud
        self._identity = identity
        self._clock = clock
        self._dice = dice
        self._counted = counted
        self._memory = memory
        self._client: CloudClient | None = None
        self._closed = False
        self._zones: dict[tuple[str, str], CloudZone] = {}

    @property
    def due_in(self) -> float:
        """Seconds until the next zone is to be asked."""
        return min((zone.pacing.due_in for zone in self._zones.values()), default=self._cloud.poll_seconds)

    @property
    def story(self) -> str:
        """What a person should know of open circuit breakers: a sentence per zone, or ""."""
        zones = sorted(self._zones.values(), key=lambda zone: zone.watch.zone)
        return " ".join(f"{zone.watch.where}: {zone.pacing.story}" for zone in zones if zone.pacing.story)

    def ask(self) -> Answer[tuple[CloudNode, ...]]:
        """All watched nodes that are there, by their last good lists. `problem` is that of the first zone in trouble.

        Asks the zones that are due. If none is, all but those that a fault holds back: somebody wants to know.
        """
        if not self._cloud.enabled:
            return Answer(problem=Problem.OFF, detail=_OFF)
        watched = watches(self._cloud.nodes, self._identity())
        placed = [watch for watch in watched if watch.placed]
        self._follow(placed)
        for zone in self._due():
            if not self._closed:
                zone.poll(self._connected())
        if self._client is not None and self.due_in >= LET_GO_SECONDS:
            self._client.close()
        answers = dict(answer for zone in self._zones.values() for answer in zone.answers())
        answers.update(self._unplaced(watched))
        self.answers = answers
        if self._memory is not None:
            self._memory.keep(node for zone in self._zones.values() for node in zone.nodes.values())
        return self._summary(watched)

    def close(self) -> None:
        """Break off what is under way, let go of the connection, and ask no more. May be called from any thread.

        If one that asks is in the middle of it, it calls this once more afterwards.
        """
        self._closed = True
        if self._client is not None:
            self._client.end()

    def _follow(self, placed: list[Watch]) -> None:
        """Have a zone for each watch; what is known of a zone stays."""
        zones = {}
        for watch in placed:
            key = (watch.project, watch.zone)
            zones[key] = self._zones.get(key) or self._new_zone(watch)
            zones[key].follow(watch)
        self._zones = zones

    def _new_zone(self, watch: Watch) -> CloudZone:
        common: dict[str, Any] = {"interval": self._cloud.poll_seconds, "clock": self._clock, "dice": self._dice}
        if self._memory is None:
            return CloudZone(watch, **common)
        return CloudZone(watch, **common, recalled=functools.partial(self._memory.node, watch.project, watch.zone))

    def _due(self) -> list[CloudZone]:
        zones = [zone for zone in self._zones.values() if zone.pacing.due_in <= 0]
        zones = zones or [zone for zone in self._zones.values() if not zone.pacing.held]
        return sorted(zones, key=lambda zone: zone.pacing.failures)  # those that may hang come last

    def _connected(self) -> CloudClient:
        if self._client is None:
            from tpuwatch.node.cloudclient import CloudClient  # it brings Google's packages along

            self._client = CloudClient(self._cloud, clock=self._clock, counted=self._counted)
            if self._closed:
                self._client.end()
        return self._client

    def _unplaced(self, watched: tuple[Watch, ...]) -> dict[str, Answer[CloudNode]]:
        return {
            watch.label(name): Answer(problem=Problem.UNCONFIGURED, detail=_nowhere(watch), tried=self._clock.time())
            for watch in watched
            if not watch.placed
            for name in watch.names
        }

    def _summary(self, watched: tuple[Watch, ...]) -> Answer[tuple[CloudNode, ...]]:
        zones = list(self._zones.values())
        problem, detail = Problem.UNCONFIGURED, _NOTHING
        lacking = next((watch for watch in watched if not watch.placed), None)
        if lacking:
            detail = _nowhere(lacking)
        if not zones:
            return Answer(problem=problem, detail=detail, tried=self._clock.time())
        faulty = [zone for zone in zones if zone.problem is not None]
        listed = [zone.listed for zone in zones if zone.listed is not None]
        tried = [zone.tried for zone in zones if zone.tried is not None]
        value = tuple(node for zone in zones for node in zone.nodes.values()) if listed else None
        if faulty:
            problem, detail = faulty[0].problem or problem, " ".join(dict.fromkeys(zone.detail for zone in faulty))
        return Answer(
            value=value,
            at=min(listed, default=None),  # of the zone that has been silent for longest
            problem=problem if faulty or lacking else None,
            detail=detail if faulty or lacking else "",
            tried=max(tried, default=None),
        )


def _nowhere(watch: Watch) -> str:
    lacking = [name for name, value in (("project", watch.project), ("zone", watch.zone)) if not value]
    return _NOWHERE.format(lacking=" and no ".join(lacking))
