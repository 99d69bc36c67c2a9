"""What is decided on: the launches that show something about the buffer, what they show, and what is allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tpuwatch.core import median_low
from tpuwatch.tune.fit import fit_line, largest_within
from tpuwatch.tune.history import Kind, LaunchSample, host_as_observed, latest_runs, samples_of
from tpuwatch.tune.sizes import Room, down, room, up

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.model import Bounds, Fit, Launch, TuneHost

PLAINLY: Final = 1.25  # a start that takes more than so many times another is slower, and not by noise
_PATIENCE: Final = 0.1  # of the limit: so much most starts with a size may be over it that has been in time as well


@dataclass(frozen=True, slots=True)
class TuneSituation:
    """The launches of one workload in the window, the oldest first, and what follows from them."""

    samples: tuple[LaunchSample, ...]  # all that have ended their initialisation
    informative: tuple[LaunchSample, ...]  # those of them that show something about their size
    host: TuneHost
    bounds: Bounds
    refused: list[int]  # sizes that the host could not bear
    room: Room
    fit: Fit | None

    @property
    def now(self) -> LaunchSample | None:
        """What the next size is reckoned from: the last launch that had a size of ours.

        While there is none, the operator's last, if that is no worse a start than the accelerator's default: it does,
        or it had no room where the default would have none either.
        """
        ours = [one for one in self.informative if one.ours]
        if ours or not self.informative:
            return ours[-1] if ours else None
        last, default = self.informative[-1], self.host.default_bytes
        if last.kind is Kind.WORKED and last.size >= default and not self.is_slow(last):
            return last
        lacked = [one for one in self.failures(None) if (one.need or one.size + 1) > default]
        if last.kind is Kind.EXHAUSTED and any((one.asked or 0) <= default or not default for one in lacked):
            return last
        return None

    def is_slow(self, one: LaunchSample) -> bool:
        """Whether the launch took longer than the limit to initialise."""
        return one.seconds is not None and one.seconds > self.bounds.init_seconds

    def is_plainly_slow(self, one: LaunchSample) -> bool:
        """Whether all with its size were slow, not by noise, and nothing but the size is known to have made them so."""
        times = self.times(one.size)
        return bool(times) and times[0] > PLAINLY * self.bounds.init_seconds

    def times(self, size: int) -> list[float]:
        """What starts with the size took that nothing else made slow, the quickest first."""
        return sorted(seconds for has, seconds in self.points if has == size)

    def is_too_slow(self, size: int) -> bool:
        """Whether a size is too slow, as far as its starts differ from noise. One that was never in time is.

        One that was in time now and then is near the limit, and is left in peace unless it mostly takes plainly longer.
        Where nothing ever lacked room there is nothing to lose above libtpu's own size: that most are slow is enough.
        """
        times, limit = self.times(size), self.bounds.init_seconds
        idle = size > self.host.default_bytes and not self.failures(None)
        mostly = limit if idle else (1 + _PATIENCE) * limit
        return bool(times) and (times[0] > limit or median_low(times) > mostly)

    @property
    def fast(self) -> int | None:
        """The largest size that still comes up in time, by the fit."""
        return largest_within(self.fit, self.bounds.init_seconds) if self.fit is not None else None

    @property
    def bearable(self) -> int:
        """The largest size that the host will bear, as far as is known: what worked, or half of what it could not."""
        if not self.refused:
            return self.room.most
        worked = [one.size for one in self.informative if one.proved and one.size <= self.room.most]
        return max([down(min(self.refused) // 2, self.bounds), *worked])

    @property
    def points(self) -> list[tuple[int, float]]:
        """Sizes and seconds of the starts that nothing else made slow."""
        return undisturbed(self.samples)

    def failures(self, threshold: int | None) -> list[LaunchSample]:
        """Launches whose buffer had no room, where as much or more would go through one with such a threshold."""
        return [
            one
            for one in self.informative
            if one.kind is Kind.EXHAUSTED and (threshold is None or one.takes <= threshold)
        ]

    def need(self, threshold: int | None) -> int | None:
        """The largest need that a failure showed."""
        return max((one.need for one in self.failures(threshold) if one.need is not None), default=None)

    def floor(self, threshold: int | None) -> int:
        """The smallest size that no failure rules out."""
        return max((max(one.need or 0, one.size + 1) for one in self.failures(threshold)), default=0)

    def floors(self, threshold: int | None) -> tuple[int, int]:
        """The smallest round size that no failure rules out, and the same with headroom. 0 where none failed."""
        floor = self.floor(threshold)
        if not floor:
            return 0, 0
        return up(floor, self.bounds), up(int(floor * (1 + self.bounds.headroom)), self.bounds)

    @property
    def cuts(self) -> list[tuple[LaunchSample, LaunchSample]]:
        """The launches after which a size of ours that worked was made smaller, and the first with that."""
        pairs = pairwise(one for one in self.informative if one.ours)
        return [(one, after) for one, after in pairs if one.kind is Kind.WORKED and after.size < one.size]

    def good(self, least: int, most: int) -> LaunchSample | None:
        """The last launch that did, with a size in the range and allowed, and that has not failed since."""
        failed: set[tuple[int, int | None]] = set()
        most = min(most, self.room.most)
        for one in reversed(self.informative):
            if one.kind is not Kind.WORKED:
                failed.add((one.size, one.threshold))
            elif one.proved and least <= one.size <= most and (one.size, one.threshold) not in failed:
                return one
        return None


def assess(launches: Sequence[Launch], host: TuneHost, bounds: Bounds) -> TuneSituation:
    """Put together what is decided on."""
    launches = latest_runs(launches, host, bounds.window)
    host = host_as_observed(launches, host)
    samples = samples_of(launches, host)
    informative = _informative(samples)
    worked = max((one.size for one in informative if one.kind is Kind.WORKED), default=0)
    refused = _refused(informative)
    points = undisturbed(samples)
    processes = informative[-1].processes if informative else 1
    timed = sum(one.seconds is not None for one in samples)
    return TuneSituation(
        samples=samples,
        informative=informative,
        host=host,
        bounds=bounds,
        refused=refused,
        room=room(host, bounds, worked=worked, refused=refused, processes=processes),
        fit=fit_line(points, left_out=timed - len(points)),
    )


def undisturbed(samples: Iterable[LaunchSample]) -> list[tuple[int, float]]:
    """Sizes and seconds of the starts that nothing else made slow. More pinned memory never makes one faster: what took
    plainly longer than one with as large a buffer, or a larger one, is left out.
    """
    points = [(one.size, one.seconds) for one in samples if one.seconds is not None and not one.waited]
    kept, quickest = [], math.inf
    for _, group in groupby(sorted(points, reverse=True), key=itemgetter(0)):
        several = list(group)
        quickest = min(quickest, several[-1][1])
        kept += [point for point in several if point[1] <= PLAINLY * quickest]
    return kept[::-1]


def _informative(samples: Sequence[LaunchSample]) -> tuple[LaunchSample, ...]:
    """A failed start is informative for a new size only: where the size has come up before, the cause is another."""
    informative: list[LaunchSample] = []
    came_up: set[int] = set()
    for one in samples:
        if one.kind is Kind.NO_START:
            new = one.ours and informative and informative[-1].size != one.size and one.size not in came_up
            if new and informative[-1].kind in (Kind.WORKED, Kind.EXHAUSTED):
                informative.append(one)
        elif one.kind is not Kind.NOTHING:
            informative.append(one)
        if one.seconds is not None:
            came_up.add(one.size)
    return tuple(informative)


def _refused(informative: Sequence[LaunchSample]) -> list[int]:
    """Sizes that the host could not bear."""
    refused = [one.size for one in informative if one.kind is Kind.HOST_OOM and one.size]
    new = (one.size for before, one in pairwise(informative) if one.kind is Kind.NO_START and one.size > before.size)
    return [*refused, *new]
