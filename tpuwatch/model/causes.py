"""The table of causes: each is one row, and all that is known of a cause stands in it.

To add a cause, add its row here and its rules in `logs/rules`, then run `make literals alerts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing_extensions import Self


class Whose(Enum):
    """Who or what is at fault when a program ends or stands still with a cause."""

    PROGRAM = auto()  # what the program computes
    SETUP = auto()  # the software, the settings, the access or the host of the program; the TPU works
    NODE = auto()  # a broken node may be why
    OTHER_WORKER = auto()  # another worker of the slice; the one that reports it is seldom at fault
    HOLDER = auto()  # another process, which holds the TPU
    UNCLEAR = auto()  # the program or the node
    NONE = auto()  # it does not explain why a program on this node ended or stands still


@dataclass(frozen=True, slots=True)
class LoopWords:
    """A fault that a training loop's progress shows."""

    rule: str  # the id of the rule in `logs/rules/loops.toml`
    words: str  # a clause about the loop


@dataclass(frozen=True, slots=True)
class CauseRow:
    """What is known of a cause."""

    id: str  # what users see
    who_acts: str
    alert: str  # its name, or "none: " and the reason
    whose: Whose
    meaning: str  # what went wrong, as Markdown
    # Training that continues afterwards shows that it was no fault. Without, it holds whatever follows: a silent slow
    # path, a fallback to the CPU, a hardware fault, a wrong number. A rule may say otherwise.
    recovers: bool
    is_fault: bool = True  # False: an event for information; no finding, no evidence, no alert, no rule
    unexplained: bool = False  # it is not known what failed, so it says nothing of a node, a launch or a machine
    fatal: bool = False  # it ends a launch when it happens before the TPU is up
    wants_tpu: bool = False  # only a process that wants the TPU meets it
    waits: bool = False  # before the TPU is up it keeps a start waiting, whatever the size of the premapped buffer
    calls_for_size: bool = False  # the next launch may need another size of the premapped buffer
    hangs: bool = False  # after it a chip that counts as busy may wait forever
    of_tpu: bool = False  # the TPU's own log blames the TPU; any other error a user of the machine may have made
    of_any_service: bool = False  # any service of Google's refuses a request for it
    may_lack_metadata: bool = False  # libtpu without metadata may be why
    loop: LoopWords | None = None  # a training loop's progress shows it


MACHINE_FAULT: Final = "TpuwatchMachineFault"
PROGRAM_FAULT: Final = "TpuwatchProgramFault"
_OPERATOR: Final = "operator"
_MODEL_OWNER: Final = "model owner"
_KERNEL_AUTHOR: Final = "kernel author"


