"""A node with its daemon and a machine elsewhere that watches it and three more: what goes wrong while nothing acts."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e.daemon_in_cloud import IN_FORCE, DaemonInCloud
from tests.e2e.daemon_process import libtpu_name, wait_for
from tests.proof.monitoring.stack import free_port, replaced
from tests.standins.simulated import NOBODY, Site
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.tune import DEFAULT_PREMAPPED_BYTES
from tpuwatch.sim.cloud.world import Timing
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.logwriter import SimulatedProcess

NODES: Final = {"nodes": [{"name": "job-{number}", "count": 4, "phase": "training"}]}
FULL: Final = "OSError: [Errno 28] No space left on device: '/data/checkpoint'\n"
OOM: Final = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to allocate 2.00G. That was not possible. "
    "There are 1.50G free.; (0x0x0_HBM0)\n"
)
HALTED: Final = "E0000: RuntimeUnexpectedCoreHalt: Core halted unexpectedly: TensorCoreSequencer:0\n"
NAN: Final = "step 12 loss nan\n"
FINDING_SECONDS: Final = 60.0  # until a finding is over
GRACE_SECONDS: Final = 400.0  # until a program has said nothing for longer than a compile may take


class Watch:
    """job-1 with the daemon `inside`, and `outside`, which watches job-1 to job-4 and asks the daemon on job-1."""

    def __init__(self, root: Path, site: Site) -> None:
        self.site = site
        site.world.timing = Timing(stop=0.5, start=0.5, timeout=0.0, preemption=0.0)
        site.simulator.launches.pace = 0.01
        nowhere = {"GCE_METADATA_HOST": NOBODY, "GCE_METADATA_IP": NOBODY, "no_proxy": "127.0.0.1"}
        self.inside = DaemonInCloud(root / "inside", site)
        self.outside = DaemonInCloud(root / "outside", site, environ=nowhere)
        self.listen = {self.inside: f"127.0.0.1:{free_port()}", self.outside: f"127.0.0.1:{free_port()}"}
        self.log = site.simulator.launches.logs / libtpu_name()
        self.log.parent.mkdir()
        self.log.touch()
        self.inside.machine.process(4242, files=("/dev/vfio/0",))  # it has trained since long ago
        self.configure_inside()
        self.configure_outside()

    def configure_inside(self, **more: dict[str, Any]) -> None:
        """Write its configuration, with more tables."""
        launches = self.site.simulator.launches
        self.inside.configure(
            listen=self.listen[self.inside],
            more=self.site.toml(cloud={"nodes": []}, health={"finding_seconds": FINDING_SECONDS}, **more),
            paths=[str(launches.logs)],
            job_paths=[str(launches.jobs / "*.log")],
        )

    def configure_outside(self) -> None:
        peers = {"enabled": True, "poll_seconds": 1.0, "timeout_seconds": 1.0}
        restart = {"confirm_seconds": 0.0, "confirm_polls": 1, "startup_seconds": 0.0, "storm_nodes": 100}
        tables = self.site.toml(
            cloud={"nodes": [f"job-{number}" for number in range(1, 5)]},
            runtime={"enabled": False},
            health={"boot_grace_seconds": 0.0, "settle_seconds": 0.0},
            restart=restart,
            peers=peers,
            **{"peers.addresses": {"job-1": f"http://{self.listen[self.inside]}"}},
        )
        self.outside.configure(listen=self.listen[self.outside], more=tables)

    @contextmanager
    def running(self) -> Iterator[Watch]:
        with self.inside, self.outside:
            self.inside.start()
            self.outside.start()
            self.inside.judged("job-1", "healthy")
            for number in range(1, 5):
                self.outside.judged(f"job-{number}", "healthy")
            yield self

    def train(self) -> None:
        """This process says what a training loop does: steps of eight seconds, of which a tenth waited for input, and
        so many that its baseline is known."""
        self.inside.machine.process(os.getpid())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(str(self.inside.state / "heartbeats.socket"))
            for step in range(1, 221):
                numbers = {"loss": 1 / step}
                message = {
                    "step": step,
                    "steps": 1,
                    "seconds": 8.0,
                    "input_seconds": 0.8,
                    "numbers": numbers,
                    "nan": [],
                }
                sender.send(json.dumps(message).encode())

    # -- what goes wrong, and is over at the end of each

    @contextmanager
    def fault_of_node(self, do: str, node: str, **more: Any) -> Iterator[None]:
        """An action of the simulator on a node."""
        self.site.do(do, node, **more)
        yield
        self.site.do("restore", node)

    @contextmanager
    def no_logs(self) -> Iterator[None]:
        self.log.unlink()
        yield
        self.log.touch()

    @contextmanager
    def configuration(self, word: str, **tables: dict[str, Any]) -> Iterator[None]:
        """Another configuration, of which the daemon says this."""
        self.configure_inside(**tables)
        self.hang_up(word)
        yield
        self.configure_inside()
        self.hang_up(IN_FORCE)

    def hang_up(self, word: str) -> None:
        """Have the daemon inside read its configuration, until it says so."""
        before = self.inside.said().count(word)
        self.inside.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.inside.said().count(word) > before, word)

    @contextmanager
    def launch(self, name: str) -> Iterator[None]:
        """A launch that ends by itself; what counts it stays."""
        self.site.do("launch", launch=name)
        yield
        self.site.do("restore", "job-1")  # a launch leaves no program behind, and one has trained here

    @contextmanager
    def job_output(self, text: str) -> Iterator[None]:
        directory = self.site.simulator.launches.jobs
        directory.mkdir(exist_ok=True)
        with (directory / "serving.log").open("a") as file:
            file.write(text)
        yield

    @contextmanager
    def finding(self, text: str) -> Iterator[None]:
        """A job prints this, and long ago at the end."""
        with self.job_output(text):
            yield
        self.inside.skip(FINDING_SECONDS)

    @contextmanager
    def host_oom(self) -> Iterator[None]:
        self.inside.machine.write("proc/vmstat", "nr_free_pages 12\noom_kill 1\n")
        yield

    @contextmanager
    def full_hbm(self) -> Iterator[None]:
        (workload,) = next(node for node in self.site.world.nodes.values() if node.name == "job-1").workloads
        workload.hbm_used = 0.99
        yield
        workload.hbm_used = 0.6

    @contextmanager
    def silent_api(self) -> Iterator[None]:
        self.site.do("fault", method="ListNodes", code="UNAVAILABLE")
        yield
        self.site.do("clear")

    @contextmanager
    def dead_runtime(self) -> Iterator[None]:
        self.site.do("lie", "job-1")
        self.inside.suspects("job-1")
        self.inside.skip(GRACE_SECONDS)
        yield
        self.site.do("restore", "job-1")

    @contextmanager
    def stuck_job(self) -> Iterator[None]:
        self.site.do("workload", "job-1", phase="stuck", for_seconds=3600.0)
        self.inside.skip(GRACE_SECONDS)
        yield
        self.site.do("restore", "job-1")

    @contextmanager
    def silent_launch(self) -> Iterator[None]:
        """A process that lives, this one, begins to bring the TPU up and writes no more."""
        process = SimulatedProcess(GlogFiles(self.log.parent, SystemClock()))
        process.banner(premapped_bytes=DEFAULT_PREMAPPED_BYTES)
        process.init_start(premapped_bytes=DEFAULT_PREMAPPED_BYTES)
        process.flush()
        wait_for(lambda: process.pid in [one["pid"] for one in self.inside.api("launches")["launches"]], "the launch")
        self.inside.skip(GRACE_SECONDS)
        yield

    @contextmanager
    def no_state_directory(self) -> Iterator[None]:
        """A file is in its place: not even root can write below that."""
        with replaced(self.inside.state):
            yield

    @contextmanager
    def dead_daemons(self) -> Iterator[None]:
        """Also the one that says where all of them are."""
        self.inside.kill()
        self.outside.kill()
        yield
        self.outside.start()
        self.inside.start()

    @contextmanager
    def dead_daemon(self) -> Iterator[None]:
        self.inside.kill()
        yield
        self.inside.start()
