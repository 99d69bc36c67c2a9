"""From what the witnesses posted to verdicts: judged, counted, told, and kept where they changed."""

from __future__ import annotations

import logging
import operator
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.errors import JournalError
from tpuwatch.export.view import NodeStatus
from tpuwatch.health.judge import following, judge
from tpuwatch.health.limits import Limits
from tpuwatch.health.verdict import BAD
from tpuwatch.logsetup import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.health.evidence import Answer, CloudNode, Evidence
    from tpuwatch.health.verdict import Judgement
    from tpuwatch.journal import Journal
    from tpuwatch.node.board import Posted

EVERY_SECONDS = 5.0  # time alone changes verdicts: a grace is over, an answer grows old
OTHERS_SECONDS = 60.0  # of nodes that only the cloud speaks of, unless it spoke again
MOST_CHANGES = 20  # of one node's verdict that are told and stored within the time
MOST_CHANGES_SECONDS = 3600.0
_TOLD = 20  # changes of verdict that one turn writes into tpuwatch's log, and nodes that are watched no longer

_log = logging.getLogger(__name__)


class Judging:
    """Judges what is posted, for one thread. `nodes` may be read by any: it is replaced, never changed."""

    def __init__(
        self,
        posted: Callable[[], Posted],
        *,
        limits: Limits,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        boot_id: str,
    ) -> None:
        """`boot_id` names the boot of this machine: what was judged before it has no bearing on what holds now."""
        self.limits = limits
        self.nodes: tuple[NodeStatus, ...] = ()
        self._posted = posted
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._boot_id = boot_id
        self._last: dict[str, Judgement] = self._recalled()
        self._changes: dict[str, _Changes] = {}
        self._unstored: dict[str, Judgement] = {}  # the latest of each node that the journal has not taken yet
        self._untold: list[Judgement] = []
        self._others: tuple[NodeStatus, ...] = ()
        self._others_of: tuple[Mapping[str, object], ...] = ()  # what they were judged by last
        self._listed: Mapping[str, Answer[CloudNode]] = {}  # what the cloud had said by then
        self._others_due = float("-inf")

    def _recalled(self) -> dict[str, Judgement]:
        """What held before the daemon, or its configuration, began anew. Without it, all holds since now."""
        try:
            return self._journal.last_verdicts(self._boot_id)
        except JournalError as error:
            self._metrics.journal_error()
            _log.warning("%s", error)
            return {}

    def turn(self) -> float:
        """Judge once; returns the seconds until it should be done again though nothing is posted."""
        posted, now = self._posted(), self._clock.time()
        told = (posted.cloud, posted.agents)
        same = all(map(operator.is_, told, self._others_of)) and bool(self._others_of)
        if not same or self._clock.monotonic() >= self._others_due:
            self._others_of, self._others_due = told, self._clock.monotonic() + OTHERS_SECONDS
            self._others = tuple(self._judged(evidence) for evidence in posted.others(now))
            _tell_left(list(_left(self._listed, posted.cloud)))
            self._listed = posted.cloud
        self.nodes = (self._judged(posted.evidence(now)), *self._others)
        self._tell()
        self._forget()
        self._metrics.nodes(self.nodes)
        self._keep()
        return EVERY_SECONDS

    def _judged(self, evidence: Evidence) -> NodeStatus:
        before = self._last.get(evidence.node)
        judgement = following(before, judge(evidence, self.limits))
        self._last[evidence.node] = judgement
        self._note(before, judgement)
        cloud, identity = evidence.cloud.value, evidence.identity
        project = cloud.project if cloud else identity.project.value
        zone = cloud.zone if cloud else identity.zone.value
        return NodeStatus(evidence.node, project, zone, evidence.own, judgement, cloud, evidence.agent.value)

    def _note(self, before: Judgement | None, now: Judgement) -> None:
        """Have a change of verdict told and stored, unless the node has had too many of late; then it is counted."""
        changes = self._changes.setdefault(now.node, _Changes())
        changed = before is None or before.verdict is not now.verdict
        if changed:
            self._metrics.verdict_changed(now.verdict)
        if not changed and not changes.left_out:
            return
        noted = changes.take(now, self._clock.monotonic(), changed=changed)
        if noted is not None:
            self._untold.append(noted)
            self._unstored[noted.node] = noted

    def _forget(self) -> None:
        """Let go of nodes that are not watched any more."""
        if len(self._last) > len(self.nodes):
            watched = {status.node for status in self.nodes}
            for known in (self._last, self._changes, self._unstored):
                for node in known.keys() - watched:
                    del known[node]

    def _keep(self) -> None:
        """Store the verdicts that changed. What the journal does not take is offered again at the next turn."""
        if not self._unstored:
            return
        try:
            self._journal.put_verdicts(list(self._unstored.values()), self._boot_id)
        except JournalError as error:
            self._metrics.journal_error()
            _log.warning("%s", error)
        else:
            self._unstored.clear()

    def _tell(self) -> None:
        """Changes of verdict in the log, a line each, unless they are too many."""
        for judgement in self._untold[:_TOLD]:
            level = logging.WARNING if judgement.verdict in BAD else logging.INFO
            words = (judgement.node, judgement.verdict.value, judgement.sureness.value, one_line(judgement.summary))
            _log.log(level, "%s is %s (%s): %s", *words)
        if len(self._untold) > _TOLD:
            _log.warning("… and %d more nodes changed; `tpuwatch nodes` lists them.", len(self._untold) - _TOLD)
        self._untold.clear()


