"""Gives every second of a training exactly one state. Pure.

A launch is initialisation, startup, steps and ending, without holes; between two launches the node says which state it
is. Steps count as productive by the best pace of the training: what ordinary steps take beyond that is slow.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.model import StepPause, TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpuwatch.model import Interruption, StepRun, StepSpan

ENOUGH_LOOKS: Final = 20  # of a run, for its median to be the pace of a training
NOISE: Final = 0.01  # of the time of a step
UNSEEN_SECONDS: Final = 3600.0  # after the last sign of a process, from which it is not known what it does
RESTART_SECONDS: Final = 86_400.0  # after an interruption, for which the next launch of a training is waited for
_WATCHED_SECONDS: Final = 5.0  # a process may be seen so late
_PRODUCTIVE = TrainingState.PRODUCTIVE


class Period(NamedTuple):
    """A time from one moment to another."""

    since: float
    until: float


class Segment(NamedTuple):
    """A time, and the seconds of each state in it, which add up to it."""

    since: float
    until: float
    seconds: Mapping[TrainingState, float]

    def within(self, since: float, until: float) -> Segment | None:
        """The part in a period, in which the states have the same shares; None if there is none."""
        start, end = max(self.since, since), min(self.until, until)
        if end <= start:
            return None
        if (start, end) == (self.since, self.until):
            return self
        part = (end - start) / (self.until - self.since)
        return Segment(start, end, {state: seconds * part for state, seconds in self.seconds.items()})


@dataclass(frozen=True, slots=True)
class TrainingAttempt:
    """A launch of a training, with its steps. Processes that run at the same time are one."""

    began: float
    initialised: float | None  # when the TPU was up; None: not known, or it never was
    ended: float | None  # None: it runs
    runs: tuple[StepRun, ...] = ()  # in the order of their time
    came_up: bool = True
    heard: float = 0.0  # the last sign of its process
    wanted: bool = False  # somebody ended it, or it has finished
    finished: bool = False  # it did what it was to do, and no launch follows for its sake
    interruption: Interruption | None = None

    @property
    def stepped(self) -> float | None:
        """When its last step was seen; None if none was."""
        return self.runs[-1].until if self.runs else None


@dataclass(frozen=True, slots=True)
class NodePeriods:
    """How the node was."""

    stuck: Sequence[Period] = ()
    maintenance: Sequence[Period] = ()
    absent: Sequence[Period] = ()  # the machine was not there


def account(
    attempts: Sequence[TrainingAttempt],
    node: NodePeriods,
    now: float,
    *,
    since: float = float("-inf"),
    repeats: bool = True,
) -> list[Segment]:
    """The time from the first launch of a training until now, or until it was over, without holes.

    `attempts` are in the order of their start and do not overlap. Launches that others followed before `since` are left
    out. Without `repeats` steps that a later launch did again keep the state that they had.
    """
    best = best_step_seconds(attempts)
    found: list[Segment] = []
    stepped = any(attempt.runs for attempt in attempts)
    kept = kept_steps(attempts) if repeats else [None] * len(attempts)
    for number, attempt in enumerate(attempts):
        until = now if attempt.ended is None else attempt.ended
        following = attempts[number + 1].began if number + 1 < len(attempts) else None
        if following is not None and following <= since:
            continue
        found += _tiled(_of_attempt(attempt, best, kept[number], node, until, stepped), attempt.began, until)
        if following is not None:
            found += _between(until, following, node)
        elif attempt.interruption is not None:
            found += _between(until, min(now, until + RESTART_SECONDS), node)
    return found


def best_step_seconds(attempts: Iterable[TrainingAttempt]) -> float | None:
    """The best median time of a step; None if no two steps were seen.

    Runs that are as fast within the noise count together: the least of several noisy medians is too low.
    """
    runs = [(run.step_seconds, run.looks) for attempt in attempts for run in attempt.runs if run.step_seconds]
    runs = [one for one in runs if one[1] >= ENOUGH_LOOKS] or runs
    least = min(runs, default=(0.0, 0))[0]
    same = [(seconds, looks) for seconds, looks in runs if seconds <= least * (1.0 + NOISE)]
    return sum(seconds * looks for seconds, looks in same) / sum(looks for _, looks in same) if same else None


def kept_steps(attempts: Sequence[TrainingAttempt]) -> list[int | None]:
    """For each launch the last step that no later one did again; None: each of its steps, as far as is known.

    Where steps begin again within a launch, as those of each epoch, they do not tell which were done before.
    """
    kept: list[int | None] = []
    least: int | None = None
    for attempt in reversed(attempts):
        kept.append(least)
        if any(run.continues for run in attempt.runs[1:]):
            least = None
        elif attempt.runs:
            before = attempt.runs[0].first_step - attempt.runs[0].first_steps
            least = before if least is None else min(before, least)
    return kept[::-1]


def _of_attempt(
    attempt: TrainingAttempt, best: float | None, kept: int | None, node: NodePeriods, until: float, stepped: bool
) -> Iterator[Segment]:
    """The segments of a launch, from its start on; a hole is time of which nothing is known."""
    if not attempt.runs:
        yield from _without_steps(attempt, until, stepped)
        return
    first = attempt.runs[0]
    up = min(first.began if attempt.initialised is None else attempt.initialised, first.began)
    if attempt.initialised is not None:
        yield _one(attempt.began, up, TrainingState.INITIALISATION)
    else:
        up = attempt.began
    ideal = min(first.first_steps * (best or 0.0), first.began - up)
    watched = min(max(up, first.watched_since - _WATCHED_SECONDS), first.began - ideal)
    yield _one(watched if watched > up + _WATCHED_SECONDS else up, first.began - ideal, TrainingState.STARTUP)
    is_kept = kept is None or first.first_step <= kept
    yield _one(first.began - ideal, first.began, _PRODUCTIVE if is_kept else TrainingState.REPEATED)
    before: StepRun | None = None
    for run in attempt.runs:
        if before is not None:
            yield from _between_runs(before, run, best or 0.0)
        yield from _of_run(run, best or run.step_seconds or 0.0, kept, node.stuck)
        before = run
    yield from _after_steps(attempt, best or 0.0, node.stuck, until)


def _without_steps(attempt: TrainingAttempt, until: float, stepped: bool) -> Iterator[Segment]:
    """`stepped`: steps of other launches of the training were seen, so that this one's would have been."""
    if not attempt.came_up:
        yield _one(attempt.began, until, TrainingState.INITIALISATION)
    elif attempt.initialised is not None:
        yield _one(attempt.began, attempt.initialised, TrainingState.INITIALISATION)
        if stepped and until - attempt.initialised <= UNSEEN_SECONDS:
            yield _one(attempt.initialised, until, TrainingState.STARTUP)


