"""The words that all parts of tpuwatch share: causes, events, launches, findings, read cursors.

Everything here is plain data without I/O. Sizes are bytes, durations seconds, times seconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Cause(str, Enum):
    """What went wrong, in the words of the person who must act. The value is the id that users see."""

    # The order is the order of findings: a cause comes before what it brings about, the specific before the general.
    HOST_OOM = "host_oom"
    PREMAPPED_EXHAUSTED = "premapped_exhausted"
    VMEM_OOM = "vmem_oom"
    HBM_OOM_COMPILE = "hbm_oom_compile"
    HBM_OOM_RUNTIME = "hbm_oom_runtime"
    BAD_FLAG = "bad_flag"
    TPU_IN_USE = "tpu_in_use"
    METADATA_UNREACHABLE = "metadata_unreachable"
    VERSION_MISMATCH = "version_mismatch"
    AUTH_SCOPE = "auth_scope"
    CREDENTIALS = "credentials"
    PERMISSION_DENIED = "permission_denied"
    SSH_KEY = "ssh_key"
    GCLOUD_COMPONENTS = "gcloud_components"
    CAPACITY = "capacity"
    QUOTA = "quota"
    MAINTENANCE = "maintenance"
    PREEMPTED = "preempted"
    NODE_NOT_READY = "node_not_ready"
    DRIVER_ERROR = "driver_error"
    NODE_UNHEALTHY = "node_unhealthy"
    PROGRAM_MISMATCH = "program_mismatch"
    NUMERIC_FAULT = "numeric_fault"
    DYNAMIC_SHAPE = "dynamic_shape"
    UNSUPPORTED_OP = "unsupported_op"
    UNPLACEABLE_OP = "unplaceable_op"
    DATA_PIPELINE_ERROR = "data_pipeline_error"
    INVALID_PROGRAM = "invalid_program"
    TENSOR_HANDLE = "tensor_handle"
    CORE_HALTED = "core_halted"
    COMPILER_CRASH = "compiler_crash"
    HANG = "hang"
    MESH_ERROR = "mesh_error"
    BARRIER_TIMEOUT = "barrier_timeout"
    HEARTBEAT_LOST = "heartbeat_lost"
    CONNECT_FAILED = "connect_failed"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NO_TPU_FOUND = "no_tpu_found"
    INIT_FAILED = "init_failed"
    SLOW_INIT = "slow_init"
    INTERRUPTED = "interrupted"
    TUNE_CHANGE = "tune_change"

    @property
    def is_fault(self) -> bool:
        """Whether something went wrong. What did not is an event to read: no finding, no evidence, no alert."""
        return self is not Cause.TUNE_CHANGE


class Outcome(str, Enum):
    """How a launch's initialisation went."""

    STARTING = "starting"  # under way, within its grace
    OK = "ok"
    SLOW = "slow"  # came up, but later than the limit
    FAILED = "failed"
    SILENT = "silent"  # nothing heard for longer than the compile grace
    KILLED = "killed"  # the process went away before it came up


@dataclass(frozen=True, slots=True)
class Event:
    """One record that a rule recognised. `key` is the same for every copy of the record, wherever it is read."""

    key: bytes
    rule: str
    cause: Cause
    observed: float  # when tpuwatch read it
    time: float | None  # when the record says it happened
    severity: str  # I, W, E, F, or "" where the text has no such mark
    pid: int | None
    file: str
    offset: int
    text: str  # the record, cleaned and cut
    details: dict[str, Any] = field(default_factory=dict)
    history: bool = False  # written before tpuwatch first ran here: never alerts, never acts
    id: int | None = None  # the journal's number for it

    @property
    def when(self) -> float:
        """The record's own time where it has one, else the time of reading."""
        return self.observed if self.time is None else self.time


@dataclass(slots=True)
class Launch:
    """One process that initialises the TPU, put together from its log files, job output and /proc."""

    pid: int
    started: float
    user: str = ""
    host: str = ""
    build: str = ""  # libtpu's build label
    chips: int | None = None
    chip_kind: str = ""
    premapped_bytes: int | None = None
    premapped_threshold_bytes: int | None = None
    premapped_partitions: int | None = None
    init_seconds: float | None = None
    outcome: Outcome = Outcome.STARTING
    cause: Cause | None = None  # why it failed
    last_heard: float | None = None
    environment: dict[str, str] = field(default_factory=dict)  # TPU_*, LIBTPU_* and TPUWATCH_* of the process
    workload: str = ""  # the name that the operator or `tpuwatch exec` gave it; empty: none
    faults: dict[str, float] = field(default_factory=dict)  # causes, and the seconds from start to the first of each
    premapped_failures: int = 0  # how often the premapped buffer had no room
    premapped_need_bytes: int | None = None  # the most that a failure showed to be needed at once; None: none told
    premapped_asked_bytes: int | None = None  # the largest single buffer that there was no room for
    boot_id: str = ""  # the machine's boot that it ran in; empty where nobody knows
    ended: float | None = None
    exit_status: int | None = None  # as the shell counts: 128 and more for signals; None where nobody saw it
    history: bool = False
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a file has been read. The file is known by device, inode and first bytes, not by its name."""

    path: str
    device: int
    inode: int
    head: bytes  # the file's first bytes (up to 256), as they were when first seen
    offset: int  # everything below has been turned into events
    state: dict[str, Any] = field(default_factory=dict)  # what the parser must remember
    history_until: int = 0  # bytes below were there before tpuwatch first ran here


@dataclass(frozen=True, slots=True)
class Remedy:
    """One step to take, and the public page that it comes from."""

    do: str
    source: str


@dataclass(slots=True)
class Finding:
    """All events of one cause, folded: what a person acts on."""

    cause: Cause
    count: int
    first: Event
    last: Event
    line: int | None
    details: dict[str, Any]
    summary: str
    remedy: tuple[Remedy, ...]
