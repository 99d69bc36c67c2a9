"""What the page is looked at with: the real daemon in a simulated cloud, on a machine that has trained for days."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import wait_for
from tests.standins.simulated import NOBODY, OTHER_ZONE, ZONE, simulated
from tpuwatch.core.clock import SystemClock
from tpuwatch.sim.cloud.world import Timing
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.logwriter import SimulatedProcess

GIB: Final = 1 << 30
GRACE_SECONDS: Final = 400.0  # until a program has said nothing for longer than a compile may take
MANY: Final = 5000
_NODE: Final = {"nodes": [{"name": "train-1", "phase": "training", "phase_seconds": 7200.0}]}
# Hours ago, seconds of the initialisation (None: the buffer had no room), GiB of premapped buffer.
_PAST: Final = (
    (71.0, 6.1, 4),
    (70.2, None, 4),
    (69.9, 7.4, 6),
    (58.0, None, 6),
    (57.6, 9.0, 8),
    (49.0, 8.6, 8),
    (44.0, 8.9, 8),
    (31.5, 41.0, 8),
    (30.0, 8.7, 8),
    (22.0, 8.5, 8),
    (13.5, 9.1, 8),
    (6.0, 8.8, 8),
)


class _Earlier(SystemClock):
    """The time of some hours ago."""

    def __init__(self, hours: float) -> None:
        self._seconds = 3600 * hours

    def time(self) -> float:
        return super().time() - self._seconds


def launch(logs: Path, *, hours: float, seconds: float | None, size: int, pid: int = 2**30) -> None:
    """What the log of such a launch holds."""
    process = SimulatedProcess(GlogFiles(logs, _Earlier(hours), pid=pid, user="alice"))
    process.banner(premapped_bytes=size)
    process.init_start(premapped_bytes=size)
    process.init_ok(seconds or 7.0)
    if seconds is None:
        process.premapped_exhausted(size * 3 // 4, size // 4)
    process.close()


@contextmanager
def node(scratch: Path, **tables: dict[str, Any]) -> Iterator[DaemonInCloud]:
    """The daemon on train-1, which trains. What its logs hold is three days old and newer."""
    scratch.mkdir()
    with simulated(scratch / "sim", **_NODE) as site:
        site.world.timing = Timing(stop=0.5, start=0.5, timeout=0.0, preemption=0.0)
        site.simulator.launches.pace = 0.01
        launches = site.simulator.launches
        launches.logs.mkdir()
        for number, (hours, seconds, gib) in enumerate(_PAST):
            launch(launches.logs, hours=hours, seconds=seconds, size=gib * GIB, pid=2**30 + number)
        daemon = DaemonInCloud(scratch / "daemon", site)
        daemon.machine.process(4242, files=("/dev/vfio/0", "/dev/vfio/1"), cpu=1500.0)
        daemon.machine.write(
            "proc/meminfo",
            f"MemTotal: {448 << 20} kB\nMemAvailable: {391 << 20} kB\nUnevictable: 20 kB\nMlocked: 10 kB\n",
        )
        daemon.configure(
            more=site.toml(cloud={"nodes": []}, **tables),
            paths=[str(launches.logs)],
            job_paths=[str(launches.jobs / "*.log")],
        )
        with daemon:
            daemon.start()
            daemon.judged("train-1", "healthy")
            wait_for(lambda: daemon.api("tune")["workloads"], "what the next launch gets")
            yield daemon


def stuck(daemon: DaemonInCloud) -> None:
    """The guest is dead, and the API says that it is well."""
    daemon.site.do("lie", "train-1")
    daemon.suspects("train-1")
    daemon.skip(GRACE_SECONDS)
    daemon.judged("train-1", "runtime_stuck", "node_stuck")


def settle(daemon: DaemonInCloud) -> None:
    """Wait until all loops have gone on after its clock was put ahead: until then it says that it is not ready."""
    wait_for(lambda: daemon.ask("/readyz")[0] == 200, "the loops to have gone on after the skip")


def hbm_oom(daemon: DaemonInCloud) -> None:
    """A program is too large for the chips."""
    daemon.site.do("launch", launch="hbm-oom")
    wait_for(lambda: daemon.api("findings")["findings"], "the finding")
    daemon.site.do("restore", "train-1")  # a launch leaves no program behind, and one has trained here
    daemon.judged("train-1", "healthy")


@contextmanager
def fleet(scratch: Path, nodes: int = MANY) -> Iterator[DaemonInCloud]:
    """A machine elsewhere that watches that many nodes of two zones, of which some are not well."""
    scratch.mkdir()
    scenario: dict[str, Any] = {
        "nodes": [
            {"name": "train-{number}", "count": nodes * 4 // 5, "phase": "training"},
            {"name": "serve-{number}", "count": nodes - nodes * 4 // 5, "phase": "training", "zone": OTHER_ZONE},
        ],
        "zones": [{"name": OTHER_ZONE}],
    }
    with simulated(scratch / "sim", **scenario) as site:
        site.world.timing = Timing(stop=3600.0, start=3600.0, timeout=0.0, preemption=0.0)
        for number in range(7, nodes // 2, max(1, nodes // 30)):
            site.do(("hang", "preempt", "hang")[number % 3], f"train-{number}")
        for number in range(3, nodes // 5, max(1, nodes // 50)):
            site.do("set", f"serve-{number}", state="STOPPED")
        site.do("vanish", "train-12")
        daemon = DaemonInCloud(
            scratch / "daemon", site, environ={"GCE_METADATA_HOST": NOBODY, "GCE_METADATA_IP": NOBODY}
        )
        daemon.configure(
            more=site.toml(
                cloud={"nodes": [f"{zone}/*" for zone in (ZONE, OTHER_ZONE)], "poll_seconds": 5.0},
                runtime={"enabled": False},
                health={"boot_grace_seconds": 0.0, "settle_seconds": 0.0},
            )
        )
        with daemon:
            daemon.start()
            wait_for(lambda: daemon.api("nodes?limit=1")["watched"] >= nodes - 1, "all nodes")
            wait_for(lambda: daemon.api("nodes?limit=1")["verdicts"].get("unknown", 0) < nodes // 10, "their verdicts")
            yield daemon
