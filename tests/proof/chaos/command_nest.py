"""`python -m tests.proof.chaos.command_nest JOB`: tpuwatch's own commands, in forks that may be killed at any moment.

JOB is what `Job` holds, as JSON. It is a nest (nest.py): `start restart=NODE` is `tpuwatch restart NODE --yes`,
`start reset=NODE` the same with the reset of its queued resource named, and `start run=NAME` is `tpuwatch run` on the
machine of that name. Nothing of them is replaced but their time: clocks,
waits and deadlines of calls are those of the job.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.proof.chaos.common import FastTime
from tests.proof.chaos.nest import serve

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT, ZONE = "lab", "us-east5-a"
PARENT: Final = f"projects/{PROJECT}/locations/{ZONE}"
NODES: Final = ("train-1", "train-2", "train-3", "train-4", "train-5")  # restarted at the same time
SLICE: Final = "slice-1"  # of four hosts: its queued resource is reset
BESIDE: Final = "beside-1"  # the other node of that queued resource, which nobody watches
QUIET: Final = "quiet-1"  # is well, and its own tpuwatch is silent now and then
WATCHED: Final = (*NODES, SLICE, QUIET)
OPERATOR: Final = "operator"  # the machine of those who restart by hand
NOBODY: Final = "127.0.0.1:9"  # no test ever asks the real metadata server


@dataclass(frozen=True)
class Job(FastTime):
    """What all commands have in common, and their clock."""

    root: str
    cloud: str  # the address of the Cloud TPU API
    peers: str  # the address at which the tpuwatch of each node is asked
    storage: str = ""  # the address of Cloud Storage; "" where the ledger is a file
    bucket: str = ""

    def tables(self, machine: str) -> dict[str, dict[str, Any]]:
        """The configuration on a machine. Budgets and proofs are tested elsewhere: nothing holds a restart back."""
        root = Path(self.root)
        file = {"dir": str(root / "ledger"), "timeout_seconds": 2.0}
        bucket = {
            "kind": "gcs",
            "bucket": self.bucket,
            "endpoint": self.storage,
            "insecure": True,
            "timeout_seconds": 20.0,
        }
        return {
            "logs": {"paths": [str(root / "logs")], "poll_seconds": 60.0},
            "cloud": {
                "endpoint": self.cloud,
                "insecure": True,
                "project": PROJECT,
                "zone": ZONE,
                "nodes": list(WATCHED),
                "poll_seconds": 30.0,
                "timeout_seconds": 20.0,
            },
            "runtime": {"enabled": False},
            "peers": {"enabled": True, "poll_seconds": 30.0, "timeout_seconds": 8.0, "silent_seconds": 10.0},
            "peers.addresses": {f"{ZONE}/{name}": f"http://{self.peers}/{name}" for name in WATCHED},
            "health": {"boot_grace_seconds": 0.0, "settle_seconds": 0.0},
            "restart": {
                "mode": "act",
                "restart_node": True,
                "reset_queued_resource": True,
                "confirm_seconds": 0.0,
                "confirm_polls": 1,
                "startup_seconds": 0.0,
                "node_max": 16,
                "node_window_seconds": 60.0,
                "fleet_max": 10_000,
                "fleet_percent": 100.0,
                "fleet_window_seconds": 60.0,
                "backoff_seconds": 1.0,
                "max_backoff_seconds": 1.0,
                "cooldown_seconds": 0.0,
                "same_cause_seconds": 0.0,
                "breaker_failures": 100,
                "breaker_window_restarts": 1000,
                "storm_nodes": 10_000,
                "wait_seconds": 600.0,
                "settle_seconds": 5.0,
                "poll_seconds": 3.0,
            },
            "ledger": {**(bucket if self.storage else file), "lease_seconds": 90.0},
            "http": {"listen": "127.0.0.1:0"},
            "state": {"dir": str(root / machine)},
        }

    def config(self, machine: str) -> Path:
        """Where the configuration of a machine is."""
        return Path(self.root) / f"{machine}.toml"

    def write(self, machine: str) -> None:
        """Write the configuration of a machine."""
        lines = []
        for table, keys in self.tables(machine).items():
            lines += [f"[{table}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in keys.items())]
        self.config(machine).write_text("\n".join(lines) + "\n")


def hasten(job: Job) -> None:
    """Let this process, and its forks, live in the time of the job."""
    from tpuwatch.core import http
    from tpuwatch.core.clock import SystemClock
    from tpuwatch.core.loop import Waker
    from tpuwatch.google.tpu_client import CloudClient

    wait_waker, wait_event, ask, left = Waker.wait, threading.Event.wait, CloudClient.ask, http._left

    def patient(self: threading.Event, timeout: float | None = None) -> bool:
        return wait_event(self, None if timeout is None else timeout / job.speed)

    def asked(self: CloudClient, method: str, context: Any, call: Callable[[Any, float], Any], **more: Any) -> Any:
        return ask(self, method, replace(context, seconds=context.seconds / job.speed), call, **more)

    SystemClock.time = lambda _: job.time()  # type: ignore[method-assign]
    SystemClock.monotonic = lambda _: job.monotonic()  # type: ignore[method-assign]
    Waker.wait = lambda self, seconds: wait_waker(self, seconds / job.speed)  # type: ignore[method-assign]
    threading.Event.wait = patient  # type: ignore[method-assign]
    CloudClient.ask = asked  # type: ignore[method-assign]
    http._left = lambda deadline, clock: left(deadline, clock) / job.speed


def main() -> None:
    """Serve until standard input ends."""
    os.environ.update(GCE_METADATA_HOST=NOBODY, GCE_METADATA_IP=NOBODY, no_proxy="127.0.0.1")
    from importlib import import_module

    from tpuwatch.cli.main import main as tpuwatch

    for name in ("cli.run", "cli.restart", "config", "daemon", "restart.cloud_api", "restart.operator.session"):
        import_module(f"tpuwatch.{name}")
    job = Job(**json.loads(sys.argv[1]))
    if job.storage:
        import_module("google.cloud.storage")
    hasten(job)

    def work(what: str) -> int:
        command, _, name = what.partition("=")
        if command == "run":
            return tpuwatch(["run", "--config", str(job.config(name))])
        reset = ["--force-action", "reset_queued_resource"] if command == "reset" else []
        return tpuwatch(["restart", name, "--yes", *reset, "--json", "--config", str(job.config(OPERATOR))])

    serve(work)


if __name__ == "__main__":
    main()
