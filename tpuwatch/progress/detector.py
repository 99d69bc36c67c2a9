"""When a loop is slower than its own past: a one-sided CUSUM on the log of the step time of blocks. Pure.

The formulas stand in docs/slow-steps.md, with what was measured.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice, pairwise
from math import exp, expm1, log, log1p
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tpuwatch.core import median

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.progress.blocks import Block

WARM_BLOCKS: Final = 3  # left out after the first step
BASE_BLOCKS: Final = 20  # that make the first baseline
MIN_SIGMA: Final = 0.006  # of the log step time: no loop is taken for more regular
MAX_SIGMA: Final = 0.02  # that raises the limits: more noise must not hide a plain slow-down
NOISE: Final = 1.5  # sigmas that a slow-down is at least: a median of RUN blocks seldom strays so far
CLIP: Final = 2.0  # effects that one block counts for at most
ALARM: Final = 4.0  # effects, summed up
RUN: Final = 15  # blocks since the sum left 0; also those that are compared
SHORT_RUN: Final = 9  # the same for a slow-down of
LARGE: Final = 2.6  # effects
SHARE: Final = 0.8  # of the last RUN blocks that must be slow
SURE: Final = 16.0  # log likelihood against slow blocks that follow each other by chance
AGAINST: Final = 3.0  # of it, for each block among them that is not slow
PRIOR: Final = 10.0  # slow blocks that must have been seen before it counts how many follow each other
ABRUPT, ABRUPT_FIRST = 0.5, 0.75  # of the slow-down that must come in one jump; the latter until a day is known
JUMP_NOISE: Final = 2.0  # sigmas that the jump is at least
DRIFT: Final = 0.6  # of the jump: if the pace changed by more on either side of it, it was no jump
GRADUAL: Final = 0.10  # from which a gradual slow-down is told
OVER_BLOCKS: Final = 10  # of which the median must be below
OVER: Final = 0.5  # effects
GROWN: Final = 1.5  # times as slow as it was told: it is told again
HOUR: Final = 60  # blocks
DAY, MIN_HOURS = 24, 6  # hours of which the medians make the baseline, once there are so many
SPREAD: Final = 1.6  # times half of the range of those hours is no slow-down
_RECENT: Final = 300
_CALM: Final = 240
_BASE: Final = 120


class PacedBlock(NamedTuple):
    """A block as the detector keeps it."""

    at: float
    step: int
    pace: float  # the log of the step time
    hbm: float | None = None


class Alarm(NamedTuple):
    """A slow-down that holds."""

    since: float  # seconds since the epoch
    step: int
    slower: float  # 0.12 is 12 % slower than the baseline, by the latest blocks
    gradual: bool
    told: float  # when it was found, or found to have grown
    told_slower: float  # as it was then


@dataclass(slots=True)
class Detector:
    """Compares blocks with the loop's own baseline. `effect` is the least slow-down that is told (0.05 is 5 %)."""

    effect: float
    alarm: Alarm | None = None
    mean: float | None = None  # of the log step time: the baseline; None: not known
    sigma: float = MIN_SIGMA
    least: float = 0.0  # the least slow-down that is told of this loop
    warm: int = WARM_BLOCKS
    total: float = 0.0  # the CUSUM, in effects
    run: int = 0  # blocks since it left 0
    tokens: float | None = None  # of a step, when they were first told
    more_tokens: float = 0.0  # log: how many times as many a step has now
    recent: deque[PacedBlock] = field(default_factory=lambda: deque(maxlen=_RECENT))
    calm: deque[float] = field(default_factory=lambda: deque(maxlen=_CALM))  # blocks that were in no alarm
    hour: list[float] = field(default_factory=list)
    hours: deque[float] = field(default_factory=lambda: deque(maxlen=DAY))

    def __post_init__(self) -> None:
        self.least = self.least or self.effect

    @property
    def baseline_seconds(self) -> float | None:
        """The step time that blocks are compared with; None while it is not known."""
        return None if self.mean is None else exp(self.mean + self.more_tokens)

    def add(self, block: Block) -> None:
        """Take a block; `alarm` says afterwards whether the loop is slow."""
        if block.seconds is None:
            return
        if block.tokens is not None:
            self.tokens = self.tokens or block.tokens
            self.more_tokens = log(block.tokens / self.tokens)
        if self.warm:
            self.warm -= 1
            return
        pace = log(block.seconds) - self.more_tokens
        self.recent.append(PacedBlock(block.at, block.step, pace, block.hbm))
        if self.mean is None:
            self.calm.append(pace)
            if len(self.calm) >= BASE_BLOCKS:
                self._set_baseline(median(self.calm))
            return
        drift = max(0.5, 2 * self._bounded_sigma / self.least)
        self.total = max(0.0, self.total + min(CLIP, max(-CLIP, (pace - self.mean) / self.least)) - drift)
        self.run = self.run + 1 if self.total else 0
        if self.alarm is None:
            self.mean = self._learn(self.mean, pace)
            self._look(self.mean, block.at)
        else:
            self._follow(self.alarm, self.mean, block.at)

    def accept(self, alarm: Alarm) -> None:
        """Take the pace since the alarm's onset for the new baseline: the program itself has become slower."""
        later = [one for one in self.recent if one.at > alarm.since]
        self.alarm, self.total, self.run = None, 0.0, 0
        self.mean, self.least, self.hour = None, self.effect, []
        self.recent.clear()
        self.calm.clear()
        self.hours.clear()
        self.recent.extend(later)
        self.calm.extend(one.pace for one in later)
        if len(self.calm) >= BASE_BLOCKS:
            self._set_baseline(median(self.calm))

    # -- alarms

    @property
    def _bounded_sigma(self) -> float:
        return min(self.sigma, MAX_SIGMA)

    def _look(self, mean: float, now: float) -> None:
        if self.total < max(ALARM, 8 * self._bounded_sigma / self.least) or self.run < SHORT_RUN:
            return
        last = self._last(min(self.run, RUN))
        slower = expm1(median(last) - mean)
        if slower < max(self.least, NOISE * self.sigma) or (self.run < RUN and slower < LARGE * self.least):
            return
        limit = mean + max(log1p(slower) / 2, 2 * self._bounded_sigma)
        if sum(pace > limit for pace in last) < SHARE * len(last):
            return
        onset, jump = self._jump(len(self.recent) - self.run - RUN)
        gradual = not self._is_abrupt(onset, jump, log1p(slower))
        if (slower < max(GRADUAL, 2 * self.least)) if gradual else self._by_chance(limit):
            return
        self.alarm = Alarm(onset.at, onset.step, slower, gradual, now, slower)
        slow = sum(one.at > onset.at for one in self.recent)  # they are no part of its ordinary pace
        for _ in range(min(slow, len(self.calm) - 1)):
            self.calm.pop()
        del self.hour[max(0, len(self.hour) - slow) :]

    def _follow(self, alarm: Alarm, mean: float, now: float) -> None:
        """Say how slow the loop is now, that it has become slower still, or that the slow-down is over."""
        since = sum(one.at > alarm.told for one in islice(reversed(self.recent), RUN))
        if not self.total or (since >= OVER_BLOCKS and median(self._last(OVER_BLOCKS)) < mean + OVER * self.least):
            self.alarm, self.total, self.run = None, 0.0, 0
            return
        if since < RUN:
            return
        slower = expm1(median(self._last(RUN)) - mean)
        if slower < GROWN * alarm.told_slower:
            self.alarm = alarm._replace(slower=max(0.0, slower))
            return
        onset, jump = self._jump(len(self.recent) - 4 * RUN)
        grown = log1p(slower) - log1p(alarm.told_slower)
        abrupt = jump >= log1p(self.least) and self._is_abrupt(onset, jump, grown)
        if alarm.gradual and abrupt:
            alarm = alarm._replace(since=onset.at, step=onset.step, gradual=False)
        self.alarm = alarm._replace(slower=slower, told=now, told_slower=slower)

    def _is_abrupt(self, onset: PacedBlock, jump: float, change: float) -> bool:
        """Whether so much of the change came in the jump that it is neither a slope nor noise (both are logs)."""
        known = len(self.hours) >= DAY
        if jump < max((ABRUPT if known else ABRUPT_FIRST) * change, JUMP_NOISE * self.sigma):
            return False
        return known or self._drift(onset) <= DRIFT * jump

    def _by_chance(self, limit: float) -> bool:
        """Whether the loop is so slow for some blocks as often, as with steps of two lengths, that it may be chance."""
        before = [pace > limit for pace in list(self.calm)[: -min(self.run, 2 * RUN)]]
        slow, again = sum(before), sum(one and other for one, other in pairwise(before))
        share = (slow + 0.5) / (len(before) + 1)
        stays = (again + PRIOR * share) / (slow + PRIOR)  # how probably a block is slow after one that is
        evidence, most = 0.0, 0.0
        for pace in self._last(self.run):
            evidence += -log(stays) if pace > limit else -AGAINST
            most = max(most, evidence)
        return most < SURE

    def _jump(self, first: int) -> tuple[PacedBlock, float]:
        """The last block before the pace changed most, of those from number `first` on, and the change (log)."""
        points = list(self.recent)
        paces = [one.pace for one in points]
        best, jump, middle = max(1, len(points) - RUN), 0.0, 0.0
        for place in range(max(RUN, first), len(points) - SHORT_RUN + 1):
            before, after = median(paces[place - RUN : place]), median(paces[place : place + RUN])
            if after - before > jump:
                best, jump, middle = place, after - before, (before + after) / 2
        if jump:
            best = _change(paces, middle, range(max(1, best - RUN), min(best + RUN, len(paces))), jump)
        return points[best - 1], jump

    def _drift(self, onset: PacedBlock) -> float:
        """By how much the pace changed on either side of the onset, not at it, beyond what noise makes (log)."""
        before = [one.pace for one in self.recent if one.at <= onset.at][-RUN:]
        after = [one.pace for one in self.recent if one.at > onset.at][:RUN]
        drift = 0.0
        for side in (before, after):
            half = len(side) // 2
            if half:
                drift += median(side[-half:]) - median(side[:half])
        return drift - self.sigma

    def _last(self, number: int) -> list[float]:
        return [one.pace for one in islice(reversed(self.recent), number)]

    # -- the baseline

    def _learn(self, mean: float, pace: float) -> float:
        """Until MIN_HOURS are known the baseline only follows what becomes faster, later the medians of a day."""
        self.calm.append(pace)
        self.hour.append(pace)
        if len(self.hour) < HOUR:
            return mean
        self.hours.append(median(self.hour))
        self.hour = []
        if len(self.hours) < MIN_HOURS:
            near = [one for one in list(self.calm)[-_BASE:] if abs(one - mean) < self.least]
            return self._set_baseline(min(mean, median(near) if near else mean))
        ordered = sorted(self.hours)
        last = len(ordered) - 1
        half_range = (ordered[int(0.9 * last)] - ordered[int(0.1 * last)]) / 2
        self.least = max(self.effect, SPREAD * half_range)
        return self._set_baseline(median(ordered))

    def _set_baseline(self, mean: float) -> float:
        self.mean = mean
        middle = median(self.calm)
        self.sigma = max(MIN_SIGMA, 1.4826 * median(abs(one - middle) for one in self.calm))
        return mean

    # -- for the store

    def state(self) -> dict[str, Any]:
        """All that is known, as JSON can have it."""
        return {
            "alarm": self.alarm,
            "mean": self.mean,
            "sigma": self.sigma,
            "least": self.least,
            "warm": self.warm,
            "total": self.total,
            "run": self.run,
            "tokens": self.tokens,
            "more_tokens": self.more_tokens,
            "recent": [(round(one.at, 1), one.step, round(one.pace, 5), one.hbm) for one in self._kept_recent()],
            "calm": _short(self.calm),
            "hour": _short(self.hour),
            "hours": _short(self.hours),
        }

    @classmethod
    def of(cls, state: dict[str, Any], effect: float) -> Detector:
        """As `state` was given. Raises ValueError, TypeError, KeyError or IndexError if it is no state."""
        mean = state["mean"]
        new = cls(
            effect,
            alarm=None if state["alarm"] is None else _alarm(*state["alarm"]),
            mean=None if mean is None else float(mean),
            sigma=float(state["sigma"]),
            least=max(effect, float(state["least"])),
            warm=int(state["warm"]),
            total=float(state["total"]),
            run=int(state["run"]),
            tokens=state["tokens"],
            more_tokens=float(state["more_tokens"]),
        )
        new.recent.extend(PacedBlock(float(at), int(step), float(pace), hbm) for at, step, pace, hbm in state["recent"])
        new.calm.extend(map(float, state["calm"]))
        new.hour.extend(map(float, state["hour"]))
        new.hours.extend(map(float, state["hours"]))
        return new

    def _kept_recent(self) -> Sequence[PacedBlock]:
        return list(self.recent)[-max(4 * RUN, min(self.run + 2 * RUN, _RECENT)) :]


def _change(paces: Sequence[float], middle: float, places: range, bound: float) -> int:
    """The place, of these, from which on blocks are above the middle and before which they are below it."""
    below, most, change = 0.0, float("-inf"), places[0]
    for place in places:
        below += min(bound, max(-bound, middle - paces[place - 1]))
        if below > most:
            most, change = below, place
    return change


def _alarm(since: float, step: int, slower: float, gradual: bool, told: float, told_slower: float) -> Alarm:
    return Alarm(float(since), int(step), float(slower), bool(gradual), float(told), float(told_slower))


def _short(values: Iterable[float]) -> list[float]:
    return [round(value, 5) for value in values]
