"""`python -m tests.proof.chaos.commands`: kills operators' commands and daemons in the middle of restarts.

The commands are `tpuwatch restart NODE --yes` and `tpuwatch run`, as people start them. The Cloud TPU API is the second
stand-in (tests/standins/tpu_api.py), which shares nothing with the simulator. It loses answers, hangs, is late, refuses
calls, finds no capacity, forgets operations and shows what was; other clients stop, start, reset and recreate nodes. In
the end every node runs, unless another client stopped it last; for each record there was one stop at most, with the
record on the disk before it; and ledger and audits agree (command_audit.py).

It finds what chance brings about. A stop that is called again at once after a lost answer comes up within some hundred
kills. One that is called again because the operations could not be listed mostly does not: that takes a lost answer,
another client's start and a list that fails, within a minute, and no driver that looks in between. The model tries
every order of these (tests/proof/model, "takes no list for an empty one"), and the workflow's own tests have the case.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.proof.chaos.command_audit import CommandAudit, patiently, target, wait_until
from tests.proof.chaos.command_nest import OPERATOR, PARENT, Job
from tests.proof.chaos.common import Tally
from tests.proof.chaos.nest import Nest
from tests.standins.buckets import BUCKET
from tests.standins.storage import StorageServer
from tests.standins.tpu_api import Fault, TpuApi
from tests.standins.tpu_nodes import Durations, RefusalError
from tpuwatch.config.load import load_config
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import ENDED, Phase, RestartRecord
from tpuwatch.model.verdict import Action
from tpuwatch.restart.ledger.opening import open_ledger
from tpuwatch.sim.cloud.faults import InjectedFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPEED: Final = 20.0
NODES: Final = ("train-1", "train-2", "train-3", "train-4", "train-5")  # restarted at the same time
SLICE: Final = "slice-1"  # of four hosts: its queued resource is reset
DAEMONS: Final = ("watcher-1", "watcher-2")
KILLS_PER_RESTART: Final = 4  # then it is left alone
END_SECONDS: Final = 120.0  # of real time, for a restart that is left alone
MOMENT_SECONDS: Final = 2.0  # a moment that does not come is given up
LIFE_SECONDS: Final = (0.5, 5.0)  # of a daemon, by real time
REQUESTED: Final = 0.35  # share of the restarts that the node's own daemon requests; the others are operators'
MEDDLED: Final = 0.3  # share of the restarts in which another client meddles
KILLED, UNHARMED = -9, (0, 1, 3)  # exit statuses; 3: the API or the ledger did not answer
MOST_FAULTS: Final = 20  # then it is enough
KILLS: Final = "kills in all"
ROWS: Final = (
    KILLS,
    "restarts",
    *sorted(phase.value for phase in ENDED),
    *("stops", "stops that failed", "resets", "resets that failed", "starts", "starts that failed", "by others"),
    "calls with a fault",
)
_CALL: Final = {
    Fault.SLOW: 0.10,
    Fault.LOST: 0.14,
    Fault.UNHEARD: 0.07,
    Fault.HANGS: 0.08,
    Fault.BLACK_HOLE: 0.05,
    Fault.LATE: 0.14,
    Fault.QUOTA: 0.05,
    Fault.FAILS: 0.10,
    Fault.VANISHES: 0.07,
}
# So short that a stop which is late may come when the node runs again: then its state does not keep it off.
DURATIONS: Final = Durations(stop=10.0, start=15.0, reset=15.0, delete=5.0, create=15.0, check=3.0, least=0.1)
_LOOK: Final = {Fault.STALE: 0.15, Fault.UNHEARD: 0.03, Fault.SLOW: 0.02, Fault.BLACK_HOLE: 0.01}
SHARES: Final = {
    "StopNode": _CALL,
    "ResetQueuedResource": _CALL,
    "StartNode": {**_CALL, Fault.STOCKOUT: 0.1},
    "GetNode": _LOOK,
    "ListNodes": {**_LOOK, Fault.PART: 0.05},
    "ListOperations": _LOOK,
}
STORAGE: Final = (
    InjectedFault("InsertObject", code="UNAVAILABLE", share=0.04),
    InjectedFault("InsertObject", code="UNAVAILABLE", after_work=True, share=0.04),
    InjectedFault("InsertObject", drop=("answer",), after_work=True, share=0.04),
    InjectedFault("GetObject", code="UNAVAILABLE", share=0.03),
    InjectedFault("GetObject", drop=("answer",), share=0.02),
)


class CommandChaos:
    """One run. The same seed picks the same moments and faults, as far as the machine's time allows."""

    def __init__(self, root: Path, *, kills: int, seed: int, bucket: bool = False) -> None:
        """`bucket`: the ledger is in a bucket, which fails now and then; else it is a file."""
        self._root = root
        self._kills = kills
        self._seed = seed
        self._bucket = bucket
        self._tally = Tally()
        self._over = threading.Event()

    def run(self) -> Tally:
        """Do it all; 30 kills take some 20 seconds."""
        job = Job(time.time(), time.monotonic(), SPEED, str(self._root), "")
        self._api = TpuApi(job.time, speed=SPEED, seed=self._seed, shares=SHARES, durations=DURATIONS)
        (self._root / "logs").mkdir()
        with ExitStack() as stack:
            stack.enter_context(self._api.running())
            job = replace(job, cloud=self._api.address)
            if self._bucket:
                job = replace(job, storage=stack.enter_context(_storage(job)), bucket=BUCKET)
            for machine in (OPERATOR, *DAEMONS):
                job.write(machine)
            self._job = job
            self._ledger = open_ledger(load_config(job.config(OPERATOR), {}), job)
            self._audit = CommandAudit(self._api, self._ledger, self._root, self._tally)
            self._live()
            self._audit.end()
        return self._tally

    def _live(self) -> None:
        lanes = [threading.Thread(target=self._guarded, args=(self._lane, node)) for node in (*NODES, SLICE)]
        daemons = [threading.Thread(target=self._guarded, args=(self._daemon, name)) for name in DAEMONS]
        for thread in (*daemons, *lanes):
            thread.start()
        for thread in lanes:
            thread.join()
        self._over.set()
        for thread in daemons:
            thread.join()

    def _guarded(self, live: Callable[[str], None], name: str) -> None:
        try:
            live(name)
        except Exception as error:  # noqa: BLE001 (a thread that ends by itself is a fault, of whatever kind)
            self._audit.fault(f"{name} ended by itself: {error!r}")

    def _daemon(self, name: str) -> None:
        """Start it and kill it, over and over; in the end it is left alone until all is over."""
        rng = Random(f"daemon {self._seed} {name}")
        with self._nest(name) as nest:
            while not self._over.is_set():
                pid = nest.start(f"run={name}")
                self._over.wait(None if self._is_enough() else rng.uniform(*LIFE_SECONDS))
                self._kill(nest, pid, "of daemons")

    # -- restarts, one after the other

    def _lane(self, node: str) -> None:
        rng = Random(f"lane {self._seed} {node}")
        if node == SLICE:
            self._api.nodes.add(f"{PARENT}/nodes/{node}", hosts=4, queue=f"{PARENT}/queuedResources/{node}")
        else:
            self._api.nodes.add(f"{PARENT}/nodes/{node}")
        with self._nest(node) as nest:
            while not self._is_enough():
                self._restart(nest, rng, node)

    def _restart(self, nest: Nest, rng: Random, node: str) -> None:
        """The node hangs, and commands are killed until its restart has ended."""
        audit = self._audit
        boots, events, before = audit.boots(node), audit.events, audit.requested(node)
        self._api.nodes.hang(f"{PARENT}/nodes/{node}")
        if requested := rng.random() < REQUESTED:
            self._request(node)
        turns = rng.randint(1, KILLS_PER_RESTART)
        meddling = rng.randrange(turns) if rng.random() < MEDDLED else -1
        ways = (self._at_once, self._after_a_while, self._after_an_act, self._of_two)
        for turn in range(turns):
            if audit.has_ended(node, before):
                break
            if turn == meddling:
                self._meddle(rng, node)
            if requested and rng.random() < 0.7:
                wait_until(lambda: audit.has_ended(node, before), MOMENT_SECONDS)  # the daemons are at it
            else:
                rng.choice(ways)(nest, rng, node)
        deadline = time.monotonic() + END_SECONDS
        while not audit.has_ended(node, before) and time.monotonic() < deadline:
            status = nest.wait(nest.start(f"restart={node}"), END_SECONDS)
            if status not in UNHARMED:
                audit.fault(f"{node}: an operator's command that was left alone ended with status {status}.")
                return
        if audit.judge(node, boots=boots, events=events, before=before):
            self._api.nodes.start(f"{PARENT}/nodes/{node}", "another")
            wait_until(lambda: audit.state(node) == "READY", END_SECONDS)

    def _request(self, node: str) -> None:
        """Ask for a restart as the daemon on the node does: by two signals, of which the watchers see one."""
        now = self._job.time()
        stored = patiently(lambda: self._ledger.read(target(node)))
        record = RestartRecord(
            target=target(node),
            action=Action.RESET_QUEUED_RESOURCE if node == SLICE else Action.RESTART_NODE,
            phase=Phase.REQUESTED,
            cause="node_stuck",
            reason="The node hangs.",
            evidence=("cloud: it is unresponsive", "runtime: it does not answer"),
            actor=f"tpuwatch@{node}",
            requested=now,
            entered=now,
            signals=("cloud", "runtime"),
            history=stored.record.history if stored else (),
            foreign=(*stored.record.foreign, *stored.record.operations) if stored else (),
        )
        with contextlib.suppress(LedgerError):  # it is left to operators, then
            self._ledger.write(record, stored.version if stored else 0)

    def _meddle(self, rng: Random, node: str) -> None:
        """Another client does something that the node's state allows."""
        nodes, path = self._api.nodes, f"{PARENT}/nodes/{node}"
        acts = [
            lambda: nodes.stop(path, "another"),
            lambda: nodes.start(path, "another"),
            lambda: nodes.reset(f"{PARENT}/queuedResources/{node}", "another"),
            lambda: nodes.recreate(path, "another"),
        ]
        rng.shuffle(acts)
        for act in acts:
            with contextlib.suppress(RefusalError):
                act()
                return

    # -- killing

    def _at_once(self, nest: Nest, rng: Random, node: str) -> None:
        pid = nest.start(f"restart={node}")
        time.sleep(rng.uniform(0, 0.6))
        self._kill(nest, pid, "at the start")

    def _after_a_while(self, nest: Nest, rng: Random, node: str) -> None:
        pid = nest.start(f"restart={node}")
        time.sleep(rng.uniform(0.3, 4.0))
        self._kill(nest, pid, "after a while")

    def _after_an_act(self, nest: Nest, rng: Random, node: str) -> None:
        """When a call has just come, or its effect has just shown; its answer may be under way."""
        audit, pid = self._audit, nest.start(f"restart={node}")
        state, downs = audit.state(node), audit.downs
        wait_until(lambda: audit.state(node) != state or audit.downs > downs, MOMENT_SECONDS)
        time.sleep(rng.choice((0, 0, 0.01, 0.05)))
        self._kill(nest, pid, "after an act")

    def _of_two(self, nest: Nest, rng: Random, node: str) -> None:
        first, second = nest.start(f"restart={node}"), nest.start(f"restart={node}")
        time.sleep(rng.uniform(0.1, 2.0))
        self._kill(nest, first, "of two")
        time.sleep(rng.uniform(0, 2.0))
        self._kill(nest, second, "of two")

    def _kill(self, nest: Nest, pid: int, moment: str) -> None:
        status = nest.kill(pid)
        if status == KILLED:
            self._audit.count(KILLS)
            self._audit.count(f"kills {moment}")
        elif status not in UNHARMED:
            self._audit.fault(f"A command ended by itself with status {status}; see its log.")

    def _is_enough(self) -> bool:
        return self._tally.counts[KILLS] >= self._kills or len(self._tally.faults) >= MOST_FAULTS

    @contextmanager
    def _nest(self, name: str) -> Iterator[Nest]:
        nest = Nest("tests.proof.chaos.command_nest", self._job.text(), self._root / f"{name}.log")
        try:
            yield nest
        finally:
            nest.close()


