"""Finds the nodes whose verdict calls for an action, and collects what the policy decides on.

For a node that needs nothing this only compares its verdict with the previous one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.model import STUCK, WELL, Action, Problem, Target
from tpuwatch.restart.policy.mass_failure import BadCounts, RecentPeaks, count_bad
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.situation import Confirmation, RestartSituation, confirm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import CloudNode, JudgedNode, RestartDecision, Snapshot
    from tpuwatch.restart.policy.budgets import LedgerView
    from tpuwatch.restart.policy.settings import PolicySettings

_IDLE: Final = frozenset({Action.NONE, Action.WAIT, Action.FIX_PROGRAM})  # these need no decision
# With these the metadata server is known to report no TPU node; other machines may belong to any.
_NO_NODE: Final = frozenset({None, Problem.ABSENT, Problem.FOREIGN, Problem.OFF})


@dataclass(slots=True)
class _Memory:
    """What is remembered of one node."""

    judged: JudgedNode
    confirmation: Confirmation | None = None
    ready_since: float | None = None  # since when the API has shown it READY, as far as was seen


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node whose verdict calls for an action."""

    judged: JudgedNode
    target: Target
    own: bool
    placed: bool  # it is a node of the Cloud TPU API whose project and zone are known
    situation: RestartSituation  # without the ledger's part

    def decide(
        self,
        view: LedgerView | None,
        settings: PolicySettings,
        now: float,
        *,
        clock_problem: str = "",
        ledger_problem: str = "",
    ) -> RestartDecision:
        """What to do about it, given what the ledger holds; None means that it cannot be used, and why."""
        situation = replace(self.situation, ledger=view, now=now, clock=clock_problem, ledger_problem=ledger_problem)
        return decide(situation, settings)


class Candidates:
    """Used from one thread."""

    def __init__(self, *, cloud_seconds: float, watching_since: float, host: str) -> None:
        """`cloud_seconds` is the maximum age of the cloud's answer; `host` names this machine if it is no TPU node."""
        self._cloud_seconds = cloud_seconds
        self._watching_since = watching_since
        self._host = host
        self._known: dict[str, _Memory] = {}
        self._recent_peaks = RecentPeaks()

    def update(self, nodes: Sequence[JudgedNode], snapshot: Snapshot, now: float) -> tuple[list[Candidate], bool]:
        """Store the new verdicts; the candidates, and whether a node has just become unhealthy."""
        has_new = False
        calling: list[_Memory] = []
        for judged in nodes:
            memory = self._known.get(judged.label)
            if memory is None:
                memory = self._known[judged.label] = _Memory(judged)
                has_new |= judged.judgement.verdict not in WELL
                _take(memory, judged)
            elif memory.judged is not judged:
                changed = memory.judged.judgement.verdict is not judged.judgement.verdict
                has_new |= changed and judged.judgement.verdict not in WELL
                _take(memory, judged)
            if _calls(judged):
                calling.append(memory)
        if len(self._known) > len(nodes):
            for label in self._known.keys() - {judged.label for judged in nodes}:
                del self._known[label]
        if not calling:
            return [], has_new
        placed = [one for one in nodes if target_of(one) is not None]  # a machine of no node is none of them
        bad_counts = self._recent_peaks.apply(count_bad((one.zone, one.judgement, one.cloud) for one in placed), now)
        return [
            self._candidate(memory, snapshot, bad_counts, spared_beside(memory.judged, nodes, snapshot.beside), now)
            for memory in calling
        ], has_new

    def _candidate(
        self,
        memory: _Memory,
        snapshot: Snapshot,
        bad_counts: dict[str, BadCounts],
        spared: tuple[str, ...],
        now: float,
    ) -> Candidate:
        judged = memory.judged
        answer = snapshot.cloud.get(judged.label)
        cloud = answer.current(now, self._cloud_seconds) if answer is not None else None
        placed = target_of(judged)
        target = placed or nowhere(self._host)
        own = judged.own or may_be_own(target, snapshot)
        situation = RestartSituation(
            target=target,
            judgement=judged.judgement,
            confirmation=memory.confirmation,
            now=now,
            cloud=cloud,
            own=own,
            up_since=self._up_since(memory, snapshot),
            bad_counts=bad_counts.get(judged.zone, BadCounts()),
            spared=spared,
            ledger=None,
            watching_since=self._watching_since,
        )
        return Candidate(judged, target, own, placed is not None, situation)

    @staticmethod
    def _up_since(memory: _Memory, snapshot: Snapshot) -> float | None:
        if memory.judged.own and snapshot.host.value is not None and snapshot.host.value.booted is not None:
            return snapshot.host.value.booted
        return memory.ready_since


