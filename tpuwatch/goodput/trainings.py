"""Puts launches and steps together to trainings: what belongs to which launch, how it ended, and what follows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tpuwatch.goodput.account import NodePeriods, Period, TrainingAttempt
from tpuwatch.goodput.recorder import ALONE_SECONDS
from tpuwatch.model import (
    CAME_UP,
    DEFAULT_WORKLOAD,
    KIND_VARIABLE,
    Cause,
    Interruption,
    InterruptionReason,
    NodeSpanKind,
    Whose,
    WorkloadKind,
    kind_named,
    workload_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpuwatch.model import Launch, NodeSpan, StepPause, StepRun

    _RunsByLaunch = Mapping[tuple[int, float], list[StepRun]]

APART_SECONDS: Final = 86_400.0  # launches that are further apart are of two trainings
TOGETHER_SECONDS: Final = 60.0  # processes that start so soon after each other may be one launch of several
EXPLAINED_SECONDS: Final = 600.0  # a fault so long before the end of a launch may be why it ended
NEAR_SECONDS: Final = 120.0  # so long after a launch's end a machine that is gone explains it
_LATE_SECONDS: Final = 5.0  # by which the start of a launch may be known too late
_WANTED: Final = (0, 129, 130, 143)  # exit statuses of what did its work, or was told to end
_KILLED: Final = 128  # and more: a signal
_CAUSES: Final = {cause.value: cause for cause in Cause}
_REASONS: Final = {
    Whose.PROGRAM: InterruptionReason.PROGRAM,
    Whose.SETUP: InterruptionReason.SETUP,
    Whose.HOLDER: InterruptionReason.SETUP,
    Whose.NODE: InterruptionReason.NODE,
    Whose.OTHER_WORKER: InterruptionReason.WORKER,
}


@dataclass(frozen=True, slots=True)
class Training:
    """Launches of one workload that follow each other."""

    workload: str
    user: str
    attempts: tuple[TrainingAttempt, ...]

    @property
    def key(self) -> tuple[str, str, float]:
        """What distinguishes it from others."""
        return self.workload, self.user, self.attempts[0].began

    @property
    def shows_steps(self) -> bool:
        """Whether a step of it was seen."""
        return any(attempt.runs for attempt in self.attempts)


def node_periods(spans: Iterable[NodeSpan]) -> NodePeriods:
    """How the node was. The machine was away from the last moment of a boot to the first of the next; if it went away
    under maintenance, for that."""
    spans = sorted(spans, key=lambda span: span.since)
    watched = [span for span in spans if span.kind is NodeSpanKind.WATCHED]
    away = [
        Period(before.until, after.since)
        for before, after in pairwise(watched)
        if before.boot_id != after.boot_id and before.until < after.since
    ]
    stuck, maintenance = (
        [Period(span.since, span.until) for span in spans if span.kind is kind]
        for kind in (NodeSpanKind.STUCK, NodeSpanKind.MAINTENANCE)
    )
    for_maintenance = [
        one for one in away if any(each.since <= one.since <= each.until + NEAR_SECONDS for each in maintenance)
    ]
    return NodePeriods(stuck, [*maintenance, *for_maintenance], [one for one in away if one not in for_maintenance])


def trainings_of(
    launches: Iterable[Launch], runs: Iterable[StepRun], spans: Sequence[NodeSpan], now: float
) -> list[Training]:
    """The trainings, in the order of their start. What was there before tpuwatch first ran, serves, or waits for its
    user is none."""
    boots = [span for span in spans if span.kind is NodeSpanKind.WATCHED]
    boot_id = max(boots, key=lambda span: span.until).boot_id if boots else ""
    node, known = node_periods(spans), sorted(launches, key=lambda launch: launch.started)
    wanted = [launch for launch in known if not launch.history and not launch.superseded and _trains(launch)]
    of_launch = _runs_by_launch(wanted, runs)
    by_workload: dict[tuple[str, str], list[Launch]] = {}
    for launch in wanted:
        name = workload_of(launch)
        by_workload.setdefault((name, launch.user if name == DEFAULT_WORKLOAD else ""), []).append(launch)
    found = []
    for (workload, user), of_workload in by_workload.items():
        groups = list(_groups(of_workload))
        attempts = [_attempt(group, of_launch, boot_id) for group in groups]
        explained = [_explained(one, node) for one in _without_overlap(attempts)]
        found += [Training(workload, user, _recovered(one, now)) for one in _split(explained)]
    return sorted(found, key=lambda training: training.attempts[0].began)


def _trains(launch: Launch) -> bool:
    return kind_named(launch.environment.get(KIND_VARIABLE)) in (None, WorkloadKind.TRAINING)


def _runs_by_launch(launches: Sequence[Launch], runs: Iterable[StepRun]) -> _RunsByLaunch:
    """The steps of each launch, which is known by process and start: by the number of the process, else by the time."""
    found: dict[tuple[int, float], list[StepRun]] = {}
    for run in (part for whole in runs for part in _parts(whole, launches)):
        possible = [launch for launch in launches if _may_have_made(launch, run)]
        same = [launch for launch in possible if run.pid is not None and launch.pid == run.pid]
        if possible:
            launch = (same or possible)[-1]
            found.setdefault((launch.pid, launch.started), []).append(run)
    return found


def _parts(run: StepRun, launches: Sequence[Launch]) -> Iterator[StepRun]:
    """The steps of each launch: output of which no process is known goes on as one loop where a launch resumes at the
    next step. A launch began in a long pause, and none that may have made the steps before lasted for longer."""
    long = {pause.until for pause in run.pauses if pause.seconds >= ALONE_SECONDS and run.pid is None}
    at, begin, part = run.began, 0, run
    for place, span in enumerate(run.spans):
        if span.until in long and _is_parted(part, at, span.until, launches):
            ended = replace(part, done=False, stalled=False)
            yield replace(ended, spans=run.spans[begin:place], pauses=_within(run, part.began, at))
            part, begin = replace(run, began=span.until, first_step=span.step, continues=False), place + 1
        at = span.until
    yield replace(part, spans=run.spans[begin:], pauses=_within(run, part.began, at))


def _is_parted(part: StepRun, since: float, until: float, launches: Iterable[Launch]) -> bool:
    began = any(since < launch.started <= until for launch in launches)
    lasts = (launch for launch in launches if launch.ended is not None and launch.ended > until)
    return began and not any(_may_have_made(launch, part) for launch in lasts)


def _within(run: StepRun, since: float, until: float) -> tuple[StepPause, ...]:
    return tuple(pause for pause in run.pauses if since < pause.until <= until)


def _may_have_made(launch: Launch, run: StepRun) -> bool:
    """Whether it ran when the first step was seen, and no user speaks for another."""
    ended = launch.ended is not None and run.began > launch.ended + _LATE_SECONDS
    return launch.started - _LATE_SECONDS <= run.began and not ended and (not run.user or launch.user in ("", run.user))


def _groups(launches: Iterable[Launch]) -> Iterator[list[Launch]]:
    """Launches of one workload in the order of their start; those of which several processes run at a time together."""
    group: list[Launch] = []
    for launch in launches:
        if group and not _is_of(launch, group):
            yield group
            group = []
        group.append(launch)
    if group:
        yield group


def _is_of(launch: Launch, group: Sequence[Launch]) -> bool:
    ends = [one.ended for one in group]
    if None in ends:
        return launch.started - group[0].started < TOGETHER_SECONDS and launch.boot_id == group[0].boot_id
    return launch.started < max(end for end in ends if end is not None)


def _attempt(group: Sequence[Launch], steps: _RunsByLaunch, boot_id: str) -> TrainingAttempt:
    """One launch, of one process or several; the steps are those of the loop that stepped for longest."""
    first = group[0]
    runs = _main_loop([run for one in group for run in steps.get((one.pid, one.started), ())])
    heard = max(one.last_heard or one.started for one in group)
    heard = max(heard, runs[-1].until if runs else heard)
    ended = None if any(one.ended is None for one in group) else max(one.ended or 0.0 for one in group)
    if ended is None and first.boot_id and boot_id and first.boot_id != boot_id:
        ended = heard  # the machine has been restarted since
    ups = [one.started + one.init_seconds for one in group if one.init_seconds is not None]
    cause, status = _cause(group), next((one.exit_status for one in group if one.exit_status), first.exit_status)
    done = bool(runs and runs[-1].done) and not any(run.continues for run in runs[1:])  # not the end of an epoch
    wanted = (status in _WANTED or done) if status is not None or done else None
    interruption = None
    if ended is not None and not wanted and (cause is not None or wanted is False):
        interruption = Interruption(ended, *_reason(cause, status))
    return TrainingAttempt(
        began=first.started,
        initialised=max(ups) if ups else None,
        ended=ended,
        runs=runs,
        came_up=any(one.outcome in CAME_UP for one in group) or bool(runs),
        heard=heard,
        wanted=bool(wanted),
        finished=status == 0 or done,
        interruption=interruption,
    )


def _main_loop(runs: Sequence[StepRun]) -> tuple[StepRun, ...]:
    """The runs of the loop that stepped for longest, in the order of their time."""
    seconds: dict[tuple[object, str], float] = {}
    for run in runs:
        loop = (run.source, run.name)
        seconds[loop] = seconds.get(loop, 0.0) + run.until - run.began
    if not seconds:
        return ()
    main = max(seconds, key=lambda loop: seconds[loop])
    ordered = sorted((run for run in runs if (run.source, run.name) == main), key=lambda run: run.began)
    kept: list[StepRun] = []
    for run in ordered:
        if not kept or run.began >= kept[-1].until:
            kept.append(run)
    return tuple(kept)


def _cause(group: Iterable[Launch]) -> Cause | None:
    """The first fault of those shortly before the end: the program went on after earlier ones."""
    found = []
    for launch in group:
        if launch.outcome not in CAME_UP:
            found += [(0.0, launch.cause)] if launch.cause is not None else []
        elif launch.ended is not None:
            late = launch.ended - launch.started - EXPLAINED_SECONDS
            found += [(at, _CAUSES[name]) for name, at in launch.faults.items() if name in _CAUSES and at >= late]
    found = [one for one in found if one[1] is not Cause.SLOW_INIT]
    return min(found, key=lambda one: (one[0], one[1].rank))[1] if found else None


def _reason(cause: Cause | None, status: int | None) -> tuple[InterruptionReason, str]:
    """The reason by cause and exit status, and the cause in a word."""
    if cause is not None and cause.row.whose in _REASONS:
        return _REASONS[cause.row.whose], cause.value
    word = cause.value if cause is not None else f"exit status {status}" if status is not None else ""
    if status is not None and status >= _KILLED:
        return InterruptionReason.KILLED, word
    return (InterruptionReason.UNKNOWN if status is None else InterruptionReason.FAILED), word


def _without_overlap(attempts: Sequence[TrainingAttempt]) -> list[TrainingAttempt]:
    """A launch whose end is not known has ended at its last sign, if another one follows."""
    found = []
    for attempt, following in zip(attempts, [*attempts[1:], None], strict=True):
        if following is None:
            found.append(attempt)
            continue
        ended = max(attempt.began, attempt.heard) if attempt.ended is None else attempt.ended
        found.append(replace(attempt, ended=min(ended, following.began)))
    return found


def _split(attempts: Sequence[TrainingAttempt]) -> Iterator[list[TrainingAttempt]]:
    """Trainings: one is over when a launch has finished, nothing follows for a day, or the next one begins at its first
    step though no failure is known."""
    training: list[TrainingAttempt] = []
    for attempt in attempts:
        if training:
            last = training[-1]
            late = attempt.began - (last.ended or attempt.began) > APART_SECONDS
            if last.finished or late or (last.interruption is None and last.runs and _is_first(attempt)):
                yield training
                training = []
        training.append(attempt)
    if training:
        yield training


def _explained(attempt: TrainingAttempt, node: NodePeriods) -> TrainingAttempt:
    """The launch; one that ended when the machine or the node went away was interrupted by that."""
    ended = attempt.ended
    if ended is None or attempt.finished:
        return attempt
    for reason, periods in (
        (InterruptionReason.MAINTENANCE, node.maintenance),
        (InterruptionReason.MACHINE, node.absent),
    ):
        if any(_is_near(period, ended) for period in periods):
            cause = attempt.interruption.cause if attempt.interruption is not None else ""
            return replace(attempt, interruption=Interruption(ended, reason, cause))
    return attempt


def _recovered(attempts: Sequence[TrainingAttempt], now: float) -> tuple[TrainingAttempt, ...]:
    """The launches of a training: one that nobody ended and that another follows was interrupted, too; and how long it
    took to recover."""
    found = []
    for number, attempt in enumerate(attempts):
        one, following = attempt.interruption, attempts[number + 1 :]
        if one is None and following and attempt.ended is not None and not attempt.wanted:
            one = Interruption(attempt.ended, InterruptionReason.UNKNOWN, "")
        if one is not None and attempt.runs:
            one = one._replace(recovery_seconds=_recovery(attempt, following, now))
        found.append(replace(attempt, interruption=one))
    return tuple(found)


def _is_first(attempt: TrainingAttempt) -> bool:
    """Whether its steps begin at the first one."""
    return bool(attempt.runs) and attempt.runs[0].first_step <= attempt.runs[0].first_steps


def _is_near(period: Period, ended: float) -> bool:
    return period.since - NEAR_SECONDS <= ended <= period.until


def _recovery(attempt: TrainingAttempt, following: Iterable[TrainingAttempt], now: float) -> float | None:
    """From its last step to the first step that it had not done; None if there is none yet."""
    last = attempt.runs[-1]
    for later in following:
        for run in later.runs:
            if run.first_step > last.step:
                return run.began - last.until
            at, step = run.began, run.first_step
            for span in run.spans:
                if span.step > last.step and span.until <= now:
                    part = (last.step - step) / max(1, span.step - step)
                    return at + part * (span.until - at) - last.until
                at, step = span.until, span.step
    return None
