"""The signal of the Cloud TPU API: state and health of all watched nodes, by one list per zone and poll.

Where only the own node is watched it is asked for by itself: the list of a zone has thousands.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tpuwatch.core import Pacing, format_time
from tpuwatch.google import ApiError, NodeConverter, short_name
from tpuwatch.model import Answer, CloudNode, Identity, Problem, QueuedResource, Signal
from tpuwatch.signals.cloud_memory import CloudMemory
from tpuwatch.signals.queued_resources import ASK_SECONDS, ListedNodes, QueuedResources
from tpuwatch.signals.watch import Watch, watches

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from tpuwatch.config import CloudConfig
    from tpuwatch.core import Clock
    from tpuwatch.google import ApiFault, CloudClient
    from tpuwatch.signals.sources import SignalSources


# While a connection is open gRPC's threads wake several times a second. Over a rest of this length that costs more than
# a new connection does.
CLOSE_SECONDS: Final = 10.0
_CALLS_PER_ZONE: Final = 6  # a token, a node and a list of v2alpha1, the same of v2, a list of queued resources
_NO_NODE: Final = (Problem.NOT_FOUND, Problem.DENIED)  # after these of GetNode the list says what holds
_OFF: Final = "The Cloud TPU API is not asked: `enabled` under [cloud] is false."
_NOWHERE: Final = (
    "It is not known where to ask the Cloud TPU API: no {lacking} is configured, and the metadata server reported none."
    " Set `project` and `zone` under [cloud]."
)
_NOTHING: Final = (
    "There is no node to ask the Cloud TPU API for: the metadata server knows none that this machine belongs to, as "
    "it is with TPUs made through Compute Engine or GKE, and `nodes` under [cloud] names none. Name those to watch "
    "there."
)


class CloudSignal:
    """Asks one server of the Cloud TPU API. Used from one thread; `answers` may be read from any, `close` called."""

    def __init__(
        self,
        cloud: CloudConfig,
        identity: Callable[[], Identity],
        *,
        clock: Clock,
        rng: random.Random,
        on_call: Callable[[str, str], None],
        memory: CloudMemory | None = None,
        resets: bool = False,
    ) -> None:
        """`identity` returns who this machine is, as far as known. Calls `on_call` with the method and code of a call.

        With a `memory` it is known since when nodes have been in a state that an earlier run saw. `resets`: tpuwatch
        may have queued resources reset, for which it has to know their other nodes.
        """
        self.answers: Mapping[str, Answer[CloudNode]] = {}  # by label, of all watched nodes, after each ask
        # Nodes that are listed and not watched, of the queued resources of watched ones: a reset would restart them.
        self.beside: tuple[CloudNode, ...] = ()
        self.queued: Mapping[str, Answer[QueuedResource]] = {}  # by label, of those that are not listed as READY
        self.queued_resources: Mapping[str, tuple[QueuedResource, ...]] = {}  # by zone, where they are known
        self._cloud = cloud
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._on_call = on_call
        self._memory = memory
        self._resets = resets
        self._client: CloudClient | None = None
        self._closed = False
        self._zones: dict[tuple[str, str], CloudZone] = {}

    @property
    def due_in(self) -> float:
        """Seconds until the next zone is to be asked."""
        return min((zone.pacing.due_in for zone in self._zones.values()), default=self._cloud.poll_seconds)

    @property
    def server_epoch(self) -> float | None:
        """The service's time at the zero of the monotonic clock; None before an answer of it that has a date."""
        return self._client.server_epoch if self._client is not None else None

    @property
    def breaker_notice(self) -> str:
        """A notice of open circuit breakers: a sentence per zone, or ""."""
        zones = sorted(self._zones.values(), key=lambda zone: zone.watch.zone)
        notices = ((zone.watch.where, zone.pacing.breaker_notice) for zone in zones)
        return " ".join(f"{where}: {notice}" for where, notice in notices if notice)

    def ask(self) -> Answer[tuple[CloudNode, ...]]:
        """Return all watched nodes in the last good lists. `problem` is that of the first zone that failed.

        Asks the zones that are due. If none is, asks all except those that must wait after a fault.
        """
        if not self._cloud.enabled:
            return Answer(problem=Problem.OFF, detail=_OFF)
        watched = watches(self._cloud.nodes, self._identity())
        placed = [watch for watch in watched if watch.placed]
        self._follow(placed)
        for zone in self._due():
            if not self._closed:
                zone.poll(self._connected())
        if self._client is not None and self.due_in >= CLOSE_SECONDS:
            self._client.close()
        answers = dict(answer for zone in self._zones.values() for answer in zone.answers())
        answers.update(self._unplaced(watched))
        self.answers = answers
        self.beside = tuple(node for zone in self._zones.values() for node in zone.beside)
        self.queued = dict(queued for zone in self._zones.values() for queued in zone.queued())
        known = {zone.watch.zone: zone.queued_resources for zone in self._zones.values()}
        self.queued_resources = {zone: found for zone, found in known.items() if found is not None}
        if self._memory is not None:
            self._memory.keep(node for zone in self._zones.values() for node in zone.nodes.values())
        return self._summary(watched)

    def close(self) -> None:
        """Cancel calls in progress, close the connection, and make no more. May be called from any thread.

        The thread that is asking calls this once more when it is done.
        """
        self._closed = True
        if self._client is not None:
            self._client.end()

    def _follow(self, placed: list[Watch]) -> None:
        """Have a zone for each watch, and keep the state of zones that stay."""
        zones = {}
        own = self._identity().node.value
        alone = len(placed) == 1 and placed[0].names == {own} and not placed[0].patterns
        for watch in placed:
            key = (watch.project, watch.zone)
            zone = self._zones.get(key)
            if zone is None or zone.alone is not alone:
                zone = CloudZone(
                    watch,
                    interval=self._cloud.poll_seconds,
                    clock=self._clock,
                    rng=self._rng,
                    memory=self._memory,
                    alone=alone,
                    resets=self._resets,
                )
            zones[key] = zone
            zone.follow(watch)
        self._zones = zones

    def _due(self) -> list[CloudZone]:
        zones = [zone for zone in self._zones.values() if zone.pacing.due_in <= 0]
        zones = zones or [zone for zone in self._zones.values() if not zone.pacing.held]
        return sorted(zones, key=lambda zone: zone.pacing.failures)  # those that may hang come last

    def _connected(self) -> CloudClient:
        if self._client is None:
            from tpuwatch.google import CloudClient  # it brings Google's packages along

            self._client = CloudClient(self._cloud, clock=self._clock, on_call=self._on_call)
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


