"""The queued resources of one zone, as far as they concern watched nodes. A part of the cloud's signal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.google import ApiError, convert_queued_resource
from tpuwatch.model import Answer, QueuedResource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from tpuwatch.core import Clock
    from tpuwatch.google import CloudClient
    from tpuwatch.signals.watch import Watch

ASK_SECONDS: Final = 300.0
KNOWN_SECONDS: Final = 660.0  # two times that, a little late: a list that is older shows nothing any more
LOST_LISTS: Final = 3  # lists of nodes in a row without a node before it counts as lost: it may be missing from one
_TWICE: Final = 2  # lists of queued resources in a row without one that a node names


@dataclass(frozen=True, slots=True)
class ListedNodes:
    """One complete list of the zone's nodes."""

    names: AbstractSet[str]
    missing: Mapping[str, str]  # watched nodes that are not in it, each with its queued resource, as far as known
    ready: AbstractSet[str]  # watched nodes that it shows as READY
    queues: Mapping[str, tuple[str, ...]]  # watched nodes in it, by their queued resource


class QueuedResources:
    """Asked for when a node goes missing, or has been made, and every five minutes while one is missing, or `always`.

    A fault keeps the last ones, with their time.
    """

    def __init__(self, clock: Clock, *, always: bool = False) -> None:
        self._clock = clock
        self._always = always
        self._asked = -math.inf
        self._wanted: frozenset[object] = frozenset()  # what they were last wanted for
        # Nodes of ACTIVE ones that are missing, and from how many lists in a row.
        self._absent: dict[tuple[str, str], int] = {}
        self._lost: frozenset[tuple[str, str]] = frozenset()  # those that are lost by a later list of queued resources
        self._unlisted: dict[str, int] = {}  # those that nodes name: from how many lists in a row they are missing
        self._nodes = ListedNodes(frozenset(), {}, frozenset(), {})
        self._last: Answer[tuple[QueuedResource, ...]] = Answer()

    def ask(self, client: CloudClient, watch: Watch, nodes: ListedNodes) -> None:
        """Take a list of nodes over. List the queued resources if a node is newly missing or lost, or it is time."""
        self._nodes = nodes
        active = [one for one in self._last.value or () if one.state == "ACTIVE"]
        absent = [(one.name, node) for one in active for node in one.nodes if node not in nodes.names]
        self._absent = {key: self._absent.get(key, 0) + 1 for key in absent}
        lost = frozenset(key for key, lists in self._absent.items() if lists >= LOST_LISTS)
        self._lost &= lost
        wanted: set[object] = set(nodes.missing)
        if self._always:
            wanted |= self._absent.keys() | {(*key, "lost") for key in lost} | self._arrived(nodes)
        now = self._clock.monotonic()
        due = wanted - self._wanted or ((self._always or wanted) and now - self._asked >= ASK_SECONDS)
        self._wanted = frozenset(wanted)
        if not due:
            return
        self._asked, tried = now, self._clock.time()
        try:
            found = tuple(zone_queued_resources(client, watch, {*nodes.queues, *nodes.missing.values()}))
        except ApiError as error:  # the call is counted
            self._last = replace(self._last, problem=error.fault.problem, detail=error.fault.sentence, tried=tried)
            return
        self._last, self._lost = Answer(found, tried, None, "", tried), lost
        unlisted = nodes.queues.keys() - {one.name for one in found}
        self._unlisted = {name: self._unlisted.get(name, 0) + 1 for name in unlisted}

    def known(self, watch: Watch) -> tuple[QueuedResource, ...] | None:
        """All of them, with those that nodes name and no list has; None while they are not listed, or not any more."""
        old = self._last.at is None or self._clock.time() - self._last.at > KNOWN_SECONDS
        if self._last.value is None or old or not (self._always or self._wanted):
            return None
        named = (
            QueuedResource(name, "", watch.project, watch.zone, nodes)
            for name, nodes in self._nodes.queues.items()
            if self._unlisted.get(name, 0) >= _TWICE
        )
        return (*map(self._with_lost, self._last.value), *named)

    def awaited(self, watch: Watch) -> set[str]:
        """The names of watched nodes that do not exist yet: a queued resource that waits makes them."""
        waiting = [one for one in self._last.value or () if one.waits]
        return {node for one in waiting for node in one.nodes if watch.has(node)} - self._nodes.names

    def answer(self, node: str, name: str) -> Answer[QueuedResource]:
        """The queued resource that makes the node, or had this name when the node was seen; one that waits, if any."""
        last = self._last
        made_by = [queued for queued in last.value or () if node in queued.nodes or queued.name == name]
        made_by.sort(key=lambda queued: (not queued.waits, queued.ended))
        return Answer(made_by[0] if made_by else None, last.at, last.problem, last.detail, last.tried)

    def _arrived(self, nodes: ListedNodes) -> set[tuple[str, str]]:
        """The READY nodes of queued resources that waited when they were last listed: by now they do not."""
        waiting = [one for one in self._last.value or () if one.waits]
        return {(one.name, node) for one in waiting for node in one.nodes if node in nodes.ready}

    def _with_lost(self, one: QueuedResource) -> QueuedResource:
        lost = tuple(node for node in one.nodes if one.state == "ACTIVE" and (one.name, node) in self._lost)
        return replace(one, lost=lost) if lost else one


def zone_queued_resources(client: CloudClient, watch: Watch, names: Collection[str] = ()) -> Iterator[QueuedResource]:
    """The queued resources of a zone that make watched nodes, or have one of these names. Raises ApiError."""
    for page in client.list_queued_resources(watch.project, watch.zone):
        for raw in page.queued_resources:
            one = convert_queued_resource(raw, watch.project, watch.zone)
            if one is not None and (one.name in names or any(map(watch.has, one.nodes))):
                yield one
