"""The soak: one trouble after the other, each for ten minutes, and all of them twice."""

from __future__ import annotations

import gc
import os
import random
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.proof.soak.driven import Driven, SoakError
from tests.proof.soak.stage import NODES, OTHERS, OWN, PROJECT, TAKEN, ZONE, Stage
from tests.proof.soak.troubles import GRACE_SECONDS, POLL_SECONDS, RUNTIME_POLL_SECONDS
from tpuwatch.config import Config
from tpuwatch.core.clock import ManualClock
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.signals import HERE
from tpuwatch.model.verdict import BAD, Verdict
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.proof.soak.troubles import Trouble

SECONDS: Final = 600.0  # of simulated time, for each trouble
ROUNDS: Final = 2  # what grows is seen by comparing the last with the first
WARM_UP_SECONDS: Final = 60.0
MAX_LISTS: Final = 120  # calls in ten minutes; without any faults it is some 42
# How much more the last round may have than the first: what the servers of the simulator happen to have open.
_MORE: Final = {"threads": 2.0, "descriptors": 4.0, "MiB": 4.0}
PATIENCE_SECONDS: Final = 10.0  # in all, of real time: threads of gRPC end by themselves after a while
_PAUSE_SECONDS: Final = 0.5  # between two looks at what is larger than it should be
_PAGE: Final = resource.getpagesize()


@dataclass(frozen=True, slots=True)
class Row:
    """How one trouble went."""

    round: int
    trouble: str
    others: str  # what train-2 was in the end
    own: str
    back_seconds: float  # of simulated time, until all was as before; and what was allowed
    within_seconds: float
    lists: int  # calls of ListNodes that the server saw meanwhile
    size: dict[str, float]  # after it

    @property
    def text(self) -> str:
        """A line of the table."""
        size = " ".join(f"{value:>9.0f}" for value in self.size.values())
        verdicts = f"{self.others:<14} {self.own:<14}"
        back = f"{self.back_seconds:>6.1f} {self.within_seconds:>4.0f} s"
        return f"{self.round} {self.trouble:<36} {verdicts} {back} {self.lists:>6} {size}"


HEADING: Final = (
    f"  {'trouble':<36} {'other nodes':<14} {'own node':<14} back in, of  lists   threads     files       MiB"
)


@dataclass(slots=True)
class Account:
    """What came of it."""

    faults: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    judgements: int = 0  # of nodes
    simulated_seconds: float = 0.0

    @property
    def summary(self) -> str:
        """One sentence."""
        hours = self.simulated_seconds / 3600
        faults = (
            f"{len(self.faults)} things are wrong" if self.faults else "no false verdict, all came back, nothing grew"
        )
        return f"{len(self.rows)} troubles, {hours:.1f} simulated hours, {self.judgements} judgements: {faults}."


