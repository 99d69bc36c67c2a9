"""The log side of the daemon: the follower, the rules and the ingest, made from the configuration and made anew."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.daemon import badvalues
from tpuwatch.daemon.ingest import Ingest
from tpuwatch.export.view import FileStatus, Problem
from tpuwatch.health.evidence import Answer, Logs
from tpuwatch.health.evidence import Problem as Silence
from tpuwatch.launches.life import Life
from tpuwatch.launches.tracker import MARKS, LaunchTracker
from tpuwatch.logs.catalogue import Catalogue, load_catalogue, with_marks, with_threshold
from tpuwatch.logs.follow import Follower
from tpuwatch.logs.scan import Scanner
from tpuwatch.logsetup import one_line
from tpuwatch.model import Cause
from tpuwatch.processes import ProcFs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.health.evidence import Host
    from tpuwatch.journal import Journal
    from tpuwatch.model import Event, Launch
    from tpuwatch.tune.record import Record

_TOLD_EVENTS = 20  # in tpuwatch's own log, between two calls of `pause`
_KNOWN_LAUNCHES = 100
_WITNESSED_LAUNCHES = 20
_WITNESSED_EVENTS = 200
_KNOWN_FAILURES = 1000  # of the premapped buffer, which a run before this one has counted
TESTIMONY_SECONDS = 10.0  # what has not changed is said again so often, so that it is known to hold

_log = logging.getLogger(__name__)


class LogWatch:
    """Reads the logs into the journal; knows what they told. For one thread."""

    def __init__(
        self,
        config: Config,
        *,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        wake: Callable[[], None],
        boot_id: str = "",
        booted: float = 0.0,
        stored: Callable[[Sequence[Launch], Sequence[Record]], None] = lambda *_: None,
    ) -> None:
        """`wake` is called, from other threads, when there is something to read; `stored` is told the launches that
        changed, and the records of launches, once they are in the journal. Raises ConfigError, RuleError.
        """
        self._config = config
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._wake = wake
        self._told = 0  # new events since the last pause
        self._recent: deque[Event] = deque(
            filter(_is_evidence, journal.events(history=False, limit=_WITNESSED_EVENTS, newest_first=True)[::-1]),
            _WITNESSED_EVENTS,
        )
        self.stored = 0  # events stored so far
        self._testified = (-1, -1)  # events stored and version of the launches when testimony was given last
        self._say_again = float("-inf")  # when that is due again
        self._living: list[Launch] = []  # launches that it told to live
        self.catalogue = self._load_rules()
        self.ingest = Ingest(
            follower=self._new_follower(),
            journal=journal,
            tracker=LaunchTracker(
                journal.launches(_KNOWN_LAUNCHES),
                processes=ProcFs(),
                silent_after=config.logs.compile_grace_seconds,
                boot_id=boot_id,
                booted=booted,
                counted=self._counted(),
            ),
            metrics=metrics,
            clock=clock,
            tell=self._tell,
            stored=stored,
        )

    def watch(self) -> None:
        """Begin to be woken by what is written."""
        self.ingest.follower.watch()

    def begin_again(self, config: Config) -> None:
        """Begin reading again where the journal stands, by the configuration and the rules as they are now."""
        self._config = config
        self.catalogue = self._load_rules()
        self.ingest.begin_again(self._new_follower())
        self.ingest.tracker.silent_after = config.logs.compile_grace_seconds
        self.watch()

    def close(self) -> None:
        """Let go of files and watches."""
        self.ingest.follower.close()

    def pause(self) -> None:
        """Tell how many events were left out of the log since the last pause."""
        if self._told > _TOLD_EVENTS:
            _log.warning("… and %d more events; `tpuwatch events` lists them.", self._told - _TOLD_EVENTS)
        self._told = 0

    def files(self) -> list[FileStatus]:
        """The followed files, those with the most unread bytes first."""
        known = self.ingest.follower.files()
        files = [FileStatus(one.file.path, one.size, one.read, one.written) for one in known]
        return sorted(files, key=lambda file: -file.lag_bytes)

    def problems(self) -> list[Problem]:
        """What cannot be followed."""
        return [Problem(path, reason.value) for path, reason in self.ingest.follower.problems()]

    def reads(self) -> bool:
        """Whether a log is read, or none is there to be read. A file that is refused is among the files too."""
        refused = {problem.path for problem in self.problems()}
        return not refused or any(file.path not in refused for file in self.files())

    def last_launch(self) -> Launch | None:
        """The launch that began last."""
        launches = self.ingest.tracker.latest()
        return launches[-1] if launches else None

    def hear(self, host: Answer[Host]) -> None:
        """What the host's witness says: launches may have been killed because memory ran out."""
        if host.value is not None and host.value.last_oom_kill is not None:
            self.ingest.tracker.oom_kill(host.value.last_oom_kill)

    def news(self) -> Answer[Logs] | None:
        """The testimony, if it is another one than the last or time to say it again.

        It is another one when something was stored, a launch changed, or a process ended that was told to live.
        """
        life, known = self.ingest.tracker.life, (self.stored, self.ingest.tracker.version)
        old = known != self._testified or self._clock.monotonic() >= self._say_again
        if not old and all(life(launch) is Life.ALIVE for launch in self._living):
            return None
        return self.testimony()

    def testimony(self) -> Answer[Logs]:
        """What the logs say of the node."""
        now, tracker = self._clock.time(), self.ingest.tracker
        self._testified = (self.stored, tracker.version)
        self._say_again = self._clock.monotonic() + TESTIMONY_SECONDS
        self._living = []
        if not self.reads():
            detail = "No log can be read; `tpuwatch status` names the files and the reasons."
            return Answer(problem=Silence.DENIED, detail=detail, tried=now)
        told, begun = [], {}
        for launch in tracker.latest()[: -_WITNESSED_LAUNCHES - 1 : -1]:
            life, process = tracker.life(launch), tracker.process(launch)
            if life is Life.UNKNOWN:  # the judge would take it for one that has ended
                continue
            if life is Life.ALIVE:
                self._living.append(launch)
            # The host's witness knows a process in a container by another number than its log does.
            pid = launch.pid if process is None else process.pid
            told.append(replace(launch, pid=pid))  # a copy, as other threads read it
            begun[launch.pid] = (launch.started, pid)
        events = tuple(_renumbered(event, begun) for event in reversed(self._recent))
        processes = map(tracker.process, self._living)
        alive = frozenset(process.pid for process in processes if process is not None)
        return Answer(Logs(tuple(told), events, alive), now, None, tried=now)

    def _tell(self, events: list[Event]) -> None:
        """Stored faults in the log, a line each, unless they are history or too many."""
        self.stored += len(events)
        live = [event for event in events if event.cause.is_fault and not event.history]
        self._recent.extend(filter(_is_evidence, live))
        rules = {rule.id: rule for rule in self.catalogue.rules} if live else {}
        for event in live[: max(0, _TOLD_EVENTS - self._told)]:
            summary = rules[event.rule].describe(event.details) if event.rule in rules else event.text
            _log.warning("%s: %s (%s)", event.cause.value, one_line(summary), event.file)
        self._told += len(live)

    def _counted(self) -> list[bytes]:
        """The failures of the premapped buffer that the launches in the journal have in them."""
        cause = Cause.PREMAPPED_EXHAUSTED
        return [event.key for event in self._journal.events(cause=cause, limit=_KNOWN_FAILURES, newest_first=True)]

    def _load_rules(self) -> Catalogue:
        logs = self._config.logs
        catalogue = with_marks(load_catalogue(logs.rules), MARKS)
        catalogue = with_threshold(catalogue, Cause.SLOW_INIT, "init_seconds", logs.slow_init_seconds)
        for refused in catalogue.refused:
            _log.error("%s", refused)
        self._metrics.rules(loaded=len(catalogue.rules), refused=len(catalogue.refused))
        return catalogue

    def _new_follower(self) -> Follower:
        logs = self._config.logs
        return Follower(
            log_dirs=[str(path) for path in logs.paths],
            job_globs=[str(path) for path in logs.job_paths],
            scanner=Scanner(self.catalogue),
            clock=self._clock,
            cursors=self._journal.cursors(),
            first_run=self._journal.first_run,
            wake=self._wake,
            rescan_seconds=logs.poll_seconds,
        )


def _is_evidence(event: Event) -> bool:
    """Whether it tells how the node is. A value that libtpu takes for something else does not, for the job goes on; nor
    does what is decided for the next launch.
    """
    return event.cause.is_fault and event.rule != badvalues.RULE


def _renumbered(event: Event, begun: Mapping[int, tuple[float, int]]) -> Event:
    """The event with the machine's number of its process; `begun` has that, and the launch's start, by the log's."""
    started, pid = begun.get(event.pid, (0.0, event.pid)) if event.pid is not None else (0.0, None)
    return event if pid == event.pid or event.when < started else replace(event, pid=pid)
