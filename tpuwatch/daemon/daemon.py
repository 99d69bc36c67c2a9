"""The daemon: wires the services, runs the loop, handles signals.

One thread reads and stores; it wakes when something is written, waits a moment for more, and does a turn, which
returns a sentence. Watchdog's threads only wake it, the HTTP server's only look; each signal of the node, the loop
that decides about restarts, and each restart that is under way have threads of their own. A failed turn is logged and
counted by its absence; the next one begins where the store stands, so that nothing of it is lost or counted twice.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
from typing import TYPE_CHECKING

from tpuwatch import __version__
from tpuwatch.config import inconsistencies
from tpuwatch.core import ConfigError, LoopStatus, Waker, host_port, set_up_logging
from tpuwatch.daemon.node_services import NodeServices
from tpuwatch.daemon.store_maintenance import StoreMaintenance
from tpuwatch.daemon.systemd import SystemdNotifier, Watchdog, watchdog_timeout
from tpuwatch.daemon.view import DaemonView
from tpuwatch.goodput import GoodputKeeper
from tpuwatch.host import ProcFs
from tpuwatch.ingest import LogService
from tpuwatch.logs import Refusal
from tpuwatch.metrics import Metrics
from tpuwatch.model import ADDRESS_FILE, DaemonStatus, StoreStatus
from tpuwatch.progress import ProgressService
from tpuwatch.restart import RestartService
from tpuwatch.store import EventStore
from tpuwatch.tune import TuneService
from tpuwatch.web import Access, HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.model import Holder

LOGS = "logs"  # the loop's name in metrics and status
STALE_SECONDS = 30.0  # a loop without success for so long is stuck
DEBOUNCE_SECONDS = 0.02  # one event a write would cost more than reading what was written
STATUS_SECONDS = 1.0
_SHOWN_FILES = 200

_log = logging.getLogger(__name__)


class Daemon:
    """`run` works until a signal or `stop`."""

    def __init__(self, load: Callable[[], Config], *, clock: Clock, environ: Mapping[str, str] = os.environ) -> None:
        """`load` reads the configuration, now and on SIGHUP. Raises ConfigError and StoreError with what to do."""
        self._load = load
        self._clock = clock
        self._waker = Waker()
        self._stopping = self._reloading = False
        self._restart_pending = False  # reading is to begin again where the store stands
        self._config_error = ""  # why the configuration that was read last is not used
        self._config = load()
        _log_inconsistencies(self._config)
        self._started = clock.time()
        self._state = "Starting."
        self._last_success: float | None = None
        self._next_status = float("-inf")
        self._notifier = SystemdNotifier(environ.get("NOTIFY_SOCKET"), clock)
        self._watchdog = Watchdog(
            self._notifier,
            clock,
            limits={LOGS: STALE_SECONDS},
            timeout=watchdog_timeout(environ, os.getpid()),
        )
        self.metrics = Metrics(loops=[LOGS], refusals=[reason.value for reason in Refusal])
        machine = ProcFs(self._config.host.root / "proc")
        self._boot_id = machine.boot_id()
        with contextlib.ExitStack() as undo:
            self._store = EventStore.open(self._config.state.dir, clock)
            undo.callback(self._store.close)
            for notice in filter(None, [*self._store.notices, self._store.problem]):
                _log.warning("%s", notice)
            self._logs = LogService(
                self._config,
                store=self._store,
                metrics=self.metrics,
                clock=clock,
                wake=self._waker.wake,
                boot_id=self._boot_id,
                booted=clock.time() - (machine.uptime() or 0.0),
            )
            self._maintenance = StoreMaintenance(
                self._store, metrics=self.metrics, clock=clock, on_step=lambda: self._watchdog.progress(LOGS)
            )
            self._node = self._new_node()
            self._restart = self._new_restart(self._config)
            self._tune = self._new_tune(self._config)
            self._progress_service = self._new_progress()
            self._goodput = GoodputKeeper(
                self._store,
                metrics=self.metrics,
                clock=clock,
                boot_id=self._boot_id,
                booted=clock.time() - (machine.uptime() or 0.0),
            )
            self._connect()
            self._file_problems: list[str] = []  # of certificate and tokens
            self._address_problem = ""  # a sentence, while the address could not be written
            self._view = DaemonView(self._store, self._logs.catalogue, clock, self._status(), self._config.peers)
            self._http = self._serve(self._config, Access(self._config.http))
            undo.pop_all()
        self.metrics.daemon.set_config(success=True, at=self._started)

    @property
    def url(self) -> str:
        """Where the daemon serves."""
        return self._http.url

    def run(self) -> None:
        """Work until asked to stop; then store what was read and let everything go."""
        try:
            self._logs.watch()
            self._http.start()
            self._node.start()
            self._restart.start()
            self._tune.start()
            self._progress_service.start()
            self._announce()
            self._notifier.ready(self._state)
            _log.info("tpuwatch %s serves %s and follows %s", __version__, self.url, self._followed())
            while not self._stopping:
                self.turn()
                self._wait()
            self._notifier.stopping()
            _log.info("Stopping.")
            self.turn()
        finally:
            self.close()

    def stop(self) -> None:
        """End `run` after its turn. May be called from a signal handler or another thread."""
        self._stopping = True
        self._waker.wake()

    def reload(self) -> None:
        """Read the configuration again before the next turn. May be called from a signal handler."""
        self._reloading = True
        self._waker.wake()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop the daemon, SIGHUP reloads its configuration."""
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        signal.signal(signal.SIGINT, lambda *_: self.stop())
        signal.signal(signal.SIGHUP, lambda *_: self.reload())

    def turn(self) -> None:
        """One turn of the loop; whatever fails in it, the next one comes."""
        begun = self._clock.monotonic()
        try:
            if self._reloading:
                self._reloading = False
                self._apply_reload()
            if self._restart_pending:
                self._restart_reading()
            self._set_state(self._logs.ingest.turn(last=self._stopping))
            if not self._logs.ingest.blocked:
                self._last_success = self._clock.time()
                self.metrics.daemon.set_loop_success(LOGS, self._last_success, self._clock.monotonic() - begun)
            self._watchdog.progress(LOGS)
        except Exception:  # noqa: BLE001 # the loop outlives what no one foresaw; it is logged in full
            _log.exception("A turn over the logs failed.")
            self._restart_pending = True
            self._logs.ingest.due_in = self._config.logs.poll_seconds
            self._state = "A turn over the logs failed; tpuwatch's log shows why."
        self._run_periodic()

    def close(self) -> None:
        """Let go of sockets, files and the store."""
        self._progress_service.stop()
        self._tune.stop()
        self._restart.stop()
        self._node.stop()
        self._http.close()
        self._logs.close()
        self._goodput.save()
        with contextlib.suppress(OSError):
            (self._config.state.dir / ADDRESS_FILE).unlink(missing_ok=True)
        self._store.close(clean=not self._logs.ingest.blocked)

    # -- the loop's parts

    def _wait(self) -> None:
        due = self._watchdog.step()
        seconds = self._logs.ingest.due_in if due is None else min(self._logs.ingest.due_in, due)
        if seconds > 0 and self._waker.wait(seconds) and not self._stopping:
            self._waker.wait(0.0)
            self._pause(DEBOUNCE_SECONDS)

    def _pause(self, seconds: float) -> None:
        """Let more come before it is read; a stop does not wait."""
        end = self._clock.monotonic() + seconds
        while not self._stopping and (left := end - self._clock.monotonic()) > 0:
            self._waker.wait(left)

    def _set_state(self, sentence: str) -> None:
        if sentence != self._state:
            level = logging.WARNING if self._logs.ingest.blocked else logging.DEBUG
            _log.log(level, "%s", sentence)
            self._state = sentence

    def _run_periodic(self) -> None:
        """Run what is due periodically: the status that others see, and the store's size."""
        now = self._clock.monotonic()
        self._maintenance.run_if_due(self._config.state, self._logs)
        if now >= self._next_status:
            self._next_status = now + STATUS_SECONDS
            self._look_at_certificate()
            if self._address_problem:
                self._announce()
            self._logs.on_host(self._node.signals.snapshot.host)
            if (answer := self._logs.new_answer()) is not None:
                self._node.signals.post_logs(answer)
            nodes = self._node.judge.nodes
            self._goodput.look(self._progress_service.training, nodes[0] if nodes else None)
            self._view.update(self._status(), nodes)
            self._notifier.status(self._state)
            self._logs.log_suppressed()

    def _look_at_certificate(self) -> None:
        certificate = self._http.access.certificate
        self.metrics.daemon.set_certificate_expiry(certificate.expires if certificate is not None else 0.0)
        self._file_problems = self._http.access.problems

    def _status(self) -> DaemonStatus:
        now = self._clock.time()
        fresh = self._last_success is not None and now - self._last_success < STALE_SECONDS
        problems = self._logs.problems()
        events = self._maintenance.events(self._logs)
        self.metrics.logs.set_files(followed=self._logs.file_count, refused=len(problems))
        self.metrics.logs.set_watched(not self._logs.watch_problem)
        self.metrics.daemon.set_store(durable=self._store.durable, events=events)
        snapshot, nodes = self._node.signals.snapshot, self._node.judge.nodes
        return DaemonStatus(
            version=__version__,
            started=self._started,
            now=now,
            state=self._state,
            reading=self._logs.reads(),
            loops=[
                LoopStatus(LOGS, self._last_success, fresh),
                *self._node.loops.status(),
                *self._restart.loops(),
                *self._tune.loops(),
                *self._progress_service.status(),
            ],
            files=self._logs.files(_SHOWN_FILES),
            problems=problems,
            notices=[
                *self._store.notices,
                *filter(None, [self._config_error, self._logs.watch_problem, self._address_problem]),
                *self._file_problems,
                *self._logs.notices(),
                *self._node.problems(),
                *filter(None, [self._progress_service.problem]),
            ],
            config_source=_source(self._config),
            store=StoreStatus(
                str(self._config.state.dir),
                self._store.durable,
                events,
                detail=self._store.problem or (self._state if self._logs.ingest.blocked else ""),
            ),
            last_launch=self._logs.last_launch(),
            identity=snapshot.identity,
            node=nodes[0] if nodes else None,
            queued_resources=self._node.judge.queued_resources,
            runtime=None if snapshot.runtime.problem else snapshot.runtime.value,
            host=None if snapshot.host.problem else snapshot.host.value,
            signals=self._node.signals.status(),
            restarts=self._restart.status,
            tune=self._tune.status,
            training=self._progress_service.training,
            goodput=self._goodput.latest,
            host_name=socket.gethostname(),
            watches_others=bool(self._config.cloud.nodes),
            finding_seconds=self._config.health.finding_seconds,
        )

    # -- making and remaking the parts

    def _new_node(self) -> NodeServices:
        return NodeServices(
            self._config,
            store=self._store,
            metrics=self.metrics,
            clock=self._clock,
            boot_id=self._boot_id,
            on_event=self._logs.ingest.add_event,
            on_turn=self._progress,
        )

    def _new_restart(self, config: Config) -> RestartService:
        return RestartService(
            config,
            nodes=lambda: self._node.judge.nodes,
            snapshot=lambda: self._node.signals.snapshot,
            metrics=self.metrics,
            clock=self._clock,
            watching_since=self._started,
            progress=self._progress,
            ask_peer=lambda label: self._node.signals.ask_peer(label),
        )

    def _new_tune(self, config: Config) -> TuneService:
        tune = TuneService(
            config,
            store=self._store,
            metrics=self.metrics,
            clock=self._clock,
            snapshot=lambda: self._node.signals.snapshot,
            add_record=self._logs.ingest.add_record,
            add_event=self._logs.ingest.add_event,
            progress=self._progress,
        )
        self._logs.subscribe(tune.on_launches)
        return tune

    def _new_progress(self) -> ProgressService:
        service = ProgressService(
            self._config,
            metrics=self.metrics,
            clock=self._clock,
            boot_id=self._boot_id,
            add_event=self._logs.ingest.add_event,
            post=lambda loops: self._node.signals.post_loops(loops),
            holders=self._holders,
            hbm_used=self._hbm_used,
            store=self._store,
            progress=self._progress,
        )
        self._logs.ingest.on_progress = service.take_output
        return service

    def _holders(self) -> tuple[Holder, ...]:
        """The processes that hold the TPU by the latest look; none where it failed."""
        answer = self._node.signals.snapshot.host
        return answer.value.holders if answer.value is not None and answer.problem is None else ()

    def _hbm_used(self) -> int | None:
        """The bytes of HBM in use by the latest look; None where it failed."""
        answer = self._node.signals.snapshot.runtime
        return answer.value.hbm_used_bytes if answer.value is not None and answer.problem is None else None

    def _connect(self) -> None:
        """Connect the parts that run now to each other, to the watchdog and to the metrics."""
        self._node.judge.subscribe(self._restart.on_verdicts)
        services = (self._node.loops, self._restart, self._tune, self._progress_service)
        limits = {LOGS: STALE_SECONDS}
        for service in services:
            limits.update(service.limits())
        self._watchdog.watch(limits)
        self.metrics.daemon.set_loops(limits)

    def _progress(self, loop: str, seconds: float) -> None:
        """One of the loops did a turn, which took so long. Called from its thread."""
        self.metrics.daemon.set_loop_success(loop, self._clock.time(), seconds)
        self._watchdog.progress(loop)

    def _restart_reading(self) -> None:
        """Begin reading again where the store stands, by the configuration and the rules as they are now."""
        self._logs.restart(self._config)
        self._view.catalogue = self._logs.catalogue
        self._restart_pending = False

    def _serve(self, config: Config, access: Access) -> HttpServer:
        host, port = config.http.address
        return HttpServer(
            host,
            port,
            view=self._view,
            metrics=self.metrics,
            clock=self._clock,
            hosts=config.http.hosts,
            access=access,
        )

    def _serve_instead(self, config: Config, access: Access) -> HttpServer:
        """Serve at another address. Where this daemon itself has its port, as on another host, that is let go first.

        Raises ConfigError; then the old address is served as before.
        """
        try:
            return self._serve(config, access)
        except ConfigError as error:
            taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
            if not taken or config.http.address[1] != self._http.address[1]:
                raise
        before = self._http.access
        self._http.close()
        try:
            return self._serve(config, access)
        except ConfigError:
            self._http = self._serve(self._config, before)
            self._http.start()
            raise

    def _apply_reload(self) -> None:
        """Apply a new configuration, or keep the old one and report why."""
        self._notifier.reloading()
        now = self._clock.time()
        try:
            config = self._load()
            _require_same_state(config, self._config)
            _require_same_ledger(config, self._config, drives=self._restart.drives)
            other = _restart_part(config) != _restart_part(self._config)
            if other and self._restart.is_unrecorded:
                raise ConfigError(  # noqa: TRY301
                    "a restart under way cannot be recorded, and only the process that drives it would start its node: "
                    "reload again when the ledger can be written, or the node runs"
                )
            restart = self._new_restart(config) if other else None
            access = Access(config.http)
            http = None if config.http.listen == self._config.http.listen else self._serve_instead(config, access)
        except ConfigError as error:
            self.metrics.daemon.set_config(success=False, at=now)
            self._config_error = f"The configuration stays as it was: {error}"
            _log.error("%s", self._config_error)
        else:
            self._swap(config, http, access, restart)
            _log_inconsistencies(config)
            self._config_error = ""
            self.metrics.daemon.set_config(success=True, at=now)
            _log.info("The configuration from %s is in force.", _source(config))
        self._notifier.ready(self._state)

    def _swap(self, config: Config, http: HttpServer | None, access: Access, restart: RestartService | None) -> None:
        before, self._config = self._config, config
        set_up_logging(config.log.format, config.log.level)
        if http is not None:
            self._http.close()
            self._http = http
            http.start()
        self._http.access = access
        self._announce()
        self._http.set_hosts(config.http.hosts)
        self._view.peers = config.peers
        begin = []
        if _node_part(config) != _node_part(before):
            self._node.stop()
            self._node = self._new_node()
            self._node.signals.post_logs(self._logs.answer())  # the new judge needs it before anything changes
            self._node.signals.post_loops(self._progress_service.training)
            begin.append(self._node.start)
        if restart is not None:
            self._restart.stop()
            self._restart = restart
            begin.append(restart.start)
        self._tune.stop()
        self._tune = self._new_tune(config)
        begin.append(self._tune.start)
        self._progress_service.reload(config)
        self._connect()  # a loop may finish its first turn as soon as it has begun
        for start in begin:
            start()
        self._restart_pending = True

    def _announce(self) -> None:
        """Leave the address where a program can find it: with port 0 it is not known before."""
        host, port = self._view.serves = self._http.address
        self._view.scheme = self._http.access.scheme
        path = self._config.state.dir / ADDRESS_FILE
        new = path.with_suffix(".new")
        try:
            new.write_text(f"{host_port(host, port)}\n")
            new.chmod(0o644)  # who may ask the daemon may know where
            new.replace(path)
        except OSError as error:
            problem = f"The address {self.url} is not written to {path}: {error.strerror}. It is tried again."
            if problem != self._address_problem:
                _log.warning("%s", problem)
            self._address_problem = problem
        else:
            self._address_problem = ""

    def _followed(self) -> str:
        return ", ".join(map(str, [*self._config.logs.paths, *self._config.logs.job_paths])) or "nothing"


def _log_inconsistencies(config: Config) -> None:
    for sentence in inconsistencies(config):
        _log.warning("%s", sentence)


def _require_same_state(new: Config, old: Config) -> None:
    if new.state.dir != old.state.dir:
        raise ConfigError("state.dir cannot change while tpuwatch runs; restart it")
    if new.host.root != old.host.root:
        raise ConfigError("host.root cannot change while tpuwatch runs; restart it")


def _require_same_ledger(new: Config, old: Config, *, drives: bool) -> None:
    if drives and new.ledger != old.ledger:
        raise ConfigError(
            "[ledger] cannot change while a restart is under way, which is recorded in the old one; reload again when "
            "`tpuwatch restarts` shows none"
        )


def _node_part(config: Config) -> tuple[object, ...]:
    """What the node side is made from."""
    own = config.runtime, config.workload, config.health, config.logs.compile_grace_seconds
    return config.cloud, config.peers, config.monitoring, config.restart.resets, *own


def _restart_part(config: Config) -> tuple[object, ...]:
    """What the restarting side is made from."""
    return config.restart, config.ledger, config.cloud, config.health.boot_grace_seconds


def _source(config: Config) -> str:
    return str(config.source) if config.source else "the defaults"
