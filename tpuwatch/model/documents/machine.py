"""This machine as JSON: the processes that hold the TPU, its runtime metrics, the latest probe, training loops."""

from dataclasses import dataclass
from typing import Annotated

from tpuwatch.core import Time, Words, like, redact
from tpuwatch.model.documents.words import CauseWord, KindWord, ProblemWord
from tpuwatch.model.probe import Probe, ProbeVerdict
from tpuwatch.model.progress import ProgressSource, Slowdown, SlowdownKind, TrainingLoop
from tpuwatch.model.signals import Chip, Host, Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalStatusDocument:
    """A signal: when it last answered, and why it did not when it was asked last."""

    name: str
    problem: ProblemWord | None
    detail: str
    at: Time | None
    tried: Time | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePortDocument:
    """The runtime metrics of one process."""

    port: int
    problem: ProblemWord | None = None
    detail: str = ""
    since: Time | None = None
    hlo_queue: int | None = None
    chips: tuple[Chip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDocument:
    """The runtime metrics of all processes that hold the TPU."""

    ports: tuple[RuntimePortDocument, ...]

    @classmethod
    def of(cls, runtime: Runtime) -> "RuntimeDocument":
        """As they were reported last."""
        return cls(ports=tuple(like(RuntimePortDocument, one) for one in runtime.ports))

    @property
    def chips(self) -> tuple[Chip, ...]:
        """All chips of all processes."""
        return tuple(chip for port in self.ports for chip in port.chips)


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderDocument:
    """A process that holds the TPU."""

    pid: int
    user: str
    command: str
    started: Time | None
    devices: tuple[str, ...]
    locks: bool
    cpu_cores: float | None = None
    trusted: bool = False
    blocked_seconds: float | None = None
    kind: KindWord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerDocument:
    """A port of runtime metrics on which only trusted processes listen."""

    port: int
    since: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeDocument:
    """The latest probe of the TPU."""

    id: str
    framework: str
    boot_id: str
    verdict: Annotated[str, Words(ProbeVerdict)]
    began: Time
    ended: Time
    summary: str
    objection: str | None

    @classmethod
    def of(cls, probe: Probe) -> "ProbeDocument":
        """As it was left for the daemon."""
        return like(cls, probe, summary=redact(probe.summary), objection=probe.objection or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootDocument:
    """A machine's boot: all of its document that other machines read."""

    boot_id: str
    booted: Time | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDocument(BootDocument):
    """This machine: who holds the TPU, memory, kills, and what could not be examined."""

    holders: tuple[HolderDocument, ...]
    lock_file: bool
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    memory_pinned_bytes: int | None = None
    oom_kills: int | None
    last_oom_kill: Time | None
    unseen: tuple[str, ...]
    listeners: tuple[ListenerDocument, ...] = ()
    probe: ProbeDocument | None = None

    @classmethod
    def of(cls, host: Host) -> "HostDocument":
        """As it was looked at last."""
        return like(
            cls,
            host,
            holders=tuple(like(HolderDocument, one) for one in host.holders),
            listeners=tuple(like(ListenerDocument, one) for one in host.listeners),
            probe=ProbeDocument.of(host.probe) if host.probe is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownDocument:
    """By how much a training loop is slower than its baseline, and since when."""

    kind: Annotated[str, Words(SlowdownKind)]
    since: Time
    step: int
    slower: float
    told: Time
    gradual: bool

    @classmethod
    def of(cls, slowdown: Slowdown) -> "SlowdownDocument":
        """As it is now."""
        return like(cls, slowdown)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLoopDocument:
    """How far a training loop has come by its own word, and in one line."""

    source: Annotated[str, Words(ProgressSource)]
    name: str
    pid: int | None
    user: str
    began: Time
    step: int
    total: int | None
    stepped: Time
    heard: Time
    loss: float | None
    tokens_per_second: float | None
    step_seconds: float | None
    usual_step_seconds: float | None
    input_share: float | None
    done: bool
    alive: bool | None
    running: bool
    faults: tuple[CauseWord, ...]
    sentence: str
    slowdown: SlowdownDocument | None = None

    @classmethod
    def of(cls, loop: TrainingLoop, now: float) -> "TrainingLoopDocument":
        """As it was seen last."""
        slowdown = SlowdownDocument.of(loop.slowdown) if loop.slowdown is not None else None
        return like(cls, loop, running=loop.is_running, sentence=loop.sentence(now), slowdown=slowdown)
