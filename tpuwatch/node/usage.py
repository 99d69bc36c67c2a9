"""CPU use that verdicts can hang on: means over a minute that do not flicker, and of a process with its descendants."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.processes import ProcFs

_LOOKS: Final = 6  # that a mean goes back: a minute
_SHARE = 1 / 3  # what a mean has to change by to be told anew
_LEAST = 0.05  # … in its unit, at least


class Mean:
    """The mean growth of a counter in so many of its units each second, over the last looks.

    It is told anew only when it has changed by a third: what is concluded from it would else change with every look
    while it is near a threshold. When the counter falls, because a process has ended whose use was counted, what was
    told stands until there is a new mean.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=_LOOKS + 1)
        self._told: float | None = None

    def add(self, at: float, counted: float) -> float | None:
        """The counter stands so at this time; the mean, None until there has been one."""
        if self._seen and counted < self._seen[-1][1]:  # what had counted is gone: begin anew
            self._seen.clear()
        if not self._seen or at > self._seen[-1][0]:
            self._seen.append((at, counted))
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        if ended <= began:
            return self._told
        mean = max(0.0, last - first) / (ended - began)
        if self._told is None or abs(mean - self._told) > max(_LEAST, _SHARE * self._told):
            self._told = mean
        return self._told


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    seconds: float  # of CPU: its own, and that of children which have ended and were waited for


@dataclass(frozen=True, slots=True)
class Family:
    """A process with its descendants, without those below another one that is asked about."""

    seconds: float  # of CPU, used so far
    heads: frozenset[int]  # pids of the others that are asked about and descend from it: theirs is theirs


def families(processes: ProcFs, asked: frozenset[int], pids: Iterable[int]) -> Mapping[int, Family]:
    """The families of the processes that are `asked` about, among all `pids`. Loaders and compilers hold no device."""
    if not asked:
        return {}
    known = {pid: one for pid in pids if (one := _process(processes, pid)) is not None}
    seconds = dict.fromkeys(asked & known.keys(), 0.0)
    heads: dict[int, set[int]] = {pid: set() for pid in seconds}
    for pid, one in known.items():
        above = _heads_above(pid, known, seconds.keys())
        if pid in seconds:
            seconds[pid] += one.seconds
            for head in above:
                heads[head].add(pid)
        elif above:
            seconds[above[0]] += one.seconds
    return {pid: Family(seconds[pid], frozenset(heads[pid])) for pid in seconds}


def _heads_above(pid: int, known: Mapping[int, _Process], heads: Iterable[int]) -> list[int]:
    """Those of the heads that a process descends from, the nearest first."""
    found, seen = [], {pid}
    while (one := known.get(pid)) is not None and one.parent not in seen:
        pid = one.parent
        seen.add(pid)  # a number that came to another process meanwhile may make a ring
        if pid in heads:
            found.append(pid)
    return found


def _process(processes: ProcFs, pid: int) -> _Process | None:
    fields = processes.read(f"{pid}/stat", 4096).rpartition(b")")[2].split()
    try:
        ticks = sum(int(field) for field in fields[11:15])
        return _Process(int(fields[1]), processes.seconds(ticks))
    except (ValueError, IndexError):
        return None
