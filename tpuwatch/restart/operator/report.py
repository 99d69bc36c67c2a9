"""What is known of a node before it is restarted, from the daemon on this machine or from the cloud."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import TpuwatchError, clean
from tpuwatch.health import JudgeLimits, judge_node
from tpuwatch.model import (
    WELL,
    Action,
    Answer,
    CloudNode,
    Confidence,
    Evidence,
    Identity,
    JudgedNode,
    Known,
    NodeDocument,
    Peer,
    PeerVerdict,
    Phase,
    Problem,
    Verdict,
    node_label,
)
from tpuwatch.restart.workflow.types import PresentEvidence, Standing
from tpuwatch.restart.workflow.within import heard_from_within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.model import PeerDocument, RestartRecord, StatusDocument, Target
    from tpuwatch.restart.workflow.types import NodeObservation

_MAX_AGE_SECONDS: Final = 60.0  # an older verdict of the daemon is not used
_JUDGED_IN: Final = frozenset({Phase.REQUESTED, Phase.INTENT})  # once the node is down, it is started whatever is said


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node and its verdict."""

    document: NodeDocument  # as /api/v1/nodes serves a node
    source: str  # of the verdict
    holders: tuple[str, ...] | None = None  # processes that hold the TPU, a line each; None if unknown

    @property
    def verdict(self) -> str:
        """The verdict's name."""
        return self.document.verdict

    @property
    def healthy(self) -> bool:
        """Whether nothing is known to be wrong with it."""
        return self.verdict in {verdict.value for verdict in WELL}

    @property
    def boot_id(self) -> str:
        """Of the node's boot, as its own tpuwatch reports it; "" if that is not known."""
        return self.document.peer.boot_id if self.document.peer is not None else ""

    @property
    def evidence(self) -> tuple[str, ...]:
        """The reasons for the verdict, a line each."""
        return tuple(f"{reason.signal}: {reason.text}" for reason in self.document.reasons)


