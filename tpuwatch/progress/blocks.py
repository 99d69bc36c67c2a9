"""Steps of a loop folded into blocks of a minute: the time of ordinary steps, and the time in pauses. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tpuwatch.core import median

BLOCK_SECONDS: Final = 60.0  # of a block,
BLOCK_STEPS: Final = 8  # and at least so many steps
PAUSE: Final = 2.5  # times the ordinary step time: a pause (evaluation, checkpoint, compilation)
SLOW_BLOCKS: Final = 6  # on end, of which more than half of the steps are so long: all has become so slow
_FOLLOW: Final = 0.2  # of the difference: how fast the ordinary step time follows that of each block
_SECONDS: Final = (1e-6, 1e8)  # of a step; anybody can say anything
_TOKENS: Final = (1e-6, 1e18)  # of a step
_MAX_SAMPLES: Final = 4096  # in a block: heartbeats come once a second, lines may come faster


class StepSample(NamedTuple):
    """Some steps on end, of which the mean time is known."""

    at: float  # when the latest of them ended, in seconds since the epoch
    step: int  # its number
    steps: int
    seconds: float  # of one step
    tokens: float | None = None  # that one step takes
    hbm: float | None = None  # bytes that all chips use


@dataclass(frozen=True, slots=True)
class Block:
    """A minute of a loop, or eight steps if those take longer."""

    at: float  # its end
    step: int
    seconds: float | None  # the median of ordinary steps; None: it has none
    total: float  # seconds of all steps
    paused: float  # of `total`, what pauses took beyond a step
    tokens: float | None = None
    hbm: float | None = None


@dataclass(slots=True)
class Blocks:
    """Makes blocks. `ordinary` is the running median of the step time, None before the first block."""

    ordinary: float | None = None
    _samples: list[StepSample] = field(default_factory=list)
    _seconds: float = 0.0
    _steps: int = 0
    _held: list[list[StepSample]] = field(default_factory=list)  # blocks of which most steps are long

    @property
    def usual(self) -> float | None:
        """The ordinary step time; before the first block the median of the steps that are there."""
        if self.ordinary is not None or not self._samples:
            return self.ordinary
        return _middle([(one.seconds, one.steps) for one in self._samples])

    def add(self, sample: StepSample) -> list[Block]:
        """Take steps; returns the blocks that are complete now, mostly none or one."""
        if not (_SECONDS[0] <= sample.seconds <= _SECONDS[1] and sample.steps > 0):
            return []
        self._samples.append(sample)
        self._seconds += sample.steps * sample.seconds
        self._steps += sample.steps
        minute = self._seconds + sample.seconds / 2 >= BLOCK_SECONDS  # by the step that ends nearest to it
        if not (minute and self._steps >= BLOCK_STEPS) and len(self._samples) < _MAX_SAMPLES:
            return []
        samples, self._samples, self._seconds, self._steps = self._samples, [], 0.0, 0
        return self._complete(samples)

    def _complete(self, samples: list[StepSample]) -> list[Block]:
        if self.ordinary is None:
            self.ordinary = _middle([(one.seconds, one.steps) for one in samples])
        long = sum(one.steps for one in samples if one.seconds > PAUSE * self.ordinary)
        mostly_long = 2 * long > sum(one.steps for one in samples)
        held, self._held = [*self._held, samples], []
        if mostly_long and len(held) < SLOW_BLOCKS:
            self._held = held
            return []
        if mostly_long:
            self.ordinary = median(_middle([(one.seconds, one.steps) for one in block]) for block in held)
        ordinary = self.ordinary
        blocks = [_block(one, ordinary) for one in held]
        latest = blocks[-1].seconds
        if latest is not None:
            self.ordinary += _FOLLOW * (latest - self.ordinary)
        return blocks


def _block(samples: list[StepSample], ordinary: float) -> Block:
    steps = [one for one in samples if one.seconds <= PAUSE * ordinary]
    tokens = [one.tokens for one in steps if one.tokens is not None and _TOKENS[0] <= one.tokens <= _TOKENS[1]]
    return Block(
        at=samples[-1].at,
        step=samples[-1].step,
        seconds=_middle([(one.seconds, one.steps) for one in steps]) if steps else None,
        total=sum(one.steps * one.seconds for one in samples),
        paused=sum(one.steps * (one.seconds - ordinary) for one in samples if one.seconds > PAUSE * ordinary),
        tokens=median(tokens) if tokens else None,
        hbm=next((one.hbm for one in reversed(samples) if one.hbm), None),
    )


def _middle(weighted: list[tuple[float, int]]) -> float:
    """The median of values that each count so many times."""
    if len({count for _, count in weighted}) == 1:
        return median(value for value, _ in weighted)
    half, passed = sum(count for _, count in weighted) / 2, 0
    for value, count in sorted(weighted):
        passed += count
        if passed >= half:
            return value
    raise IndexError("no values")
