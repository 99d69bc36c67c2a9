"""The watched nodes of one zone: what the latest lists told, which of them are gone, and when to ask again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tpuwatch.health.evidence import Answer, CloudNode, Problem
from tpuwatch.node.apifaults import ApiError
from tpuwatch.node.cloudnode import Converter, short_name
from tpuwatch.node.pacing import Pacing
from tpuwatch.node.queued import QueuedResources

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tpuwatch.clock import Clock
    from tpuwatch.node.apifaults import Fault
    from tpuwatch.node.cloudclient import CloudClient
    from tpuwatch.node.watchlist import Watch


@dataclass(frozen=True, slots=True)
class _Lost:
    """A watched node that the latest list should have told of and did not."""

    node: CloudNode | None  # as it was seen last
    at: float | None
    problem: Problem
    detail: str


class CloudZone:
    """Asks for one zone. A fault here says nothing of other zones."""

    def __init__(
        self,
        watch: Watch,
        *,
        interval: float,
        clock: Clock,
        dice: random.Random,
        recalled: Callable[[str], CloudNode | None] = lambda _: None,
    ) -> None:
        """`recalled` tells what an earlier run knew of a node, by its short name."""
        self.watch = watch
        self.pacing = Pacing(interval, clock=clock, dice=dice)
        self.nodes: dict[str, CloudNode] = {}  # in the last good list, by short name: those that are watched
        self._words: dict[bytes, CloudNode] = {}  # the same by what stood in that list, word for word
        self.listed: float | None = None  # when that was
        self.problem: Problem | None = Problem.UNCONFIGURED  # of the latest attempt
        self.detail = "It has not been asked for yet."
        self._failed_last = False  # the latest attempt gave no list at all
        self.tried: float | None = None  # when it was last asked
        self._lost: dict[str, _Lost] = {}
        self._queued = QueuedResources(clock)
        self._clock = clock
        self._recalled = recalled

    def follow(self, watch: Watch) -> None:
        """Watch these nodes of the zone from now on."""
        if watch != self.watch:
            self.watch = watch
            self.nodes = {name: node for name, node in self.nodes.items() if watch.has(name)}
            self._lost = {name: lost for name, lost in self._lost.items() if watch.has(name)}
            self._words = {}
            self.pacing.hasten()

    def poll(self, client: CloudClient) -> None:
        """List the zone's nodes once, page by page."""
        self.tried = self._clock.time()
        watch = self.watch
        converter = Converter(watch.project, watch.zone, self.tried)
        seen: dict[str, CloudNode] = {}
        words: dict[bytes, CloudNode] = {}
        unnamed, unreachable = 0, 0
        try:
            for page in client.list_nodes(watch.project, watch.zone):
                unreachable += len(page.unreachable)
                for raw in page.nodes:
                    text = raw.SerializeToString()
                    if (node := self._words.get(text)) is None:  # else it is as it was: of a fleet most nodes are
                        name = short_name(raw.name)
                        unnamed += not name
                        if not name or not watch.has(name):
                            continue
                        last = self._last(name)[0]
                        node = converter.convert(raw, name, last or self._recalled(name), looked=last is not None)
                    seen[node.name] = words[text] = node
        except ApiError as error:
            self._failed(error.fault)
            return
        self.pacing.succeeded()
        self._words = words
        self._listed(seen, client, _incomplete(watch, unnamed, unreachable))

    def answers(self) -> Iterator[tuple[str, Answer[CloudNode]]]:
        """What is known of each watched node, by its label."""
        label, faulty = self.watch.label, self.problem if self._failed_last else None
        for name, node in self.nodes.items():
            yield label(name), Answer(node, self.listed, faulty, self.detail if faulty else "", self.tried)
        for name, lost in self._lost.items():
            problem, detail = (faulty, self.detail) if faulty else (lost.problem, lost.detail)
            yield label(name), Answer(lost.node, lost.at, problem, detail, self.tried)
        for name in self.watch.names - self.nodes.keys() - self._lost.keys():
            yield (
                label(name),
                Answer(problem=self.problem or Problem.UNCONFIGURED, detail=self.detail, tried=self.tried),
            )

    def _last(self, name: str) -> tuple[CloudNode | None, float | None]:
        """A node as it was seen last, and when."""
        if name in self.nodes:
            return self.nodes[name], self.listed
        lost = self._lost.get(name)
        return (lost.node, lost.at) if lost else (None, None)

    def _failed(self, fault: Fault) -> None:
        throttled = self.pacing.interval if fault.problem is Problem.THROTTLED else None
        self.pacing.failed(throttled if fault.retry_after is None else fault.retry_after)
        self._failed_last = True
        self.problem = fault.problem
        self.detail = " ".join(filter(None, (fault.sentence, self.pacing.story)))

    def _listed(self, seen: dict[str, CloudNode], client: CloudClient, incomplete: tuple[Problem, str] | None) -> None:
        """Take over a list that came. What an incomplete one does not tell of is not known to be gone."""
        missing = set(self.watch.names - seen.keys())
        if incomplete:
            missing |= (self.nodes.keys() | self._lost.keys()) - seen.keys()
        last = {name: self._last(name) for name in missing}
        queued = {} if incomplete or not missing else self._queued.told(client, self.watch)
        self._lost = {
            name: _Lost(node, at, *(incomplete or (Problem.GONE, _gone(self.watch, name, node, at, queued))))
            for name, (node, at) in sorted(last.items())
        }
        self._failed_last = False
        self.nodes, self.listed = seen, self.tried
        self.problem, self.detail = incomplete or (None, "")


def _incomplete(watch: Watch, unnamed: int, unreachable: int) -> tuple[Problem, str] | None:
    """Why a list does not tell of all nodes; None if it does."""
    if unreachable:
        text = f"The Cloud TPU API could not reach all of {watch.where}: its list may lack nodes. It is asked again."
        return Problem.UNREACHABLE, text
    if unnamed:
        text = f"The Cloud TPU API listed {unnamed} nodes of {watch.where} without a name that can be read."
        return Problem.SERVER, f"{text} It is asked again."
    return None


def _gone(watch: Watch, name: str, node: CloudNode | None, at: float | None, queued: dict[str, str]) -> str:
    queue = queued.get(name) or (queued.get(f"/{node.queued_resource}") if node else None)
    also = f" {queue}" if queue else ""
    if node is None:
        return (
            f"The Cloud TPU API lists no node {name} in {watch.where}.{also} Check the name and the zone (`gcloud "
            f"compute tpus tpu-vm list --zone={watch.zone} --project={watch.project}`), or take it out of `nodes` "
            "under [cloud]."
        )
    when = datetime.fromtimestamp(math.floor(at or 0.0), timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"The Cloud TPU API lists the node {name} in {watch.where} no more; it was last seen at {when}, {node.state}."
        f"{also} It was deleted, or preempted and removed: create it again, or take it out of `nodes` under [cloud]."
    )