class CloudZone:
    """Polls one zone. A fault here has no bearing on other zones."""

    def __init__(
        self,
        watch: Watch,
        *,
        interval: float,
        clock: Clock,
        rng: random.Random,
        memory: CloudMemory | None = None,
        alone: bool = False,
        resets: bool = False,
    ) -> None:
        """`alone`: its only watched node is the own one, and no other zone is watched. `resets`: see CloudSignal."""
        self.watch = watch
        self.alone = alone
        self.pacing = Pacing(interval, clock=clock, rng=rng)
        self.nodes: dict[str, CloudNode] = {}  # in the last good list, by short name: those that are watched
        self._by_text: dict[bytes, CloudNode] = {}  # the same by their text in that list
        self.beside: tuple[CloudNode, ...] = ()  # in it, not watched, and of the queued resource of one that is
        self.listed: float | None = None  # when that was
        self.problem: Problem | None = Problem.UNCONFIGURED  # of the latest attempt
        self.detail = "It has not been asked for yet."
        self._failed_last = False  # the latest attempt gave no list at all
        self.tried: float | None = None  # when it was last asked
        self._lost: dict[str, Answer[CloudNode]] = {}  # watched nodes that the latest list should have had and had not
        self._queued = QueuedResources(clock, always=not alone)
        self._queued_by_node: dict[str, Answer[QueuedResource]] = {}  # of nodes that are lost, or not READY
        self._clock = clock
        self._memory = memory
        self._resets = resets
        self._polled_at = -math.inf  # by the monotonic clock, when the latest poll began
        self._listed_at = -math.inf  # by the monotonic clock, when the zone was last listed, and not only its node
        self._denied_at = -math.inf  # when GetNode was last denied

    def follow(self, watch: Watch) -> None:
        """Watch these nodes of the zone from now on."""
        if watch != self.watch:
            self.watch = watch
            self.nodes = {name: node for name, node in self.nodes.items() if watch.has(name)}
            self._lost = {name: lost for name, lost in self._lost.items() if watch.has(name)}
            self._by_text = {}
            self._queued = QueuedResources(self._clock, always=not self.alone)
            self.pacing.hasten()

    def poll(self, client: CloudClient) -> None:
        """List the zone's nodes once, page by page, or get the only one that counts."""
        self.tried = self._clock.time()
        watch = self.watch
        converter = NodeConverter(watch.project, watch.zone, self.tried)
        seen: dict[str, CloudNode] = {}
        by_text: dict[bytes, CloudNode] = {}
        others: list[tuple[str, Any]] = []  # not watched, and of a queued resource
        unnamed, unreachable = 0, 0
        try:
            for page in self._pages(client):
                unreachable += len(page.unreachable)
                for raw in page.nodes:
                    text = raw.SerializeToString()
                    if (node := self._by_text.get(text)) is None:  # else it is as it was: of a fleet most nodes are
                        name = short_name(raw.name)
                        unnamed += not name
                        if not name or not watch.has(name):
                            if raw.queued_resource:
                                others.append((name, raw))
                            continue
                        last = self._last(name).value
                        node = converter.convert(raw, name, last or self._stored(name), looked=last is not None)
                    by_text[text] = node
                    twin = seen.get(node.name)
                    if twin is None or twin.ill:  # of one that is listed twice the better word counts
                        seen[node.name] = node
        except ApiError as error:
            self._failed(error.fault)
            return
        self.pacing.succeeded()
        self._by_text = by_text
        incomplete = _incomplete(watch, unnamed, unreachable)
        queues = {node.queued_resource for node in (*seen.values(), *self.nodes.values())} - {""}
        beside = {
            name: converter.convert(raw, name, None)
            for name, raw in others
            if raw.queued_resource.rpartition("/")[2] in queues
        }
        if incomplete:  # one that it lacks is not known to be gone
            beside = {node.name: node for node in self.beside if not watch.has(node.name)} | beside
        if self._listed_at == self._polled_at:
            self.beside = tuple(beside.values())
        self._listed(seen, seen.keys() | {name for name, _ in others}, client, incomplete)

    def _pages(self, client: CloudClient) -> Iterator[Any]:
        """The zone's nodes in pages; where only the own node counts, and it is there, one page with it alone."""
        self._polled_at, watch = self._clock.monotonic(), self.watch
        if self._own_is_enough():
            (name,) = watch.names
            try:
                node = client.get_node(watch.project, watch.zone, name)
            except ApiError as error:
                if error.fault.problem not in _NO_NODE:
                    raise
                if error.fault.problem is Problem.DENIED:
                    self._denied_at = self._polled_at
            else:
                yield _OneNode((node,))
                return
        yield from client.list_nodes(watch.project, watch.zone)
        self._listed_at = self._polled_at

    def _own_is_enough(self) -> bool:
        """Return whether the node alone tells all that counts; then the zone is not listed.

        A lost node is looked for in the list, as are the nodes that a reset of the queued resource would restart.
        """
        if not self.alone or self._lost or self._polled_at - self._denied_at < ASK_SECONDS:
            return False
        slices = self._resets and any(node.hosts > 1 and node.queued_resource for node in self.nodes.values())
        return not slices or self._polled_at - self._listed_at < ASK_SECONDS

    def answers(self) -> Iterator[tuple[str, Answer[CloudNode]]]:
        """Yield the answer for each watched node, by its label."""
        label, faulty = self.watch.label, self.problem if self._failed_last else None
        for name, node in self.nodes.items():
            yield label(name), Answer(node, self.listed, faulty, self.detail if faulty else "", self.tried)
        for name, lost in self._lost.items():
            yield label(name), replace(lost, problem=faulty, detail=self.detail, tried=self.tried) if faulty else lost
        for name in self.watch.names - self.nodes.keys() - self._lost.keys():
            problem = self.problem or Problem.UNCONFIGURED
            yield label(name), Answer(problem=problem, detail=self.detail, tried=self.tried)

    def queued(self) -> Iterator[tuple[str, Answer[QueuedResource]]]:
        """Yield the answer on the queued resource of each node that is lost, or not READY, or whose queued resource is
        not ACTIVE, by the node's label."""
        for name, answer in self._queued_by_node.items():
            yield self.watch.label(name), answer

    @property
    def queued_resources(self) -> tuple[QueuedResource, ...] | None:
        """Those that make, made or name a watched node; None while they are not listed."""
        return self._queued.known(self.watch)

    def _last(self, name: str) -> Answer[CloudNode]:
        """A node as it was seen last, and when."""
        if name in self.nodes:
            return Answer(self.nodes[name], self.listed)
        return self._lost.get(name, Answer())

    def _stored(self, name: str) -> CloudNode | None:
        """A node as an earlier run stored it."""
        return None if self._memory is None else self._memory.node(self.watch.project, self.watch.zone, name)

    def _failed(self, fault: ApiFault) -> None:
        throttled = self.pacing.interval if fault.problem is Problem.THROTTLED else None
        self.pacing.failed(throttled if fault.retry_after is None else fault.retry_after)
        self._failed_last = True
        self.problem = fault.problem
        self.detail = " ".join(filter(None, (fault.sentence, self.pacing.breaker_notice)))

    def _listed(
        self,
        seen: dict[str, CloudNode],
        names: AbstractSet[str],
        client: CloudClient,
        incomplete: tuple[Problem, str] | None,
    ) -> None:
        """Take over a list, with the `names` in it. Nodes that are missing from an incomplete one may be there."""
        watch = self.watch
        missing = set(watch.names - seen.keys())
        if incomplete:
            missing |= (self.nodes.keys() | self._lost.keys()) - seen.keys()
        else:
            last_seen = {name: self._last(name).value for name in missing}
            queues = {name: node.queued_resource if node else "" for name, node in last_seen.items()}
            ready = {name for name, node in seen.items() if node.state == "READY"}
            self._queued.ask(client, watch, ListedNodes(names, queues, ready, _by_queue(seen.values())))
            missing |= self._queued.awaited(watch)
        lost, queued = {}, {}
        for name in sorted(missing):
            last = self._last(name)
            queued[name] = self._queued.answer(name, last.value.queued_resource if last.value else "")
            problem, detail = incomplete or (Problem.GONE, _gone(watch, name, last, queued[name].value))
            lost[name] = Answer(last.value, last.at, problem, detail, self.tried)
        changing = {one.name for one in self.queued_resources or () if one.state != "ACTIVE"}
        for name, node in seen.items():
            if node.queued_resource and (not node.runs or node.queued_resource in changing):
                queued[name] = self._queued.answer(name, node.queued_resource)
        self._lost, self._queued_by_node, self._failed_last = lost, queued, False
        self.nodes, self.listed = seen, self.tried
        self.problem, self.detail = incomplete or (None, "")


