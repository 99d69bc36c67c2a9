"""Launches: processes that initialise the TPU.

Sizes are bytes, durations seconds, times seconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tpuwatch.model.causes import Cause


class Outcome(str, Enum):
    """How a launch's initialisation went."""

    STARTING = "starting"  # under way, within its grace
    OK = "ok"
    SLOW = "slow"  # initialised, but later than the limit
    FAILED = "failed"
    SILENT = "silent"  # no record for longer than the compile grace
    KILLED = "killed"  # the process ended before it was initialised


CAME_UP: Final = (Outcome.OK, Outcome.SLOW)
_ENDED_WELL: Final = (None, 0, 129, 130, 143)  # 128 and SIGHUP, SIGINT, SIGTERM: somebody ended it


@dataclass(slots=True)
class Launch:
    """One process that initialises the TPU, as known from its log files, job output and /proc."""

    pid: int  # negative: a number of ours, as none is known; then `output` is set
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
    workload: str = ""  # the name set by the operator or `tpuwatch exec`; empty: none
    faults: dict[str, float] = field(default_factory=dict)  # causes, and the seconds from start to the first of each
    premapped_failures: int = 0  # how often the premapped buffer was exhausted
    premapped_need_bytes: int | None = None  # the most that a failure showed to be needed at once; None: unknown
    premapped_asked_bytes: int | None = None  # the largest single buffer that did not fit
    boot_id: str = ""  # the machine's boot that it ran in; empty where it is unknown
    ended: float | None = None
    exit_status: int | None = None  # as the shell counts: 128 and more for signals; None if unknown
    history: bool = False
    output: str = ""  # the job's output, and its author there, if that alone tells of the launch
    superseded: bool = False  # it turned out to be one with a process number, and does not count
    id: int | None = None

    @property
    def failed_after_start(self) -> str:
        """What went wrong after it came up: a cause, or its exit status; empty where nothing did, or it never came up.

        `outcome` is that of the initialisation alone.
        """
        if self.outcome not in CAME_UP:
            return ""
        later = {cause: at for cause, at in self.faults.items() if cause != Cause.SLOW_INIT.value}  # it came up late
        if later:
            return min(later, key=lambda cause: (later[cause], cause))
        if self.cause is not None:
            return self.cause.value
        return "" if self.exit_status in _ENDED_WELL else f"exit status {self.exit_status}"
