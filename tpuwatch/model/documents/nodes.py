"""Watched nodes as JSON: the verdict, the state in the cloud, and the word of the node's own tpuwatch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuwatch.core import Time, like
from tpuwatch.model.documents.words import (
    ActionWord,
    CauseWord,
    ConfidenceWord,
    KindWord,
    PeerWord,
    ProblemWord,
    QueuedProblemWord,
    SignalWord,
    SourceWord,
    VerdictWord,
)
from tpuwatch.model.events import Remedy
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.judged_queued_resource import JudgedQueuedResource
from tpuwatch.model.labels import node_label
from tpuwatch.model.signals import CloudNode, Peer
from tpuwatch.model.slices import PeerState, Slice, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonDocument:
    """One thing that speaks for a verdict."""

    signal: SignalWord
    text: str
    at: Time | None
    idle: bool = False
    sources: tuple[SourceWord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenDocument:
    """Why nothing shows how a node is."""

    signal: SignalWord
    problem: ProblemWord
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDocument:
    """The first thing that went wrong on a machine with what runs there now."""

    cause: CauseWord
    at: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdictDocument:
    """A watched node and its verdict: all of a node's document that other machines read."""

    node: str
    project: str
    zone: str
    own: bool
    verdict: VerdictWord
    last_known: bool = False
    judged: Time
    since: Time | None
    confidence: ConfidenceWord
    action: ActionWord
    summary: str
    kind: KindWord | None = None
    sources: tuple[SourceWord, ...] = ()
    reasons: tuple[ReasonDocument, ...]
    suspect_since: Time | None = None
    counts_from: Time | None = None
    contradictions: tuple[str, ...]
    missing: tuple[str, ...]
    unseen: UnseenDocument | None = None
    remedy: tuple[Remedy, ...]
    failure: FailureDocument | None = None

    @classmethod
    def of(cls, node: JudgedNode) -> "NodeVerdictDocument":
        """As it was judged last."""
        return like(cls, node.judgement, **_verdict_parts(node))

    @property
    def label(self) -> str:
        """What identifies it among all that are watched."""
        return node_label(self.zone, self.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class SymptomDocument:
    """What the API reports to have been wrong with a worker."""

    kind: str
    at: Time | None
    worker: str
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDocument:
    """A maintenance that is announced or under way."""

    kind: str
    status: str
    start: Time | None
    end: Time | None
    latest_start: Time | None = None
    can_reschedule: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudNodeDocument:
    """A node as the Cloud TPU API shows it."""

    name: str
    state: str
    health: str
    health_description: str = ""
    symptoms: tuple[SymptomDocument, ...] = ()
    accelerator: str = ""
    runtime_version: str = ""
    hosts: int
    spot: bool = False
    queued_resource: str = ""
    address: str = ""
    addresses: tuple[str, ...] = ()
    lacks_endpoints: bool = False
    maintenance: MaintenanceDocument | None = None
    created: Time | None = None
    changed: Time | None = None
    labels: Mapping[str, str]

    @classmethod
    def of(cls, node: CloudNode) -> "CloudNodeDocument":
        """As the API showed it last."""
        return like(
            cls,
            node,
            symptoms=tuple(like(SymptomDocument, one) for one in node.symptoms),
            maintenance=node.maintenance and like(MaintenanceDocument, node.maintenance),
            changed=None if node.changed_unseen else node.changed,
            labels=dict(node.labels),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDocument:
    """The word of the tpuwatch on a node that is watched from elsewhere."""

    answered: Time
    silent_since: Time | None
    refuses: bool = False
    boot_id: str = ""
    verdict: VerdictWord | None
    summary: str | None
    sources: tuple[SourceWord, ...] = ()

    @classmethod
    def of(cls, peer: Peer) -> "PeerDocument":
        """As it answered last."""
        word = peer.verdict
        return like(
            cls,
            peer,
            verdict=word and word.verdict,
            summary=word and word.summary,
            sources=_sorted(word.sources if word else ()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedResourceDocument:
    """A queued resource as the Cloud TPU API shows it."""

    name: str
    state: str
    project: str = ""
    zone: str = ""
    nodes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    spot: bool = False
    initiator: str = ""
    detail: str = ""
    created: Time | None = None
    valid_until: Time | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedQueuedResourceDocument(QueuedResourceDocument):
    """A queued resource that makes, made or names a watched node, and its problem."""

    waits: bool
    problem: QueuedProblemWord | None
    summary: str
    remedy: tuple[Remedy, ...]

    @classmethod
    def of(cls, judged: JudgedQueuedResource) -> "JudgedQueuedResourceDocument":
        """As it was judged last."""
        return like(
            cls,
            judged.queued,
            waits=judged.queued.waits,
            problem=judged.problem,
            summary=judged.summary,
            remedy=judged.remedy,
        )

    @property
    def label(self) -> str:
        """What identifies it among all that concern watched nodes."""
        return node_label(self.zone, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDocument:
    """A worker of a slice, by its own tpuwatch."""

    number: int
    state: PeerWord
    own: bool
    answered: Time | None
    silent_since: Time | None
    verdict: VerdictWord | None
    summary: str
    failure: FailureDocument | None

    @classmethod
    def of(cls, worker: Worker) -> "WorkerDocument":
        """As it answered last."""
        return like(cls, worker, failure=worker.failure and like(FailureDocument, worker.failure))


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDocument:
    """The workers of a node that has several: how many of those that are asked are in each state, and 64 of them."""

    hosts: int
    sentence: str
    first_failed: int | None
    culprit: int | None
    states: Mapping[str, int]
    workers: tuple[WorkerDocument, ...]

    @classmethod
    def of(cls, whole: Slice) -> "SliceDocument":
        """As it was judged last."""
        return cls(
            hosts=whole.hosts,
            sentence=whole.sentence,
            first_failed=whole.first,
            culprit=whole.culprit,
            states={state.value: len(whole.those(state)) for state in PeerState},
            workers=tuple(WorkerDocument.of(one) for one in whole.listed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDocument(NodeVerdictDocument):
    """A watched node."""

    cloud: CloudNodeDocument | None
    queued_resource: QueuedResourceDocument | None = None
    peer: PeerDocument | None
    slice: SliceDocument | None = None

    @classmethod
    def of(cls, node: JudgedNode) -> "NodeDocument":
        """As it was judged last."""
        return like(
            cls,
            node.judgement,
            **_verdict_parts(node),
            cloud=CloudNodeDocument.of(node.cloud) if node.cloud else None,
            queued_resource=node.queued and like(QueuedResourceDocument, node.queued),
            peer=PeerDocument.of(node.peer) if node.peer else None,
            slice=SliceDocument.of(node.slice) if node.slice else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesDocument:
    """/api/v1/nodes: the worst first."""

    now: Time
    nodes: tuple[NodeDocument, ...]
    queued_resources: tuple[JudgedQueuedResourceDocument, ...] = ()
    watched: int
    bad: int
    verdicts: Mapping[str, int]


def _sorted(words: Iterable[SourceWord]) -> tuple[SourceWord, ...]:
    return tuple(sorted(words))


def _verdict_parts(node: JudgedNode) -> dict[str, Any]:
    """What a verdict's document has that the judgement has not, or in another form."""
    judgement = node.judgement
    return {
        "node": node.node,
        "project": node.project,
        "zone": node.zone,
        "own": node.own,
        "last_known": judgement.is_last_known,
        "judged": judgement.at,
        "sources": _sorted(judgement.sources),
        "reasons": tuple(like(ReasonDocument, one, sources=_sorted(one.sources)) for one in judgement.reasons),
        "unseen": judgement.unseen and like(UnseenDocument, judgement.unseen),
        "failure": node.failure and like(FailureDocument, node.failure),
    }