def _by_queue(nodes: Iterable[CloudNode]) -> dict[str, tuple[str, ...]]:
    """The names of nodes that a queued resource made, by its name."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if node.queued_resource:
            found.setdefault(node.queued_resource, []).append(node.name)
    return {queue: tuple(sorted(names)) for queue, names in found.items()}


class _OneNode(NamedTuple):
    """A page with one node."""

    nodes: tuple[Any, ...]
    unreachable: tuple[str, ...] = ()


def _incomplete(watch: Watch, unnamed: int, unreachable: int) -> tuple[Problem, str] | None:
    """Return why a list does not have all nodes; None if it does."""
    if unreachable:
        text = f"The Cloud TPU API could not reach all of {watch.where}: its list may lack nodes. It is asked again."
        return Problem.UNREACHABLE, text
    if unnamed:
        text = f"The Cloud TPU API listed {unnamed} nodes of {watch.where} without a name that can be read."
        return Problem.SERVER, f"{text} It is asked again."
    return None


def _gone(watch: Watch, name: str, last: Answer[CloudNode], queued: QueuedResource | None) -> str:
    node = last.value
    also = f" Its queued resource {queued.name} is {queued.state}." if queued else ""
    if node is not None:
        when = format_time(last.at or 0.0)
        text = f"The Cloud TPU API lists the node {name} in {watch.where} no more; it was last seen at {when}"
        return f"{text}, {node.state}.{also} If it is not to come back, take it out of `nodes` under [cloud]."
    text = f"The Cloud TPU API lists no node {name} in {watch.where}.{also}"
    if queued is not None:
        return text
    return (
        f"{text} Check the name and the zone (`gcloud compute tpus tpu-vm list --zone={watch.zone} "
        f"--project={watch.project}`), or take it out of `nodes` under [cloud]."
    )


def start(sources: SignalSources) -> None:
    """Add the source that asks the Cloud TPU API for the watched nodes."""
    cloud, node = sources.config.cloud, sources.metrics.node
    memory = CloudMemory(sources.store, sources.metrics.daemon.count_store_error)
    source = CloudSignal(
        cloud,
        sources.identity,
        on_call=node.count_api_request,
        memory=memory,
        clock=sources.clock,
        rng=sources.rng,
        resets=sources.config.restart.resets,
    )

    def on_answer(answer: Answer[tuple[CloudNode, ...]]) -> None:
        if sources.peers is not None and sources.peers.follow(source.answers, sources.snapshot):
            sources.wake("peer")
        queued = {"queued": source.queued, "queued_resources": source.queued_resources}
        seen = {"cloud": source.answers, "beside": source.beside, **queued}
        sources.post(Signal.CLOUD, answer.counted(), **seen)
        sources.post_server_epoch(source.server_epoch)
        node.set_api_breaker(bool(source.breaker_notice))

    zones = 1 + len({entry.rpartition("/")[0] for entry in cloud.nodes})
    calls = zones * _CALLS_PER_ZONE * cloud.timeout_seconds
    sources.add("cloud", source, cloud.poll_seconds, on_answer, after="identity", calls=calls)
