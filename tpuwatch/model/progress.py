"""How far training loops have come: what one line or message says, and what is known of a loop.

All of it is the word of the job, which any user of the machine can write. Durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tpuwatch.core import clean, length
from tpuwatch.model.causes import Cause


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
    usual_step_seconds: float | None = None  # the median of all steps that were seen
    input_share: float | None = None  # of the time of the latest steps, from 0 to 1
    done: bool = False
    alive: bool | None = None  # whether its process is there; None: not known
    silent: bool = False  # its process is not known, and it has said nothing for longer than a step may take
    faults: tuple[Cause, ...] = ()  # of LOOP_FAULTS, those that hold now

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
            usual = self.usual_step_seconds if Cause.SLOW_STEPS in self.faults else None
            parts.append(f"{self.step_seconds:.3g} s a step" + (f", usually {usual:.3g} s" if usual else ""))
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.tokens_per_second is not None and self.is_running:
            parts.append(f"{self.tokens_per_second:.4g} tokens/s")
        if self.input_share is not None and self.is_running:
            parts.append(f"{self.input_share:.0%} of it waiting for input")
        parts += [cause.row.loop.words for cause in self.faults if cause.row.loop is not None]
        return "; ".join(parts)

    @property
    def is_running(self) -> bool:
        """Whether it goes on, as far as is known: it has not ended, and it is not silent."""
        return not self.done and self.alive is not False and not self.silent
