"""The judge service: it judges each node, and reports what has changed.

Turns: the latest answers of all signals, once for each node.
Every: 5 s, and when the signals change; nodes that only the cloud reports on every 60 s.
Owns: the verdict that holds for each node, and the changes that the store has not taken yet.
Never: asks a signal itself, or acts on a verdict.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.core import StoreError, printable
from tpuwatch.health.facts import Facts
from tpuwatch.health.judge import following, judge_node, keep_last_known
from tpuwatch.health.queued_resources import judge_queued_resources
from tpuwatch.model import BAD, JudgedNode, Snapshot, split_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpuwatch.core import Clock
    from tpuwatch.health.limits import JudgeLimits
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Answer, CloudNode, Evidence, JudgedQueuedResource, Judgement
    from tpuwatch.store import EventStore

EVERY_SECONDS = 5.0  # time alone changes verdicts: a grace ends, an answer becomes stale
OTHERS_SECONDS = 60.0  # the same for nodes that only the cloud reports on, unless it answered again
MAX_CHANGES = 20  # of one node's verdict that are logged and stored within the time
MAX_CHANGES_SECONDS = 3600.0
_MAX_LOGGED = 20  # changes of verdict, and nodes no longer watched, that one turn writes to tpuwatch's log

_log = logging.getLogger(__name__)


class JudgeService:
    """Judges the snapshot, in one thread. `nodes` and `queued_resources` may be read from any: they are replaced, never
    changed."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        limits: JudgeLimits,
        store: EventStore,
        metrics: Metrics,
        clock: Clock,
        boot_id: str,
        first_wait: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`boot_id` is this boot of the machine: earlier verdicts have no bearing on what holds now. `first_wait`
        returns how long to wait for first answers of the signals, in seconds."""
        self.limits = limits
        self.nodes: tuple[JudgedNode, ...] = ()
        self.queued_resources: tuple[JudgedQueuedResource, ...] = ()
        self._snapshot = snapshot
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._boot_id = boot_id
        self._first_wait = first_wait
        self._on_verdicts: Callable[[], None] = lambda: None
        self._last: dict[str, Judgement] = self._stored_verdicts()  # by the signals' own answers, not the last known
        self._unseen: set[str] = set()  # the labels of nodes whose verdict is the last known one
        self._changes: dict[str, _Changes] = {}
        self._to_store: dict[str, Judgement] = {}  # the latest of each node that the store has not accepted yet
        self._to_log: list[Judgement] = []
        self._others: tuple[JudgedNode, ...] = ()
        self._others_by = Snapshot()  # the answers that they were judged by
        self._others_due = float("-inf")
        self._judged_at = clock.monotonic()  # when the latest turn began

    def subscribe(self, on_verdicts: Callable[[], None]) -> None:
        """Call `on_verdicts` after each turn that has judged, from the judge's thread. Replaces the last."""
        self._on_verdicts = on_verdicts

    def turn(self) -> float:
        """Judge all nodes once. Returns the seconds until the next turn is due without a change of the snapshot."""
        if (left := self._first_wait()) > 0:
            return left
        self._count_seconds()
        snapshot, now = self._snapshot(), self._clock.time()
        before = self._others_by
        same = snapshot.cloud is before.cloud and snapshot.peers is before.peers
        if not same or self._clock.monotonic() >= self._others_due:
            self._others_by, self._others_due = snapshot, self._clock.monotonic() + OTHERS_SECONDS
            self._others = tuple(self._judge(evidence) for evidence in snapshot.others(now))
            _log_unwatched(list(_unwatched(before.cloud, snapshot.cloud)))
        self.nodes = (self._judge(snapshot.evidence(now)), *self._others)
        queued = snapshot.queued_resources
        everywhere = (one for zone in queued.values() for one in zone)
        self.queued_resources = judge_queued_resources(everywhere, now, self.limits.request_wait_seconds)
        self._log_changes()
        self._forget_unwatched()
        self._metrics.node.set_nodes(self.nodes)
        self._metrics.node.set_queued_resources(self.queued_resources, sorted(queued))
        self._store_changes()
        self._on_verdicts()
        return EVERY_SECONDS

    def _count_seconds(self) -> None:
        """Until now the nodes were as the last turn judged them."""
        before, self._judged_at = self._judged_at, self._clock.monotonic()
        self._metrics.node.count_verdict_seconds(self.nodes, self._judged_at - before)

    def _judge(self, evidence: Evidence) -> JudgedNode:
        before, new = self._last.get(evidence.node), judge_node(evidence, self.limits)
        judgement = keep_last_known(before, new, evidence, self.limits) if before is not None else None
        if judgement is None or before is None:
            judgement = self._last[evidence.node] = following(before, new)
            self._unseen.discard(evidence.node)
            self._record(before, judgement)
        elif evidence.node not in self._unseen:
            self._unseen.add(evidence.node)
            self._to_store[evidence.node] = before  # the next run has to know when it was seen last
        cloud, (zone, name) = evidence.cloud.value, split_label(evidence.node)
        project = cloud.project if cloud else evidence.identity.project.value
        in_api = not evidence.own or bool(evidence.identity.node.value)
        node = JudgedNode(name, project, zone, evidence.own, judgement, cloud, evidence.peer.value, in_api=in_api)
        if not evidence.own and evidence.queued.value is None and (cloud is None or cloud.hosts == 1):
            return node  # most nodes of a fleet
        facts = Facts(evidence, self.limits)
        queued = facts.queued if facts.is_gone else None
        return replace(node, queued=queued, slice=facts.slice, failure=facts.failure)

    def _record(self, before: Judgement | None, now: Judgement) -> None:
        """Have a change of verdict logged and stored. Beyond the limit for one node it is only counted."""
        changes = self._changes.setdefault(now.node, _Changes())
        changed = before is None or before.verdict is not now.verdict
        if changed:
            self._metrics.node.count_verdict(now.verdict)
        if not changed and not changes.left_out:
            return
        recorded = changes.add(now, self._clock.monotonic(), changed=changed)
        if recorded is not None:
            self._to_log.append(recorded)
            self._to_store[recorded.node] = recorded

    def _forget_unwatched(self) -> None:
        if len(self._last) > len(self.nodes):
            watched = {node.label for node in self.nodes}
            for known in (self._last, self._changes, self._to_store):
                for node in known.keys() - watched:
                    del known[node]
            self._unseen &= watched

    def _stored_verdicts(self) -> dict[str, Judgement]:
        """The verdicts before the daemon started or reloaded. Without them every verdict holds since now."""
        try:
            return self._store.last_verdicts(self._boot_id)
        except StoreError as error:
            self._metrics.daemon.count_store_error()
            _log.warning("%s", error)
            return {}

    def _store_changes(self) -> None:
        """Store the verdicts that changed. After a failure they are offered again at the next turn."""
        if not self._to_store:
            return
        try:
            self._store.add_verdicts(list(self._to_store.values()), self._boot_id)
        except StoreError as error:
            self._metrics.daemon.count_store_error()
            _log.warning("%s", error)
        else:
            self._to_store.clear()

    def _log_changes(self) -> None:
        for judgement in self._to_log[:_MAX_LOGGED]:
            level = logging.WARNING if judgement.verdict in BAD else logging.INFO
            words = (judgement.node, judgement.verdict.value, judgement.confidence.value, printable(judgement.summary))
            _log.log(level, "%s is %s (%s): %s", *words)
        if len(self._to_log) > _MAX_LOGGED:
            _log.warning("… and %d more nodes changed; `tpuwatch nodes` lists them.", len(self._to_log) - _MAX_LOGGED)
        self._to_log.clear()


