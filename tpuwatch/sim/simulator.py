"""A whole simulator in one process: the cloud's services, the worker that this machine plays, time line and control."""

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

from tpuwatch.clock import SystemClock
from tpuwatch.errors import TpuwatchError
from tpuwatch.sim.cloud.metadata_pages import Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.metadata_tree import Dialect
from tpuwatch.sim.cloud.runtime_service import RuntimeService
from tpuwatch.sim.cloud.world import World
from tpuwatch.sim.control import ControlServer
from tpuwatch.sim.director import Director
from tpuwatch.sim.launches import Launches
from tpuwatch.sim.place import CONFIG
from tpuwatch.sim.timeline import ScaledClock, Timeline

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    from tpuwatch.sim.cloud.monitoring_service import MonitoringService
    from tpuwatch.sim.cloud.server import CloudServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from tpuwatch.clock import Clock
    from tpuwatch.sim.cloud.world import SimNode
    from tpuwatch.sim.place import Place
    from tpuwatch.sim.scenario_file import Scenario

HOST: Final = "127.0.0.1"
LOOK_SECONDS: Final = 0.25  # how soon what the world does by itself shows at the ports of the runtime metrics
SAMPLE_SECONDS: Final = 30.0  # of the world's time, how often Cloud Monitoring looks at all workers
SHOWN_NODES: Final = 100  # in the state document