@contextmanager
def _storage(job: Job) -> Iterator[str]:
    """The address of a Cloud Storage that fails now and then."""
    server = StorageServer(job, write_seconds=1.0)
    for fault in STORAGE:
        server.faults.set(fault)
    server.start()
    try:
        yield server.address
    finally:
        server.close()


def main() -> int:
    """0 when all of it held; else 1, after an account of what was."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.chaos.commands", description="Kill commands that restart nodes."
    )
    parser.add_argument("--kills", type=int, default=500, help="how often, at least (default 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and of the faults (default 1)")
    parser.add_argument("--ledger", choices=("sqlite", "gcs"), help="by default half of the kills with each")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this directory and leave it behind")
    args = parser.parse_args()
    began, tally = time.monotonic(), Tally()
    kinds = (args.ledger,) if args.ledger else ("sqlite", "gcs")
    with tempfile.TemporaryDirectory(prefix="tpuwatch-commands-") as scratch:
        for kind in kinds:
            root = (args.keep or Path(scratch)) / kind
            root.mkdir(parents=True)
            kills = -(-args.kills // len(kinds))
            part = CommandChaos(root, kills=kills, seed=args.seed, bucket=kind == "gcs").run()
            tally.counts += part.counts
            tally.faults += [f"{kind}: {fault}" for fault in part.faults]
    moments = sorted(name for name in tally.counts if name.startswith("kills ") and name != KILLS)
    status = tally.end({name: tally.counts[name] for name in (*moments, *ROWS)}, began)
    if tally.faults:
        print(f"Again: python -m tests.proof.chaos.commands --kills {args.kills} --seed {args.seed} --keep DIR")
    return status


if __name__ == "__main__":
    sys.exit(main())
