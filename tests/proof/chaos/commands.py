"""`python -m tests.proof.chaos.commands`: kills operators' commands and daemons in the middle of restarts.

The commands are `tpuwatch restart NODE --yes` and `tpuwatch run`, as people start them. The Cloud TPU API is the second
stand-in (tests/standins/tpu_api.py), which shares nothing with the simulator. It loses answers, hangs, is late, refuses
calls, finds no capacity, forgets operations and shows what was; other clients stop, start, reset and recreate nodes. In
the end every node runs, unless another client stopped it last; for each record there was one stop at most, with the
record on the disk before it; no node was taken down that could be seen to be well; and ledger and audits agree
(command_audit.py). With `--beyond` the weather is worse than tpuwatch assumes (command_weather.py).

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
from typing import TYPE_CHECKING, Final, TypeVar

from tests.proof.chaos.command_audit import CommandAudit, patiently, target, wait_until
from tests.proof.chaos.command_nest import BESIDE, NODES, OPERATOR, PARENT, QUIET, SLICE, Job
from tests.proof.chaos.command_peers import NodePeers
from tests.proof.chaos.command_weather import ASSUMED, BEYOND, Troubles, Weather
from tests.proof.chaos.common import Tally
from tests.proof.chaos.nest import Nest
from tests.standins.buckets import BUCKET
from tests.standins.storage import StorageServer
from tests.standins.tpu_api import TpuApi
from tests.standins.tpu_nodes import Durations, RefusalError
from tpuwatch.config.load import load_config
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import ENDED, Phase, RestartRecord
from tpuwatch.model.verdict import Action
from tpuwatch.restart.ledger.opening import open_ledger
from tpuwatch.sim.serving import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_S = TypeVar("_S", bound=LocalServer)

SPEED: Final = 20.0
DAEMONS: Final = ("watcher-1", "watcher-2")
KILLS_PER_RESTART: Final = 4  # then it is left alone
FOUL_SECONDS: Final = 15.0  # of real time, for a restart that is left alone; then nothing goes wrong with its node
END_SECONDS: Final = 120.0  # and for so long more
MOMENT_SECONDS: Final = 2.0  # a moment that does not come is given up
LEFT_SECONDS: Final = 4.0  # for so long a restart is left to the daemons at once
LIFE_SECONDS: Final = (0.5, 8.0)  # of a daemon, by real time
REQUESTED: Final = 0.35  # share of the restarts that the node's own daemon requests
NAMED: Final = 0.8  # share of the operators' commands on a slice that name its reset
WELL_SECONDS: Final = (1.0, 6.0)  # until a node that gets well by itself does, if nothing was called by then
MEDDLED: Final = 0.3  # share of the restarts in which another client meddles
# Exit statuses; 2: an operator did not name the reset of a slice; 3: the API or the ledger did not answer.
KILLED, UNHARMED = -9, (0, 1, 2, 3)
MOST_FAULTS: Final = 20  # then it is enough
KILLS: Final = "kills in all"
ROWS: Final = (
    KILLS,
    "restarts",
    *sorted(phase.value for phase in ENDED),
    *("stops", "stops that failed", "resets", "resets that failed", "starts", "starts that failed", "by others"),
    "calls with a fault",
    *("by policy", "well at a call", "taken down, and well unseen"),
)
# So short that a stop which is late may come when the node runs again: then its state does not keep it off.
DURATIONS: Final = Durations(stop=10.0, start=15.0, reset=15.0, delete=5.0, create=15.0, check=3.0, least=0.1)


class CommandChaos:
    """One run. The same seed picks the same moments and faults, as far as the machine's time allows."""

    def __init__(self, root: Path, *, kills: int, seed: int, bucket: bool = False, weather: Weather = ASSUMED) -> None:
        """`bucket`: the ledger is in a bucket, which fails now and then; else it is a file."""
        self._root = root
        self._weather = weather
        self._kills = kills
        self._seed = seed
        self._bucket = bucket
        self._tally = Tally()
        self._over = threading.Event()

    def run(self) -> Tally:
        """Do it all; 30 kills take some 20 seconds."""
        job = Job(time.time(), time.monotonic(), SPEED, str(self._root), "", "")
        self._api = api = TpuApi(
            job.time, speed=SPEED, seed=self._seed, shares=self._weather.shares, durations=DURATIONS
        )
        (self._root / "logs").mkdir()
        with ExitStack() as stack:
            stack.enter_context(api.running())
            peers = stack.enter_context(serving(NodePeers(api.nodes)))
            job = replace(job, cloud=api.address, peers=peers.address)
            storage = None
            if self._bucket:
                storage = StorageServer(job, write_seconds=1.0)
                for fault in self._weather.storage:
                    storage.faults.set(fault)
                job = replace(job, storage=stack.enter_context(serving(storage)).address, bucket=BUCKET)
            for machine in (OPERATOR, *DAEMONS):
                job.write(machine)
            self._job = job
            self._ledger = open_ledger(load_config(job.config(OPERATOR), {}), job)
            self._audit = CommandAudit(api, self._ledger, self._root, self._tally)
            self._troubles = Troubles(api, peers, storage, self._audit, self._seed, self._weather)
            api.on_change, api.is_spared = self._troubles.before_a_change, self._troubles.is_spared
            self._live()
            self._audit.end(strict=self._weather is ASSUMED)
        return self._tally

    def _live(self) -> None:
        for node in (*NODES, QUIET):
            self._api.nodes.add(f"{PARENT}/nodes/{node}")
        for node in (SLICE, BESIDE):
            self._api.nodes.add(f"{PARENT}/nodes/{node}", hosts=4, queue=f"{PARENT}/queuedResources/{SLICE}")
        lanes = [threading.Thread(target=self._guarded, args=(self._lane, node)) for node in (*NODES, SLICE)]
        daemons = [threading.Thread(target=self._guarded, args=(self._daemon, name)) for name in DAEMONS]
        daemons += [
            threading.Thread(target=self._guarded, args=(lambda _, live=live: live(self._over), live.__name__))
            for live in self._troubles.lives()
        ]
        for thread in (*daemons, *lanes):
            thread.start()
        for thread in lanes:
            thread.join()
        self._troubles.is_over = True
        wait_until(lambda: not any(map(self._audit.is_open, (*NODES, SLICE, QUIET))), END_SECONDS)
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
        with self._nest(node) as nest:
            while not self._is_enough():
                self._restart(nest, rng, node)

    def _restart(self, nest: Nest, rng: Random, node: str) -> None:
        """The node hangs, and commands and daemons are killed until its restart has ended."""
        audit = self._audit
        boots, events, before = audit.boots(node), audit.events, audit.requested(node)
        self._troubles.spared.discard(node)
        self._api.nodes.hang(f"{PARENT}/nodes/{node}")
        if node == SLICE:
            audit.is_reset_named = False
            if rng.random() < self._weather.both:
                self._api.nodes.hang(f"{PARENT}/nodes/{BESIDE}")
        if rng.random() < self._weather.healed:
            self._heal(rng, node)
        else:
            self._repair(nest, rng, node, before)
        if audit.has_begun(node, before):
            left = audit.judge(node, boots=boots, events=events, before=before, strict=self._weather is ASSUMED)
            if left or audit.state(node) == "STOPPED":
                self._api.nodes.start(f"{PARENT}/nodes/{node}", "another")
                wait_until(lambda: audit.state(node) == "READY", END_SECONDS)

    def _heal(self, rng: Random, node: str) -> None:
        """It gets well by itself, at some moment between the decision to restart it and the call."""
        audit, boots = self._audit, self._audit.boots(node)
        if rng.random() < 0.6:
            self._troubles.heal_when_called(node)
        wait_until(lambda: self._troubles.is_well(node) or audit.boots(node) > boots, rng.uniform(*WELL_SECONDS))
        self._troubles.heal(node)
        self._leave(node, lambda: not audit.is_open(node))

    def _repair(self, nest: Nest, rng: Random, node: str, before: float) -> None:
        """Commands are killed, and what is left is left to one that is not."""
        audit = self._audit
        if requested := rng.random() < REQUESTED:
            self._request(node)
        turns = rng.randint(1, KILLS_PER_RESTART)
        meddling = rng.randrange(turns) if rng.random() < MEDDLED else -1
        ways = (self._at_once, self._after_a_while, self._after_an_act, self._of_two)
        for turn in range(turns):
            if audit.has_ended(node, before):
                return
            if turn == meddling:
                self._meddle(rng, node)
            if rng.random() < (0.7 if requested else self._weather.left):
                wait_until(lambda: audit.has_ended(node, before), LEFT_SECONDS)  # the daemons are at it
            else:
                rng.choice(ways)(nest, rng, node)
        spare = threading.Timer(FOUL_SECONDS, self._troubles.spared.add, (node,))
        spare.start()
        deadline = time.monotonic() + END_SECONDS
        while not audit.has_ended(node, before) and time.monotonic() < deadline:
            status = nest.wait(self._operator(nest, rng, node), END_SECONDS)
            if status not in UNHARMED:
                audit.fault(f"{node}: an operator's command that was left alone ended with status {status}.")
                break
        spare.cancel()

    def _leave(self, node: str, is_over: Callable[[], bool]) -> None:
        """What is driven is left alone; after a while nothing goes wrong with the node any more."""
        wait_until(is_over, FOUL_SECONDS)
        self._troubles.spared.add(node)
        wait_until(is_over, END_SECONDS)

    def _operator(self, nest: Nest, rng: Random, node: str) -> int:
        """Start an operator's command; its process number. Most name the reset of a slice."""
        if node == SLICE and rng.random() < NAMED:
            self._audit.is_reset_named = True
            return nest.start(f"reset={node}")
        return nest.start(f"restart={node}")

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
            sources=("cloud", "runtime"),
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
        pid = self._operator(nest, rng, node)
        time.sleep(rng.uniform(0, 0.6))
        self._kill(nest, pid, "at the start")

    def _after_a_while(self, nest: Nest, rng: Random, node: str) -> None:
        pid = self._operator(nest, rng, node)
        time.sleep(rng.uniform(0.3, 4.0))
        self._kill(nest, pid, "after a while")

    def _after_an_act(self, nest: Nest, rng: Random, node: str) -> None:
        """When a call has just come, or its effect has just shown; its answer may be under way."""
        audit, pid = self._audit, self._operator(nest, rng, node)
        state, downs = audit.state(node), audit.downs
        wait_until(lambda: audit.state(node) != state or audit.downs > downs, MOMENT_SECONDS)
        time.sleep(rng.choice((0, 0, 0.01, 0.05)))
        self._kill(nest, pid, "after an act")

    def _of_two(self, nest: Nest, rng: Random, node: str) -> None:
        first, second = self._operator(nest, rng, node), self._operator(nest, rng, node)
        time.sleep(rng.uniform(0.1, 2.0))
        self._kill(nest, first, "of two")
        time.sleep(rng.uniform(0, 2.0))
        self._kill(nest, second, "of two")

    def _kill(self, nest: Nest, pid: int, moment: str) -> None:
        with self._troubles.calm:
            status = nest.kill(pid)
        if status == KILLED:
            self._audit.count(KILLS)
            self._audit.count(f"kills {moment}")
            self._troubles.is_over |= self._weather is not ASSUMED and self._is_enough()
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
def serving(server: _S) -> Iterator[_S]:
    """The server, which serves meanwhile."""
    server.start()
    try:
        yield server
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
    parser.add_argument("--beyond", action="store_true", help="in a weather that is worse than tpuwatch assumes")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this directory and leave it behind")
    args = parser.parse_args()
    began, tally = time.monotonic(), Tally()
    kinds = (args.ledger,) if args.ledger else ("sqlite", "gcs")
    with tempfile.TemporaryDirectory(prefix="tpuwatch-commands-") as scratch:
        for kind in kinds:
            root = (args.keep or Path(scratch)) / kind
            root.mkdir(parents=True)
            kills = -(-args.kills // len(kinds))
            weather = BEYOND if args.beyond else ASSUMED
            part = CommandChaos(root, kills=kills, seed=args.seed, bucket=kind == "gcs", weather=weather).run()
            tally.counts += part.counts
            tally.faults += [f"{kind}: {fault}" for fault in part.faults]
    moments = sorted(name for name in tally.counts if name.startswith("kills ") and name != KILLS)
    status = tally.end({name: tally.counts[name] for name in (*moments, *ROWS)}, began)
    if tally.faults:
        beyond = " --beyond" if args.beyond else ""
        print(f"Again: python -m tests.proof.chaos.commands --kills {args.kills} --seed {args.seed}{beyond} --keep DIR")
    return status


if __name__ == "__main__":
    sys.exit(main())
