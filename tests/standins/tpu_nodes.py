"""Nodes, queued resources and operations of a project, as the messages of the Cloud TPU API describe them.

Written from the messages of google.cloud.tpu_v2 and google.longrunning, from their comments, and from Google's
conventions for APIs (AIP-151 on operations, AIP-193 on errors). It shares nothing with `tpuwatch sim`, so that a wrong
idea of the real service has to be had twice to stay unseen.
"""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.rpc import code_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

State, Health = tpu_v2.Node.State, tpu_v2.Node.Health
PROJECT_NUMBER: Final = "123456789012"  # operations name their target by it
PAST_SECONDS: Final = 1500.0  # for so long it is known what was shown
# The type that the real service gives, and the client does not have; its fields are those of tpu_v2.OperationMetadata.
METADATA_TYPE: Final = "type.googleapis.com/google.cloud.common.OperationMetadata"
_NODE_TYPE: Final = "type.googleapis.com/google.cloud.tpu.v2.Node"
STOCKOUT: Final = (
    "There is no more capacity in the zone; you can try in another zone where Cloud TPU Nodes are offered."
)


class RefusalError(Exception):
    """A call that is not carried out."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Durations:
    """How long what takes at most, in seconds."""

    stop: float = 20.0
    start: float = 40.0
    reset: float = 30.0
    delete: float = 10.0
    create: float = 30.0
    check: float = 5.0  # from a boot until the health is known
    least: float = 1.0  # the share of it that it takes at least


@dataclass(frozen=True)
class Event:
    """Something that happened to a node."""

    at: float
    node: str  # the resource name
    what: (
        str  # "stop", "start", "reset", "delete", "create": begun; over: "stopped", "booted", "gone", "start failed", …
    )
    by: str  # who called for it


@dataclass
class NodeHistory:
    """A node: what the API shows of it, what it has shown, and how often it has booted."""

    shown: Any  # the message
    past: list[tuple[float, Any]] = field(default_factory=list)  # until when what was shown; None: there was none
    boots: int = 1
    well_since: float | None = 0.0  # since when the guest answers; None: it does not
    booted: float = 0.0  # when it booted last

    @property
    def well(self) -> bool:
        """Whether the guest answers."""
        return self.well_since is not None

    def at(self, when: float) -> Any:
        """The message as it was shown then."""
        return next((message for until, message in self.past if until > when), self.shown)


@dataclass
class RunningOperation:
    """A long-running operation, from its call on."""

    name: str
    verb: str
    target: str
    created: float
    ended: float | None = None
    code: int = 0  # google.rpc.Code
    message: str = ""
    response: Any = None
    listed: bool = True

    @property
    def on(self) -> str:
        """The resource's name, by the project's ID."""
        return self.name.partition("/locations/")[0] + "/locations/" + self.target.partition("/locations/")[2]

    def shown(self, when: float) -> Any:
        """The message as it is shown then."""
        done = self.ended is not None and self.ended <= when
        metadata = tpu_v2.OperationMetadata.pb()(verb=self.verb, target=self.target, api_version="v2")
        metadata.create_time.FromMicroseconds(int(self.created * 1e6))
        if done:
            metadata.end_time.FromMicroseconds(int((self.ended or 0.0) * 1e6))
        shown = operations_pb2.Operation(name=self.name, done=done)
        shown.metadata.type_url, shown.metadata.value = METADATA_TYPE, metadata.SerializeToString()
        if done and self.code:
            shown.error.code, shown.error.message = self.code, self.message
        elif done and self.response is not None:
            shown.response.type_url, shown.response.value = _NODE_TYPE, self.response.SerializeToString()
        return shown


class TpuNodes:
    """All nodes of the service. Time passes by `now` alone: what is due is done at the next look. Thread-safe."""

    def __init__(
        self, now: Callable[[], float], *, rng: Random | None = None, durations: Durations | None = None
    ) -> None:
        """`now` is the wall time in seconds. `durations` by default are those of a quick real node."""
        self.lock = threading.RLock()
        self.events: list[Event] = []
        self.durations = durations or Durations()
        self._now = now
        self._rng = rng or Random(0)
        self._nodes: dict[str, NodeHistory] = {}
        self._operations: dict[str, RunningOperation] = {}
        self._due: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = count()

    # -- what the API shows

    def get(self, name: str, *, age: float = 0.0) -> Any:
        """The node as it was shown `age` seconds ago. Raises RefusalError."""
        with self.lock:
            now = self._advance()
            node = self._nodes.get(name)
            message = node.at(now - age) if node is not None else None
            if message is None:
                raise RefusalError(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
            return _copy(message)

    def all_in(self, parent: str, *, age: Callable[[str], float] = lambda _: 0.0) -> list[Any]:
        """All nodes of a location, or of all locations (`-`), by name, each as it was shown `age` seconds ago."""
        with self.lock:
            now = self._advance()
            every = parent.endswith("/locations/-")
            prefix = parent[:-1] if every else f"{parent}/nodes/"
            shown = (node.at(now - age(name)) for name, node in sorted(self._nodes.items()) if name.startswith(prefix))
            return [_copy(message) for message in shown if message is not None]

    def operations(self, parent: str, *, age: Callable[[str], float] = lambda _: 0.0) -> list[Any]:
        """The operations of a location that are listed, the newest first, each as it was shown `age` seconds ago.

        `age` is asked for the name of what the operation is on.
        """
        with self.lock:
            now = self._advance()
            found = [one for one in self._operations.values() if one.name.startswith(f"{parent}/operations/")]
            dated = [(one, now - age(one.on)) for one in reversed(found)]
            return [one.shown(when) for one, when in dated if one.listed and one.created <= when]

    def boots(self, name: str) -> int:
        """How often the machine behind that name has booted."""
        with self.lock:
            self._advance()
            return self._nodes[name].boots

    def truth(self, name: str) -> NodeHistory:
        """What is true of the node, whatever the API shows; a copy."""
        with self.lock:
            self._advance()
            return replace(self._nodes[name])

    def of_queue(self, queue: str) -> Iterator[str]:
        """The nodes of a queued resource."""
        return (name for name, node in self._nodes.items() if node.shown and node.shown.queued_resource == queue)

    # -- what clients call

    def add(self, name: str, *, hosts: int = 1, queue: str = "", spot: bool = False) -> str:
        """A node that has been READY and HEALTHY for an hour; its name."""
        with self.lock:
            self._nodes[name] = NodeHistory(self._created(name, self._advance() - 3600.0, hosts, queue, spot=spot))
            self._show(name, 0.0, state=State.READY, health=Health.HEALTHY)
            self._nodes[name].past.clear()
            return name

    def hang(self, name: str) -> None:
        """The guest answers no more, and Health Monitor knows it."""
        with self.lock:
            now = self._advance()
            self._nodes[name].well_since = None
            if self._nodes[name].shown.state == State.READY:
                self._show(name, now, health=Health.TIMEOUT)

    def heal(self, name: str) -> None:
        """The guest answers again, by itself, and Health Monitor knows it."""
        with self.lock:
            now = self._advance()
            if not self._nodes[name].well:
                self._nodes[name].well_since = now
            if self._nodes[name].shown.state == State.READY:
                self._show(name, now, health=Health.HEALTHY)

    def stop(self, name: str, by: str, *, fails: bool = False, listed: bool = True) -> Any:
        """StopNode; the operation. One that `fails` ends with an error, and the node runs on. Raises RefusalError."""
        with self.lock:
            now = self._advance()
            message = self._expect(name, State.READY, "stop")
            if len(message.network_endpoints) > 1:
                raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, "Stop is only available with single TPU nodes.")
            operation = self._begin("stop", name, now, by, listed=listed)
            self._show(name, now, state=State.STOPPING)

            def over(at: float) -> None:
                if fails:
                    health = Health.HEALTHY if self._nodes[name].well else Health.TIMEOUT
                    self._show(name, at, state=State.READY, health=health)
                    self._end(operation, at, by, code_pb2.INTERNAL, "an internal error has occurred")
                else:
                    self._show(name, at, state=State.STOPPED, health=Health.HEALTH_UNSPECIFIED)
                    self._end(operation, at, by, what="stopped")

            self._after(self.durations.stop / (2 if fails else 1), over)
            return operation.shown(now)

    def start(self, name: str, by: str, *, fails: bool = False, listed: bool = True) -> Any:
        """StartNode; the operation. One that `fails` finds no capacity. Raises RefusalError."""
        with self.lock:
            now = self._advance()
            self._expect(name, State.STOPPED, "start")
            operation = self._begin("start", name, now, by, listed=listed)
            self._show(name, now, state=State.STARTING)

            def over(at: float) -> None:
                if fails:
                    self._show(name, at, state=State.STOPPED)
                    self._end(operation, at, by, code_pb2.RESOURCE_EXHAUSTED, STOCKOUT)
                else:
                    self._boot(name, at)
                    self._end(operation, at, by, what="booted")

            self._after(self.durations.start / (2 if fails else 1), over)
            return operation.shown(now)

    def reset(self, queue: str, by: str, *, fails: bool = False, listed: bool = True) -> Any:
        """ResetQueuedResource; the operation, after which all its nodes have booted. Raises RefusalError."""
        with self.lock:
            now = self._advance()
            names = [*self.of_queue(queue)]
            if not names:
                raise RefusalError(grpc.StatusCode.NOT_FOUND, f"Resource '{queue}' was not found")
            for name in names:
                self._expect(name, State.READY, "reset")
            operation = self._begin("reset", queue, now, by, listed=listed)
            for name in names:
                self._show(name, now, state=State.RESTARTING)

            def over(at: float) -> None:
                for name in names:
                    if fails:
                        health = Health.HEALTHY if self._nodes[name].well else Health.TIMEOUT
                        self._show(name, at, state=State.READY, health=health)
                    else:
                        self._boot(name, at)
                code = code_pb2.INTERNAL if fails else code_pb2.OK
                self._end(operation, at, by, code, "an internal error has occurred" if fails else "", what="booted")

            self._after(self.durations.reset / (2 if fails else 1), over)
            return operation.shown(now)

    def recreate(self, name: str, by: str) -> None:
        """DeleteNode, and then CreateNode under the same name. Raises RefusalError."""
        with self.lock:
            now = self._advance()
            if self._nodes[name].shown is None or self._nodes[name].shown.state not in (State.READY, State.STOPPED):
                raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, f"The TPU node {name} changes its state.")
            before = self._nodes[name].shown
            deleting = self._begin("delete", name, now, by)
            self._show(name, now, state=State.DELETING)

            def gone(at: float) -> None:
                self._put(name, at, None)
                self._end(deleting, at, by, what="gone")
                self._after(2.0, made)

            def made(at: float) -> None:
                creating = self._begin("create", name, at, by)
                queue, spot = before.queued_resource, before.scheduling_config.spot
                self._put(name, at, self._created(name, at, len(before.network_endpoints), queue, spot=spot))
                self._after(self.durations.create, lambda at: (self._boot(name, at, boots=1), ended(creating, at))[1])

            def ended(creating: RunningOperation, at: float) -> None:
                self._end(creating, at, by, what="booted")

            self._after(self.durations.delete, gone)

    # -- how it goes on

    def _advance(self) -> float:
        """Do what is due; the time."""
        now = self._now()
        while self._due and self._due[0][0] <= now:
            at, _, do = heapq.heappop(self._due)
            self._at = at
            do(at)
        self._at = now
        return now

    def _after(self, seconds: float, do: Callable[[float], None]) -> None:
        took = seconds * self._rng.uniform(self.durations.least, 1.0)
        heapq.heappush(self._due, (self._at + took, next(self._count), do))

    def _expect(self, name: str, state: Any, verb: str) -> Any:
        """The node's message, if it is in that state."""
        node = self._nodes.get(name)
        if node is None or node.shown is None:
            raise RefusalError(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
        if node.shown.state != state:
            found = State(node.shown.state).name
            raise RefusalError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"Cannot {verb} TPU node {name}: its state is {found}, and must be {state.name}.",
            )
        return node.shown

    def _begin(self, verb: str, name: str, now: float, by: str, *, listed: bool = True) -> RunningOperation:
        project, _, place = name.partition("/locations/")
        zone, token = place.partition("/")[0], f"{self._rng.getrandbits(64):016x}"
        path = f"{project}/locations/{zone}/operations/operation-{int(now * 1000)}-{token[:13]}-{token[8:]}"
        operation = RunningOperation(path, verb, f"projects/{PROJECT_NUMBER}/locations/{place}", now, listed=listed)
        self._operations[path] = operation
        for node in [*self.of_queue(name)] if "/queuedResources/" in name else [name]:
            self.events.append(Event(now, node, verb, by))
        return operation

    def _end(
        self, operation: RunningOperation, at: float, by: str, code: int = 0, message: str = "", *, what: str = ""
    ) -> None:
        operation.ended, operation.code, operation.message = at, code, message
        name = operation.on
        names = [*self.of_queue(name)] if "/queuedResources/" in name else [name]
        operation.response = self._nodes[names[0]].shown if names[0] in self._nodes else None
        self.events.extend(Event(at, node, f"{operation.verb} failed" if code else what, by) for node in names)

    def _boot(self, name: str, at: float, *, boots: int | None = None) -> None:
        node = self._nodes[name]
        node.boots = node.boots + 1 if boots is None else boots
        node.well_since = node.booted = at
        self._show(name, at, state=State.READY, health=Health.HEALTH_UNSPECIFIED)

        def checked(at: float) -> None:
            if node.shown is not None and node.shown.state == State.READY:
                self._show(name, at, health=Health.HEALTHY if node.well else Health.TIMEOUT)

        self._after(self.durations.check, checked)

    def _show(self, name: str, at: float, **fields: Any) -> None:
        message = _copy(self._nodes[name].shown)
        for key, value in fields.items():
            setattr(message, key, value)
        self._put(name, at, message)

    def _put(self, name: str, at: float, message: Any) -> None:
        node = self._nodes[name]
        node.past = [(until, one) for until, one in node.past if until > at - PAST_SECONDS]
        node.past.append((at, node.shown))
        node.shown = message

    def _created(self, name: str, at: float, hosts: int, queue: str, *, spot: bool) -> Any:
        node = tpu_v2.Node.pb()(
            name=name,
            id=self._rng.getrandbits(62),
            state=State.CREATING,
            accelerator_type="v5litepod-8",
            runtime_version="v2-alpha-tpuv5-lite",
            queued_resource=queue,
        )
        node.scheduling_config.spot = spot
        node.create_time.FromMicroseconds(int(at * 1e6))
        for host in range(hosts):
            node.network_endpoints.add(ip_address=f"127.0.1.{host + 1}", port=8470)
        return node


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