def _left(before: Mapping[str, Answer[CloudNode]], now: Mapping[str, Answer[CloudNode]]) -> Iterator[str]:
    """Nodes of which the cloud says nothing more. One that is only called otherwise now is none of them."""
    if labels := sorted(before.keys() - now.keys()):
        there = {_place(answer.value) for answer in now.values()}
        there.add(None)  # it was never seen
        yield from (label for label in labels if _place(before[label].value) not in there)


def _place(node: CloudNode | None) -> tuple[str, str, str] | None:
    return None if node is None else (node.project, node.zone, node.name)


def _tell_left(nodes: list[str]) -> None:
    """A line, or else such nodes would leave no trace: they were watched by a pattern, so they are not judged gone."""
    if nodes:
        more = f" and {len(nodes) - _TOLD} more" if len(nodes) > _TOLD else ""
        names = one_line(", ".join(nodes[:_TOLD]))
        _log.info("No longer watched: %s%s; deleted, or no longer matched by `nodes` under [cloud].", names, more)


class _Changes:
    """What was told and stored of one node's verdicts: MOST_CHANGES within MOST_CHANGES_SECONDS at most.

    Of one that flaps for longer the others are only counted. Once there is room again, what holds then is noted with
    their number.
    """

    __slots__ = ("left_out", "times")

    def __init__(self) -> None:
        self.left_out = 0  # changes since the last one that was noted
        self.times: tuple[float, ...] = ()  # when the latest were noted, by the monotonic clock

    def take(self, judgement: Judgement, now: float, *, changed: bool) -> Judgement | None:
        """The judgement as it is to be noted, at a monotonic time; None if it is left out."""
        if len(self.times) == MOST_CHANGES and now - self.times[0] < MOST_CHANGES_SECONDS:
            self.left_out += changed
            return None
        self.times = (*self.times[1 - MOST_CHANGES :], now)
        if self.left_out:
            words = "change of its verdict was" if self.left_out == 1 else "changes of its verdict were"
            left_out = f"{self.left_out} {words} left out before this: there were too many within an hour."
            judgement = replace(judgement, summary=f"{judgement.summary} {left_out}")
            self.left_out = 0
        return judgement


def limits_of(config: Config) -> Limits:
    """What the judge goes by, as the configuration has it."""
    health = config.health
    return Limits(
        compile_grace_seconds=config.logs.compile_grace_seconds,
        idle_seconds=health.idle_seconds,
        settle_seconds=health.settle_seconds,
        boot_grace_seconds=health.boot_grace_seconds,
        cloud_poll_seconds=config.cloud.poll_seconds,
        runtime_poll_seconds=config.runtime.poll_seconds,
        agent_poll_seconds=config.agents.poll_seconds,
        agent_silent_seconds=config.agents.silent_seconds,
    )
