"""The log service: it reads the logs into the store, and answers what they show of the node.

Turns: the files that libtpu and jobs write, each from the offset that is stored.
Every: write that the file system reports, and when the follower has something due: 0.2 s to `[logs] poll_seconds`.
Owns: the rules, the follower, the tracker of launches and their latest answer to the judge.
Never: reads through a link out of the watched directories, or moves an offset without the events before it.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from tpuwatch.core import format_size, iso, printable
from tpuwatch.host import ProcFs
from tpuwatch.ingest.bad_values import BAD_VALUE_RULE
from tpuwatch.ingest.ingest import Ingest
from tpuwatch.ingest.job_processes import JobProcesses
from tpuwatch.launches import MARKS, LaunchTracker, Life
from tpuwatch.logs import Catalogue, Follower, Scanner, for_outputs, for_streams, load_catalogue, with_threshold
from tpuwatch.model import Answer, Cause, FileProblem, Logs
from tpuwatch.model import Problem as Silence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.launches import ExecRecord
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Event, FileStatus, Host, Launch
    from tpuwatch.store import EventStore

_LOGGED_EVENTS = 20  # in tpuwatch's own log, between two calls of `log_suppressed`
_COMPARED_FILES = 600  # by their unread bytes; there may be a hundred thousand
_KNOWN_LAUNCHES = 100
_OBSERVED_LAUNCHES = 20
_SHOWN_SLOW = 5  # rules
_LOSS_SECONDS = 86_400.0  # for which a loss is shown
_OBSERVED_EVENTS = 200
_KNOWN_FAILURES = 1000  # of the premapped buffer, counted by earlier runs
ANSWER_SECONDS = 10.0  # after which an unchanged answer is given again, so that it does not become stale

_log = logging.getLogger(__name__)


class LogService:
    """Reads the logs into the store and answers what they say of the node. Not thread-safe."""

    def __init__(
        self,
        config: Config,
        *,
        store: EventStore,
        metrics: Metrics,
        clock: Clock,
        wake: Callable[[], None],
        boot_id: str = "",
        booted: float = 0.0,
    ) -> None:
        """`wake` is called from other threads when there is something to read. Raises ConfigError, RuleError."""
        self._config = config
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._wake = wake
        self._logged = 0  # events that are in the log, since the last call of `log_suppressed`
        self._left_out = 0  # and those that are not, repeats among them
        self._recent: deque[Event] = deque(
            filter(_is_evidence, store.events(history=False, limit=_OBSERVED_EVENTS, newest_first=True)[::-1]),
            _OBSERVED_EVENTS,
        )
        self.stored_events = 0  # so far
        self._files: list[FileStatus] = []
        self._files_as_of: tuple[Follower, int] | None = None  # the follower and its changes
        self._answered = (-1, -1)  # events stored and version of the launches at the last answer
        self._answer_due = float("-inf")  # when an unchanged answer is due again
        self._answer: Answer[Logs] = Answer()  # the last good one
        self._living: list[Launch] = []  # launches that the last answer called alive
        self.catalogue, self._scanned = self._load_rules()
        processes = ProcFs(config.host.root / "proc")
        tracker = LaunchTracker(
            store.launches(_KNOWN_LAUNCHES),
            processes=processes,
            silent_after=config.logs.compile_grace_seconds,
            boot_id=boot_id,
            booted=booted,
            counted=self._counted(),
        )
        self._jobs = JobProcesses(tracker, processes.read)
        self.ingest = Ingest(
            follower=self._new_follower(),
            store=store,
            tracker=tracker,
            jobs=self._jobs,
            metrics=metrics,
            clock=clock,
            on_events=self._on_events,
            rules=self._rules,
        )

    def subscribe(self, on_launches: Callable[[Sequence[Launch], Sequence[ExecRecord]], None]) -> None:
        """Call `on_launches` with the launches that changed and the records merged, once stored. Replaces the last."""
        self.ingest.on_launches = on_launches

    def watch(self) -> None:
        """Start to be woken by writes."""
        self.ingest.follower.watch()

    def restart(self, config: Config) -> None:
        """Read again from the stored offsets, with the current configuration and rules."""
        self._config = config
        self.catalogue, self._scanned = self._load_rules()
        self.ingest.rules = self._rules
        self.ingest.replace_follower(self._new_follower())
        self.ingest.tracker.silent_after = config.logs.compile_grace_seconds
        self.watch()

    def close(self) -> None:
        """Close files and watches."""
        self.ingest.follower.close()

    def log_suppressed(self) -> None:
        """Log how many events were left out of the log since the last call."""
        if self._left_out:
            _log.warning("… and %d more events; `tpuwatch events` lists them.", self._left_out)
        self._logged = self._left_out = 0

    def files(self, limit: int) -> list[FileStatus]:
        """Some of the followed files, those with the most unread bytes first; files that are open, or wait to be."""
        follower = self.ingest.follower
        if self._files_as_of != (follower, follower.changes):
            self._files_as_of = (follower, follower.changes)
            known = islice(follower.files(), _COMPARED_FILES)
            self._files = sorted(known, key=lambda file: -file.lag_bytes)
        return self._files[:limit]

    @property
    def file_count(self) -> int:
        """How many files are known, those that are refused among them."""
        return self.ingest.follower.file_count

    def problems(self) -> list[FileProblem]:
        """What cannot be followed."""
        return [FileProblem(path, reason.value) for path, reason in self.ingest.follower.problems()]

    def notices(self) -> list[str]:
        """What was lost lately, and which of the user's rules are slow: a sentence each."""
        slow = [f"Slow: {sentence}" for sentence in self.catalogue.slow[:_SHOWN_SLOW]]
        return [*self._losses(), *slow]

    def _losses(self) -> list[str]:
        counters = self.ingest.follower.counters
        loss = counters.last_loss
        if loss is None or self._clock.time() - loss.at > _LOSS_SECONDS:
            return []
        return [
            f"{format_size(counters.lost_bytes)} of logs were gone before they were read, last of "
            f"{printable(loss.path)} at {iso(loss.at)}: it was truncated, deleted or moved away; have it rotated to a "
            "name that [logs] paths or job_paths cover."
        ]

    @property
    def watch_problem(self) -> str:
        """Why logs are polled instead of watched, with what to do; empty while they are watched."""
        return self.ingest.follower.watch_problem

    def reads(self) -> bool:
        """Whether a log is read, or there is none to read."""
        return self.ingest.follower.readable or not self.problems()

    def last_launch(self) -> Launch | None:
        """The launch that started last."""
        launches = self.ingest.tracker.latest()
        return launches[-1] if launches else None

    def on_host(self, host: Answer[Host]) -> None:
        """Take into account who holds the TPU, and the last OOM kill: it may have killed a launch."""
        self._jobs.look(
            (holder.pid for holder in host.value.holders) if host.value is not None else (), self._clock.time()
        )
        if host.value is not None and host.value.last_oom_kill is not None:
            self.ingest.tracker.oom_kill(host.value.last_oom_kill)

    def new_answer(self) -> Answer[Logs] | None:
        """The answer if it has changed or is due again, else None.

        It changes when an event is stored, a launch changes, or a process ends that the last answer called alive.
        """
        life, known = self.ingest.tracker.life, (self.stored_events, self.ingest.tracker.version)
        outdated = known != self._answered or self._clock.monotonic() >= self._answer_due
        if not outdated and all(life(launch) is Life.ALIVE for launch in self._living):
            return None
        return self.answer()

    def answer(self) -> Answer[Logs]:
        """What the logs say of the node."""
        now, tracker = self._clock.time(), self.ingest.tracker
        self._answered = (self.stored_events, tracker.version)
        self._answer_due = self._clock.monotonic() + ANSWER_SECONDS
        self._living = []
        if not self.reads():
            detail = "No log can be read; `tpuwatch status` names the files and the reasons."
            return replace(self._answer, problem=Silence.DENIED, detail=detail, tried=now)
        launches, started = [], {}
        for launch in tracker.latest()[: -_OBSERVED_LAUNCHES - 1 : -1]:
            life, process = tracker.life(launch), tracker.process(launch)
            if life is Life.UNKNOWN:  # the judge would take it for ended
                continue
            if life is Life.ALIVE:
                self._living.append(launch)
            # The host's signal has another pid than the log for a process in a container.
            pid = launch.pid if process is None else process.pid
            launches.append(replace(launch, pid=pid))  # a copy, as other threads read it
            started[launch.pid] = (launch.started, pid)
        events = tuple(_with_host_pid(event, started) for event in reversed(self._recent))
        processes = map(tracker.process, self._living)
        alive = frozenset(process.pid for process in processes if process is not None)
        self._answer = Answer(Logs(tuple(launches), events, alive), now, None, tried=now)
        return self._answer

    def _on_events(self, events: list[Event]) -> None:
        """Log stored faults, a line each, unless they are history or too many."""
        self.stored_events += len(events)
        live = [event for event in events if event.cause.is_known_fault and not event.history]
        self._recent.extend(filter(_is_evidence, live))
        shown = live[: _LOGGED_EVENTS - self._logged] if _log.isEnabledFor(logging.WARNING) else []
        for event in shown:
            rule = self._rules.get(event.rule)
            known = rule is not None and rule.cause is event.cause
            summary = rule.describe({**event.details, **event.spread}) if rule and known else event.text
            times = f"{event.repeats + 1} times: " if event.repeats else ""
            _log.warning("%s: %s%s (%s)", event.cause.value, times, printable(summary), event.file)
        self._logged += len(shown)
        self._left_out += sum(1 + event.repeats for event in live[len(shown) :])

    def _counted(self) -> list[bytes]:
        """Keys of the failures of the premapped buffer that the stored launches already count."""
        cause = Cause.PREMAPPED_EXHAUSTED
        return [event.key for event in self._store.events(cause=cause, limit=_KNOWN_FAILURES, newest_first=True)]

    def _load_rules(self) -> tuple[Catalogue, Catalogue]:
        """All rules, and those by which files that grow are read."""
        logs = self._config.logs
        catalogue = with_threshold(load_catalogue(logs.rules), Cause.SLOW_INIT, "init_seconds", logs.slow_init_seconds)
        scanned = for_outputs(catalogue, MARKS)
        self._rules = {rule.id: rule for rule in catalogue.rules}
        for refused in catalogue.refused:
            _log.error("%s", refused)
        self._metrics.daemon.set_rules(loaded=len(scanned.rules), refused=len(catalogue.refused))
        return catalogue, scanned

    def _new_follower(self) -> Follower:
        logs = self._config.logs
        return Follower(
            log_dirs=[str(path) for path in logs.paths],
            job_globs=[str(path) for path in logs.job_paths],
            scanner=Scanner(for_streams(self.catalogue, MARKS)),
            outputs=Scanner(self._scanned),
            clock=self._clock,
            cursors=self._store.cursors(),
            first_run=self._store.first_run,
            wake=self._wake,
            rescan_seconds=logs.poll_seconds,
        )


def _is_evidence(event: Event) -> bool:
    """Return whether it says something of the node. A bad value does not, as the job goes on."""
    return event.cause.is_known_fault and event.rule != BAD_VALUE_RULE


def _with_host_pid(event: Event, launches: Mapping[int, tuple[float, int]]) -> Event:
    """The event with the host's pid of its process; `launches` has start and host's pid by the log's pid."""
    started, pid = launches.get(event.pid, (0.0, event.pid)) if event.pid is not None else (0.0, None)
    return event if pid == event.pid or event.when < started else replace(event, pid=pid)
