"""Simulated training loops: step times with what real loops have, and faults of several kinds. Seeded, plain Python.

Noise is log-normal with slow drift. Some loops have steps of two lengths in spells, an input that is slower by day,
storage that answers late for some minutes, or longer sequences from a step on.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tpuwatch.progress.blocks import StepSample

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY: Final = 86_400.0
START: Final = 1_790_000_000.0
KINDS: Final = ("steps", "some_steps", "ramp", "noisy", "checkpoint", "recompile")
PAUSE_KINDS: Final = ("checkpoint", "recompile")


@dataclass
class SimulatedLoop:
    """A loop of `days`; `kind` is its fault, None for one that is well. The fault costs `size` of the step time."""

    seed: int
    days: float
    kind: str | None = None
    size: float = 0.0
    onset: float | None = None  # seconds from the start
    spells: list[tuple[float, float]] = field(default_factory=list)  # real slow-downs that pass by themselves
    changes: list[float] = field(default_factory=list)  # of the program itself

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        self.base = math.exp(rng.uniform(math.log(2.5), math.log(25.0)))
        self.sigma = rng.choice((0.002, 0.005, 0.01, 0.02, 0.03))
        self.drift = rng.uniform(0.0, 0.008)
        self.mode = rng.uniform(0.03, 0.10) if rng.random() < 0.2 else 0.0  # how much longer the longer steps are
        self.mode_share, self.mode_steps = rng.uniform(0.1, 0.4), rng.choice((1, 4, 30))
        self.day = rng.uniform(0.0, 0.04) if rng.random() < 0.3 else 0.0
        self.phase = rng.uniform(0.0, 2 * math.pi)
        self.checkpoint_every = rng.uniform(900.0, 5400.0)
        self.checkpoint_seconds = rng.uniform(3.0, 45.0)
        self.evaluation_every = rng.uniform(1800.0, 14_400.0) if rng.random() < 0.5 else math.inf
        self.evaluation_seconds = rng.uniform(20.0, 300.0)
        self.tells_tokens = rng.random() < 0.5
        if self.kind is not None and self.onset is None:
            self.onset = rng.uniform(
                max(3600.0 if self.kind not in PAUSE_KINDS else 8 * 3600.0, 60 * 8 * self.base), 0.6 * self.days * DAY
            )
        if rng.random() < 0.25:
            change = rng.uniform(0.1, 0.9) * self.days * DAY
            if self.onset is None or abs(change - self.onset) > 12 * 3600:
                self.changes.append(change)
        for _ in range(_poisson(rng, 2 * self.days / 7)):
            begin = rng.uniform(0.0, self.days * DAY)
            self.spells.append((begin, begin + 120 * math.exp(rng.gauss(0.0, 0.8))))
        self.spells.sort()

    def samples(self) -> Iterator[StepSample]:
        """The loop's steps, one after the other."""
        rng, now, step = self.rng, 0.0, 0
        program, noise, pauses, storage = _Program(self), _Noise(self), _Pauses(self), _Storage(self)
        while now < self.days * DAY:
            step += 1
            now += program.change(now)
            base = self.base * program.longer
            seconds = base * noise.factor(now) + storage.late(now) + self._fault(now, base) + pauses.seconds(now, step)
            now += seconds
            hbm = program.hbm * (1 + rng.gauss(0.0, 0.0005))
            yield StepSample(START + now, step, 1, seconds, program.tokens if self.tells_tokens else None, hbm)

    def _fault(self, now: float, base: float) -> float:
        """Seconds that the fault adds to this step."""
        if self.onset is None or now < self.onset:
            return 0.0
        if self.kind == "steps":
            return self.size * base
        if self.kind == "some_steps":  # three of four steps, so much longer that the mean is as said
            return self.size / 0.75 * base if self.rng.random() < 0.75 else 0.0
        if self.kind == "ramp":
            return self.size * base * min(1.0, (now - self.onset) / 1800.0)
        if self.kind == "noisy":
            return self.size * base * self.rng.gammavariate(3.0, 1 / 3.0)
        return 0.0


class _Program:
    """Longer sequences from a step on: more work, more tokens, more HBM."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop, self.changes = loop, list(loop.changes)
        self.longer, self.hbm, self.tokens = 1.0, 60e9, 1e6

    def change(self, now: float) -> float:
        """Change what is due; returns the seconds that compiling takes."""
        if not self.changes or now < self.changes[0]:
            return 0.0
        self.changes.pop(0)
        factor = self.loop.rng.uniform(1.1, 1.8)
        self.longer *= factor
        self.tokens *= factor
        if not self.loop.tells_tokens:
            self.hbm *= self.loop.rng.uniform(1.015, 1.05)
        return self.loop.rng.uniform(30.0, 120.0)


class _Noise:
    """What step times vary by: noise, drift, steps of two lengths, the time of the day, single long steps."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop, self.wander, self.slow_left, self.fast_left = loop, 0.0, 0, 1

    def factor(self, now: float) -> float:
        """How many times the base this step takes."""
        loop, rng = self.loop, self.loop.rng
        self.wander = 0.995 * self.wander + 0.1 * rng.gauss(0.0, loop.drift)
        log_time = rng.gauss(0.0, loop.sigma) + self.wander
        if loop.mode and self._is_long():
            log_time += loop.mode
        if loop.day:
            log_time += loop.day * math.sin(2 * math.pi * now / DAY + loop.phase)
        single = 1 + min(3.0, 0.2 * rng.paretovariate(1.5)) if rng.random() < 0.003 else 1.0
        return single * math.exp(log_time)

    def _is_long(self) -> bool:
        if self.slow_left:
            self.slow_left -= 1
        elif self.fast_left:
            self.fast_left -= 1
        elif self.loop.rng.random() < self.loop.mode_share:
            self.slow_left = self.loop.mode_steps
        else:
            self.fast_left = self.loop.mode_steps
        return bool(self.slow_left)


class _Storage:
    """Spells in which storage answers late."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop, self.spells, self.share = loop, list(loop.spells), 0.0

    def late(self, now: float) -> float:
        """Seconds that this step waits longer."""
        while self.spells and now > self.spells[0][1]:
            self.spells.pop(0)
            self.share = 0.0
        if not self.spells or now < self.spells[0][0]:
            return 0.0
        self.share = self.share or self.loop.rng.uniform(0.1, 0.8)
        return self.loop.base * self.share


class _Pauses:
    """The first compilation, checkpoints and evaluations, and the faults that are pauses."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.checkpoint, self.evaluation = loop.checkpoint_every, loop.evaluation_every
        self.recompilation = loop.onset or 0.0

    def seconds(self, now: float, step: int) -> float:
        """Seconds of pauses at this step."""
        loop, rng = self.loop, self.loop.rng
        faulty = loop.onset is not None and now > loop.onset
        seconds = rng.uniform(40.0, 300.0) if step == 1 else 0.0
        if now > self.checkpoint:
            self.checkpoint = now + loop.checkpoint_every
            seconds += loop.checkpoint_seconds * math.exp(rng.gauss(0.0, 0.15))
            if faulty and loop.kind == "checkpoint":
                seconds += loop.size * loop.checkpoint_every
        if now > self.evaluation:
            self.evaluation = now + loop.evaluation_every
            seconds += loop.evaluation_seconds * math.exp(rng.gauss(0.0, 0.05))
        if faulty and loop.kind == "recompile" and now > self.recompilation:
            pause = max(30.0, 2 * loop.base)
            seconds += pause
            self.recompilation = now + pause / loop.size
        return seconds


def _poisson(rng: random.Random, mean: float) -> int:
    limit, product, number = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        number += 1
    return number