class Cause(str, Enum):
    """What went wrong. The value is the id that users see.

    Findings are listed in this order: a cause before its consequences, the specific before the general. Of several
    faults of a training loop the gravest is the first.
    """

    value: str  # the id
    row: CauseRow
    rank: int  # its place in the table

    def __new__(cls, row: Any) -> Self:  # Any: to type checkers `Cause("hang")` is a call of it, too
        """The member of a row."""
        member = str.__new__(cls, row.id)
        member._value_, member.row, member.rank = row.id, row, len(cls.__members__)
        return member

    @property
    def is_fault(self) -> bool:
        """Whether something went wrong. Other events are informative: no finding, no evidence, no alert."""
        return self.row.is_fault

    @property
    def is_known_fault(self) -> bool:
        """Whether something went wrong and it is known what. The others tell nothing of a node, launch or machine."""
        return self.row.is_fault and not self.row.unexplained

    # fmt: off
    HOST_OOM = CauseRow(
        "host_oom", _MODEL_OWNER, "TpuwatchHostOom", Whose.SETUP, recovers=False, calls_for_size=True,
        meaning="the host's memory ran out, or the kernel killed a process of a TPU job for it: for the limit of "
        "its cgroup (rule `host-oom-cgroup`) or because the machine had none left (`host-oom-machine`); "
        "details `process`, `killed_pid`, `cgroup`, `limit_cgroup`, `limit_bytes`, `unit`, `pod`, "
        "`container`",
    )
    DISK_FULL = CauseRow(
        "disk_full", _OPERATOR, "TpuwatchDiskFull", Whose.SETUP, recovers=False,
        meaning="a file system has no space or no inodes left, a quota is spent, or it is read-only",
    )
    PREMAPPED_EXHAUSTED = CauseRow(
        "premapped_exhausted", _OPERATOR, "TpuwatchPremappedExhausted", Whose.SETUP,
        recovers=False, wants_tpu=True, calls_for_size=True,
        meaning="the pinned host region for transfers is too small: raise `TPU_PREMAPPED_BUFFER_SIZE`",
    )
    VMEM_OOM = CauseRow(
        "vmem_oom", _KERNEL_AUTHOR, PROGRAM_FAULT, Whose.PROGRAM, recovers=True,
        meaning="scratch memory on the chip (vmem, smem, sflag, SparseCore) ran out",
    )
    HBM_OOM_COMPILE = CauseRow(
        "hbm_oom_compile", _MODEL_OWNER, "TpuwatchHbmOomAtCompile", Whose.PROGRAM, recovers=True,
        meaning="the compiler knows that the program cannot fit into HBM",
    )
    HBM_OOM_RUNTIME = CauseRow(
        "hbm_oom_runtime", _MODEL_OWNER, "TpuwatchHbmOomAtRunTime", Whose.PROGRAM, recovers=True,
        meaning="a buffer or a compiled program did not fit into HBM at run time",
    )
    BAD_FLAG = CauseRow(
        "bad_flag", _OPERATOR, MACHINE_FAULT, Whose.SETUP, recovers=True, fatal=True, wants_tpu=True,
        meaning="an unknown or ill-formed flag or `TPU_*`/`LIBTPU_*` variable ends the run",
    )
    TPU_IN_USE = CauseRow(
        "tpu_in_use", _OPERATOR, MACHINE_FAULT, Whose.HOLDER, recovers=False, fatal=True, wants_tpu=True, waits=True,
        meaning="another process holds the TPU",
    )
    METADATA_UNREACHABLE = CauseRow(
        "metadata_unreachable", _OPERATOR, MACHINE_FAULT, Whose.SETUP,
        recovers=True, fatal=True, wants_tpu=True, waits=True, may_lack_metadata=True,
        meaning="the metadata server did not answer, or lacks an attribute",
    )
    VERSION_MISMATCH = CauseRow(
        "version_mismatch", _OPERATOR, MACHINE_FAULT, Whose.SETUP, recovers=True, fatal=True,
        meaning="libtpu, the plugin, the framework or the worker's software are incompatible",
    )
    AUTH_SCOPE = CauseRow(
        "auth_scope", _OPERATOR, MACHINE_FAULT, Whose.SETUP, recovers=True, waits=True, of_any_service=True,
        meaning="the credentials lack an OAuth scope (HTTP 403)",
    )
    CREDENTIALS = CauseRow(
        "credentials", _OPERATOR, MACHINE_FAULT, Whose.SETUP, recovers=True, waits=True, of_any_service=True,
        meaning="the credentials are missing, expired or invalid",
    )
    PERMISSION_DENIED = CauseRow(
        "permission_denied", _OPERATOR, MACHINE_FAULT, Whose.SETUP, recovers=True, fatal=True, of_any_service=True,
        meaning="a permission is missing, in IAM or on a file",
    )
    SSH_KEY = CauseRow(
        "ssh_key", _OPERATOR, "none: who runs ssh sees it", Whose.NONE, recovers=True,
        meaning="ssh cannot connect, was cut, or the key is refused or not propagated",
    )
    GCLOUD_COMPONENTS = CauseRow(
        "gcloud_components", _OPERATOR, "none: who runs gcloud sees it", Whose.NONE, recovers=True,
        meaning="the component manager of this gcloud installation is disabled",
    )
    CAPACITY = CauseRow(
        "capacity", "wait, or another zone; in the cluster, delete what holds the chips",
        "none: who creates a node sees it; TpuwatchWaitingForCapacity has a restart that waits",
        Whose.NONE, recovers=True, of_any_service=True,
        meaning="the zone has no capacity for this TPU type, or no node of the Kubernetes cluster has the chips "
        "free",
    )
    QUOTA = CauseRow(
        "quota", _OPERATOR, MACHINE_FAULT, Whose.NONE, recovers=True, of_any_service=True,
        meaning="a quota or a rate limit of the TPU API is exceeded, or the quota of a ClusterQueue of Kueue",
    )
    MAINTENANCE = CauseRow(
        "maintenance", "wait, with a checkpoint", "TpuwatchNodeMaintenance", Whose.NONE, recovers=False, waits=True,
        meaning="maintenance is scheduled or in progress",
    )
    PREEMPTED = CauseRow(
        "preempted", "create it again", "TpuwatchNodePreempted", Whose.NONE, recovers=False,
        meaning="the cloud preempted the node",
    )
    NODE_NOT_READY = CauseRow(
        "node_not_ready", "wait", "none: it is waited for; TpuwatchNodeGone has a node that is gone", Whose.NONE,
        recovers=True, waits=True,
        meaning="the node does not exist, or is being created",
    )
    DRIVER_ERROR = CauseRow(
        "driver_error", _OPERATOR, MACHINE_FAULT, Whose.NODE,
        recovers=False, fatal=True, wants_tpu=True, waits=True, hangs=True, of_tpu=True,
        meaning="the driver or the device node refuses to open or map",
    )
    NODE_UNHEALTHY = CauseRow(
        "node_unhealthy", _OPERATOR, MACHINE_FAULT, Whose.NODE,
        recovers=False, fatal=True, wants_tpu=True, waits=True, of_tpu=True,
        meaning="the cloud or a health check reports the node or a chip as unhealthy",
    )
    PROGRAM_MISMATCH = CauseRow(
        "program_mismatch", _MODEL_OWNER, PROGRAM_FAULT, Whose.PROGRAM, recovers=False,
        meaning="the hosts of a slice run different programs",
    )
    NUMERIC_FAULT = CauseRow(
        "numeric_fault", _MODEL_OWNER, PROGRAM_FAULT, Whose.PROGRAM,
        recovers=False, loop=LoopWords("loop-nan", "a number is none"),
        meaning="NaN or Inf in loss or gradients, or silent data corruption",
    )
    DYNAMIC_SHAPE = CauseRow(
        "dynamic_shape", _MODEL_OWNER, PROGRAM_FAULT, Whose.PROGRAM, recovers=True,
        meaning="a shape is not static, so the program cannot be compiled for TPU",
    )
    UNSUPPORTED_OP = CauseRow(
        "unsupported_op", _MODEL_OWNER, PROGRAM_FAULT, Whose.PROGRAM, recovers=True,
        meaning="an op has no kernel for the TPU or on its host",
    )
    UNPLACEABLE_OP = CauseRow(
        "unplaceable_op", _MODEL_OWNER, PROGRAM_FAULT, Whose.PROGRAM, recovers=True,
        meaning="an op or a resource is assigned to a device that does not support it",
    )
    DATA_PIPELINE_ERROR = CauseRow(
        "data_pipeline_error", _MODEL_OWNER, PROGRAM_FAULT, Whose.PROGRAM, recovers=True,
        meaning="the input pipeline failed or is empty",
    )
    INVALID_PROGRAM = CauseRow(
        "invalid_program", _KERNEL_AUTHOR, PROGRAM_FAULT, Whose.PROGRAM, recovers=True,
        meaning="the program is rejected: tiling, layout, or an input that does not match",
    )
    CORE_HALTED = CauseRow(
        "core_halted", _OPERATOR, MACHINE_FAULT, Whose.NODE, recovers=False, hangs=True, of_tpu=True,
        meaning="a TPU core halted",
    )
    COMPILER_CRASH = CauseRow(
        "compiler_crash", "report it upstream", MACHINE_FAULT, Whose.SETUP, recovers=False, fatal=True,
        meaning="an internal check of the compiler or the runtime failed",
    )
    HANG = CauseRow(
        "hang", _OPERATOR, MACHINE_FAULT, Whose.UNCLEAR, recovers=True, hangs=True, of_tpu=True,
        meaning="the runtime reports that a program is stuck",
    )
    STEPS_STALLED = CauseRow(
        "steps_stalled", _MODEL_OWNER, "TpuwatchStepsStalled", Whose.NONE,
        recovers=False, loop=LoopWords("loop-stalled", "it stands still"),
        meaning="a training loop makes no step, and its process lives ([heartbeats](heartbeats.md))",
    )
    MESH_ERROR = CauseRow(
        "mesh_error", _OPERATOR, MACHINE_FAULT, Whose.OTHER_WORKER,
        recovers=True, fatal=True, wants_tpu=True, waits=True, hangs=True, may_lack_metadata=True,
        meaning="the slice's topology could not be built, or the hosts see it differently",
    )
    BARRIER_TIMEOUT = CauseRow(
        "barrier_timeout", _OPERATOR, MACHINE_FAULT, Whose.OTHER_WORKER, recovers=True, waits=True, hangs=True,
        meaning="some hosts did not reach a barrier",
    )
    HEARTBEAT_LOST = CauseRow(
        "heartbeat_lost", _OPERATOR, MACHINE_FAULT, Whose.OTHER_WORKER, recovers=True, waits=True, hangs=True,
        meaning="the coordination service receives no heartbeats of a task",
    )
    CONNECT_FAILED = CauseRow(
        "connect_failed", _OPERATOR, MACHINE_FAULT, Whose.OTHER_WORKER, recovers=True, waits=True, hangs=True,
        meaning="the TPU runtime or a worker cannot be reached",
    )
    DEADLINE_EXCEEDED = CauseRow(
        "deadline_exceeded", _OPERATOR, MACHINE_FAULT, Whose.UNCLEAR, recovers=True, waits=True,
        meaning="a call to the runtime, or waiting for other hosts, timed out",
    )
    TENSOR_HANDLE = CauseRow(
        "tensor_handle", _MODEL_OWNER, PROGRAM_FAULT, Whose.PROGRAM, recovers=True,
        meaning="a remote tensor's handle is missing or no longer valid",
    )
    NO_TPU_FOUND = CauseRow(
        "no_tpu_found", _OPERATOR, MACHINE_FAULT, Whose.NODE,
        recovers=False, fatal=True, wants_tpu=True, may_lack_metadata=True,
        meaning="the program finds no TPU: wrong image, no driver, or a build without TPU support",
    )
    INIT_FAILED = CauseRow(
        "init_failed", _OPERATOR, MACHINE_FAULT, Whose.NODE,
        recovers=False, fatal=True, wants_tpu=True, may_lack_metadata=True,
        meaning="the TPU could not be initialised, for a reason without a cause of its own",
    )
    SLOW_INIT = CauseRow(
        "slow_init", _OPERATOR, "TpuwatchSlowStart", Whose.NONE,
        recovers=True, wants_tpu=True, may_lack_metadata=True, calls_for_size=True,
        meaning="initialisation took longer than 15 s, or the framework warns that it has not returned",
    )
    SLOW_STEPS = CauseRow(
        "slow_steps", _MODEL_OWNER, "TpuwatchStepsSlow", Whose.NONE,
        recovers=False, loop=LoopWords("loop-slow", "steps are slower than usual"),
        meaning="a training loop is slower than its own past, by 5 % or more, since an abrupt change",
    )
    INPUT_BOUND = CauseRow(
        "input_bound", _MODEL_OWNER, "TpuwatchInputBound", Whose.NONE,
        recovers=False, loop=LoopWords("loop-input-bound", "it waits for its input"),
        meaning="a training loop waits for its input for a fifth of its time or more",
    )
    UNKNOWN_FAILURE = CauseRow(
        "unknown_failure", "a person", "none: what to do is not known; it is in `tpuwatch events`", Whose.NONE,
        recovers=True, unexplained=True,
        meaning="the text plainly shows a failure, and no rule explains it; it never causes an act",
    )
    INTERRUPTED = CauseRow(
        "interrupted", "nobody", "none: a person did it", Whose.NONE, recovers=False,
        meaning="a person stopped the program",
    )
    PROCESS_KILLED = CauseRow(
        "process_killed", "who runs it",
        "none: no fault of the node or of a TPU job; TpuwatchHostOom has the kernel's count of kills, this one too",
        Whose.NONE, is_fault=False, recovers=False,
        meaning="nothing at the node: the kernel killed a process that belongs to no TPU job for lack of memory. "
        "The event has process, cgroup and limit",
    )
    TUNE_CHANGE = CauseRow(
        "tune_change", "nobody", "none: no fault; TpuwatchTuneRolledBack has a trial that was worse", Whose.NONE,
        is_fault=False, recovers=False,
        meaning="nothing: the environment of a workload's [next launch](tune.md) has changed",
    )
    PROBE = CauseRow(
        "probe", "who reads it", "none: who probes reads it", Whose.NONE, is_fault=False, recovers=False,
        meaning="what the event says: root or tpuwatch's own user has [probed](probe.md) the TPU",
    )
    # fmt: on


LOOP_FAULTS: Final = tuple(cause for cause in Cause if cause.row.loop is not None)
