"""Keeps the steps of training loops as they are seen: exact sums in a bounded number of spans. Pure.

A look is one step that was seen after another; loops are looked at once a second, so that a fast one has many steps in
a look. Spans are merged by twos when there are too many, which loses no second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import median
from tpuwatch.model import Cause, StepPause, StepRun, StepSpan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import TrainingLoop

LONG_STEPS: Final = 1.5  # a step that takes so many steps longer than the running median is a pause,
LONG_SHARE: Final = 0.25  # if that is also so much of the time between two looks
SPAN_SECONDS: Final = 300.0  # a span is no shorter than this,
SPAN_LOOKS: Final = 60  # and has no fewer looks: then noise cancels out
ALONE_SECONDS: Final = 20.0  # a pause so long is a span of its own: another launch may have begun in it
MAX_SPANS: Final = 256
MAX_PAUSES: Final = 256  # the longest ones are kept by themselves
MAX_RUNS: Final = 256  # that are followed at a time
_RECENT: Final = 31  # looks, for the running median
_KNOWN: Final = 3  # looks, from which it means something
_SAMPLE: Final = 512

_Key = tuple[object, ...]


@dataclass(slots=True)
class _Followed:
    """A run that may go on."""

    run: StepRun
    at: float
    step: int
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    ordinary: list[float] = field(default_factory=list)  # a bounded sample of seconds a step
    strides: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    every: int = 1  # of so many looks one is in the sample
    looks: int = 0
    spans: list[StepSpan] = field(default_factory=list)
    pauses: list[StepPause] = field(default_factory=list)
    open: StepSpan | None = None
    open_looks: int = 0
    open_since: float = 0.0
    done: bool = False
    stalled: bool = False
    changed: bool = True  # since it was last asked for


class StepRecorder:
    """Folds what is seen of loops into runs. Not thread-safe."""

    def __init__(self, now: float) -> None:
        """`now`: the time from which loops are watched."""
        self._since = now
        self._followed: dict[_Key, _Followed] = {}
        self._over: deque[StepRun] = deque(maxlen=MAX_RUNS)

    def look(self, loops: Iterable[TrainingLoop]) -> None:
        """Take the loops as they are now."""
        for loop in loops:
            key = _key(loop)
            known = self._followed.get(key)
            if known is None or loop.step < known.step:
                if known is None and len(self._followed) >= MAX_RUNS:
                    continue
                self._begin(key, loop, known)
            elif loop.step > known.step and loop.stepped > known.at:
                _step(known, loop.step, loop.stepped)
            followed = self._followed[key]
            before = followed.done, followed.stalled
            followed.done = loop.done or (loop.total is not None and loop.step >= loop.total)  # it may go on
            followed.stalled = loop.is_running and Cause.STEPS_STALLED in loop.faults
            followed.changed = followed.changed or before != (followed.done, followed.stalled)

    def runs(self) -> list[StepRun]:
        """All runs that may go on."""
        return [_shown(one) for one in self._followed.values()]

    def changed(self) -> list[StepRun]:
        """Those that are not saved as they are now, and runs after which the loop began again."""
        return [*self._over, *(_shown(one) for one in self._followed.values() if one.changed)]

    def saved(self, loops: Iterable[TrainingLoop]) -> None:
        """All that `changed` gave is saved. Follow no loop on that is not among these."""
        self._over.clear()
        known = {_key(loop) for loop in loops}
        for key, followed in list(self._followed.items()):
            followed.changed = False
            if key not in known:
                del self._followed[key]

    def _begin(self, key: _Key, loop: TrainingLoop, before: _Followed | None) -> None:
        run = StepRun(
            source=loop.source,
            name=loop.name,
            pid=loop.pid,
            user=loop.user,
            watched_since=self._since,
            began=loop.stepped,
            first_step=loop.step,
            stride=1,
            step_seconds=None,
            looks=0,
            continues=before is not None,
        )
        if before is not None and before.looks:
            self._over.append(_shown(before))
        self._followed[key] = _Followed(run, loop.stepped, loop.step)


def _key(loop: TrainingLoop) -> _Key:
    return loop.source, loop.name, loop.pid, loop.user, loop.began


def _step(followed: _Followed, step: int, at: float) -> None:
    """Take a look that has new steps."""
    steps, seconds = step - followed.step, at - followed.at
    usual = median(followed.recent) if len(followed.recent) >= _KNOWN else None
    extra = 0.0 if usual is None else seconds - steps * usual
    is_pause = usual is not None and extra > max(LONG_STEPS * usual, LONG_SHARE * seconds)
    followed.recent.append(seconds / steps)
    followed.strides.append(steps)
    followed.looks += 1
    if is_pause:
        followed.pauses.append(StepPause(at, step, extra, followed.stalled))
    else:
        extra = 0.0
        _sample(followed, seconds / steps)
    _extend(followed, StepSpan(at, step, steps, seconds - extra, 0.0), alone=extra >= ALONE_SECONDS)
    if len(followed.pauses) > MAX_PAUSES:
        _fold_shortest_pause(followed)
    followed.at, followed.step, followed.changed = at, step, True


def _sample(followed: _Followed, seconds: float) -> None:
    if followed.looks % followed.every == 0:
        followed.ordinary.append(seconds)
        if len(followed.ordinary) >= _SAMPLE:
            del followed.ordinary[1::2]
            followed.every *= 2


def _extend(followed: _Followed, more: StepSpan, *, alone: bool) -> None:
    """Add a look to the open span, and close that when it is long enough. `alone`: as a span of its own."""
    if alone:
        _close(followed)
    if followed.open is None:
        followed.open, followed.open_looks, followed.open_since = more, 1, followed.at
    else:
        followed.open = _together(followed.open, more)
        followed.open_looks += 1
    if alone or (more.until - followed.open_since >= SPAN_SECONDS and followed.open_looks >= SPAN_LOOKS):
        _close(followed)


def _close(followed: _Followed) -> None:
    if followed.open is None:
        return
    followed.spans.append(followed.open)
    followed.open = None
    if len(followed.spans) >= MAX_SPANS:
        pairs = zip(followed.spans[::2], followed.spans[1::2], strict=True)
        followed.spans = [_together(one, other) for one, other in pairs]


def _together(one: StepSpan, other: StepSpan) -> StepSpan:
    return StepSpan(
        other.until,
        other.step,
        one.steps + other.steps,
        one.ordinary_seconds + other.ordinary_seconds,
        one.pause_seconds + other.pause_seconds,
    )


def _fold_shortest_pause(followed: _Followed) -> None:
    """Count the shortest pause with its span, and no longer by itself."""
    pause = min(followed.pauses, key=lambda one: one.seconds)
    followed.pauses.remove(pause)
    for place, span in enumerate(followed.spans):
        if pause.until <= span.until:
            followed.spans[place] = span._replace(pause_seconds=span.pause_seconds + pause.seconds)
            return
    if followed.open is not None:
        followed.open = followed.open._replace(pause_seconds=followed.open.pause_seconds + pause.seconds)


def _shown(followed: _Followed) -> StepRun:
    spans = followed.spans if followed.open is None else [*followed.spans, followed.open]
    return replace(
        followed.run,
        stride=round(median(followed.strides)) if followed.strides else 1,
        step_seconds=median(followed.ordinary) if followed.ordinary else None,
        looks=followed.looks,
        spans=tuple(spans),
        pauses=tuple(followed.pauses),
        done=followed.done,
        stalled=followed.stalled,
    )
