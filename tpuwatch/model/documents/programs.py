"""What is found out about a program as JSON: its compilation, its profile, advice on it, and the probe of the TPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

from tpuwatch.core import Digits
from tpuwatch.model.documents.logs import FindingDocument
from tpuwatch.model.events import Remedy
from tpuwatch.model.probe import ProbeVerdict


@dataclass(frozen=True, slots=True)
class Flops:
    """The FLOPs of a run. Where operations are not counted they are None, and the operations named with how often they
    run; `matrix_flops_at_least` is of those that are counted."""

    matrix_flops: int | None
    vector_flops: int | None
    matrix_flops_at_least: int | None
    not_counted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Roofline:
    """Of a device and a run of the program; seconds are the least that it can take."""

    flops: float  # of the matrix units
    moved_bytes: float
    compute_seconds: float  # the FLOPs at the peak
    memory_seconds: float  # the bytes at the bandwidth
    seconds: float  # operation by operation the larger of both, with the matrix units as full as the shapes allow
    peak_flops: float  # in a second
    hbm_bytes_per_second: float
    intensity: float  # FLOPs for each byte
    ridge: float  # the intensity from which on the FLOPs are what takes the time
    bound: str  # "compute" or "memory"
    mxu_bound: float  # the share of the peak that the shapes of its products allow


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFigures:
    """What the compiler said of one batch. Bytes are of one device; None where it does not say."""

    fits: bool
    batch: int | None
    needed_bytes: int | None
    available_bytes: int | None
    devices: int
    device_kind: str
    sharded: bool  # whether the factory spread the arguments over the devices
    trace_seconds: float
    compile_seconds: float
    arguments_bytes: int | None = None
    outputs_bytes: int | None = None
    shared_bytes: int | None = None  # of the outputs, which take the place of donated arguments
    temporaries_bytes: int | None = None
    code_bytes: int | None = None
    message: str = ""  # of the compiler, where it refused
    memory_space: str | None = None  # the memory that ran out, where it refused: HBM, or "vmem", "smem" of the chip
    unfinished: str | None = None  # why the compiler was not waited for: it fits without its code, which was not made


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDocument(TrialFigures):
    """A trial with its FLOPs, and what they take at best, an estimate."""

    flops: Flops
    roofline: Roofline | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightResultDocument:
    """What came of one target. `problem` says why there is no answer: kind, stage, message, place, output."""

    tpu: str
    topology: str
    chips: int
    fits: bool | None
    seconds: Annotated[float, Digits(3)]
    largest_batch: int | None
    trial: TrialDocument | None
    trials: tuple[TrialDocument, ...]
    findings: tuple[FindingDocument, ...]
    problem: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightDocument:
    """What `tpuwatch preflight` prints."""

    function: str
    python: str
    results: tuple[PreflightResultDocument, ...]


@dataclass(frozen=True, slots=True)
class ProfileFinding:
    """One thing to change: a number, why it matters, the change, and where it is written."""

    name: str
    number: Annotated[float, Digits(4)]  # a share from 0 to 1, or a ratio
    summary: str  # a sentence with the number
    remedy: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True)
class ProfiledOperation:
    """What took much time, on the device or the host."""

    name: str
    kind: str
    where: str  # "Device" or "Host"
    share: float  # of that one's time, 0 to 1


@dataclass(frozen=True, slots=True)
class ProfileFigures:
    """Where the time goes: shares from 0 to 1 of the steps' time, None where the trace does not show it."""

    hardware: str  # as xprof names it: "TPU v5e", "CPU_ONLY"
    hosts: int
    steps: int
    step_seconds: float | None  # the mean
    slowest_seconds: float | None
    input_share: float | None  # waiting for input
    host_share: float | None  # computing on the host
    transfer_share: float | None  # of a device, passing values to the host: outfeed, callbacks
    compile_share: float | None
    other_share: float | None  # between: Python, callbacks
    idle_share: float | None  # of the device's time
    mxu_share: float | None  # use of the matrix units
    categories: tuple[tuple[str, float], ...] = ()  # of the device's operations, each with its share of their time
    operations: tuple[ProfiledOperation, ...] = ()  # the longest first
    input_operations: tuple[ProfiledOperation, ...] = ()
    conclusion: str = ""  # xprof's own


