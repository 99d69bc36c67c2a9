"""Plays a case through the daemon's tracker of training loops, with the case's own clock."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model import ProgressSource, Slowdown, SlowdownKind, StepReport
from tpuwatch.progress.pace import Pace
from tpuwatch.progress.tracker import Beginning, ProgressTracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.model import PacePoint

START: Final = 1_790_000_000.0
EARLIER: Final = 4
KINDS: Final = {SlowdownKind.STEPS: "slow", SlowdownKind.PAUSES: "pause"}


class Replay:
    """The daemon's part of a case."""

    def __init__(self) -> None:
        self.launch: object = None
        self.paces: list[Pace] = []
        self.told: Slowdown | None = None
        self.tracker = ProgressTracker(stall_seconds=600.0, recall=self._recall)
        self.latest: tuple[int, float] | None = None  # step and time

    def take(self, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Take a line of the case; returns what is said then."""
        kind, at = case.get("type"), _number(case.get("at"))
        if at is None:
            return
        if kind in ("launch", "exit"):
            yield from self._end(at)
            self.launch = case.get("launch") if kind == "launch" else self.launch
        elif kind == "sample" and case.get("worker") == 0:
            used = [_number(one) for one in case.get("hbm_used") or [None]]
            self.tracker.hbm_used_bytes = None if None in used else sum(filter(None, used))
        elif kind == "step" and case.get("worker", 0) == 0:
            self._step(case, at)
            yield from self._say(at)

    def _step(self, case: dict[str, Any], at: float) -> None:
        step, tokens = _number(case.get("step")), _number(case.get("tokens"))
        if step is None or (self.latest is not None and step <= self.latest[0]):
            return
        rate = None
        if tokens and self.latest is not None and at > self.latest[1]:
            rate = tokens * (step - self.latest[0]) / (at - self.latest[1])
        report = StepReport(int(step), tokens_per_second=rate)
        path = f"/jobs/{self.launch}.log"
        self.tracker.output(path, report, pid=None, process=None, at=START + at)
        self.latest = int(step), at

    def _say(self, at: float) -> Iterator[dict[str, Any]]:
        self.tracker.tick(START + at, lambda *_: True)
        slow = self.paces[-1].slowdown if self.paces else None
        before, self.told = self.told, slow
        if before is not None and (slow is None or slow.kind is not before.kind):
            yield _line(before, at, over=at)
            before = None
        if slow is not None and (before is None or slow.told != before.told):
            yield _line(slow, at)

    def _end(self, at: float) -> Iterator[dict[str, Any]]:
        if self.told is not None:
            yield _line(self.told, at, over=at)
        self.told = self.latest = None
        self.tracker = ProgressTracker(stall_seconds=600.0, recall=self._recall)

    def _recall(self, begun: Beginning, slower: float) -> Pace:
        assert begun.source is ProgressSource.OUTPUT
        earlier: list[list[PacePoint]] = [one.points for one in self.paces[-EARLIER:]]
        self.paces.append(Pace(slower, earlier))
        return self.paces[-1]


def replay(lines: Iterable[str]) -> Iterator[str]:
    """What is said about the case of these lines. Lines that are no JSON objects are left out."""
    played = Replay()
    for line in lines:
        try:
            case = json.loads(line)
        except ValueError:
            continue
        if isinstance(case, dict):
            yield from map(json.dumps, played.take(case))


def _line(slow: Slowdown, at: float, over: float | None = None) -> dict[str, Any]:
    return {
        "at": round(at, 3),
        "onset": round(slow.since - START, 3),
        "over": over,
        "slower": round(slow.slower, 4),
        "gradual": slow.gradual,
        "cause": "unexplained",
        "worker": None,
        "kind": KINDS[slow.kind],
    }


def _number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