def _of_run(run: StepRun, best: float, kept: int | None, stuck: Sequence[Period]) -> Iterator[Segment]:
    at, step = run.began, run.first_step
    pauses, ahead = deque(sorted(run.pauses)), 0.0
    for span in run.spans:
        inside = []
        while pauses and pauses[0].until <= span.until:
            inside.append(pauses.popleft())
        extra = span.ordinary_seconds - span.steps * best - ahead
        slow = min(max(0.0, extra), span.ordinary_seconds)
        ahead = min(max(0.0, -extra), NOISE * span.ordinary_seconds)  # noise cancels out over spans, and no more
        yield from _of_span(at, step, span, inside, slow, kept, stuck)
        at, step = span.until, span.step


def _of_span(
    at: float,
    step: int,
    span: StepSpan,
    pauses: Sequence[StepPause],
    slow: float,
    kept: int | None,
    stuck: Sequence[Period],
) -> Iterator[Segment]:
    """Ordinary steps and pauses by turns. Between two pauses the states of ordinary steps have the shares of the span.

    `at`, `step`: the end of the span before, and its last step. `slow`: the seconds that ordinary steps took too long.
    """
    states = {
        _PRODUCTIVE: span.ordinary_seconds - slow,
        TrainingState.SLOW: slow,
        TrainingState.PAUSE: span.pause_seconds,
    }
    for pause in (*pauses, StepPause(span.until, span.step, 0.0)):
        begin = max(at, pause.until - pause.seconds)
        yield from _ordinary(Period(at, begin), (step, pause.step), states, kept)
        if pause.seconds:
            state = TrainingState.PAUSE if kept is None or pause.step <= kept else TrainingState.REPEATED
            is_stuck = pause.stalled or _overlaps(begin, pause.until, stuck)
            yield _one(begin, pause.until, TrainingState.STUCK if is_stuck else state)
        at, step = pause.until, pause.step


