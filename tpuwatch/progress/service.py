"""The progress service: it folds heartbeats and the steps in jobs' output into training loops.

Turns: the heartbeats that have arrived, and the steps that the log service passes on.
Every: 1 s, or when a heartbeat arrives.
Owns: the socket for heartbeats, and the training loops that are known.
Never: believes one user about the processes of another, or waits for a job.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from tpuwatch.core import LoopGroup
from tpuwatch.host import USER_FILES, ProcFs, parse_users, read_bounded
from tpuwatch.model import WorkloadKind
from tpuwatch.progress.events import loop_event
from tpuwatch.progress.heartbeat import MalformedError, read_heartbeat
from tpuwatch.progress.pace_memory import PaceMemory
from tpuwatch.progress.receiver import Receiver, ReceiverError
from tpuwatch.progress.tracker import ProgressTracker, TpuProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from pathlib import Path

    from tpuwatch.config import Config
    from tpuwatch.core import Clock, LoopStatus
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Event, Holder, StepReport, TrainingLoop
    from tpuwatch.progress.pace import Pace
    from tpuwatch.progress.receiver import Datagram
    from tpuwatch.store import EventStore

NAME: Final = "progress"  # of the loop, in metrics and status
WAIT_SECONDS: Final = 1.0  # for heartbeats, in one turn; a stop waits no longer
STOP_SECONDS: Final = 5.0
MAX_TAKEN: Final = 500  # heartbeats in one turn; a flood of them must not take the processor
FLOOD_SECONDS: Final = 0.1  # between two turns of so many
AGAIN_SECONDS: Final = 10.0  # until a socket that could not be made is tried again, or one is found to be gone
RECENT_SECONDS: Final = 60.0  # a step that is no older was made by a program that is seen now
POST_SECONDS: Final = 5.0  # between two reports of loops that only went on; the judge judges at each
_MAX_OUTPUT: Final = 1000
_MAX_USERS: Final = 1 << 20  # bytes of a file of users

_log = logging.getLogger(__name__)


class ProgressService:
    """Made once by the daemon. `loops` is replaced, never changed, and may be read from any thread."""

    def __init__(
        self,
        config: Config,
        *,
        metrics: Metrics,
        clock: Clock,
        boot_id: str,
        add_event: Callable[[Event], None],
        post: Callable[[tuple[TrainingLoop, ...]], None],
        holders: Callable[[], Sequence[Holder]],
        hbm_used: Callable[[], int | None] = lambda: None,
        store: EventStore | None = None,
        progress: Callable[[str, float], None],
        processes: ProcFs | None = None,
    ) -> None:
        """`add_event` passes an event to the log service, `post` the loops to the judge. `holders` are the processes
        that hold the TPU, none where that is not known; `hbm_used` the bytes of HBM that all chips use. `store`
        keeps the pace of loops; None: it is forgotten with the daemon. `progress` is called after each turn with the
        loop's name and the seconds that it took. All are called from the service's thread."""
        self.training: tuple[TrainingLoop, ...] = ()
        self.problem = ""  # why no heartbeats are received, a sentence; "" if they are, or are not wanted
        self._metrics = metrics
        self._clock = clock
        self._boot_id = boot_id
        self._add_event = add_event
        self._post = post
        self._holders = holders
        self._processes = processes or ProcFs(config.host.root / "proc")
        self._config = config
        self._hbm_used = hbm_used
        self._slower = config.health.slower
        self._memory = (
            None
            if store is None
            else PaceMemory(store, clock=clock, boot_id=boot_id, command=lambda pid: self._processes.command(pid))
        )
        self._tracker = ProgressTracker(
            stall_seconds=config.health.idle_seconds,
            slower=config.health.slower,
            recall=self._memory.recall if self._memory is not None else None,
        )
        self._receiver: Receiver | None = None
        self._open_due = float("-inf")
        self._output: deque[tuple[str, StepReport, int | None, float]] = deque(maxlen=_MAX_OUTPUT)
        self._users: dict[int, str] = {}
        self._posted: object = None
        self._post_due = float("-inf")
        self._group = LoopGroup(clock=clock, on_turn=progress)
        self._group.add(NAME, self.turn, WAIT_SECONDS)

    # -- for the daemon

    def start(self) -> None:
        """Make the socket, and let the loop begin. What a job says once the daemon is ready is heard."""
        self._open()
        self._group.start()

    def stop(self) -> None:
        """Stop, and remove the socket."""
        self._group.stop()
        self._group.join(NAME, STOP_SECONDS)
        if self._memory is not None:
            self._memory.keep(self._tracker.paces, all_of_them=True)
        self._close()

    def reload(self, config: Config) -> None:
        """Go by this configuration from the next turn on; what is known of loops is kept."""
        self._config = config

    def limits(self) -> dict[str, float]:
        """How long the loop may go without success, in seconds."""
        return self._group.limits()

    def status(self) -> list[LoopStatus]:
        """How the loop is."""
        return self._group.status()

    def take_output(self, path: str, progress: StepReport, pid: int | None, at: float) -> None:
        """A job's output showed this when it was written last. Thread-safe."""
        self._output.append((path, progress, pid, at))

    # -- the loop

    def turn(self) -> float:
        """Take what was said, judge the loops; returns the seconds until it should be done again."""
        receiver = self._open()
        self._tracker.hbm_used_bytes = self._hbm_used()
        if self._config.health.slower != self._slower:
            self._slower = self._config.health.slower
            self._tracker.set_slower(self._slower)
        taken = 0
        if receiver is not None and receiver.wait(WAIT_SECONDS):
            for datagram in receiver.take(MAX_TAKEN):
                self._take(datagram)
                taken += 1
        while self._output:
            path, progress, pid, at = self._output.popleft()
            at = min(at, self._clock.time())
            held = self._held(at)
            self._tracker.output(path, progress, pid=pid, process=self._process(pid), at=at, holders=held)
        self._report()
        if receiver is None:
            return WAIT_SECONDS
        return FLOOD_SECONDS if taken == MAX_TAKEN else 0.0

    def _take(self, datagram: Datagram) -> None:
        try:
            name, steps, progress = read_heartbeat(datagram.message)
        except MalformedError:
            self._metrics.progress.count_heartbeat("malformed")
            return
        process = self._process(datagram.pid)
        taken = self._tracker.heartbeat(
            name,
            progress,
            pid=datagram.pid,
            process=process,
            user=self._user(datagram.uid),
            steps=steps,
            at=self._clock.time(),
        )
        self._metrics.progress.count_heartbeat("taken" if taken else "too_many")

    def _report(self) -> None:
        for fault in self._tracker.tick(self._clock.time(), self._is_there):
            event = loop_event(fault, self._boot_id)
            if event is not None:
                self._add_event(event)
        paces = self._tracker.paces
        for pace, _, _ in paces:
            _log_explained(pace)
        if self._memory is not None:
            self._memory.keep(paces)
        self.training = self._tracker.loops
        self._metrics.progress.set_loops(self.training)
        state = [(one.pid, one.name, one.is_running, one.faults) for one in self.training]
        now = self._clock.monotonic()
        if state != self._posted or (state and now >= self._post_due):
            self._posted, self._post_due = state, now + POST_SECONDS
            self._post(self.training)

    # -- processes and users

    def _held(self, at: float) -> list[TpuProcess]:
        """The processes that held the TPU at that time; none where that is not known, or one waits for its user."""
        holders = [one for one in self._holders() if one.started is not None and one.started <= at]
        if any(one.kind is WorkloadKind.INTERACTIVE for one in holders):
            return []
        if self._clock.time() - at > RECENT_SECONDS and len(holders) > 1:  # another one may have ended since
            return []
        found = ((one, self._process(one.pid)) for one in holders)
        return [TpuProcess(one.pid, process, one.started or 0.0) for one, process in found if process is not None]

    def _process(self, pid: int | None) -> Hashable:
        """What distinguishes the process from a later one of the same pid; None if it cannot be seen."""
        stat = self._processes.stat(pid) if pid else None
        return None if stat is None or stat.ended else stat.started_ticks

    def _is_there(self, pid: int, process: Hashable) -> bool:
        found = self._process(pid)
        return found is not None and process in (None, found)

    def _user(self, uid: int) -> str:
        if uid not in self._users:
            known: dict[int, str] = {}
            for name in reversed(USER_FILES):
                known.update(parse_users(read_bounded(f"/{name}", _MAX_USERS).decode("utf-8", "replace")))
            if len(self._users) > len(known) + 1000:
                self._users.clear()
            self._users[uid] = known.get(uid, str(uid))
        return self._users[uid]

    # -- the socket

    def _open(self) -> Receiver | None:
        """The receiver by the configuration as it is now; None while there is none."""
        path = _path(self._config)
        if self._receiver is not None and self._receiver.path != path:
            self._close()
            self._open_due = float("-inf")
        now = self._clock.monotonic()
        if path is None or now < self._open_due:
            return self._receiver
        self._open_due = now + AGAIN_SECONDS
        self._tracker.stall_seconds = self._config.health.idle_seconds
        if self._receiver is not None and not self._receiver.is_there:
            self._close()
        if self._receiver is None:
            try:
                self._receiver = Receiver(path)
            except ReceiverError as error:
                if self.problem != str(error):
                    _log.warning("%s", error)
                self.problem = str(error)
            else:
                self.problem = ""
        return self._receiver

    def _close(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None


def _log_explained(pace: Pace) -> None:
    """Log what the program did itself, which is no slow-down."""
    while pace.explained:
        alarm, shown_by = pace.explained.pop()
        _log.info(
            "A training loop takes %.0f %% longer for a step since step %d. That is its program's doing: %s. "
            "Its baseline is measured again.",
            100 * alarm.slower,
            alarm.step,
            shown_by,
        )


def _path(config: Config) -> Path | None:
    """Where the socket is to be; None if no heartbeats are wanted."""
    return config.heartbeats_socket if config.workload.heartbeats else None