class Soak:
    """One run. `seed` is of the moments of polls, `print_line` is called with each line of the table.

    What has grown is looked at again for `patience` seconds in all.
    """

    def __init__(
        self,
        scratch: Path,
        troubles: Sequence[Trouble],
        *,
        seconds: float = SECONDS,
        rounds: int = ROUNDS,
        seed: int = 1,
        patience: float = PATIENCE_SECONDS,
        print_line: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.account = Account()
        self._scratch = scratch
        self._troubles = troubles
        self._seconds = seconds
        self._rounds = rounds
        self._rng = random.Random(seed)
        self._patience = patience
        self._print_line = print_line
        self._clock = ManualClock(time.time())
        self._metrics = Metrics(loops=[], refusals=[])
        self._trouble: Trouble | None = None  # that there is now, and since when
        self._since = 0.0
        self._reported: set[str] = set()  # what was found to be wrong

    def run(self) -> Account:
        """Do all of it."""
        root = self._scratch / "machine"
        root.mkdir()
        self._store = EventStore.open(self._scratch / "store", self._clock)
        self._stage = Stage(self._clock, root)
        began = self._clock.monotonic()
        try:
            with self._stage.found():
                self._node = self._begin()
                try:
                    self._suffer_all()
                finally:
                    self._node.services.stop()
        except SoakError as error:
            self._fault(str(error))
        finally:
            self._stage.close()
            self._store.close()
        self.account.simulated_seconds = self._clock.monotonic() - began
        self._compare_sizes()
        return self.account

    def _suffer_all(self) -> None:
        self._node.run(WARM_UP_SECONDS, self._look)
        if not self._is_well():
            raise SoakError(f"before anything went wrong the nodes were {self._verdicts()}")
        self._print_line(HEADING)
        for number in range(1, self._rounds + 1):
            for trouble in self._troubles:
                self._suffer(number, trouble)

    def _begin(self) -> Driven:
        machine = self._stage.machine
        config = Config.model_validate(
            {
                "host": {"root": str(machine.root)},
                "cloud": {
                    "project": PROJECT,
                    "zone": ZONE,
                    "nodes": ["*"],
                    "endpoint": self._stage.cloud.address,
                    "insecure": True,
                    "poll_seconds": POLL_SECONDS,
                },
                "runtime": {"ports": list(self._stage.runtime.ports), "poll_seconds": RUNTIME_POLL_SECONDS},
                "monitoring": {"read": True, "endpoint": self._stage.cloud.address},
                "logs": {"compile_grace_seconds": GRACE_SECONDS},
            }
        )
        node = Driven(
            config,
            machine=machine,
            clock=self._clock,
            store=self._store,
            metrics=self._metrics,
            rng=self._rng,
        )
        self._metrics.daemon.set_loops(node.limits())
        return node

    def _suffer(self, number: int, trouble: Trouble) -> None:
        """One trouble, and what comes after it."""
        self._stage.world.calls.clear()
        self._trouble, self._since = trouble, self._clock.monotonic()
        with trouble.strikes(self._stage):
            if trouble.restarts_node_side:
                self._node.services.stop()
                self._check_turns(trouble)
                self._node = self._begin()
            self._node.expect(trouble.silent)
            self._node.run(self._seconds, self._look)
            verdicts, lists = self._verdicts(), self._stage.calls("ListNodes")
        self._node.expect(())
        back = self._recover(trouble)
        self._trouble = None
        self._check_end(trouble, verdicts, lists)
        self._metrics.exposition()
        own = verdicts.get(OWN if OWN in verdicts else HERE, "")
        size = self._settled(number)
        row = Row(number, trouble.name, verdicts.get(OTHERS[0], ""), own, back, trouble.within, lists, size)
        self.account.rows.append(row)
        self._print_line(row.text)

    def _recover(self, trouble: Trouble) -> float:
        """How long it takes until all is as before the trouble, in seconds."""
        over = self._clock.monotonic()
        limits = [(trouble.others_within, OTHERS), (trouble.own_within, (OWN,))]
        for within, nodes in sorted(limits):
            left = over + within - self._clock.monotonic()
            self._node.run(max(0.0, left), lambda nodes=nodes: self._look() or self._is_well(nodes))  # type: ignore[misc]
            if not self._is_well(nodes):
                self._fault(f"{within:g} s after it was over the nodes were {self._verdicts()}")
        return self._clock.monotonic() - over

    def _check_end(self, trouble: Trouble, verdicts: dict[str, str], lists: int) -> None:
        """That the trouble struck at all, and that the API was not asked more often for it."""
        wanted = {}
        if trouble.others is not None:
            wanted = {name: trouble.others.value for name in OTHERS if name != TAKEN}
        if HERE not in verdicts:
            wanted[OWN] = trouble.own.value
        found = {name: verdicts.get(name, "") for name in wanted}
        if found != wanted:
            self._fault(f"in the end the nodes were {found}, and should be {wanted}", trouble)
        if lists > MAX_LISTS * self._seconds / SECONDS:
            self._fault(f"the API was asked {lists} times", trouble)
        self._check_turns(trouble)

    def _check_turns(self, trouble: Trouble) -> None:
        for raised in self._node.raised:
            self._fault(f"a turn failed: {raised}", trouble)
        self._node.raised.clear()

    # -- verdicts

    def _verdicts(self) -> dict[str, str]:
        return {status.node: status.judgement.verdict.value for status in self._node.services.judge.nodes}

    def _is_well(self, nodes: Sequence[str] = NODES) -> bool:
        verdicts = self._verdicts()
        if OWN in nodes and verdicts.keys() != set(NODES):
            return False  # it does not know that it is on this node
        return all(verdicts.get(name) == _truth(name).value for name in nodes)

    def _look(self) -> bool:
        """Hold every verdict against what is so and what has been done; always false."""
        for status in self._node.services.judge.nodes:
            self.account.judgements += 1
            judgement = status.judgement
            if self._is_false(status.node, judgement.verdict, own=status.own):
                self._fault(f"{status.node} was called {judgement.verdict.value}", why=judgement.summary)
        return False

    def _is_false(self, node: str, verdict: Verdict, *, own: bool) -> bool:
        """Whether it calls bad what is not, or well what is not."""
        truth, trouble = _truth(node), self._trouble
        if verdict is truth or verdict not in (BAD | {Verdict.HEALTHY}):
            return False
        if trouble is None:
            return True
        if not own:
            return verdict is not trouble.others
        return verdict is not trouble.own or self._clock.monotonic() - self._since < trouble.own_after

    def _fault(self, what: str, trouble: Trouble | None = None, *, why: str = "") -> None:
        """Something is wrong. The same fault is reported once."""
        trouble = trouble or self._trouble
        fault = f"{trouble.name if trouble else 'no trouble'}: {what}"
        if fault not in self._reported:
            self._reported.add(fault)
            self.account.faults.append(f"{fault}: {why}" if why else fault)

    # -- growth

    def _settled(self, number: int) -> dict[str, float]:
        """What there is now; if that is more than it should be, what is left of it after a while."""
        size = _sizes()
        while number > 1 and self._patience > 0 and any(size[what] > most for what, most in self._most().items()):
            self._patience -= _PAUSE_SECONDS
            time.sleep(_PAUSE_SECONDS)
            again = _sizes()
            size = {what: min(size[what], again[what]) for what in size}
        return size

    def _most(self) -> dict[str, float]:
        """How much there may be after the first round."""
        first = [row.size for row in self.account.rows if row.round == 1]
        return {what: max(size[what] for size in first) + more for what, more in _MORE.items()}

    def _compare_sizes(self) -> None:
        last = [row.size for row in self.account.rows if row.round == self._rounds]
        if self._rounds < 2 or not last:
            return
        for what, most in self._most().items():
            after, before = max(size[what] for size in last), most - _MORE[what]
            if after > most:
                self._fault(f"{after:.0f} {what} in the last round, {before:.0f} in the first")


def _truth(node: str) -> Verdict:
    return Verdict.PREEMPTED if node == TAKEN else Verdict.HEALTHY


def _sizes() -> dict[str, float]:
    """What this process has now."""
    gc.collect()
    return {
        "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208 (names are all that counts)
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "MiB": int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / (1 << 20),
    }
