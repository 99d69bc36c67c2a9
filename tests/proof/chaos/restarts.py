"""`python -m tests.proof.chaos.restarts`: kills drivers of restarts with SIGKILL, over and over.

Each fault is a node that hangs. Its restart is driven by real processes, which are killed at random moments and in the
middle of writes, or frozen until another one has taken over and then thawed; answers of the cloud get lost, calls hang,
starts fail. In the end every node must be READY, and each fault must have cost one stop and the necessary starts. The
signal is the simulated cloud's own log.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from tests.proof.chaos.common import CloudServer, Tally
from tests.proof.chaos.nest import Nest
from tests.proof.chaos.restart_driver import ENDED, NO_LEDGER, OVERTAKEN, PROJECT, ZONE, Job, target
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import Phase, RestartRecord
from tpuwatch.model.verdict import Action
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import Timing, World

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

SPEED: Final = 40.0
LEASE_SECONDS: Final = 80.0  # of simulated time: two real seconds
LANES: Final = 6  # nodes that are restarted at the same time
KILLS_PER_FAULT: Final = 8  # then its restart is left alone
END_SECONDS: Final = 60.0  # of real time, for a driver that is left alone
FROZEN_SECONDS: Final = 20.0  # likewise: the longest that one is frozen
MOMENT_SECONDS: Final = 3.0  # a moment that does not come is given up
KILLS: Final = "kills in all"
ROWS: Final = (
    KILLS,
    "frozen",
    "overtaken while frozen",
    "faults",
    "restarted",
    "not touched",
    "stops",
    "starts",
    "starts that failed",
)
TIMING: Final = Timing(stop=20, start=40)
# What happens to calls all the time, by share of them. Latency is real, and comes after the work is done: it widens
# the moment in which the caller can be killed between the act and its answer.
WEATHER: Final = (
    InjectedFault("StopNode", latency_seconds=0.15, after_work=True, share=0.3),
    InjectedFault("StartNode", latency_seconds=0.15, after_work=True, share=0.3),
    InjectedFault("StopNode", code="UNAVAILABLE", after_work=True, share=0.2),
    InjectedFault("StartNode", code="UNAVAILABLE", after_work=True, share=0.2),
    InjectedFault("StopNode", code="UNAVAILABLE", share=0.1),
    InjectedFault("StartNode", code="INTERNAL", share=0.1),
    InjectedFault("StopNode", black_hole=True, after_work=True, share=0.1),
    InjectedFault("StartNode", black_hole=True, after_work=True, share=0.1),
    InjectedFault("StartNodeOperation", code="RESOURCE_EXHAUSTED", share=0.2),
    InjectedFault("GetNode", code="UNAVAILABLE", share=0.05),
    InjectedFault("ListOperations", code="UNAVAILABLE", share=0.05),
    InjectedFault("GetNode", latency_seconds=0.05, share=0.1),
)


class RestartChaos:
    """One run. The same seed picks the same moments, as far as the machine's time allows."""

    def __init__(self, root: Path, *, kills: int, seed: int) -> None:
        self._root = root
        self._kills = kills
        self._seed = seed
        self._tally = Tally()
        self._lock = threading.Lock()  # for the tally
        self._names = (f"train-{number}" for number in itertools.count(1))

    def run(self) -> Tally:
        """Do it all; 60 kills take half a minute."""
        job = Job(time.time(), time.monotonic(), SPEED, LEASE_SECONDS, state=str(self._root / "state"))
        self._world = World(job, rng=Random(f"world {self._seed}"))
        self._world.timing = TIMING
        for fault in WEATHER:
            self._world.faults.set(fault)
        self._ledger = SqliteLedger(Path(job.state), job)
        server = CloudServer(self._world)
        try:
            job = replace(job, address=server.address)
            lanes = [threading.Thread(target=self._lane, args=(job, number)) for number in range(LANES)]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
        finally:
            server.stop()
        for stored in self._ledger.records():
            if stored.record.open:
                self._fault(f"{stored.record.target.node} is left {stored.record.phase.value}.")
        return self._tally

    # -- one fault after the other

    def _lane(self, job: Job, number: int) -> None:
        rng = Random(f"kill {self._seed} {number}")
        nest = Nest("tests.proof.chaos.restart_driver", job.text(), self._root / f"drivers-{number}.log")
        try:
            while not self._enough():
                with self._lock:
                    name = next(self._names)
                self._restart(nest, rng, self._world.add(SimNode(PROJECT, ZONE, name)))
        except Exception as error:  # noqa: BLE001 (a lane that ends by itself is a fault, of whatever kind)
            self._fault(f"A lane ended by itself: {error!r}")
        finally:
            nest.close()

    def _restart(self, nest: Nest, rng: Random, node: SimNode) -> None:
        """One fault, and drivers until its restart has ended."""
        self._world.hang(node)
        self._count("faults")
        self._patiently(lambda: self._ledger.write(_request(node, self._world.clock.time()), 0))
        ways = (self._at_once, self._after_a_while, self._in_a_write, self._after_an_act, self._rivals, self._frozen)
        for _ in range(rng.randint(1, KILLS_PER_FAULT)):
            if self._ended(node):
                break
            rng.choice(ways)(nest, rng, node)
        while not self._ended(node):
            status = nest.wait(nest.start(node.name), END_SECONDS)
            if status not in (ENDED, NO_LEDGER):
                self._fault(f"{node.name}: a driver that was left alone ended with status {status}.")
                return
        self._judge(node)

    def _judge(self, node: SimNode) -> None:
        """What the simulated cloud has seen."""
        record = self._record(node)
        with self._world.lock:
            self._world.advance()
            story = [one.what for one in self._world.history if one.node == node.path]
            state, boots = node.state, node.boots
        stops, starts, failed = story.count("stop"), story.count("start"), story.count("failed")
        for what, count in (("stops", stops), ("starts", starts), ("starts that failed", failed)):
            self._count(what, count)
        right = {
            "it is READY": state == "READY",
            "its restart is done": record.phase is Phase.NOT_VERIFIED,  # nothing in it can be asked
            "it was stopped once": stops == 1,
            "it has booted once": boots == 2,
            "it was started as often as was necessary": starts == 1 + failed,
        }
        if record.phase is Phase.FAILED and state == "READY" and not stops and not starts:
            self._count("not touched")  # it could not be found out whether it was stopped, so it was not
        elif not all(right.values()):
            wrong = ", ".join(what for what, holds in right.items() if not holds)
            self._fault(f"{node.name}: not true: {wrong}. {record.phase.value}: {record.note} Its story: {story}")
        else:
            self._count("restarted")

    # -- killing

    def _at_once(self, nest: Nest, rng: Random, node: SimNode) -> None:
        pid = nest.start(node.name)
        time.sleep(rng.uniform(0, 0.4))
        self._kill(nest, pid, "at the start")

    def _after_a_while(self, nest: Nest, rng: Random, node: SimNode) -> None:
        pid = nest.start(node.name)
        time.sleep(rng.uniform(0.2, 3.0))
        self._kill(nest, pid, "after a while")

    def _in_a_write(self, nest: Nest, rng: Random, node: SimNode) -> None:
        """While the ledger is written to, by this driver or by that of another node."""
        pid = nest.start(node.name)
        for _ in range(rng.randint(1, 6)):
            self._await_change(self._written)
        self._kill(nest, pid, "in a write")

    def _after_an_act(self, nest: Nest, rng: Random, node: SimNode) -> None:
        """When the cloud has just begun or ended something with the node; its answer may be under way."""
        pid = nest.start(node.name)
        for _ in range(rng.randint(1, 2)):
            self._await_change(lambda: self._happened(node))
        time.sleep(rng.choice((0, 0, 0.01, 0.05)))
        self._kill(nest, pid, "after an act")

    def _rivals(self, nest: Nest, rng: Random, node: SimNode) -> None:
        """Two at the same time, and both are killed."""
        first, second = nest.start(node.name), nest.start(node.name)
        time.sleep(rng.uniform(0.1, 1.5))
        self._kill(nest, first, "of two")
        time.sleep(rng.uniform(0, 1.5))
        self._kill(nest, second, "of two")

    def _frozen(self, nest: Nest, rng: Random, node: SimNode) -> None:
        """One is frozen, another one takes over, and the first one thaws.

        It may hold the ledger itself: then nobody's restart is recorded, and none ends, before it thaws.
        """
        first = nest.start(node.name)
        if rng.random() < 0.5:
            self._await_change(lambda: self._happened(node))
        else:
            time.sleep(rng.uniform(0.1, 1.5))
        os.kill(first, signal.SIGSTOP)
        thaw = threading.Timer(FROZEN_SECONDS, os.kill, (first, signal.SIGCONT))
        thaw.start()
        status = nest.wait(nest.start(node.name), END_SECONDS)
        if status not in (ENDED, OVERTAKEN, NO_LEDGER):  # the frozen one may hold the ledger itself
            self._fault(f"{node.name}: a driver ended with status {status} beside a frozen one.")
        thaw.cancel()
        os.kill(first, signal.SIGCONT)
        self._count("frozen")
        status = nest.wait(first, END_SECONDS)
        if status == OVERTAKEN:
            self._count("overtaken while frozen")
        elif status not in (ENDED, NO_LEDGER):
            self._fault(f"{node.name}: a driver that was frozen ended with status {status}.")

    def _kill(self, nest: Nest, pid: int, moment: str) -> None:
        status = nest.kill(pid)
        if status not in (-signal.SIGKILL, ENDED, OVERTAKEN, NO_LEDGER):
            self._fault(f"A driver ended by itself with status {status}; see its log.")
        if status == -signal.SIGKILL:
            with self._lock:
                self._tally.counts[KILLS] += 1
                self._tally.counts[f"kills {moment}"] += 1

    # -- looking

    def _written(self) -> tuple[int, bool]:
        path = self._ledger.path
        return path.stat().st_mtime_ns, path.with_name(f"{path.name}-journal").exists()

    def _happened(self, node: SimNode) -> tuple[int | str, str, int]:
        return node.state, node.operation, node.boots

    def _await_change(self, look: Callable[[], object]) -> None:
        """Look without a pause until something else is seen, or MOMENT_SECONDS are over."""
        before, deadline = look(), time.monotonic() + MOMENT_SECONDS
        while look() == before and time.monotonic() < deadline:
            time.sleep(0.0005)

    def _record(self, node: SimNode) -> RestartRecord:
        stored = self._patiently(lambda: self._ledger.read(target(node.name)))
        if stored is None:
            raise LookupError(f"the record of {node.name} is gone")
        return stored.record

    def _ended(self, node: SimNode) -> bool:
        return not self._record(node).open

    def _patiently(self, do: Callable[[], _T]) -> _T:
        """A frozen driver may hold the ledger for as long as another one waits beside it."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            try:
                return do()
            except LedgerError:  # noqa: PERF203 (it is the loop's purpose)
                if time.monotonic() > deadline:
                    raise

    # -- counting

    def _enough(self) -> bool:
        with self._lock:
            return bool(self._tally.faults) or self._tally.counts[KILLS] >= self._kills

    def _count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self._tally.counts[what] += number

    def _fault(self, sentence: str) -> None:
        with self._lock:
            self._tally.faults.append(sentence)


def _request(node: SimNode, now: float) -> RestartRecord:
    return RestartRecord(
        target=target(node.name),
        action=Action.RESTART_NODE,
        phase=Phase.REQUESTED,
        cause="operator",
        reason="It hangs.",
        evidence=(),
        actor="chaos",
        requested=now,
        entered=now,
    )


def main() -> int:
    """0 when every node came back and none was stopped twice; else 1, after an account of what was."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.chaos.restarts", description="Kill drivers of restarts."
    )
    parser.add_argument("--kills", type=int, default=500, help="how often, at least (default 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and of the faults (default 1)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this directory and leave it behind")
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tpuwatch-restarts-") as scratch:
        tally = RestartChaos(args.keep or Path(scratch), kills=args.kills, seed=args.seed).run()
    moments = sorted(name for name in tally.counts if name.startswith("kills ") and name != KILLS)
    status = tally.end({name: tally.counts[name] for name in (*moments, *ROWS)}, began)
    if tally.faults:
        print(f"Again: python -m tests.proof.chaos.restarts --kills {args.kills} --seed {args.seed} --keep DIR")
    return status


if __name__ == "__main__":
    sys.exit(main())
