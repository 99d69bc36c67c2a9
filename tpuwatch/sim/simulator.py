"""The simulator: the cloud's services, this machine's worker, the time line and the control endpoint."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import warnings
from collections import Counter
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import SystemClock, TpuwatchError
from tpuwatch.launches import make_drop_box
from tpuwatch.libtpu import generation
from tpuwatch.sim.cloud.metadata_pages import Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.metadata_tree import MetadataDialect
from tpuwatch.sim.cloud.runtime_service import RuntimeService
from tpuwatch.sim.cloud.workers import SimulatedWorkers
from tpuwatch.sim.cloud.world import World
from tpuwatch.sim.control import ControlServer
from tpuwatch.sim.directory import CONFIG, INFO
from tpuwatch.sim.host.filesystem import MachineFiles
from tpuwatch.sim.host.launches import Launches
from tpuwatch.sim.scenario.executor import ActionExecutor
from tpuwatch.sim.scenario.timeline import ScaledClock, Timeline

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages warn about old Python versions
    from tpuwatch.sim.cloud.monitoring_service import MonitoringService
    from tpuwatch.sim.cloud.rest import RestServer
    from tpuwatch.sim.cloud.server import CloudServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.core import Clock
    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.directory import SimulatorDirectory
    from tpuwatch.sim.scenario.file import Scenario

HOST: Final = "127.0.0.1"
UPDATE_SECONDS: Final = 0.25  # maximum delay until changes of the world reach the ports of the runtime metrics
SAMPLE_SECONDS: Final = 30.0  # of the world's time, between two samples of all workers for Cloud Monitoring
SHOWN_NODES: Final = 100  # in the state document


class Simulator:
    """Runs a scenario. The constructor binds all ports, `start` starts the time; a context manager that closes all."""

    def __init__(
        self,
        scenario: Scenario,
        directory: SimulatorDirectory,
        *,
        speed: float = 1.0,
        pace: float | None = None,
        listen: tuple[str, int] = (HOST, 0),
        rest: tuple[str, int] = (HOST, 0),
    ) -> None:
        """`speed` is the seconds of simulated time per second.

        `pace` scales the waiting times of launches; by default they follow the simulated time.
        `listen` is host and port of the cloud's services, `rest` of the Cloud TPU API as REST; everything else is on
        loopback, at free ports.
        Raises TpuwatchError when an address cannot be used.
        """
        self.scenario = scenario
        self.directory = directory
        self.speed = speed
        clock = SystemClock()
        self.clock: Clock = clock if speed == 1 else ScaledClock(clock, speed)
        self.world = World(self.clock)
        self.launches = Launches(
            directory.path / "tpu_logs", directory.path / "jobs", pace=1 / speed if pace is None else pace
        )
        self.machine = self._machine()
        self.executor = ActionExecutor(self.world, scenario, self.launches, changed=self._changed)
        self.timeline = Timeline(scenario.steps, self.clock, self.executor.execute)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        with contextlib.ExitStack() as started:
            try:
                self._serve(started, listen, rest)
            except OSError as error:
                raise TpuwatchError(f"the simulator cannot listen on {HOST}: {error.strerror}") from error
            self._cleanup = started.pop_all()

    def _machine(self) -> MachineFiles:
        own = self.scenario.own_spec
        _, chips, _ = own.shape
        return MachineFiles(self.directory.path, chips=chips, generation=generation(own.accelerator))

    def _serve(self, started: contextlib.ExitStack, listen: tuple[str, int], rest: tuple[str, int]) -> None:
        path, worker = self.scenario.own_path, self.scenario.worker
        started.callback(self.launches.close)
        self.runtime = RuntimeService(self.world, path, worker)
        started.callback(self.runtime.close)
        pages = Pages(self.world, path, worker, MetadataDialect(self.scenario.dialect), self.runtime.ports)
        self.metadata = MetadataServer(self.world, pages)
        started.callback(self.metadata.close)
        self.workers = self._played()
        if self.workers is not None:
            started.callback(self.workers.close)
        host, port = listen
        host = f"[{host}]" if ":" in host else host
        self.monitoring = MonitoringService(self.world)
        self.cloud = CloudServer(self.world, host=host, port=port, services=[self.monitoring.handler()])
        started.callback(self.cloud.stop)
        self.rest = _rest_server(self.cloud.address, *rest)
        started.callback(self.rest.close)
        self.control = ControlServer(self.executor.execute, self.state)
        started.callback(self.control.close)

    def _played(self) -> SimulatedWorkers | None:
        """The tpuwatch of the workers that are played."""
        here = (self.scenario.own_path, self.scenario.worker)
        nodes = [node for node in self.world.nodes.values() if node.played]
        played = [(node.path, number) for node in nodes for number in range(node.hosts) if (node.path, number) != here]
        return SimulatedWorkers(self.world, played) if played else None

    def __enter__(self) -> Simulator:  # noqa: PYI034 - Self is in typing from 3.11 on
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, on_step: Callable[[float, str], None] = lambda _at, _what: None) -> None:
        """Start the time line. `on_step` is called after each step with its time and its outcome."""
        make_drop_box(self.directory.path / "state/tune")  # else `tpuwatch exec` keeps its records in the user's own
        self.timeline.begin()
        self.timeline.play_due(on_step)  # steps at 0 take effect before anything is served
        self._publish()
        self.metadata.start()
        if self.workers is not None:
            self.workers.start()
        self.rest.start()
        self.control.start()
        self._thread = threading.Thread(target=self._run, args=(on_step,), name="sim-timeline", daemon=True)
        self._thread.start()
        self.directory.write_file(CONFIG, self.config())
        self.directory.write_file(INFO, json.dumps(self.info(), indent=2) + "\n")

    def close(self) -> None:
        """Stop the time line, all servers and all launches."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._cleanup.close()

    def info(self) -> dict[str, Any]:
        """Return the content of sim.json: all addresses, and settings for tpuwatch."""
        return {
            "pid": os.getpid(),
            "scenario": self.scenario.title,
            "speed": self.speed,
            "control": self.control.address,
            "tpu": self.cloud.address,
            "rest": f"http://{self.rest.address}",
            "monitoring": self.cloud.address,
            "metadata": self.metadata.address,
            "runtime_ports": list(self.runtime.ports),
            "project": self.scenario.project,
            "node": self.scenario.own_path,
            "worker": self.scenario.worker,
            "config": str(self.directory.path / CONFIG),
            "environment": self.environment(),
            "settings": self.settings(),
        }

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the configuration tables with which tpuwatch monitors this cloud and this machine."""
        return {
            "host": {"root": str(self.machine.root)},
            "logs": {"paths": [str(self.launches.logs)], "job_paths": [str(self.launches.jobs / "*.log")]},
            "cloud": {
                "project": self.scenario.project,
                "zone": self.scenario.own_path.split("/")[3],
                "nodes": [f"{zone}/*" for zone in sorted(self.world.zones)],
                "endpoint": self.cloud.address,
                "metadata_server": self.metadata.address,
                "insecure": True,
                "poll_seconds": 5.0,
            },
            "tune": {"log_dir": str(self.launches.logs)},
            "runtime": {"ports": list(self.runtime.ports), "poll_seconds": 2.0},
            "monitoring": {"read": True, "endpoint": self.cloud.address},
            "health": {"boot_grace_seconds": 0.0},  # the real machine may have booted just now
            "http": {"listen": f"{HOST}:0"},  # another daemon may have the usual port
            "state": {"dir": str(self.directory.path / "state")},
            **({"peers": {"enabled": True, "port": self.workers.port, "poll_seconds": 5.0}} if self.workers else {}),
        }

    def config(self, **more: Mapping[str, Any]) -> str:
        """Return the settings as TOML, updated by `more`."""
        tables = self.settings()
        for table, values in more.items():
            tables.setdefault(table, {}).update(values)
        return toml_text(tables)

    def environment(self) -> dict[str, str]:
        """Return the variables that direct tpuwatch and Google's libraries to this simulator, past any proxy."""
        exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        return {
            "GCE_METADATA_HOST": self.metadata.address,
            "GCE_METADATA_IP": self.metadata.address,
            "no_proxy": f"{exempt},{HOST}" if exempt else HOST,
        }

    def state(self) -> dict[str, Any]:
        """Return the document of GET /state."""
        with self.world.lock:
            now = self.world.advance()
            nodes = self.world.nodes.values()
            return {
                "scenario": self.scenario.title,
                "speed": self.speed,
                "time": now,
                "elapsed_seconds": self.timeline.elapsed,
                "steps": {
                    "played": self.timeline.played,
                    "total": self.timeline.total,
                    "next_in_seconds": self.timeline.due_in,
                },
                "faults": [asdict(fault) for fault in self.world.faults.active],
                "calls": dict(Counter(f"{call.method} {call.code}".strip() for call in self.world.calls)),
                "nodes_total": len(nodes),
                "states": dict(Counter(f"{node.state} {node.health}".strip() for node in nodes)),
                "queued_resources": {path.rpartition("/")[2]: one.state for path, one in self.world.requests.items()},
                "nodes": [_describe_node(node, now) for node in islice(nodes, SHOWN_NODES)],
            }

    def _run(self, on_step: Callable[[float, str], None]) -> None:
        sampled = self.clock.monotonic()
        while not self._stop.wait(self._pause()):
            self.timeline.play_due(on_step)
            self._publish()
            if self.clock.monotonic() - sampled >= SAMPLE_SECONDS:
                sampled = self.clock.monotonic()
                self.monitoring.look()

    def _pause(self) -> float:
        due = self.timeline.due_in
        return UPDATE_SECONDS if due is None else min(UPDATE_SECONDS, due / self.speed)

    def _changed(self) -> None:
        """Publish a change of the world immediately."""
        if self._thread is not None:
            self._publish()
            self.monitoring.look()

    def _publish(self) -> None:
        self.world.advance()
        self.runtime.advance()
        self.machine.listen(self.runtime.listening)
        self.machine.sweep()
        self.cloud.advance()


def _rest_server(grpc_address: str, host: str, port: int) -> RestServer:
    try:
        return RestServer(grpc_address, host=host, port=port)
    except OSError as error:
        raise TpuwatchError(
            f"Cannot serve REST on {host}:{port}: {error.strerror}. Give another, or port 0."
        ) from error


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return tables of plain values as TOML; strings, numbers and lists are written as in JSON."""
    lines = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()), ""]
    return "\n".join(lines)


def _describe_node(node: SimNode, now: float) -> dict[str, Any]:
    oldest = min((work.since for work in node.workloads), default=now)
    return {
        "name": node.name,
        "zone": node.zone,
        "accelerator": node.accelerator_type,
        "state": node.state,
        "health": node.health,
        "hangs": node.hangs,
        "lies": node.lies,
        "preempted": node.preempted,
        "maintenance": None if node.maintenance is None else node.maintenance.status,
        "boots": node.boots,
        "workloads": dict(Counter(work.phase.value for work in node.workloads)),
        "workloads_since_seconds": now - oldest,
    }