@dataclass(frozen=True, slots=True)
class NodeReporter:
    """Finds out what is known of nodes.

    The daemon on this machine is asked by its HTTP API: `ask_nodes` returns the documents of all nodes that it watches,
    `ask_status` the one of this machine. Both raise TpuwatchError if none answers.
    """

    config: Config
    clock: Clock
    daemon_address: str
    ask_nodes: Callable[[], Sequence[NodeDocument]]
    ask_status: Callable[[], StatusDocument]

    def report(self, target: Target, observation: NodeObservation) -> NodeReport:
        """The daemon's verdict if it watches the node, else a verdict on what the Cloud TPU API says now."""
        return self._from_daemon(target) or self._from_cloud(target, observation)

    def daemon_answers(self) -> bool:
        """Whether a daemon runs on this machine, as far as is known."""
        try:
            self.ask_status()
        except TpuwatchError:
            return False
        return True

    def judge_again(self, record: RestartRecord) -> PresentEvidence:
        """What the daemon says now of a node whose restart was asked for. An operator's word stands: it is shown."""
        if record.phase is Phase.VERIFYING:
            return self._listen(record)
        if record.phase not in _JUDGED_IN:
            return PresentEvidence()
        try:
            document = self._document(record.target)
            if document is None or document.judged < record.requested:
                return PresentEvidence(Standing.UNKNOWN, "No daemon on this machine has judged it since.")
            recovered = document.verdict in {verdict.value for verdict in WELL}
            sentence = f"it is {document.verdict}. {clean(document.summary, 200)}"
        except TpuwatchError:
            return PresentEvidence(Standing.UNKNOWN, "No daemon on this machine says how it is.")
        return PresentEvidence(Standing.RECOVERED if recovered else Standing.UNKNOWN, sentence)

    def _listen(self, record: RestartRecord) -> PresentEvidence:
        """What the node's own tpuwatch says since it was started, if the daemon on this machine asks it."""
        try:
            document = self._document(record.target)
            answer = document.peer if document is not None else None
            if answer is None and not record.boot_id:
                return PresentEvidence()  # it is not asked, as far as is known
            within, heard = heard_from_within(record, _peer(answer) if answer is not None else None)
        except (TpuwatchError, ValueError):  # no answer, or a verdict that is not known here
            return PresentEvidence()
        return PresentEvidence(within=within, heard=heard)

    def _document(self, target: Target) -> NodeDocument | None:
        """What the daemon on this machine says of the node, if it has judged it lately. Raises TpuwatchError."""
        document = next((node for node in self.ask_nodes() if _is_of(node, target)), None)
        if document is None or self.clock.time() - document.judged > _MAX_AGE_SECONDS:
            return None
        return document

    def _from_daemon(self, target: Target) -> NodeReport | None:
        try:
            document = self._document(target)
            if document is None:
                return None
            holders = _holders(self.ask_status()) if document.own else None
        except TpuwatchError:  # no answer, or not one of this version's daemon
            return None
        return NodeReport(document, f"the daemon at {self.daemon_address}", holders)

    def _from_cloud(self, target: Target, observation: NodeObservation) -> NodeReport:
        answer = self._ask_cloud(target, observation)
        evidence = Evidence(
            node_label(target.zone, target.node), self.clock.time(), identity=_identity(target), cloud=answer
        )
        judgement = judge_node(evidence, JudgeLimits(self.config))
        status = JudgedNode(
            target.node, target.project, target.zone, own=False, judgement=judgement, cloud=answer.value
        )
        return NodeReport(NodeDocument.of(status), "what the Cloud TPU API says now")

    def nodes_near(self, target: Target) -> list[str]:
        """The names of all nodes in the target's zone, those most like its own first.

        Raises TpuwatchError if they cannot be listed.
        """
        import difflib

        listed, _ = self._list(target, "*")
        if listed.value is None or listed.problem is not None:
            raise TpuwatchError(listed.detail)

        def likeness(name: str) -> float:
            return difflib.SequenceMatcher(None, name, target.node).ratio()

        return sorted((node.name for node in listed.value), key=lambda name: (-likeness(name), name))

    def _ask_cloud(self, target: Target, observation: NodeObservation) -> Answer[CloudNode]:
        """The API's list of the zone, which has more than the observation, but needs one more permission."""
        at = observation.at
        if observation.gone:
            return Answer(problem=Problem.GONE, tried=at, detail="The API knows no such node.")
        _, answers = self._list(target, target.node)
        answer = answers.get(node_label(target.zone, target.node))
        if answer is not None and answer.value is not None and answer.problem is None:
            node = replace(answer.value, state=observation.state, health=observation.health)
            return replace(answer, value=node)
        node = CloudNode(
            target.project,
            target.zone,
            target.node,
            observation.state,
            observation.health,
            hosts=observation.hosts,
            spot=observation.spot,
            queued_resource=observation.queued_resource,
        )
        return Answer(node, at, None, "", at)

    def _list(self, target: Target, name: str) -> tuple[Answer[tuple[CloudNode, ...]], Mapping[str, Answer[CloudNode]]]:
        """The nodes of the target's zone that have this name, and the answer on each."""
        from tpuwatch.signals import CloudSignal

        identity = _identity(target)
        signal = CloudSignal(
            self.config.cloud.model_copy(update={"nodes": (name,), "enabled": True}),
            lambda: identity,
            clock=self.clock,
            rng=random.Random(),  # noqa: S311 (spreads polls, of which there is one)
            on_call=lambda *_: None,
        )
        try:
            return signal.ask(), signal.answers
        finally:
            signal.close()


def _identity(target: Target) -> Identity:
    return Identity(project=Known(target.project, "config"), zone=Known(target.zone, "config"))


def _is_of(document: NodeDocument, target: Target) -> bool:
    return (document.project, document.zone, document.node) == (target.project, target.zone, target.node)


def _peer(answer: PeerDocument) -> Peer:
    """The node's own tpuwatch, as the daemon's document has it."""
    word = None
    if answer.verdict is not None:
        verdict, summary = Verdict(answer.verdict), answer.summary or ""
        word = PeerVerdict(verdict, Action.NONE, Confidence.LOW, summary, frozenset(), age=0.0)
    return Peer(answer.answered, word, answer.silent_since, boot_id=answer.boot_id)


def _holders(status: StatusDocument) -> tuple[str, ...] | None:
    if status.host is None:
        return None
    return tuple(f"process {one.pid} of {one.user}: {one.command}" for one in status.host.holders)