@dataclass(frozen=True, slots=True)
class Profile:
    """What was read and found, and by which interpreter: what `tpuwatch profile` prints."""

    files: tuple[str, ...]
    python: str
    figures: ProfileFigures
    findings: tuple[ProfileFinding, ...]


@dataclass(frozen=True, slots=True)
class ProbeStage:
    """What was done, and for how long."""

    name: str
    seconds: Annotated[float, Digits(3)]


@dataclass(frozen=True, slots=True)
class ProbeHolder:
    """A process that held the TPU."""

    pid: int
    user: str
    command: str


@dataclass(frozen=True, slots=True)
class ProbeDifference:
    """A result of the user's step that is not the same on the TPU and on the CPU."""

    place: str  # "result[0]['loss']"
    what: str  # a clause


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAttemptDocument:
    """How far the TPU, or the CPU, came. `problem` says why it went no further: kind, stage, message."""

    platform: str  # "tpu" or "cpu"
    stages: tuple[ProbeStage, ...]
    facts: Mapping[str, Any]  # framework, version, python, devices, files
    problem: Mapping[str, Any] | None
    findings: tuple[FindingDocument, ...]
    output: str
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What `tpuwatch probe` prints."""

    verdict: ProbeVerdict
    summary: str
    remedy: tuple[Remedy, ...]
    python: str
    framework: str | None
    began_epoch: float
    ended_epoch: float
    counts: bool
    objection: str | None  # why it is no evidence for the judge
    devices: tuple[str, ...]
    holders: tuple[ProbeHolder, ...]
    differences: tuple[ProbeDifference, ...]
    attempts: tuple[ProbeAttemptDocument, ...]
    recorded: bool = False  # for the daemon


class Gain(Enum):
    """What a change is good for; those before others come first, however much they gain."""

    RUNS = "the program runs at all"
    HBM = "HBM"
    TIME = "step time"
    HOST = "host memory"
    INPUT = "input"
    ACCURACY = "accuracy"


@dataclass(frozen=True, slots=True)
class Passage:
    """A section of a guide."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class ProgramAdvice:
    """A piece of advice: a number, the reason, the change to make, and where that is written.

    `gain` is a share of what `of` names: of the HBM that is there, of the least time of a step. 0: not known.
    """

    id: str
    gain: float
    of: Gain
    number: str
    reason: str
    change: str
    source: Passage
    place: Mapping[str, Any] | None = None  # file and line of the user's code
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotCompiled:
    """A change of the program that could not be compiled."""

    change: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Rules that could not look, and why."""

    rules: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDocument:
    """Tensors of a shape: what they hold, and what they take."""

    name: str
    part: str
    shape: str
    count: int
    bytes: int
    padded_bytes: int
    expansion: float
    order: tuple[int, ...]  # of its sides, the minor ones last
    padded_bytes_as_written: int
    nearest: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceResultDocument:
    """Advice on one target. Bytes are of one device."""

    tpu: str
    topology: str
    fits: bool | None
    code_made: bool | None
    problem: Mapping[str, Any] | None
    generation: str
    chips: int
    batch: int | None
    available_bytes: int
    memory: Mapping[str, int]
    memory_space: str | None
    roofline: Roofline | None
    flops: Flops | None
    not_compiled: tuple[NotCompiled, ...]
    profile: ProfileFigures | None
    corrected: tuple[str, ...]  # what a profile changed of the estimates
    checked: tuple[str, ...]  # the rules that looked
    not_checked: tuple[NotChecked, ...]
    tensors: tuple[TensorDocument, ...]
    findings: tuple[ProgramAdvice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceDocument:
    """What `tpuwatch advise` prints."""

    subject: str
    results: tuple[AdviceResultDocument, ...]