def target_of(judged: JudgedNode) -> Target | None:
    """The node as the Cloud TPU API knows it; None for a machine of no node, or of one whose place is not known."""
    if not judged.project or not judged.zone or not judged.in_api:
        return None
    return Target(judged.project, judged.zone, judged.node)


def nowhere(host: str) -> Target:
    """Under which the acts on a machine are recorded that is of no node."""
    return Target("-", "-", host)


def may_be_own(target: Target, snapshot: Snapshot) -> bool:
    """Whether tpuwatch runs on that node, or may run on it: it never stops its own node."""
    me = snapshot.identity
    if not me.node.value:
        # A TPU VM whose node is not known may be any node; another machine is none.
        return snapshot.notices.problem not in _NO_NODE or "metadata" in (me.accelerator.source, me.worker.source)
    # The zone may be known from the configuration only: then the name decides.
    elsewhere = me.zone.source == "metadata" and me.zone.value != target.zone
    return me.node.value == target.node and not elsewhere


def _calls(judged: JudgedNode) -> bool:
    """Whether something is to be decided about it. The last known verdict is no evidence of how it is."""
    return judged.judgement.action not in _IDLE and not judged.judgement.is_last_known


def spared_beside(judged: JudgedNode, nodes: Sequence[JudgedNode], beside: Sequence[CloudNode]) -> tuple[str, ...]:
    """The other nodes of its queued resource that must not be restarted along with it, each with how it is.

    `beside` are nodes that are listed and not watched: of those the cloud's word alone is known.
    """
    if (queue := _queue(judged.cloud)) is None:
        return ()
    return (
        *(f"{one.node} ({_how(one)})" for one in _watched_beside(judged, nodes) if _is_spared(one)),
        *(f"{one.name} ({one.said})" for one in beside if _queue(one) == queue and not one.ill),
    )


def stuck_beside(judged: JudgedNode, nodes: Sequence[JudgedNode]) -> frozenset[str]:
    """The other nodes of its queued resource that are stuck though the API does not call them ill."""
    return frozenset(
        one.node
        for one in _watched_beside(judged, nodes)
        if not _is_spared(one) and one.cloud is not None and not one.cloud.ill
    )


def _watched_beside(judged: JudgedNode, nodes: Sequence[JudgedNode]) -> list[JudgedNode]:
    queue = _queue(judged.cloud)
    return [one for one in nodes if queue is not None and one.label != judged.label and _queue(one.cloud) == queue]


def _queue(node: CloudNode | None) -> tuple[str, str, str] | None:
    """The queued resource to which the node belongs, if any."""
    return (node.project, node.zone, node.queued_resource) if node is not None and node.queued_resource else None


def _is_spared(judged: JudgedNode) -> bool:
    """Whether it must not be restarted along with another node of its queued resource."""
    judgement = judged.judgement
    return judged.own or judgement.verdict not in STUCK or judgement.is_last_known


def _how(judged: JudgedNode) -> str:
    if judged.judgement.is_last_known:
        return "not known now"
    return f"{judged.judgement.verdict.value}{', tpuwatch runs on it' if judged.own else ''}"


def _take(memory: _Memory, judged: JudgedNode) -> None:
    memory.judged = judged
    memory.confirmation = confirm(memory.confirmation, judged.judgement) if _calls(judged) else None
    memory.ready_since = _ready_since(memory.ready_since, judged.cloud)


def _ready_since(before: float | None, cloud: CloudNode | None) -> float | None:
    """Health may change while it stays READY: that is no boot."""
    if cloud is None or cloud.state != "READY":
        return None
    return cloud.changed if before is None else before
