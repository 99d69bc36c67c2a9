"""When a loop spends more of its time in pauses than before: checkpoints that take longer, compilations. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from tpuwatch.progress.blocks import Block

BUCKET_SECONDS: Final = 300.0  # of blocks on end
WINDOW: Final = 24  # buckets, 2 h, that are compared with
PAST: Final = 144  # buckets, 12 h, before
STRIDE: Final = 6  # buckets between two windows of the past
OVER: Final = 0.5  # of the effect
SMALLEST: Final = 0.25  # of the longest pauses: a second one as long as this makes them more than one event


class PauseBucket(NamedTuple):
    """Some blocks on end."""

    at: float  # its end
    step: int
    paused: float
    total: float


class PauseAlarm(NamedTuple):
    """The loop is in pauses for more of its time."""

    since: float
    step: int
    more: float  # share of the time, beyond the largest share of any window before
    told: float


@dataclass(slots=True)
class PauseDetector:
    """Compares the share of time in pauses, over two hours, with that of any two of the twelve hours before."""

    effect: float
    alarm: PauseAlarm | None = None
    buckets: deque[PauseBucket] = field(default_factory=lambda: deque(maxlen=WINDOW + PAST))
    _blocks: list[Block] = field(default_factory=list)

    def add(self, block: Block) -> None:
        """Take a block; `alarm` says afterwards whether pauses take more time."""
        self._blocks.append(block)
        total = sum(one.total for one in self._blocks)
        if total < BUCKET_SECONDS:
            return
        paused = sum(one.paused for one in self._blocks)
        self.buckets.append(PauseBucket(block.at, block.step, paused, total))
        self._blocks = []
        if len(self.buckets) >= 3 * WINDOW:
            self._look(block.at)

    def _look(self, now: float) -> None:
        buckets = list(self.buckets)
        latest, before = buckets[-WINDOW:], buckets[:-WINDOW]
        largest = max(_share(before[start : start + WINDOW]) for start in range(0, len(before) - WINDOW + 1, STRIDE))
        more = _share(latest) - largest
        if self.alarm is not None:
            self.alarm = None if more < OVER * self.effect else self.alarm._replace(more=more)
        elif more >= self.effect and _several(buckets[-2 * WINDOW :]):
            onset = _onset(latest, largest + self.effect / 2)
            self.alarm = PauseAlarm(onset.at, onset.step, more, now)

    def state(self) -> dict[str, Any]:
        """All that is known, as JSON can have it."""
        rounded = [(round(at), step, round(paused, 1), round(total, 1)) for at, step, paused, total in self.buckets]
        return {"alarm": self.alarm, "buckets": rounded}

    @classmethod
    def of(cls, state: dict[str, Any], effect: float) -> PauseDetector:
        """As `state` was given. Raises ValueError, TypeError, KeyError or IndexError if it is no state."""
        alarm = state["alarm"]
        new = cls(effect)
        if alarm is not None:
            since, step, more, told = alarm
            new.alarm = PauseAlarm(float(since), int(step), float(more), float(told))
        new.buckets.extend(
            PauseBucket(float(at), int(step), float(paused), float(total))
            for at, step, paused, total in state["buckets"]
        )
        return new


def _share(buckets: list[PauseBucket]) -> float:
    return sum(one.paused for one in buckets) / max(1e-9, sum(one.total for one in buckets))


def _several(buckets: list[PauseBucket]) -> bool:
    """Whether more than one pause makes the share: one alone is an event, and no slow-down."""
    longest, second = sorted(one.paused for one in buckets)[:-3:-1]
    return second >= SMALLEST * longest


def _onset(buckets: list[PauseBucket], share: float) -> PauseBucket:
    """The bucket from which on more than that share is in pauses."""
    surplus, least, onset = 0.0, 0.0, buckets[0]
    for one in buckets:
        surplus += one.paused - share * one.total
        if surplus < least:
            least, onset = surplus, one
    return onset
