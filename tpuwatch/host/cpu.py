"""CPU use for verdicts: a mean over a minute that does not flicker, of a process with its descendants."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.host.procfs import ProcFs, Stat

_SAMPLES: Final = 6  # of a mean: a minute
_MIN_CHANGE = 1 / 3  # of the reported mean, before a new one is reported
_MIN_ABSOLUTE_CHANGE = 0.05  # in its unit


class Mean:
    """The mean rate of a counter per second, over the last samples.

    A new value is reported only if it has changed by a third, so that conclusions do not change with every sample near
    a threshold. When the counter decreases, because a counted process has ended, the last value is reported until there
    is a new mean.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES + 1)
        self._reported: float | None = None

    def add(self, at: float, counted: float) -> float | None:
        """Add the value of the counter at this time; the mean, or None until there is one."""
        if self._samples and counted < self._samples[-1][1]:  # a counted process has ended: start again
            self._samples.clear()
        if not self._samples or at > self._samples[-1][0]:
            self._samples.append((at, counted))
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        if ended <= began:
            return self._reported
        mean = max(0.0, last - first) / (ended - began)
        if self._reported is None or abs(mean - self._reported) > max(
            _MIN_ABSOLUTE_CHANGE, _MIN_CHANGE * self._reported
        ):
            self._reported = mean
        return self._reported


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """A process with its descendants, except those below another requested process."""

    seconds: float  # of CPU, used so far
    roots: frozenset[int]  # pids of other requested processes below it, whose use is counted for them


def process_trees(processes: ProcFs, requested: frozenset[int], pids: Iterable[int]) -> Mapping[int, ProcessTree]:
    """The trees of the `requested` processes, among all `pids`: loaders and compilers hold no device themselves."""
    if not requested:
        return {}
    known = {pid: stat for pid in pids if (stat := processes.stat(pid)) is not None}
    seconds = dict.fromkeys(requested & known.keys(), 0.0)
    roots: dict[int, set[int]] = {pid: set() for pid in seconds}
    for pid, stat in known.items():
        used = processes.seconds(stat.cpu_ticks)
        above = _roots_above(pid, known, seconds.keys())
        if pid in seconds:
            seconds[pid] += used
            for root in above:
                roots[root].add(pid)
        elif above:
            seconds[above[0]] += used
    return {pid: ProcessTree(seconds[pid], frozenset(roots[pid])) for pid in seconds}


def _roots_above(pid: int, known: Mapping[int, Stat], roots: Iterable[int]) -> list[int]:
    """Those of the roots that a process descends from, the nearest first."""
    found, seen = [], {pid}
    while (stat := known.get(pid)) is not None and stat.parent not in seen:
        pid = stat.parent
        seen.add(pid)  # a reused pid may make a cycle
        if pid in roots:
            found.append(pid)
    return found
