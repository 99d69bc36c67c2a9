"""What happens when: a scenario's steps in the order of their times, at the pace of the world's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.errors import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.sim.actions import Action


class ScaledClock:
    """A clock that runs `speed` times as fast as another, from the other's time on."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self.speed = speed
        self._clock = clock
        self._wall = clock.time()
        self._start = clock.monotonic()

    def time(self) -> float:
        """Wall time; it follows the other's monotonic clock, so that a jump is not made larger."""
        return self._wall + self.monotonic()

    def monotonic(self) -> float:
        return (self._clock.monotonic() - self._start) * self.speed


class Timeline:
    """Plays steps when somebody looks. One thread plays; any may ask how far it is."""

    def __init__(self, steps: Sequence[Action], clock: Clock, do: Callable[[Action], str]) -> None:
        """`do` does what a step says and returns what happened, in a sentence. Time counts from `begin`."""
        self._steps = sorted(steps, key=lambda step: step.at)
        self._clock = clock
        self._do = do
        self._start = clock.monotonic()
        self._played = 0

    @property
    def elapsed(self) -> float:
        """Seconds of the world's time since the beginning."""
        return self._clock.monotonic() - self._start

    @property
    def played(self) -> int:
        """How many steps are done."""
        return self._played

    @property
    def total(self) -> int:
        """How many steps there are."""
        return len(self._steps)

    @property
    def due_in(self) -> float | None:
        """Seconds of the world's time until the next step; None after the last."""
        if self._played == len(self._steps):
            return None
        return max(0.0, self._steps[self._played].at - self.elapsed)

    def begin(self) -> None:
        """Let the time count from now."""
        self._start = self._clock.monotonic()

    def play_due(self, tell: Callable[[float, str], None]) -> None:
        """Do all steps whose time has come, and tell each with its time. One that cannot be done is told as that."""
        while self.due_in == 0:
            step = self._steps[self._played]
            try:
                happened = self._do(step)
                sentence = step.say or happened
            except TpuwatchError as error:
                sentence = f"could not be done: {error}"
            self._played += 1
            tell(step.at, sentence)
