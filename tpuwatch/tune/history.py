"""What each launch shows of the premapped buffer: its size, whether it sufficed, and how long initialisation took."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Final

from tpuwatch.libtpu import leading_integer
from tpuwatch.model import SIZE, THRESHOLD, Cause, Outcome
from tpuwatch.tune.marks import set_by_tpuwatch
from tpuwatch.tune.sizes import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpuwatch.model import Launch, TuneHost

    _Run = list[tuple[Launch, int]]  # each with its size in bytes

# What keeps a start waiting that the size has nothing to do with, when it comes before the TPU is up.
_WAITS: Final = tuple(cause.value for cause in Cause if cause.row.waits)
_CAUSES: Final = frozenset(cause.value for cause in Cause)
_MAX_INIT_SECONDS: Final = 86_400.0  # no initialisation takes longer
_SHORT: Final = 600.0  # a launch that failed within so many seconds had little time to need its buffer
_TOGETHER: Final = 60.0  # processes of one run begin within so many seconds
_GRACE: Final = 1.0  # a cause that is logged so much after the TPU is up is still what it waited for


class Kind(str, Enum):
    """What a launch shows of its size."""

    WORKED = "worked"  # it came up, and no transfer lacked room
    EXHAUSTED = "exhausted"  # the buffer had no room for a transfer
    HOST_OOM = "host_oom"  # the host had not the memory
    NO_START = "no_start"  # it did not come up, as it may be with a size that the host cannot bear
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class LaunchSample:
    """One launch, of one process or several beside each other, as far as its premapped buffer goes."""

    when: float
    size: int
    threshold: int | None  # the largest single buffer that it took from the region; None: any that fits
    given: int | None  # the same where it was not the operator who set it
    ours: bool  # False: the operator set the size himself
    kind: Kind
    seconds: float | None = None  # of its initialisation; None where it did not come up
    waited: str = ""  # what else made it slow: its seconds do not count when it is
    need: int | None = None  # what was needed at once; None where it is unknown
    asked: int | None = None  # the largest single buffer that there was no room for
    cause: str = ""  # why it failed
    processes: int = 1  # that ran beside each other, each with such a buffer
    failed: str = ""  # what ended it, once it was up with room enough: a cause, or its status
    short: bool = False  # it came up, and was ended before it could show that its buffer will do

    @property
    def takes(self) -> int:
        """The largest single buffer that the region took."""
        return self.size if self.threshold is None else self.threshold

    @property
    def proved(self) -> bool:
        """Whether it showed that its size will do."""
        return self.kind is Kind.WORKED and not self.short

    @property
    def clock(self) -> str:
        """When it began, as reasons state it."""
        try:
            return datetime.fromtimestamp(self.when, timezone.utc).strftime("%H:%M UTC")
        except (OverflowError, ValueError, OSError):
            return "an unknown time"


def samples_of(launches: Sequence[Launch], host: TuneHost) -> tuple[LaunchSample, ...]:
    """One sample or two for each run, the oldest first. Runs under way without a failure yet are left out.

    Several launches beside each other are one run, of a process for each chip: it gives one sample, or two where it
    lacked room and memory.
    """
    samples: list[LaunchSample] = []
    boot = ""
    for run in _runs(launches, host):
        first = run[0][0]
        fresh = bool(first.boot_id) and first.boot_id != boot
        boot = first.boot_id or boot
        samples += _run_samples([(launch, _sample(launch, size, _kind(launch), fresh=fresh)) for launch, size in run])
    return tuple(samples)


def latest_runs(launches: Sequence[Launch], host: TuneHost, count: int) -> list[Launch]:
    """The launches of the last so many runs, the oldest first."""
    return [launch for run in _runs(launches, host)[-max(1, count) :] for launch, _ in run]


def host_as_observed(launches: Iterable[Launch], host: TuneHost) -> TuneHost:
    """The host as its launches show it: if no launch that set no size, and logged that it came up, logged a buffer,
    libtpu makes none by itself. It logs each buffer that it makes, at the level at which it logs that it is up.
    """
    free = [one for one in launches if not one.environment.get(SIZE) and one.init_seconds is not None]
    bare = bool(free) and all(one.premapped_bytes is None and not one.premapped_failures for one in free)
    return replace(host, bare=bare and not host.generation)


def set_bytes(value: str) -> int:
    """The bytes that libtpu reads from a variable's value; 0 where it reads none."""
    return min(max(0, leading_integer(value) or 0), MAX_BYTES)


