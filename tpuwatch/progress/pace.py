"""The pace of a training loop: its baseline, and whether it is slower than that by no doing of its program. Pure."""

from __future__ import annotations

from math import expm1, log, log1p
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tpuwatch.core import median
from tpuwatch.model import PacePoint, Slowdown, SlowdownKind
from tpuwatch.progress.blocks import Blocks
from tpuwatch.progress.detector import RUN, Detector
from tpuwatch.progress.pauses import PauseDetector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.progress.blocks import Block, StepSample
    from tpuwatch.progress.detector import Alarm

MAX_POINTS: Final = 400  # of a launch; then every second one goes
HBM_MOVED: Final = 0.008  # of the HBM in use, from one level to another: another program
HBM_BLOCKS: Final = 3  # of each level, at least
HBM_NEAR: Final = 5  # blocks around the onset in which it moves
SAME_STEP: Final = 0.10  # of the step: an earlier launch became slower there,
SAME_EFFECT: Final = 0.30  # by about as much (of the slow-down),
SAME_POINTS: Final = 0.03  # or within so much of it,
SAME_LEAST: Final = 0.5  # but by at least so much of the slow-down
OFF: Final = 1e9  # the effect that is never reached


class LaunchKey(NamedTuple):
    """What the pace of a launch is stored by."""

    launch: int
    workload: str
    run: str


class Pace:
    """The pace of one launch's loop. `slower` is the least slow-down that is told (0.05 is 5 %); 0: none is.

    `earlier` has the points of earlier launches of the same workload, in the order of their steps.
    """

    def __init__(
        self, slower: float, earlier: Sequence[Sequence[PacePoint]] = (), *, key: LaunchKey | None = None
    ) -> None:
        self.key = key  # None: it is not stored
        self.points: list[PacePoint] = []
        self.thinned = 0  # how often half of the points went
        self.explained: list[tuple[Alarm, str]] = []  # what the program did itself, and what shows it; taken by others
        self._earlier = earlier
        self._blocks = Blocks()
        self._since_point = 0
        self._detector = Detector(slower or OFF)
        self._pauses = PauseDetector(slower or OFF)

    # -- what is known

    @property
    def usual_seconds(self) -> float | None:
        """The running median of ordinary steps, known from the first step on."""
        return self._blocks.usual

    @property
    def baseline_seconds(self) -> float | None:
        """The step time that the loop is compared with; None while it is not known."""
        return self._detector.baseline_seconds

    @property
    def slowdown(self) -> Slowdown | None:
        """The slow-down that holds: of the steps, else by pauses."""
        slow, pauses = self._detector.alarm, self._pauses.alarm
        if slow is not None:
            return Slowdown(SlowdownKind.STEPS, slow.since, slow.step, slow.slower, slow.told, gradual=slow.gradual)
        if pauses is not None:
            return Slowdown(SlowdownKind.PAUSES, pauses.since, pauses.step, pauses.more, pauses.told)
        return None

    # -- what is heard

    def add(self, sample: StepSample) -> None:
        """Take steps."""
        for block in self._blocks.add(sample):
            self._take(block)

    def set_slower(self, slower: float) -> None:
        """Go by this least slow-down from now on."""
        effect = slower or OFF
        if effect != self._detector.effect:
            self._detector.effect = self._detector.least = effect
            self._pauses.effect = effect
            if not slower:
                self._detector.alarm = self._pauses.alarm = None

    def _take(self, block: Block) -> None:
        told = self._detector.alarm
        self._detector.add(block)
        self._pauses.add(block)
        self._remember(block)
        alarm = self._detector.alarm
        if alarm is not None and (told is None or told.told != alarm.told):
            shown_by = self._explanation(alarm)
            if shown_by:
                self.explained.append((alarm, shown_by))
                self._detector.accept(alarm)

    def _remember(self, block: Block) -> None:
        self._since_point += 1
        if block.seconds is None or self._since_point < 2**self.thinned:
            return
        if self.points and block.step <= self.points[-1].step:
            return
        self._since_point = 0
        self.points.append(PacePoint(block.step, block.at, block.seconds))
        if len(self.points) > MAX_POINTS:
            del self.points[1::2]
            self.thinned += 1

    # -- what the program does itself

    def _explanation(self, alarm: Alarm) -> str:
        """What shows that the program itself became slower; "" if nothing does."""
        if self._hbm_moved(alarm):
            return "it uses another amount of HBM since then"
        latest = self._detector.recent[-1].step
        if any(_became_slower(points, alarm, latest) for points in self._earlier):
            return "an earlier launch became slower at about the same step"
        return ""

    def _hbm_moved(self, alarm: Alarm) -> bool:
        """Whether the HBM in use went from one level to another near the onset, and stayed there."""
        points = [one for one in self._detector.recent if one.hbm]
        onset = sum(one.at <= alarm.since for one in points)
        before = [one.hbm or 0.0 for one in points[max(0, onset - HBM_NEAR - RUN) : max(0, onset - HBM_NEAR)]]
        after = [one.hbm or 0.0 for one in points[onset + HBM_NEAR :]]
        if len(before) < HBM_BLOCKS or len(after) < HBM_BLOCKS:
            return False
        level, moved = median(before), median(after)
        spread = max(median(abs(one - level) for one in before), median(abs(one - moved) for one in after))
        return abs(moved - level) > max(HBM_MOVED * level, 4 * spread)

    # -- for the store

    def state(self) -> dict[str, Any]:
        """All but the points, as JSON can have it."""
        return {
            "ordinary": self._blocks.ordinary,
            "thinned": self.thinned,
            "detector": self._detector.state(),
            "pauses": self._pauses.state(),
        }

    def restore(self, state: dict[str, Any], points: Sequence[PacePoint]) -> bool:
        """Go on where `state` was given; False, and nothing changes, if it is no state of this version."""
        try:
            ordinary = state["ordinary"]
            detector = Detector.of(state["detector"], self._detector.effect)
            pauses = PauseDetector.of(state["pauses"], self._pauses.effect)
            thinned = int(state["thinned"])
        except (ValueError, TypeError, KeyError, IndexError):
            return False
        self._blocks = Blocks(ordinary=None if ordinary is None else float(ordinary))
        self._detector, self._pauses, self.thinned = detector, pauses, thinned
        self.points = list(points)[-MAX_POINTS:]
        return True


def _became_slower(points: Sequence[PacePoint], alarm: Alarm, latest: int) -> bool:
    """Whether that launch became slower by about as much at about the same step, and stayed so for some blocks."""
    paces = [log(one.seconds) for one in points]
    width = min(RUN, max(3, len(points) // 20 | 1))
    places = range(width, len(points) - width + 1)
    if alarm.gradual:  # it was as slow where this one is now, compared with its fastest time before
        before = [place for place in places if points[place].step <= (1 + SAME_STEP) * latest]
        levels = [median(paces[place - width : place]) for place in before]
        return bool(levels) and _as_slow(levels[-1] - min(levels), alarm.slower)
    changes = {
        place: median(paces[place : place + width]) - median(paces[place - width : place])
        for place in places
        if abs(points[place].step - alarm.step) <= SAME_STEP * alarm.step
    }
    for place, change in changes.items():
        whole = change >= max(changes.get(other, change) for other in range(place - width, place + width + 1))
        if whole and _as_slow(change, alarm.slower):
            return True
    return False


def _as_slow(change: float, slower: float) -> bool:
    """Whether a change of the log step time is about that slow-down."""
    near = abs(expm1(change) - slower) <= max(SAME_POINTS, SAME_EFFECT * slower)
    return near and change >= SAME_LEAST * log1p(slower)