def _ordinary(
    period: Period, steps: tuple[int, int], states: Mapping[TrainingState, float], kept: int | None
) -> Iterator[Segment]:
    """Ordinary steps from the one after the first of `steps` to the second, which take equally long."""
    since, until = period
    whole = sum(states.values())
    if until <= since or whole <= 0:
        return
    before, last = steps
    part = (
        1.0 if kept is None or kept >= last else max(0.0, (kept - before) / (last - before)) if last > before else 0.0
    )
    middle = since + (until - since) * part
    if middle > since:
        yield Segment(since, middle, {one: (middle - since) * seconds / whole for one, seconds in states.items()})
    yield _one(middle, until, TrainingState.REPEATED)


def _between_runs(before: StepRun, run: StepRun, best: float) -> Iterator[Segment]:
    """From the last step of one run to the first of the next, in one process."""
    steps = run.first_steps if run.continues else max(0, run.first_step - before.step)
    ideal = min(steps * best, run.began - before.until)
    if run.continues:
        yield _one(before.until, run.began - ideal, TrainingState.PAUSE)
    yield _one(run.began - ideal, run.began, _PRODUCTIVE)


def _after_steps(attempt: TrainingAttempt, best: float, stuck: Sequence[Period], until: float) -> Iterator[Segment]:
    """From the last step on."""
    last = attempt.runs[-1]
    at = last.until
    if last.stalled or _overlaps(at, until, stuck):
        yield _one(at, until, TrainingState.STUCK)
    elif attempt.ended is not None or last.done:
        yield _one(at, until, TrainingState.ENDING)
    else:
        step = min(until, at + last.stride * best)
        yield _one(at, step, _PRODUCTIVE)
        yield _one(step, min(until, max(at, attempt.heard) + UNSEEN_SECONDS), TrainingState.PAUSE)


def _between(since: float, until: float, node: NodePeriods) -> Iterator[Segment]:
    """No process is there: by the state of the node."""
    edges = {since, until}
    for period in (*node.maintenance, *node.absent):
        edges.update(edge for edge in period if since < edge < until)
    ordered = sorted(edges)
    for start, end in pairwise(ordered):
        if _overlaps(start, end, node.maintenance):
            state = TrainingState.MAINTENANCE
        else:
            state = TrainingState.CAPACITY if _overlaps(start, end, node.absent) else TrainingState.DOWN
        yield _one(start, end, state)


def _overlaps(since: float, until: float, periods: Iterable[Period]) -> bool:
    return any(period.since < until and since < period.until for period in periods)


def _one(since: float, until: float, state: TrainingState) -> Segment:
    return Segment(since, until, {state: until - since})


def _tiled(segments: Iterable[Segment], since: float, until: float) -> Iterator[Segment]:
    """The segments, in order, each from where the one before ended: a hole is unknown, and nothing is outside."""
    at = since
    for segment in segments:
        inside = segment.within(at, until)
        if inside is None:
            continue
        if inside.since > at:
            yield _one(at, inside.since, TrainingState.UNKNOWN)
        yield inside
        at = inside.until
    if at < until:
        yield _one(at, until, TrainingState.UNKNOWN)