def _runs(launches: Sequence[Launch], host: TuneHost) -> list[_Run]:
    """The launches that belong together, the oldest first, each with its size."""
    runs: list[_Run] = []
    size = host.default_bytes
    for launch in sorted(launches, key=lambda one: _finite(one.started)):
        size = _size(launch, host, size)
        if not (runs and _is_beside(launch, size, runs[-1])):
            runs.append([])
        runs[-1].append((launch, size))
    return runs


def _is_beside(launch: Launch, size: int, run: _Run) -> bool:
    """Whether a launch is of the run: it began with it, with the same size, and not after its end."""
    first, its = run[0]
    if _finite(launch.started) - _finite(first.started) > _TOGETHER or size != its:
        return False
    alike = _is_own(launch.environment, SIZE) == _is_own(first.environment, SIZE)
    return alike and any(_until(before) > launch.started for before, _ in run)


def _until(launch: Launch) -> float:
    """As long as it ran, as far as is known: one that failed, or is of the past, hardly outlived its last line."""
    ended = math.inf if launch.ended is None else launch.ended
    if launch.history or _kind(launch) not in (Kind.WORKED, Kind.NOTHING):
        return min(ended, launch.started if launch.last_heard is None else launch.last_heard)
    return ended


def _run_samples(run: Sequence[tuple[Launch, LaunchSample]]) -> Iterator[LaunchSample]:
    """The samples of a run: what one process lacked, the others do not show to be there."""
    samples = [one for launch, one in run if one.kind is not Kind.NOTHING or launch.outcome is not Outcome.STARTING]
    kinds = {one.kind for one in samples}
    decisive = [kind for kind in (Kind.EXHAUSTED, Kind.HOST_OOM) if kind in kinds]
    for kind in decisive or [kind for kind in Kind if kind in kinds][:1]:
        alike = [one for one in samples if one.kind is kind]
        middle = _middle(samples)
        yield replace(
            max(alike, key=lambda one: one.need or 0),
            seconds=middle.seconds,
            waited=middle.waited,
            short=any(one.short for one in alike),
            processes=_buffers(samples),
        )


