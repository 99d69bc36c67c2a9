"""`python -m tests.proof.chaos.race_watchers JOB NUMBER`: some of the watchers of races.py, in one process.

Each is the daemon's own restarting side with a ledger, threads and drivers of its own. One list of all nodes is fetched
for those of a process, and what they judge is given: a node that the cloud calls unresponsive is stuck, by two
signals. They run until standard input ends.
"""

from __future__ import annotations

import json
import logging
import select
import sys
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.proof.chaos.common import CallClock, FastTime, judged
from tpuwatch.config import Config
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.signals import CloudNode, Identity, Known, Snapshot
from tpuwatch.restart.service import RestartService
from tpuwatch.signals.cloud import CloudSignal

PROJECT: Final = "lab"
ZONES: Final = tuple(f"us-east5-{letter}" for letter in "abcdefgh")
POLL_SECONDS: Final = 1.0  # by real time
HERE: Final = Identity(project=Known(PROJECT, "config"), zone=Known(ZONES[0], "config"))


@dataclass(frozen=True)
class Job(FastTime):
    """What all watchers have in common, and their clock."""

    watchers: int  # in each process
    fleet_max: int
    window_seconds: float  # of simulated time
    address: str = ""  # of the simulated cloud
    root: str = ""

    def config(self, directory: str) -> Config:
        """The configuration of a watcher. Only the fleet's budget holds it back."""
        return Config.model_validate(
            {
                "cloud": {
                    "endpoint": self.address,
                    "insecure": True,
                    "project": PROJECT,
                    "zone": ZONES[0],
                    "nodes": [f"{zone}/*" for zone in ZONES],
                    "timeout_seconds": 10.0,
                    "poll_seconds": 1.0,
                },
                "restart": {
                    "mode": "act",
                    "restart_node": True,
                    "confirm_seconds": 5.0,
                    "confirm_polls": 2,
                    "startup_seconds": 0.0,
                    "fleet_max": self.fleet_max,
                    "fleet_percent": 100.0,
                    "fleet_window_seconds": self.window_seconds,
                    "storm_nodes": 10_000,
                    "settle_seconds": 5.0,
                    "poll_seconds": 1.0,
                },
                "ledger": {"dir": f"{self.root}/ledger", "lease_seconds": 300.0},
                "state": {"dir": directory},
                "health": {"boot_grace_seconds": 0.0},
            }
        )


class Watchers:
    """Those of this process."""

    def __init__(self, job: Job, number: int) -> None:
        self._job = job
        self._answers: dict[str, Answer[CloudNode]] = {}
        self._statuses: tuple[JudgedNode, ...] = ()
        config = job.config(job.root)
        rng = Random(number)
        clock = CallClock(job)
        self._signal = CloudSignal(config.cloud, lambda: HERE, clock=clock, rng=rng, on_call=lambda *_: None)
        self._watches = [self._made(f"{job.root}/watcher-{number}-{one}") for one in range(job.watchers)]

    def run(self) -> None:
        """Watch until standard input ends."""
        for watch in self._watches:
            watch.start()
        while not select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
            self._poll()
            for watch in self._watches:
                watch.on_verdicts()
        for watch in self._watches:
            watch.stop()

    def _made(self, directory: str) -> RestartService:
        return RestartService(
            self._job.config(directory),
            nodes=lambda: self._statuses,
            snapshot=lambda: Snapshot(cloud=self._answers, notices=Answer(problem=Problem.ABSENT)),
            metrics=Metrics(loops=[], refusals=[]),
            clock=self._job,
            watching_since=self._job.wall - 86_400.0,
            progress=lambda *_: None,
            ask_peer=lambda _: None,
        )

    def _poll(self) -> None:
        self._signal.ask()
        self._answers = dict(self._signal.answers)
        self._statuses = tuple(
            judged(label, answer.value, self._job.time())
            for label, answer in sorted(self._answers.items())
            if answer.value is not None
        )


def main(arguments: list[str]) -> None:
    """Be some of the watchers."""
    logging.getLogger("tpuwatch").setLevel(logging.CRITICAL)  # that others are quicker is the point
    given: dict[str, Any] = json.loads(arguments[0])
    Watchers(Job(**given), int(arguments[1])).run()


if __name__ == "__main__":
    main(sys.argv[1:])
