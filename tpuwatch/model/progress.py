"""How far training loops have come: what one line or message says, and what is known of a loop.

All of it is the word of the job, which any user of the machine can write. Durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tpuwatch.core import clean, format_time, length
from tpuwatch.model.causes import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one line of output, or one heartbeat, says of a loop. None is not said."""

    step: int
    total: int | None = None  # steps of the run, or of the epoch
    loss: float | None = None
    step_seconds: float | None = None  # of the latest steps
    tokens_per_second: float | None = None
    input_seconds: float | None = None  # of `step_seconds`, in which the loop waited for its input
    nan: tuple[str, ...] = ()  # the names of numbers that are not a number
    done: bool = False  # the loop has ended


HEARTBEATS: Final = "heartbeats"  # in place of the file that a log's event has


class ProgressSource(str, Enum):
    """Where progress is known from. The value is what users see."""

    OUTPUT = "output"  # lines that the job prints
    HEARTBEAT = "heartbeat"  # messages of tpuwatch.workload


class SlowdownKind(str, Enum):
    """In which way a loop became slower. The value is what users see."""

    STEPS = "steps"  # its ordinary steps take longer
    PAUSES = "pauses"  # it is in pauses (evaluation, checkpoint, compilation) for more of its time


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A loop that is slower than its own baseline. Times are seconds since the Unix epoch."""

    kind: SlowdownKind
    since: float
    step: int  # the latest one before it became slower
    slower: float  # 0.12: its steps take 12 % longer; or 12 % more of the time are pauses
    told: float  # when it was found, or found to have grown by half
    gradual: bool = False  # it came without a jump: information, and no fault

    def words(self, now: float) -> str:
        """How slow, since which step, and for how long: "12 % slower since step 79050 (14:02, 41 min ago)"."""
        clock = format_time(self.since)
        when = clock[11:16] if clock[:10] == format_time(now)[:10] else clock
        slower = f"{self.slower:.0%}".replace("%", " %")
        if self.kind is SlowdownKind.PAUSES:
            slower += " more of the time in pauses"
        else:
            slower += " slower" + (", gradually," if self.gradual else "")
        return f"{slower} since step {self.step} ({when}, {length(max(0.0, now - self.since))} ago)"


@dataclass(frozen=True, slots=True)
class TrainingLoop:
    """A loop as it was seen last. Times are seconds since the Unix epoch."""

    source: ProgressSource
    name: str  # the file of the output, or the name that the job gave its loop; may be empty
    pid: int | None  # None: not known
    user: str  # "" where it is not known
    began: float  # when its first step was seen
    step: int
    stepped: float  # when it last made a step
    heard: float  # when it last said anything
    total: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    step_seconds: float | None = None  # the median of the latest steps
    usual_step_seconds: float | None = None  # the baseline that its steps are compared with; None: not known yet
    input_share: float | None = None  # of the time of the latest steps, from 0 to 1
    done: bool = False
    alive: bool | None = None  # whether its process is there; None: not known
    silent: bool = False  # its process is not known, and it has said nothing for longer than a step may take
    faults: tuple[Cause, ...] = ()  # of LOOP_FAULTS, those that hold now
    slowdown: Slowdown | None = None

    def sentence(self, now: float) -> str:
        """How far it has come, in one line: "train.log: step 1200 of 5000, 12 s ago; 0.41 s a step; loss 2.31".

        Of one that does not run: "train.log: ended; last step 5000 of 5000, 12 min ago; loss 2.31".
        """
        name = clean(self.name, 60)
        who = name if self.source is ProgressSource.OUTPUT else f"process {self.pid}{f' ({name})' if name else ''}"
        of = f" of {self.total}" if self.total is not None else ""
        step = f"step {self.step}{of}, {length(max(0.0, now - self.stepped))} ago"
        parts = [f"{who}: {step}"]
        if not self.is_running:
            parts = [f"{who}: {'not known to run' if self.silent else 'ended'}", f"last {step}"]
        elif self.step_seconds is not None:
            slower = f", {self.slowdown.words(now)}" if self.slowdown is not None else ""
            parts.append(f"{self.step_seconds:.3g} s a step{slower}")
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.tokens_per_second is not None and self.is_running:
            parts.append(f"{self.tokens_per_second:.4g} tokens/s")
        if self.input_share is not None and self.is_running:
            parts.append(f"{self.input_share:.0%} of it waiting for input")
        said = {Cause.SLOW_STEPS} if self.slowdown is not None else set()
        parts += [one.row.loop.words for one in self.faults if one.row.loop is not None and one not in said]
        return "; ".join(parts)

    @property
    def is_running(self) -> bool:
        """Whether it goes on, as far as is known: it has not ended, and it is not silent."""
        return not self.done and self.alive is not False and not self.silent


class PacePoint(NamedTuple):
    """The step time at a step of a launch."""

    step: int
    at: float  # seconds since the epoch
    seconds: float


@dataclass(frozen=True, slots=True)
class PaceRecord:
    """The pace of one launch's loop, as it is stored: its baseline and how it went."""

    launch: int  # distinguishes it from all others: 48 bits
    workload: str  # launches of the same one are compared
    run: str  # what a later daemon knows the same launch by
    step: int  # the latest
    at: float  # when it was made, in seconds since the epoch
    facts: Mapping[str, Any]  # what the detector knows, as JSON can have it
    points: tuple[PacePoint, ...] = ()  # in the order of steps