class Simulator:
    """Plays a scenario. Everything listens once it is made; time runs from `start` on. Leaving it ends all of it."""

    def __init__(
        self,
        scenario: Scenario,
        place: Place,
        *,
        speed: float = 1.0,
        pace: float | None = None,
        listen: tuple[str, int] = (HOST, 0),
    ) -> None:
        """`speed` is how many seconds of the world's time pass in one.

        `pace` stretches what launches wait for; by default they keep up with the world's time.
        `listen` is host and port of the cloud's services; everything else is on loopback, at free ports.
        Raises TpuwatchError when an address cannot be used.
        """
        self.scenario = scenario
        self.place = place
        self.speed = speed
        clock = SystemClock()
        self.clock: Clock = clock if speed == 1 else ScaledClock(clock, speed)
        self.world = World(self.clock)
        self.launches = Launches(
            place.directory / "tpu_logs", place.directory / "jobs", pace=1 / speed if pace is None else pace
        )
        self.director = Director(self.world, scenario, self.launches, changed=self._changed)
        self.timeline = Timeline(scenario.steps, self.clock, self.director.do)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        with contextlib.ExitStack() as started:
            try:
                self._serve(started, listen)
            except OSError as error:
                raise TpuwatchError(f"the simulator cannot listen on {HOST}: {error.strerror}") from error
            self._cleanup = started.pop_all()

    def _serve(self, started: contextlib.ExitStack, listen: tuple[str, int]) -> None:
        path, worker = self.scenario.own_path, self.scenario.worker
        started.callback(self.launches.close)
        self.runtime = RuntimeService(self.world, path, worker)
        started.callback(self.runtime.close)
        pages = Pages(self.world, path, worker, Dialect(self.scenario.dialect), self.runtime.ports)
        self.metadata = MetadataServer(self.world, pages)
        started.callback(self.metadata.close)
        host, port = listen
        host = f"[{host}]" if ":" in host else host
        self.monitoring = MonitoringService(self.world)
        self.cloud = CloudServer(self.world, host=host, port=port, services=[self.monitoring.handler()])
        started.callback(self.cloud.stop)
        self.control = ControlServer(self.director.do, self.state)
        started.callback(self.control.close)

    def __enter__(self) -> Simulator:  # noqa: PYI034 - Self is in typing from 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, tell: Callable[[float, str], None] = lambda _at, _what: None) -> None:
        """Let time run. `tell` is given each step as it happens: its time, and a sentence."""
        self.timeline.begin()
        self.timeline.play_due(tell)  # what stands at 0 is so from the beginning
        self._settle()
        self.metadata.start()
        self.control.start()
        self._thread = threading.Thread(target=self._run, args=(tell,), name="sim-timeline", daemon=True)
        self._thread.start()
        self.place.put(CONFIG, self.config())
        self.place.write(self.note())

    def close(self) -> None:
        """End time and everything that listens or runs."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._cleanup.close()

    def note(self) -> dict[str, Any]:
        """Where everything is, for others to find."""
        return {
            "pid": os.getpid(),
            "scenario": self.scenario.title,
            "speed": self.speed,
            "control": self.control.address,
            "tpu": self.cloud.address,
            "monitoring": self.cloud.address,
            "metadata": self.metadata.address,
            "runtime_ports": list(self.runtime.ports),
            "project": self.scenario.project,
            "node": self.scenario.own_path,
            "worker": self.scenario.worker,
            "config": str(self.place.directory / CONFIG),
            "environment": self.environment(),
            "settings": self.settings(),
        }

    def settings(self) -> dict[str, dict[str, Any]]:
        """The tables of a configuration by which tpuwatch watches this cloud and this machine."""
        return {
            "logs": {"paths": [str(self.launches.logs)], "job_paths": [str(self.launches.jobs / "*.log")]},
            "cloud": {
                "project": self.scenario.project,
                "zone": self.scenario.own_path.split("/")[3],
                "nodes": [f"{zone}/*" for zone in sorted(self.world.zones)],
                "endpoint": self.cloud.address,
                "insecure": True,
                "poll_seconds": 5.0,
            },
            "runtime": {"ports": list(self.runtime.ports), "poll_seconds": 2.0},
            "monitoring": {"endpoint": self.cloud.address},
            "state": {"dir": str(self.place.directory / "state")},
        }

    def config(self, **more: Mapping[str, Any]) -> str:
        """The text of such a configuration, with further tables, or further keys of these."""
        tables = self.settings()
        for table, values in more.items():
            tables.setdefault(table, {}).update(values)
        return toml_text(tables)

    def environment(self) -> dict[str, str]:
        """The variables that tpuwatch and Google's libraries need, so that they ask us, and no proxy for us."""
        past = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        return {
            "GCE_METADATA_HOST": self.metadata.address,
            "GCE_METADATA_IP": self.metadata.address,
            "no_proxy": f"{past},{HOST}" if past else HOST,
        }

    def state(self) -> dict[str, Any]:
        """The document of GET /state."""
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
                "faults": [asdict(fault) for fault in self.world.faults.now],
                "calls": dict(Counter(f"{call.method} {call.code}".strip() for call in self.world.calls)),
                "nodes_total": len(nodes),
                "states": dict(Counter(f"{node.state} {node.health}".strip() for node in nodes)),
                "nodes": [_shown(node, now) for node in islice(nodes, SHOWN_NODES)],
            }

    def _run(self, tell: Callable[[float, str], None]) -> None:
        looked = self.clock.monotonic()
        while not self._stop.wait(self._pause()):
            self.timeline.play_due(tell)
            self._settle()
            if self.clock.monotonic() - looked >= SAMPLE_SECONDS:
                looked = self.clock.monotonic()
                self.monitoring.look()

    def _pause(self) -> float:
        due = self.timeline.due_in
        return LOOK_SECONDS if due is None else min(LOOK_SECONDS, due / self.speed)

    def _changed(self) -> None:
        """Something was done to the world: let it show at once."""
        if self._thread is not None:
            self._settle()
            self.monitoring.look()

    def _settle(self) -> None:
        self.world.advance()
        self.runtime.advance()
        self.cloud.advance()
        self.metadata.changed()


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of plain values as TOML: JSON's way to write strings, numbers and lists is TOML's."""
    lines = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()), ""]
    return "\n".join(lines)


def _shown(node: SimNode, now: float) -> dict[str, Any]:
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