def _unwatched(before: Mapping[str, Answer[CloudNode]], now: Mapping[str, Answer[CloudNode]]) -> Iterator[str]:
    """The labels of nodes that the cloud has shown, and that its answers no longer have."""
    return (label for label in sorted(before.keys() - now.keys()) if before[label].value is not None)


def _log_unwatched(nodes: list[str]) -> None:
    """Such nodes matched a pattern, so they are not judged gone: without this line they would leave no trace."""
    if nodes:
        more = f" and {len(nodes) - _MAX_LOGGED} more" if len(nodes) > _MAX_LOGGED else ""
        names = printable(", ".join(nodes[:_MAX_LOGGED]))
        _log.info("No longer watched: %s%s; deleted, or no longer matched by `nodes` under [cloud].", names, more)


class _Changes:
    """Limits what is logged and stored of one node's verdicts to MAX_CHANGES within MAX_CHANGES_SECONDS.

    Beyond that changes are only counted. Once there is room again, the present verdict is recorded with their number.
    """

    __slots__ = ("left_out", "times")

    def __init__(self) -> None:
        self.left_out = 0  # changes since the last one that was recorded
        self.times: tuple[float, ...] = ()  # when the latest were recorded, by the monotonic clock

    def add(self, judgement: Judgement, now: float, *, changed: bool) -> Judgement | None:
        """Return the judgement as it is to be recorded, at a monotonic time; None if it is left out."""
        if len(self.times) == MAX_CHANGES and now - self.times[0] < MAX_CHANGES_SECONDS:
            self.left_out += changed
            return None
        self.times = (*self.times[1 - MAX_CHANGES :], now)
        if self.left_out:
            words = "change of its verdict was" if self.left_out == 1 else "changes of its verdict were"
            left_out = f"{self.left_out} {words} left out before this: there were too many within an hour."
            judgement = replace(judgement, summary=f"{judgement.summary} {left_out}")
            self.left_out = 0
        return judgement
