"""The time line: a scenario's steps in the order of their times, by the world's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.core import Clock
    from tpuwatch.sim.scenario.actions import ScenarioAction


class ScaledClock:
    """A clock that runs `speed` times as fast as another, starting at the other's time."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self.speed = speed
        self._clock = clock
        self._wall = clock.time()
        self._start = clock.monotonic()

    def time(self) -> float:
        """Wall time, derived from the other's monotonic clock, so that jumps of its wall clock are not scaled."""
        return self._wall + self.monotonic()

    def monotonic(self) -> float:
        return (self._clock.monotonic() - self._start) * self.speed


class Timeline:
    """Executes the steps that are due at each `play_due`, from one thread; its state can be read from any."""

    def __init__(self, steps: Sequence[ScenarioAction], clock: Clock, execute: Callable[[ScenarioAction], str]) -> None:
        """`execute` executes a step and returns its outcome as a sentence. Time starts at `begin`."""
        self._steps = sorted(steps, key=lambda step: step.at)
        self._clock = clock
        self._execute = execute
        self._start = clock.monotonic()
        self.played = 0  # number of steps executed
        self.total = len(self._steps)

    @property
    def elapsed(self) -> float:
        """Seconds of the world's time since the beginning."""
        return self._clock.monotonic() - self._start

    @property
    def due_in(self) -> float | None:
        """Seconds of the world's time until the next step; None after the last."""
        if self.played == self.total:
            return None
        return max(0.0, self._steps[self.played].at - self.elapsed)

    def begin(self) -> None:
        """Start the time now."""
        self._start = self._clock.monotonic()

    def play_due(self, on_step: Callable[[float, str], None]) -> None:
        """Execute all steps that are due; `on_step` gets the time of each and its outcome, or its failure."""
        while self.due_in == 0:
            step = self._steps[self.played]
            try:
                outcome = self._execute(step)
                sentence = step.say or outcome
            except TpuwatchError as error:
                sentence = f"could not be done: {error}"
            self.played += 1
            on_step(step.at, sentence)
