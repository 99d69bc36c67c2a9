"""What tuning looks at and what it answers. Plain data without I/O: sizes are bytes, durations seconds.

Light to import: `tpuwatch exec` needs it before a command starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 (the codec reads annotations)
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tpuwatch.model.launches import Launch

SIZE: Final = "TPU_PREMAPPED_BUFFER_SIZE"
THRESHOLD: Final = "TPU_PREMAPPED_BUFFER_TRANSFER_THRESHOLD_BYTES"

PAGE_BYTES: Final = 4096  # the size is a multiple of it
DEFAULT_PREMAPPED_BYTES: Final = 4 << 30  # libtpu's own, on v5e and later; v2 to v4 have no buffer unless it is set

# Marks in the environment of a launch: which launch it is and what tpuwatch has set.
WORKLOAD_VARIABLE: Final = "TPUWATCH_WORKLOAD"
SET_VARIABLE: Final = "TPUWATCH_SET"  # the names that tpuwatch set, with commas; others are the operator's own
SUMS_VARIABLE: Final = "TPUWATCH_SUMS"  # checksums of the values of the names in SET_VARIABLE, in their order
LAUNCH_VARIABLE: Final = "TPUWATCH_LAUNCH"  # one call of `tpuwatch exec`

DEFAULT_WORKLOAD: Final = "default"  # of launches without a name
WORKLOAD_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # part of file names


DIRECTIONS: Final = ("set", "up", "down", "back", "changed", "unset")  # of a change of a variable


def is_workload(name: str) -> bool:
    """Whether that can be a workload's name."""
    return re.fullmatch(WORKLOAD_PATTERN, name) is not None


def workload_of(launch: Launch) -> str:
    """The workload that a launch is of."""
    return launch.workload if is_workload(launch.workload) else DEFAULT_WORKLOAD


class SizeStep(str, Enum):
    """What is done to the premapped buffer, against what the last launch had."""

    START = "start"  # there is no history: what the accelerator starts from
    KEEP = "keep"
    GROW = "grow"
    SHRINK = "shrink"
    BACK = "back"  # the trial was worse: to the last good size
    OVERRIDDEN = "overridden"  # the configuration decides
    UNSATISFIABLE = "unsatisfiable"  # no size that is allowed would do: what would is among the reasons


@dataclass(frozen=True, slots=True)
class TuneHost:
    """The machine that the next launch runs on. None where it is not known."""

    generation: str = ""  # "v5e", "v5p", "v6e", "7x", "v4" …; empty: not known
    total_bytes: int | None = None  # memory of the machine, or of the cgroup's limit
    taken_bytes: int = 0  # premapped buffers, which are pinned, of launches that run now beside it
    bare: bool = False  # launches that set no size had no buffer, which counts where the generation is not known

    @property
    def default_bytes(self) -> int:
        """The premapped buffer that libtpu makes when nothing is set: 0 is none."""
        none = self.generation in {"v2", "v3", "v4"} if self.generation else self.bare
        return 0 if none else DEFAULT_PREMAPPED_BYTES


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the configuration allows."""

    min_bytes: int = 256 << 20
    max_bytes: int = 64 << 30
    memory_share: float = 0.25  # of the host's memory, the largest buffer
    init_seconds: float = 15.0  # a launch that takes longer is slow
    headroom: float = 0.25  # on top of what a failure showed to be needed
    window: int = 50  # the latest runs of the workload that are looked at, of one process or several each
    power_of_two: bool = False  # Pathways workers take no other size
    overrides: Mapping[str, str] = field(default_factory=dict)  # variables that the configuration decides


@dataclass(frozen=True, slots=True)
class Fit:
    """Initialisation time as a line over the buffer's size: seconds = base + per_byte * size."""

    base_seconds: float
    per_byte_seconds: float
    launches: int  # that it rests on
    left_out: int  # slow starts that something else explains, and outliers
    spread_seconds: float  # the median distance from the line


@dataclass(frozen=True, slots=True)
class VariableSetting:
    """One variable for the next launch."""

    name: str
    value: str
    why: str  # one sentence


@dataclass(frozen=True, slots=True)
class Advice:
    """What tpuwatch does not do itself, and the public page that recommends it."""

    do: str
    source: str


@dataclass(frozen=True, slots=True)
class SizeDecision:
    """The premapped buffer of a workload's next launch, and why."""

    step: SizeStep
    size_bytes: int | None  # None: left to libtpu, the variable is not set
    threshold_bytes: int | None  # None: left to libtpu, which takes the buffer's size
    reasons: tuple[str, ...]  # sentences with their numbers, the weightiest first
    before_bytes: int | None = None  # what the last launch had; None where there was none
    trial: bool = False  # the next launch is the first with this size
    conflict: str = ""  # a need that no size meets together with another, in one sentence
    need_bytes: int | None = None  # the largest that any failure in the window showed
    ceiling_bytes: int | None = None  # the largest buffer that bounds and memory allow
    fast_bytes: int | None = None  # the largest that still initialises in time, by the fit
    fit: Fit | None = None
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True)
class TunePlan:
    """All that is decided for a workload's next launch."""

    workload: str
    decided: float  # seconds since the epoch
    settings: tuple[VariableSetting, ...]
    decision: SizeDecision
    config: str = ""  # the configuration that it was decided by, as tpuwatch.config.stamp identifies it
    generation: str = ""  # of the machine's TPU, as far as who decided it knew
