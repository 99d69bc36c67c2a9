"""What a benchmark yields: figures, each with the target that it is held against."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. Without a target it is there to explain others."""

    name: str
    value: float
    unit: str  # "x" for a ratio
    at_least: float | None = None
    at_most: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target was met; None where there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    @property
    def lost(self) -> bool:
        """True if it is worse than half of its target: then something has been lost, whatever the machine does."""
        if self.at_least is not None:
            return self.value < self.at_least / 2
        return self.at_most is not None and self.value > 2 * self.at_most

    @property
    def target(self) -> str:
        """The target as the table shows it."""
        if self.at_least is not None:
            return f">= {self.at_least:g} {self.unit}"
        return "" if self.at_most is None else f"<= {self.at_most:g} {self.unit}"

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "reached": self.reached}


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: in full, where nothing else is said. Sizes are bytes."""

    log: int = 128 << 20  # caught up on
    output: int = 1 << 30  # of a command under `tpuwatch exec`
    peer_log: int = 2 << 20  # the part of it that mtail is given
    kind_log: int = 32 << 20  # of each kind; four times it as well
    flood: int = 32 << 20
    slow_seconds: float = 20.0  # followed at 50 lines a second
    fast_seconds: float = 10.0  # followed at 50,000 lines a second
    idle_seconds: float = 60.0
    old_files: int = 100_000
    long_log: int = 5 << 30  # for flat memory
    long_events: int = 1_000_000
    runs: int = 11  # of a command or a call, whose median counts
    nodes: int = 5000  # in one zone
    slice_hosts: int = 2048
    polls: int = 12  # of them
    fast_poll_seconds: float = 2.0  # between two polls where many are to be seen soon
    stop_seconds: float = 4.37  # that the simulated cloud takes to stop a node: no multiple of any poll
    start_seconds: float = 6.0
    settle_seconds: float = 20.0  # before a daemon with signals is measured: their clients are loaded
    intervals: tuple[float, ...] = (1.0, 2.0, 5.0)  # between polls, in seconds
    faults: int = 36  # that are set at each interval
    hosts: int = 1000  # to tune on


FULL = Scale()
SMOKE = Scale(
    log=256 << 20,
    output=4 << 20,
    peer_log=256 << 10,
    kind_log=4 << 20,
    flood=4 << 20,
    slow_seconds=1.0,
    fast_seconds=0.5,
    idle_seconds=1.0,
    old_files=200,
    long_log=4 << 20,
    long_events=2000,
    runs=3,
    nodes=600,
    slice_hosts=40,
    polls=2,
    fast_poll_seconds=1.0,
    stop_seconds=0.37,
    start_seconds=0.5,
    settle_seconds=1.0,
    intervals=(1.0,),
    faults=2,
    hosts=120,
)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a benchmark works, and how much it does."""

    scratch: Path  # an empty directory that is removed afterwards
    scale: Scale

    def directory(self, name: str) -> Path:
        """A new directory of that name."""
        path = self.scratch / name
        path.mkdir()
        return path


def row(figure: Figure) -> str:
    """A line of the table."""
    verdict = {True: "yes", False: "NO", None: ""}[figure.reached]
    return f"{figure.name:<58} {_short(figure.value):>10} {figure.unit:<6} {figure.target:<14} {verdict}".rstrip()


def markdown(figure: Figure) -> str:
    """A line of the table in docs/benchmarks.md."""
    verdict = {True: "yes", False: "**no**", None: ""}[figure.reached]
    value = f"{_short(figure.value)} {figure.unit}".rstrip()
    target = figure.target.replace(">=", "≥").replace("<=", "≤").rstrip()
    return f"| {figure.name} | {value} | {target} | {verdict} |".replace("  ", " ")


def heading() -> str:
    """What stands above the table."""
    return f"{'figure':<58} {'value':>10} {'unit':<6} {'target':<14} reached"


def summary(figures: Iterable[Figure]) -> str:
    """How many targets were met."""
    verdicts = [figure.reached for figure in figures if figure.reached is not None]
    return f"{sum(verdicts)} of {len(verdicts)} targets reached."


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
