"""From verdicts to decisions: what is remembered of each watched node, and all that the policy looks at.

Of a node for which nothing is called for no more is done than to see that its verdict is the one of before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Problem
from tpuwatch.health.verdict import STUCK, WELL, Rung
from tpuwatch.node.board import HERE
from tpuwatch.restart.policy.confirm import Confirmation, confirm
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.situation import Situation
from tpuwatch.restart.policy.storm import Crowds, Peaks, crowds
from tpuwatch.restart.record import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.export.view import NodeStatus
    from tpuwatch.health.evidence import CloudNode
    from tpuwatch.node.board import Posted
    from tpuwatch.restart.policy.budgets import Books
    from tpuwatch.restart.policy.decision import Decision
    from tpuwatch.restart.policy.settings import Settings

_IDLE: Final = frozenset({Rung.NOTHING, Rung.WAIT, Rung.FIX_PROGRAM})  # of these no decision makes anything
# Of these machines it is known that the metadata server tells of no node; others may be of any.
_NO_NODE: Final = frozenset({None, Problem.ABSENT, Problem.FOREIGN, Problem.OFF})


@dataclass(slots=True)
class _Memory:
    """Of one node."""

    status: NodeStatus
    confirmation: Confirmation | None = None
    ready_since: float | None = None  # since when the API has shown it READY, as far as was seen


@dataclass(frozen=True, slots=True)
class Called:
    """A node for which something is called for."""

    status: NodeStatus
    target: Target
    own: bool
    placed: bool  # it is a node of the Cloud TPU API, of which the place is known
    situation: Situation  # without what the ledger holds

    def decided(self, books: Books | None, settings: Settings, now: float) -> Decision:
        """What is to be done about it, by what the ledger holds; None: it cannot be read."""
        return decide(replace(self.situation, books=books, now=now), settings)


class Deciding:
    """Used from one thread."""

    def __init__(self, *, cloud_seconds: float, watching_since: float, host: str) -> None:
        """`cloud_seconds`: how old the cloud's word may be; `host`: this machine's name, where it is of no node."""
        self._cloud_seconds = cloud_seconds
        self._watching_since = watching_since
        self._host = host
        self._known: dict[str, _Memory] = {}
        self._peaks = Peaks()

    def look(self, nodes: Sequence[NodeStatus], posted: Posted, now: float) -> tuple[list[Called], bool]:
        """Take in how all nodes are now. Those that call for something, and whether one has newly ceased to be well."""
        fallen = False
        calling: list[_Memory] = []
        for status in nodes:
            memory = self._known.get(status.node)
            if memory is None:
                memory = self._known[status.node] = _Memory(status)
                fallen |= status.judgement.verdict not in WELL
                _take(memory, status)
            elif memory.status is not status:
                changed = memory.status.judgement.verdict is not status.judgement.verdict
                fallen |= changed and status.judgement.verdict not in WELL
                _take(memory, status)
            if status.judgement.rung not in _IDLE:
                calling.append(memory)
        if len(self._known) > len(nodes):
            for label in self._known.keys() - {status.node for status in nodes}:
                del self._known[label]
        if not calling:
            return [], fallen
        everywhere = self._peaks.over(crowds((one.zone, one.judgement, one.cloud) for one in nodes), now)
        spared = Counter(place for one in nodes if _is_spared(one) and (place := _queue(one)) is not None)
        return [self._called(memory, posted, everywhere, spared, now) for memory in calling], fallen

    def _called(
        self,
        memory: _Memory,
        posted: Posted,
        everywhere: dict[str, Crowds],
        spared: Counter[tuple[str, str, str]],
        now: float,
    ) -> Called:
        status = memory.status
        answer = posted.cloud.get(status.node)
        cloud = answer.current(now, self._cloud_seconds) if answer is not None else None
        placed = target_of(status)
        target = placed or Target("-", "-", self._host)  # what is done on the machine itself is recorded all the same
        own = status.own or may_be_own(target, posted)
        situation = Situation(
            target=target,
            judgement=status.judgement,
            confirmation=memory.confirmation,
            now=now,
            cloud=cloud,
            own=own,
            up_since=self._up_since(memory, posted),
            crowds=everywhere[status.zone],
            spared=spared[queue] - _is_spared(status) if (queue := _queue(status)) is not None else 0,
            books=None,
            watching_since=self._watching_since,
        )
        return Called(status, target, own, placed is not None, situation)

    @staticmethod
    def _up_since(memory: _Memory, posted: Posted) -> float | None:
        if memory.status.own and posted.host.value is not None and posted.host.value.booted is not None:
            return posted.host.value.booted
        return memory.ready_since


def target_of(status: NodeStatus) -> Target | None:
    """The node as the Cloud TPU API knows it; None for a machine of no node, or of one whose place is not known."""
    name = status.cloud.name if status.cloud is not None else status.node.rpartition("/")[2]
    if not status.project or not status.zone or name == HERE:
        return None
    return Target(status.project, status.zone, name)


def may_be_own(target: Target, posted: Posted) -> bool:
    """Whether tpuwatch runs on that node, or may: what it runs on it never stops."""
    me = posted.identity
    if not me.node.value:
        # A TPU VM of which nobody says what node it is may be any; other machines are none.
        return posted.notices.problem not in _NO_NODE or "metadata" in (me.accelerator.source, me.worker.source)
    # Where the machine is may be the configuration's word alone: then the name decides.
    elsewhere = me.zone.source == "metadata" and me.zone.value != target.zone
    return me.node.value == target.node and not elsewhere


def _queue(status: NodeStatus) -> tuple[str, str, str] | None:
    """The queued resource that the node is of; None for one of none."""
    name = status.cloud.queued_resource if status.cloud is not None else ""
    return (status.project, status.zone, name) if name else None


def _is_spared(status: NodeStatus) -> bool:
    """Whether it must not be restarted along with another node of its queued resource."""
    return status.own or status.judgement.verdict not in STUCK


def _take(memory: _Memory, status: NodeStatus) -> None:
    memory.status = status
    calls = status.judgement.rung not in _IDLE
    memory.confirmation = confirm(memory.confirmation, status.judgement) if calls else None
    memory.ready_since = _ready_since(memory.ready_since, status.cloud)


def _ready_since(before: float | None, cloud: CloudNode | None) -> float | None:
    """Health may change while it stays READY: that is no boot."""
    if cloud is None or cloud.state != "READY":
        return None
    return cloud.changed if before is None else before
