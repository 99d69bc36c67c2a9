"""The daemon's state as JSON, and the targets for Prometheus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import Time, like
from tpuwatch.model.documents.goodput import GoodputDocument
from tpuwatch.model.documents.logs import KnownFindingDocument, LaunchDocument
from tpuwatch.model.documents.machine import (
    BootDocument,
    HostDocument,
    RuntimeDocument,
    SignalStatusDocument,
    TrainingLoopDocument,
)
from tpuwatch.model.documents.nodes import JudgedQueuedResourceDocument, NodeDocument, NodeVerdictDocument
from tpuwatch.model.documents.tune import TuneDocument
from tpuwatch.model.documents.words import ProblemWord, SignalWord
from tpuwatch.model.signals import Identity
from tpuwatch.model.status import DaemonStatus, FileProblem, StoreStatus

if TYPE_CHECKING:  # it takes restarts with it, which no command that shows the status needs
    from tpuwatch.model.problems import Problems

_MAX_LOOPS: Final = 20
_WORKLOADS: Final = 10
_MAX_QUEUED: Final = 20  # queued resources with a problem


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDocument:
    """A loop of the daemon."""

    name: str
    fresh: bool
    last_success: Time | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDocument:
    """A followed log."""

    path: str
    size_bytes: int
    read_bytes: int
    lag_bytes: int
    last_written: Time | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpotDocument:
    """A signal that does not answer, so that it is not known how nodes are."""

    signal: SignalWord
    problem: ProblemWord
    detail: str
    last_known: int
    unknown: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDocument:
    """/api/v1/status."""

    version: str
    host_name: str = ""
    state: str
    ready: bool
    not_ready: tuple[str, ...]
    now: Time
    started: Time
    uptime_seconds: float
    loops: tuple[LoopDocument, ...]
    files: tuple[FileDocument, ...]
    problems: tuple[FileProblem, ...]
    notices: tuple[str, ...]
    config_source: str
    store: StoreStatus
    last_launch: LaunchDocument | None
    identity: Identity | None = None
    node: NodeDocument | None
    signals: tuple[SignalStatusDocument, ...] = ()
    runtime: RuntimeDocument | None = None
    host: HostDocument | None = None
    training: tuple[TrainingLoopDocument, ...] = ()
    goodput: GoodputDocument | None = None
    restarts: tuple[str, ...]
    ledger_problem: str | None = None
    tune: TuneDocument | None = None
    headline: str
    problem_counts: Mapping[str, int]
    judged: bool
    watched_nodes: int
    unknown_nodes: int
    blind_spots: tuple[BlindSpotDocument, ...] = ()
    queued_resources: tuple[JudgedQueuedResourceDocument, ...] = ()

    @classmethod
    def of(cls, status: DaemonStatus, found: "Problems", restarts: Sequence[str]) -> "StatusDocument":
        """As it is now. `restarts`: what an operator should know of them, a sentence each."""
        not_ready = tuple(status.not_ready())
        return like(
            cls,
            status,
            ready=not not_ready,
            not_ready=not_ready,
            loops=tuple(like(LoopDocument, one) for one in status.loops),
            files=tuple(like(FileDocument, one) for one in status.files),
            last_launch=LaunchDocument.of(status.last_launch) if status.last_launch else None,
            node=NodeDocument.of(status.node) if status.node else None,
            signals=tuple(like(SignalStatusDocument, one) for one in status.signals),
            runtime=RuntimeDocument.of(status.runtime) if status.runtime else None,
            host=HostDocument.of(status.host) if status.host else None,
            training=tuple(TrainingLoopDocument.of(one, status.now) for one in status.training[:_MAX_LOOPS]),
            goodput=GoodputDocument.of(status.goodput) if status.goodput else None,
            restarts=tuple(restarts),
            ledger_problem=(status.restarts.ledger_problem or None) if status.restarts else None,
            tune=TuneDocument.of(status.tune, status.now, _WORKLOADS) if status.tune else None,
            headline=found.headline,
            problem_counts=found.counts,
            judged=found.judged,
            watched_nodes=found.watched,
            unknown_nodes=len(found.unknown),
            blind_spots=tuple(like(BlindSpotDocument, one) for one in found.blind_spots),
            queued_resources=tuple(map(JudgedQueuedResourceDocument.of, found.queued_resources[:_MAX_QUEUED])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReportDocument(StatusDocument):
    """What `tpuwatch status` prints."""

    findings: tuple[KnownFindingDocument, ...]
    launches: tuple[LaunchDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatusDocument:
    """/api/v1/peer: what another machine's tpuwatch asks this one for. It speaks of this machine alone."""

    now: Time
    signals: tuple[SignalWord, ...]  # that it has them shows that it is tpuwatch's
    identity: Identity | None = None
    node: NodeVerdictDocument | None = None
    host: BootDocument | None = None

    @classmethod
    def of(cls, status: DaemonStatus) -> "PeerStatusDocument":
        """As it is now."""
        return like(
            cls,
            status,
            signals=tuple(one.name for one in status.signals),
            node=NodeVerdictDocument.of(status.node) if status.node else None,
            host=like(BootDocument, status.host) if status.host else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDocument:
    """/api/v1/targets is a list of these: a target group as Prometheus reads it, with labels for all of its series."""

    targets: tuple[str, ...]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDocument:
    """In place of a document: why there is none, a sentence."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownPathDocument(ErrorDocument):
    """In place of a document: there is nothing under this path, and what there is."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyDocument:
    """/readyz to those without a token."""

    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessDocument(ReadyDocument):
    """/readyz: whether the daemon is ready, and why not."""

    reasons: tuple[str, ...]
