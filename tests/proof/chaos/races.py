"""`python -m tests.proof.chaos.races`: fifty watchers over one ledger, two hundred faults, and one restart for each.

The watchers are the daemon's real restarting side, ten in each of five processes, with a SQLite ledger and the
simulated cloud. All of them see every fault at the same time, and all of them want to restart the node. The signal is
the simulated cloud's own log.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from tests.proof.chaos.common import CloudServer, Tally
from tests.proof.chaos.fleet import most_within
from tests.proof.chaos.race_watchers import PROJECT, ZONES, Job
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import Phase, RestartRecord
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.restart.policy import budgets
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import Timing, World

SPEED: Final = 10.0
PROCESSES: Final = 5
WATCHERS: Final = 10  # in each
WELL: Final = 20  # nodes that nothing happens to
WINDOW_SECONDS: Final = 120.0  # of simulated time
BATCH_SECONDS: Final = 1.0  # of real time, between two batches of faults
END_SECONDS: Final = 300.0  # of real time, for all of it
LOOK_SECONDS: Final = 0.5
STOP_SECONDS: Final = 30.0


class Races:
    """One run."""

    def __init__(
        self,
        root: Path,
        *,
        faults: int,
        seed: int,
        waves: int = 3,
        processes: int = PROCESSES,
        watchers: int = WATCHERS,
    ) -> None:
        """`waves`: in how many windows the fleet's budget allows all restarts; `watchers`: in each process."""
        self._root = root
        self._faults = faults
        self._waves, self._processes, self._watchers = waves, processes, watchers
        self._rng = Random(seed)
        self._tally = Tally()

    def run(self) -> Tally:
        """Let them race; two hundred faults take about a minute."""
        job = Job(
            time.time(), time.monotonic(), SPEED, self._watchers, max(1, self._faults // self._waves), WINDOW_SECONDS
        )
        job = replace(job, root=str(self._root))
        world = World(job, rng=self._rng)
        world.timing = Timing(stop=10, start=20, timeout=5)
        count = self._faults + WELL
        nodes = [world.add(SimNode(PROJECT, ZONES[one % len(ZONES)], f"train-{one + 1}")) for one in range(count)]
        ledger = SqliteLedger(self._root / "ledger", job)
        (self._root / "ledger").mkdir()
        server = CloudServer(world)
        watchers = []
        try:
            job = replace(job, address=server.address)
            watchers = [_begun(job, number) for number in range(self._processes)]
            self._strike(world, nodes[: self._faults])
            self._wait(ledger, watchers)
        finally:
            for process in watchers:
                process.communicate(timeout=STOP_SECONDS)
            server.stop()
        self._judge(world, nodes, {one.record.target.node: one.record for one in ledger.records()}, job)
        self._count("calls of the cloud", len(world.calls))
        self._count("versions in the ledger", max((one.version for one in ledger.records()), default=0))
        return self._tally

    def _strike(self, world: World, nodes: list[SimNode]) -> None:
        """Half of the faults at once, the others by and by."""
        half = len(nodes) // 2
        for node in nodes[:half]:
            world.hang(node)
        left = nodes[half:]
        while left:
            time.sleep(BATCH_SECONDS)
            for _ in range(min(len(left), self._rng.randint(5, 20))):
                world.hang(left.pop())

    def _wait(self, ledger: SqliteLedger, watchers: list[subprocess.Popen[bytes]]) -> None:
        """Until each fault has its restart, which has ended."""
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            try:
                records = [one.record for one in ledger.records()]
            except LedgerError:
                continue  # fifty others are at it
            if len(records) >= self._faults and not any(record.open for record in records):
                return
            if any(process.poll() is not None for process in watchers):
                self._tally.faults.append("Watchers have ended by themselves; see their words above.")
                return
            time.sleep(LOOK_SECONDS)
        self._tally.faults.append(f"It was not over after {END_SECONDS:g} s.")

    def _judge(self, world: World, nodes: list[SimNode], records: dict[str, RestartRecord], job: Job) -> None:
        struck = {node.name for node in nodes[: self._faults]}
        began: list[float] = []
        for node in nodes:
            story = [one.what for one in world.history if one.node == node.path]
            record, hit = records.get(node.name), node.name in struck
            expected = 1 if hit else 0
            right = {
                "it is READY": node.state == "READY",
                f"it was stopped {expected} times": story.count("stop") == expected,
                f"it was started {expected} times": story.count("start") == expected,
                "its record shows that": (record is not None and record.phase is Phase.NOT_VERIFIED) is hit,
            }
            if not all(right.values()):
                wrong = ", ".join(what for what, holds in right.items() if not holds)
                self._tally.faults.append(f"{node.name}: not true: {wrong}. {record and record.note} {story}")
            for what in ("hang", "stop", "start"):
                self._count(f"{what}s", story.count(what))
            began += [one.began for one in budgets.attempts(record)] if record is not None else []
        most = most_within(began, job.window_seconds)
        self._count("most within the budget's window", most)
        self._count("allowed within it", job.fleet_max)
        if most > job.fleet_max:
            self._tally.faults.append(f"{most} restarts began within a window that allows {job.fleet_max}.")

    def _count(self, what: str, number: int) -> None:
        self._tally.counts[what] += number


def _begun(job: Job, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.proof.chaos.race_watchers", job.text(), str(number)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def main() -> int:
    """0 when each fault cost one restart; else 1, after an account of what was."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.chaos.races", description="Let fifty watchers race.")
    parser.add_argument("--faults", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tpuwatch-races-") as scratch:
        tally = Races(Path(scratch), faults=args.faults, seed=args.seed).run()
    return tally.end({"watchers": PROCESSES * WATCHERS, **tally.counts}, began)


if __name__ == "__main__":
    sys.exit(main())
