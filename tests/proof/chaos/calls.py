"""`python -m tests.proof.chaos.calls`: a fault of the Cloud TPU API at every call of a restart, one restart for each.

The driver, its client and its ledger are the real ones, the API is the simulated cloud; time passes only while the
driver waits. A rehearsal without faults counts the calls. Then the first call is struck, then the second, and so on, by
each kind of fault: errors, lost answers, black holes, answers that are old. After that come operations that never end,
are lost, or find no capacity. The signal is the simulated cloud's own log.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tests.proof.chaos.common import CloudServer, Tally
from tpuwatch.config import schema
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.restart import Phase, RestartRecord, Target
from tpuwatch.model.verdict import Action
from tpuwatch.restart.cloud_api import CloudNodeApi
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.restart.workflow.types import ApiCall, PhaseLimits, PresentEvidence, Within
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import Timing, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.restart.ledger.base import Ledger
    from tpuwatch.restart.workflow.types import CallAnswer, NodeObservation

PROJECT, ZONE = "lab", "us-east5-a"
CALL_SECONDS: Final = 30.0  # by real time: no call takes so long, however busy the machine is
HASTY_SECONDS: Final = 0.1  # where one is struck by a black hole: what that costs
TIMING: Final = Timing(stop=4, start=6, reset=6, timeout=1)
HUNG_SECONDS: Final = 5.0  # before its restart is asked for: the API knows by then
LIMITS: Final = PhaseLimits(stop_seconds=300, start_seconds=600, settle_seconds=20, wait_seconds=1800, poll_seconds=10)
ANSWERS: Final = PresentEvidence(within=Within.ANSWERS, heard="its own tpuwatch answers")
LONG_SECONDS: Final = 2 * 3600.0  # of simulated time: how long there is no capacity
PATIENCE: Final = 2.0  # times as long, and a restart is broken off, for it would wait for ever
LOOKS: Final = ("GetNode", "ListOperations")
METHODS: Final = {ApiCall.STOP: "StopNode", ApiCall.START: "StartNode", ApiCall.RESET: "ResetQueuedResource"}
KINDS: Final = {
    "unavailable": InjectedFault(code="UNAVAILABLE"),
    "internal error": InjectedFault(code="INTERNAL"),
    "quota": InjectedFault(code="RESOURCE_EXHAUSTED", retry_after_seconds=30.0),
    "denied": InjectedFault(code="PERMISSION_DENIED"),
    "lost answer": InjectedFault(code="UNAVAILABLE", after_work=True),
    "black hole": InjectedFault(black_hole=True),
    "black hole after work": InjectedFault(black_hole=True, after_work=True),
    "old answer": InjectedFault(stale_seconds=25.0),
}


@dataclass
class CallTally(Tally):
    """What came of it, by the kind of fault."""

    rows: dict[str, Counter[str]] = field(default_factory=dict)


@dataclass
class Struck:
    """The API, whose call number `at` is struck by a fault."""

    api: CloudNodeApi
    world: World
    fault: InjectedFault | None = None
    at: int = -1
    seen: list[str] = field(default_factory=list)  # the methods that were called, or would have been

    def look(self, target: Target, *, since: float | None) -> NodeObservation:
        """As a CloudNodeApi does."""
        for method in LOOKS if since is not None else LOOKS[:1]:
            self._about_to(method)
        sight = self.api.look(target, since=since)
        self._over()
        return sight

    def call(self, call: ApiCall, target: Target, queued_resource: str) -> CallAnswer:
        """As a CloudNodeApi does."""
        self._about_to(METHODS[call])
        answer = self.api.call(call, target, queued_resource)
        self._over()
        return answer

    def close(self) -> None:
        """The API is used again."""

    def _about_to(self, method: str) -> None:
        if len(self.seen) == self.at and self.fault is not None:
            self.world.faults.set(replace(self.fault, method=method, times=1))
        self.seen.append(method)

    def _over(self) -> None:
        if self.fault is not None:
            self.world.faults.clear()


class Calls:
    """All restarts, one after the other, each of a node of its own."""

    def __init__(self, root: Path, *, every: int = 1, long_seconds: float = LONG_SECONDS) -> None:
        """`every`: how many calls from one that is struck to the next. `long_seconds`: of what lasts, simulated."""
        self._every = every
        self._long_seconds = long_seconds
        self._clock = ManualClock()
        self._world = World(self._clock, rng=Random(1))
        self._world.timing = TIMING
        self._ledger: Ledger = SqliteLedger(root, self._clock)
        self._tally = CallTally()
        self._count = 0

    def run(self) -> CallTally:
        """Do it all."""
        server = CloudServer(self._world)
        self._api, self._hasty = (self._client(server, seconds) for seconds in (CALL_SECONDS, HASTY_SECONDS))
        try:
            for hosts in (1, 4):
                self._sweep(hosts)
            self._operations()
        finally:
            self._api.close()
            self._hasty.close()
            server.stop()
        return self._tally

    def _client(self, server: CloudServer, seconds: float) -> CloudNodeApi:
        config = schema.CloudConfig(endpoint=server.address, insecure=True, timeout_seconds=seconds)
        return CloudNodeApi(config, clock=self._clock)

    # -- every call

    def _sweep(self, hosts: int) -> None:
        rehearsal = Struck(self._api, self._world)
        self._one("no fault", hosts, rehearsal)
        for kind, fault in KINDS.items():
            for at in range(0, len(rehearsal.seen), self._every):
                if fault.stale_seconds and rehearsal.seen[at] not in LOOKS:
                    continue
                api = self._hasty if fault.black_hole else self._api
                self._one(kind, hosts, Struck(api, self._world, fault, at))

    def _one(self, kind: str, hosts: int, api: Struck) -> None:
        node, record = self._driven(hosts, api)
        where = f"{kind} at call {api.at + 1} ({api.seen[api.at] if 0 <= api.at < len(api.seen) else 'none'})"
        self._judge(kind, f"{where}, {hosts} host(s)", node, record)

    # -- operations

    def _operations(self) -> None:
        for name, prepare, expected in self._troubles():
            for hosts, call in ((1, ApiCall.STOP), (1, ApiCall.START), (4, ApiCall.RESET)):
                self._world.faults.clear()
                steps = prepare(call)
                node, record = self._driven(hosts, Struck(self._api, self._world), steps)
                self._world.faults.clear()
                self._world.capacity.clear()
                self._judge(f"{name}", f"{name}: {call.value}", node, record, expected)

    def _troubles(self) -> Iterator[tuple[str, Callable[[ApiCall], Callable[[SimNode], None]], Phase | None]]:
        """Names, what is prepared for a call, and the phase that is expected where it cannot end: None is any end."""

        def never(call: ApiCall) -> Callable[[SimNode], None]:
            self._world.faults.set(InjectedFault(f"{METHODS[call]}Operation", black_hole=True))
            return lambda _: None

        def fails(call: ApiCall) -> Callable[[SimNode], None]:
            self._world.faults.set(InjectedFault(f"{METHODS[call]}Operation", code="INTERNAL", times=1))
            return lambda _: None

        def stockout(_: ApiCall) -> Callable[[SimNode], None]:
            self._world.capacity[ZONE] = 0
            until = self._clock.time() + self._long_seconds

            def over(_: SimNode) -> None:
                if self._clock.time() >= until:
                    self._world.capacity.pop(ZONE, None)

            return over

        def lost(call: ApiCall) -> Callable[[SimNode], None]:
            return _Losing(self._world, call)

        yield "operation fails", fails, None
        yield "operation is lost", lost, None
        yield "no capacity for long", stockout, None
        yield "operation never ends", never, Phase.STOPPING

    # -- one restart

    def _driven(
        self, hosts: int, api: Struck, step: Callable[[SimNode], None] = lambda _: None
    ) -> tuple[SimNode, RestartRecord]:
        self._count += 1
        name = f"train-{self._count}"
        self._world.operations.clear()
        node = self._world.add(
            SimNode(PROJECT, ZONE, name, hosts=hosts, queued_resource=f"queue-{self._count}" if hosts > 1 else "")
        )
        self._world.hang(node)
        self._clock.advance(HUNG_SECONDS)
        self._world.advance()
        target, now = Target(PROJECT, ZONE, name), self._clock.time()
        action = Action.RESTART_NODE if hosts == 1 else Action.RESET_QUEUED_RESOURCE
        self._ledger.write(RestartRecord(target, action, Phase.REQUESTED, "operator", "It hangs.", (), "chaos", now), 0)
        began = self._clock.monotonic()

        def wait(seconds: float) -> bool:
            self._clock.advance(max(seconds, 0.001))
            self._world.advance()
            step(node)
            return self._clock.monotonic() - began > PATIENCE * self._long_seconds

        record = Driver(
            self._ledger, target, api=api, clock=self._clock, wait=wait, limits=LIMITS, judge_again=lambda _: ANSWERS
        ).drive()
        return node, record

    def _judge(
        self, kind: str, where: str, node: SimNode, record: RestartRecord, expected: Phase | None = None
    ) -> None:
        story = [one.what for one in self._world.history if one.node == node.path]
        downs, row = story.count("stop") + story.count("reset"), self._tally.rows.setdefault(kind, Counter())
        row["restarts"] += 1
        row[record.phase.value if not record.open else "waits, and says so"] += 1
        if expected is not None:  # the service itself is stuck: it is waited for, loudly, and nothing is called
            right = record.open and bool(record.note) and downs == 1
        elif record.phase is Phase.DONE:
            right = node.state == "READY" and downs == 1 and node.boots == 2
        else:
            right = node.state == "READY" and downs <= 1 and record.phase is Phase.FAILED
        if not right:
            self._tally.faults.append(f"{where}: {record.phase.value}, {node.state}: {record.note} {story}")
        del self._world.nodes[node.path]


class _Losing:
    """Makes the first operation of a kind vanish, without having done anything."""

    def __init__(self, world: World, call: ApiCall) -> None:
        self._world, self._call = world, call
        self._lost = False

    def __call__(self, node: SimNode) -> None:
        during = {ApiCall.STOP: "STOPPING", ApiCall.START: "STARTING", ApiCall.RESET: "RESTARTING"}
        if self._lost or node.state != during[self._call]:
            return
        self._lost = True
        self._world.operations.pop(node.operation, None)
        node.operation = ""
        node.state, node.health = ("STOPPED", "") if self._call is ApiCall.START else ("READY", "TIMEOUT")


def table(tally: CallTally) -> str:
    """What was done, for people."""
    columns = list(dict.fromkeys(key for row in tally.rows.values() for key in row))
    lines = [f"{'':<28}" + "".join(f"{column:>20}" for column in columns)]
    lines += [f"{kind:<28}" + "".join(f"{row[one] or '':>20}" for one in columns) for kind, row in tally.rows.items()]
    return "\n".join(lines)


def main() -> int:
    """0 when the rules held; else 1, after an account of what was."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.chaos.calls", description="Let every call of a restart fail."
    )
    parser.add_argument("--every", type=int, default=1, help="how many calls from one that is struck to the next")
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tpuwatch-calls-") as scratch:
        tally = Calls(Path(scratch), every=args.every).run()
    print(table(tally))
    return tally.end({}, began)


if __name__ == "__main__":
    sys.exit(main())