def _middle(samples: Sequence[LaunchSample]) -> LaunchSample:
    """The process that took the middle time to come up, of those that waited for nothing else if there are any: one
    that straggles is not slow by the size, which all have.
    """
    timed = [one for one in samples if one.seconds is not None] or samples
    calm = [one for one in timed if not one.waited] or timed
    return sorted(calm, key=lambda one: one.seconds or 0.0)[(len(calm) - 1) // 2]


def _buffers(samples: Iterable[LaunchSample]) -> int:
    """How many of a run came to have a buffer. What only asks libtpu something, beside a job, has none."""
    return max(1, sum(one.kind not in (Kind.NO_START, Kind.NOTHING) for one in samples))


def _sample(launch: Launch, size: int, kind: Kind, *, fresh: bool) -> LaunchSample:
    asked, threshold = _bytes(launch.premapped_asked_bytes), _threshold(launch, size)
    return LaunchSample(
        when=_finite(launch.started),
        size=size,
        threshold=threshold,
        given=None if _is_own(launch.environment, THRESHOLD) else threshold,
        ours=not _is_own(launch.environment, SIZE),
        kind=kind,
        seconds=_seconds(launch),
        waited=_waited(launch, fresh=fresh),
        need=_need(launch, size, asked) if kind is Kind.EXHAUSTED else None,
        asked=asked if kind is Kind.EXHAUSTED else None,
        cause=_cause(launch),
        failed=_failed(launch) if kind is Kind.WORKED else "",
        short=_is_short(launch),
    )


def _size(launch: Launch, host: TuneHost, before: int) -> int:
    """The size that it had. Where it is unknown, it is that of the launch before."""
    if launch.premapped_bytes is not None:
        return min(max(0, launch.premapped_bytes), MAX_BYTES)
    if launch.environment.get(SIZE):  # an empty one is as none
        return set_bytes(launch.environment[SIZE])
    return host.default_bytes if launch.environment else before


def _threshold(launch: Launch, size: int) -> int | None:
    """The largest single buffer that it took from the region, where that is less than the region."""
    threshold = launch.premapped_threshold_bytes
    if threshold is None and THRESHOLD in launch.environment:
        threshold = set_bytes(launch.environment[THRESHOLD])
    return threshold if threshold is not None and 0 < threshold < size else None


def _is_own(environment: Mapping[str, str], name: str) -> bool:
    """Whether the operator set the variable himself."""
    return name in environment and name not in set_by_tpuwatch(environment)


def _kind(launch: Launch) -> Kind:
    causes = {*launch.faults, *([launch.cause.value] if launch.cause is not None else ())}
    if Cause.HOST_OOM.value in causes:
        return Kind.HOST_OOM
    if Cause.PREMAPPED_EXHAUSTED.value in causes or launch.premapped_failures > 0:
        return Kind.EXHAUSTED
    if launch.outcome in (Outcome.OK, Outcome.SLOW):
        return Kind.WORKED
    if launch.outcome is Outcome.FAILED and launch.cause is Cause.INIT_FAILED:
        return Kind.NO_START
    if launch.outcome is Outcome.SILENT and not launch.output and not _waited(launch, fresh=False):
        return Kind.NO_START
    return Kind.NOTHING


def _need(launch: Launch, size: int, asked: int | None) -> int | None:
    need = _bytes(launch.premapped_need_bytes)
    if need is not None and need > size:
        return need
    return size + asked if asked else None


def _waited(launch: Launch, *, fresh: bool) -> str:
    until = _seconds(launch)
    for cause in _WAITS:
        at = launch.faults.get(cause)
        if at is not None and (until is None or at <= until + _GRACE):
            return cause
    return "the first since the machine started" if fresh else ""


def _failed(launch: Launch) -> str:
    """What went wrong after it came up, unless it ended well all the same or a person ended it."""
    ended_well = launch.exit_status == 0 or Cause.INTERRUPTED.value in launch.faults
    return "" if ended_well else launch.failed_after_start


def _is_short(launch: Launch) -> bool:
    """Whether it was ended by a person, or by a fault of another kind, soon after its start."""
    stopped = launch.faults.get(Cause.INTERRUPTED.value)
    if stopped is not None and stopped < _SHORT:
        return True
    return bool(launch.exit_status) and launch.ended is not None and launch.ended - launch.started < _SHORT


def _seconds(launch: Launch) -> float | None:
    seconds = launch.init_seconds
    if seconds is None or not 0 <= seconds <= _MAX_INIT_SECONDS:
        return None
    return float(seconds)


def _cause(launch: Launch) -> str:
    """Why it failed; else the first of its faults, or how it went. Names that are no causes are not repeated."""
    if launch.cause is not None:
        return str(launch.cause.value)
    faults = sorted((at, name) for name, at in launch.faults.items() if name in _CAUSES)
    return faults[0][1] if faults else str(launch.outcome.value)


def _bytes(size: int | None) -> int | None:
    return min(size, MAX_BYTES) if size is not None and size > 0 else None


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
