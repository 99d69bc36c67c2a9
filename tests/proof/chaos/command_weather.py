"""What goes wrong around restarts: with calls, with what the API shows, with the bucket; and nodes that get well.

Two weathers: what tpuwatch assumes, and what goes beyond. Beyond, the API shows for 150 s or for 10 min what was, by
GetNode, by lists or by both; a list has each node twice, with another health, or lacks one; calls are refused in more
ways; nodes get well between the decision and the call; and objects in the bucket are put back from copies.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

import grpc

from tests.proof.chaos.command_nest import BESIDE, NODES, PARENT, QUIET, SLICE
from tests.standins.storage import BUCKET
from tests.standins.storage_objects import Refusal
from tests.standins.tpu_api import Fault
from tests.standins.tpu_nodes import RefusalError
from tpuwatch.model.restart import Phase
from tpuwatch.sim.cloud.faults import InjectedFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.proof.chaos.command_audit import CommandAudit
    from tests.proof.chaos.command_peers import NodePeers
    from tests.standins.storage import StorageServer
    from tests.standins.storage_objects import Objects, SimObject
    from tests.standins.tpu_api import Call, TpuApi

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
_LOOK: Final = {Fault.STALE: 0.15, Fault.UNHEARD: 0.03, Fault.SLOW: 0.02, Fault.BLACK_HOLE: 0.01}
_SHARES: Final = {
    "StopNode": _CALL,
    "ResetQueuedResource": _CALL,
    "StartNode": {**_CALL, Fault.STOCKOUT: 0.1},
    "GetNode": _LOOK,
    "ListNodes": {**_LOOK, Fault.PART: 0.05},
    "ListOperations": _LOOK,
}
_STORAGE: Final = (
    InjectedFault("InsertObject", code="UNAVAILABLE", share=0.04),
    InjectedFault("InsertObject", code="UNAVAILABLE", after_work=True, share=0.04),
    InjectedFault("InsertObject", drop=("answer",), after_work=True, share=0.04),
    InjectedFault("GetObject", code="UNAVAILABLE", share=0.03),
    InjectedFault("GetObject", drop=("answer",), share=0.02),
)
_STALE_CALL: Final = {**_CALL, Fault.PRECONDITION: 0.08}
# Seldom: while a start fails, no other node of the zone is stopped.
_STALE_START: Final = {
    Fault.SLOW: 0.1,
    **dict.fromkeys((Fault.LOST, Fault.UNHEARD, Fault.LATE, Fault.QUOTA, Fault.STOCKOUT, Fault.PRECONDITION), 0.04),
}
_STALE_LIST: Final = {**_LOOK, Fault.PART: 0.05, Fault.LACKS: 0.1, Fault.TWICE: 0.1}
# What a spell of old answers strikes.
STALE_METHODS: Final = (
    frozenset({"GetNode"}),
    frozenset({"ListNodes"}),
    frozenset({"GetNode", "ListNodes"}),
    frozenset({"GetNode", "ListNodes", "ListOperations"}),
)
STALE_SECONDS: Final = (*[150.0] * 5, 600.0)  # how long it lasts, or how old they are
WHOLE: Final = 0.15  # share of the spells that strike all nodes
SPELL_PAUSE: Final = (2.0, 12.0)  # seconds of real time between two that begin by themselves, as all pauses here
COPY_PAUSE: Final = (0.5, 3.0)  # each renews a lease, as any write does
QUIET_PAUSE: Final = (3.0, 10.0)
RECORDS: Final = "tpuwatch/nodes/"
PUT_BACK_SECONDS: Final = 3.0  # until the driver, which lives, has written its record again
REFUSALS: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


@dataclass(frozen=True)
class Weather:
    """How much goes wrong."""

    shares: Mapping[str, Mapping[Fault, float]]  # of the calls of a method
    storage: tuple[InjectedFault, ...]
    both: float = 1.0  # share of a slice's troubles in which the other node of its queued resource is ill too
    healed: float = 0.0  # share of the troubles that end by themselves
    left: float = 0.0  # share of the turns in which a restart is left to the daemons, at least
    spells: float = 0.0  # share of stops from which on the API shows what was
    copies: bool = False  # whether objects of the bucket are put back


ASSUMED: Final = Weather(_SHARES, _STORAGE)
BEYOND: Final = Weather(
    {
        **_SHARES,
        "StopNode": _STALE_CALL,
        "ResetQueuedResource": _STALE_CALL,
        "StartNode": _STALE_START,
        "ListNodes": _STALE_LIST,
    },
    (*_STORAGE, InjectedFault("InsertObject", code="FAILED_PRECONDITION", share=0.04)),
    both=0.6,
    healed=0.35,
    left=0.6,
    spells=0.4,
    copies=True,
)


@dataclass
class Troubles:
    """Brings the weather about. Thread-safe."""

    api: TpuApi
    peers: NodePeers
    storage: StorageServer | None
    audit: CommandAudit
    seed: int
    weather: Weather
    calm: threading.RLock = field(default_factory=threading.RLock)  # who holds it keeps everybody from killing

    def __post_init__(self) -> None:
        self.spared: set[str] = set()  # nodes to which nothing happens
        self.is_over = False  # whether nothing happens to any
        self._rng = Random(f"calls {self.seed}")
        self._healing: set[str] = set()

    def lives(self) -> list[Callable[[threading.Event], None]]:
        """What goes on until an event is set."""
        every = [self.silence]
        if self.weather.spells:
            every.append(self.spells)
        if self.storage is not None and self.weather.copies:
            every.append(self.copies)
        return every

    def before_a_change(self, call: Call) -> None:
        """A call that changes something has come. Raises RefusalError for one that is not carried out."""
        record = self.audit.before_a_change(call)
        node = call.resource.rpartition("/")[2]
        if call.method == "StartNode":
            return
        if node in self._healing and record is not None and record.signals:
            self._healing.discard(node)
            self.heal(node)
            self.audit.count("well at a call")
            raise RefusalError(self._rng.choice(REFUSALS), "It is not carried out, and the node gets well.")
        if self._rng.random() < self.weather.spells:
            self._begin_spell(f"{PARENT}/nodes/{node}")

    def is_spared(self, resource: str) -> bool:
        """Whether nothing goes wrong with that node, or queued resource."""
        return self.is_over or resource.rpartition("/")[2] in self.spared

    # -- nodes that get well

    def heal_when_called(self, node: str) -> None:
        """The next call by policy that would take it down is refused, and it is well by then."""
        self._healing.add(node)

    def heal(self, node: str) -> None:
        """It is well, if it was not before."""
        self._healing.discard(node)
        for name in (node, *((BESIDE,) if node == SLICE else ())):
            if not self.is_well(name):
                self.api.nodes.heal(f"{PARENT}/nodes/{name}")

    def is_well(self, node: str) -> bool:
        """Whether it is."""
        return self.api.nodes.truth(f"{PARENT}/nodes/{node}").well

    # -- what goes on by itself

    def silence(self, over: threading.Event) -> None:
        """The tpuwatch on a node that is well is silent now and then."""
        rng = Random(f"silence {self.seed}")
        while not over.wait(rng.uniform(*QUIET_PAUSE)):
            self.peers.silent ^= {QUIET}

    def spells(self, over: threading.Event) -> None:
        """The API shows what was."""
        rng = Random(f"spells {self.seed}")
        while not over.wait(rng.uniform(*SPELL_PAUSE)):
            self._begin_spell(f"{PARENT}/nodes/{rng.choice((SLICE, QUIET, *NODES))}")

    def _begin_spell(self, path: str) -> None:
        rng = self._rng
        seconds, age = rng.choice(STALE_SECONDS), rng.choice((*[None] * 6, *STALE_SECONDS))
        methods, resource = rng.choice(STALE_METHODS), "" if rng.random() < WHOLE else path
        self.api.show_what_was(methods, seconds, age=age, resource=resource)
        self.audit.count("spells")

    def copies(self, over: threading.Event) -> None:
        """Objects of the bucket are put back as they are, or as they were."""
        rng = Random(f"copies {self.seed}")
        while not over.wait(rng.uniform(*COPY_PAUSE)):
            objects = self._objects.page(BUCKET, "", "", 1000)[0]
            names = [one.name for one in objects if not self.is_spared(one.name.removesuffix(".json"))]
            if not names:
                continue
            name = rng.choice(names)
            if name.startswith(RECORDS) and rng.random() < 0.4:
                self._put_back_an_older(name)
            elif self._put_back(self._objects.get(BUCKET, name)):
                self.audit.count("copies put back")

    def _put_back_an_older(self, name: str) -> None:
        """While a driver lives, which can mend that: it has just written, and is not killed before it has again."""
        with self.calm:
            before = self._objects.get(BUCKET, name)
            written = self._next(name, before.generation)
            document = json.loads(written.content)
            is_driven = document["lease"]["owner"] and document["phase"] != Phase.REQUESTED.value
            if not is_driven or not self._put_back(before, written.generation):
                return
            self.audit.rewound[name.rpartition("/")[2].removesuffix(".json")] = self.api.now()
            self.audit.count("older copies put back")
            self._next(name, self._objects.get(BUCKET, name).generation)

    def _next(self, name: str, generation: int) -> SimObject:
        """The object after another write; as it is where none comes."""
        deadline = time.monotonic() + PUT_BACK_SECONDS
        found = self._objects.get(BUCKET, name)
        while found.generation == generation and time.monotonic() < deadline:
            time.sleep(0.01)
            found = self._objects.get(BUCKET, name)
        return found

    @property
    def _objects(self) -> Objects:
        if self.storage is None:
            raise RuntimeError("there is no bucket")
        return self.storage.objects

    def _put_back(self, found: SimObject, generation: int | None = None) -> bool:
        with contextlib.suppress(Refusal):
            self._objects.insert(BUCKET, found.name, found.content, found.content_type, found.given, generation)
            return True
        return False
