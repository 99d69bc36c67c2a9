"""What logs tell as JSON: events, findings, launches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from tpuwatch.core import Time, Words, like, redact
from tpuwatch.model.causes import Cause
from tpuwatch.model.documents.words import CauseWord
from tpuwatch.model.events import CauseConfidence, Event, Finding, Place, Remedy
from tpuwatch.model.launches import Launch, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceDocument:
    """Where else the failure of an event was reported."""

    file: str
    offset: int
    time: Time | None
    severity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDocument:
    """An event with everything that the store holds of it."""

    id: int | None
    cause: Cause
    rule: str
    time: Time | None
    observed: Time
    severity: str
    pid: int | None
    file: str
    offset: int
    text: str
    details: Mapping[str, Any]
    history: bool
    repeats: int = 0
    since: Time | None = None
    spread: Mapping[str, tuple[Any, ...]]
    key: bytes
    places: tuple[PlaceDocument, ...] = ()

    @classmethod
    def of(cls, event: Event) -> "EventDocument":
        """As it is stored."""
        return like(cls, event, places=tuple(like(PlaceDocument, one) for one in event.places))

    def event(self) -> Event:
        """As the store would give it."""
        places = tuple(like(Place, one, key=b"") for one in self.places)
        return like(Event, self, details=dict(self.details), places=places)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsDocument:
    """/api/v1/events: the oldest first."""

    events: tuple[EventDocument, ...]
    last_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDocument:
    """An event of a finding."""

    file: str
    time: Time | None
    text: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSeenDocument(SeenDocument):
    """The first event of a finding."""

    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingDocument:
    """What is wrong, where it was first seen, and what to do, the first step first."""

    cause: CauseWord
    confidence: CauseConfidence
    count: int
    summary: str
    first: FirstSeenDocument
    last: SeenDocument
    details: Mapping[str, Any]
    remedy: tuple[Remedy, ...]

    @classmethod
    def of(cls, finding: Finding) -> "FindingDocument":
        """As it was found."""
        return like(cls, finding, **_seen(finding))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFindingDocument(FindingDocument):
    """A finding of the daemon: also whether it is over, and why."""

    seen: Time
    over: bool
    over_because: str | None

    @classmethod
    def known(cls, finding: Finding, why_over: str | None) -> "KnownFindingDocument":
        """As the daemon has it. `why_over`: None while it is not."""
        seen = finding.last.when  # many records have no time
        return like(cls, finding, **_seen(finding), seen=seen, over=why_over is not None, over_because=why_over)


def _seen(finding: Finding) -> dict[str, SeenDocument]:
    first = like(FirstSeenDocument, finding.first, line=finding.line)
    return {"first": first, "last": like(SeenDocument, finding.last)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsDocument:
    """/api/v1/findings: in the order in which to act, those that are over last."""

    findings: tuple[KnownFindingDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDocument:
    """A launch: one process that initialised the TPU, or tried to."""

    id: int | None
    pid: int | None
    user: str
    host: str
    started: Time
    outcome: Annotated[str, Words(Outcome)]
    cause: CauseWord | None
    init_seconds: float | None
    build: str
    chips: int | None
    chip_kind: str
    premapped_bytes: int | None
    premapped_threshold_bytes: int | None
    premapped_partitions: int | None
    last_heard: Time | None
    environment: Mapping[str, str]
    workload: str = ""
    faults: Mapping[str, float]
    premapped_failures: int = 0
    premapped_need_bytes: int | None = None
    premapped_asked_bytes: int | None = None
    boot_id: str = ""
    ended: Time | None = None
    exit_status: int | None = None
    history: bool
    output: str = ""
    failed_after_start: str | None = None

    @classmethod
    def of(cls, launch: Launch) -> "LaunchDocument":
        """As it is known, without secrets in its environment."""
        whole = {name: redact(f"{name}={value}") for name, value in launch.environment.items()}
        return like(
            cls,
            launch,
            pid=None if launch.output else launch.pid,
            environment={name: text.partition("=")[2] for name, text in whole.items()},
            failed_after_start=launch.failed_after_start or None,
        )

    def launch(self) -> Launch:
        """As the store would give it. Raises ValueError for a cause or an outcome that is not known."""
        return like(
            Launch,
            self,
            pid=-1 if self.pid is None else self.pid,
            outcome=Outcome(self.outcome),
            cause=Cause(self.cause) if self.cause else None,
            environment=dict(self.environment),
            faults=dict(self.faults),
            superseded=False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesDocument:
    """/api/v1/launches: the newest first."""

    launches: tuple[LaunchDocument, ...]

    @classmethod
    def of(cls, launches: Iterable[Launch]) -> "LaunchesDocument":
        """As they are known."""
        return cls(launches=tuple(map(LaunchDocument.of, launches)))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadDocument:
    """A file that could not be read whole."""

    file: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisDocument:
    """Findings in the order in which to act, and launches, of a text."""

    findings: tuple[FindingDocument, ...]
    launches: tuple[LaunchDocument, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding], launches: Iterable[Launch]) -> "DiagnosisDocument":
        """As they were recognised."""
        return cls(findings=tuple(map(FindingDocument.of, findings)), launches=tuple(map(LaunchDocument.of, launches)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseDocument(DiagnosisDocument):
    """What `tpuwatch diagnose` prints."""

    unreadable: tuple[UnreadDocument, ...]
