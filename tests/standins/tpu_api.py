"""A stand-in for the Cloud TPU API on loopback: gRPC for Google's own client, with a log of all calls.

It serves the methods of google.cloud.tpu.v2.Tpu that tpuwatch uses, and google.longrunning.Operations, over the nodes
of `tpu_nodes.py`. Like them it was written apart from `tpuwatch sim`. Faults strike by a seeded random, each with its
share of a method's calls as `shares` says, or one after the other as `strike` says.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tests.standins.tpu_nodes import STOCKOUT, Durations, Health, RefusalError, TpuNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PAGE: Final = 100  # items of a list that are given at once, however many are asked for
LATE_SECONDS: Final = 28.0  # after that a call that was late is carried out, or never
STALE_SECONDS: Final = 20.0  # so old a look may be
HANG_SECONDS: Final = 600.0  # by real time, where a client gives no deadline
CHANGING: Final = ("StopNode", "StartNode", "ResetQueuedResource")


class Fault(str, Enum):
    """What may go wrong with a call."""

    LOST = "lost"  # it is carried out, and the answer is UNAVAILABLE
    UNHEARD = "unheard"  # it is not carried out, and the answer is UNAVAILABLE
    SLOW = "slow"  # it is carried out, and answered some seconds later
    HANGS = "hangs"  # it is carried out and never answered
    BLACK_HOLE = "black hole"  # it is not carried out and never answered
    LATE = "late"  # it is carried out some seconds later, whether or not the caller still waits
    QUOTA = "quota"  # RESOURCE_EXHAUSTED, with the time after which to try again
    STOCKOUT = "stockout"  # RESOURCE_EXHAUSTED: there is no capacity
    PRECONDITION = "precondition"  # FAILED_PRECONDITION: it is not carried out
    FAILS = "fails"  # it is accepted, and its operation ends with an error
    VANISHES = "vanishes"  # it is carried out, and its operation is never listed
    STALE = "stale"  # of a look: what was some seconds ago
    PART = "part"  # of a list: locations could not be reached
    LACKS = "lacks"  # of a list: a node is not in it
    TWICE = "twice"  # of a list: each node is in it with another health too


Shares = dict[str, dict[Fault, float]]


@dataclass(frozen=True)
class Spell:
    """A time in which looks show what was, each time what was then."""

    methods: frozenset[str]
    began: float
    until: float
    age: float | None = None  # how long ago; None: what was when it began, as long as it lasts
    resource: str = ""  # of which alone; "": of all

    def age_at(self, now: float, method: str, resource: str) -> float:
        """How many seconds ago was what a look shows; 0: it shows what is."""
        if method not in self.methods or not self.began <= now < self.until or self.resource not in ("", resource):
            return 0.0
        return now - self.began if self.age is None else self.age


@dataclass
class Call:
    """One call, as it came and what came of it."""

    at: float
    method: str
    resource: str
    by: str  # the client, as it names itself
    fault: Fault | None
    connection: str = ""  # by which it came
    node: Any = None  # of GetNode: what was answered
    age: float = 0.0  # of GetNode: seconds since that was so
    done_at: float | None = None  # of one that changes something: when it was carried out
    operation: str = ""
    code: str = ""  # "" as long as it was not answered


class TpuApi:
    """The service. Start it by `running`."""

    def __init__(
        self,
        now: Callable[[], float] = time.time,
        *,
        speed: float = 1.0,
        seed: int = 0,
        shares: Mapping[str, Mapping[Fault, float]] | None = None,
        durations: Durations | None = None,
    ) -> None:
        """`now` is the wall time, of which `speed` seconds pass in a real one. `shares`: of the calls of a method."""
        self.nodes = TpuNodes(now, rng=Random(f"nodes {seed}"), durations=durations)
        self.calls: list[Call] = []
        self.shares = {method: dict(faults) for method, faults in (shares or {}).items()}
        self.is_spared: Callable[[str], bool] = lambda _: False  # whether nothing strikes looks and calls of a resource
        # Called before one that changes something is done; may refuse it by a RefusalError.
        self.on_change: Callable[[Call], None] = lambda _: None
        self.address = ""
        self.now = now
        self._speed = speed
        self._rng = Random(f"faults {seed}")
        self._next: dict[str, deque[Fault]] = defaultdict(deque)
        self._spells: list[Spell] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._late: list[threading.Thread] = []

    def strike(self, method: str, *faults: Fault) -> None:
        """The next calls of a method meet these faults."""
        self._next[method].extend(faults)

    def show_what_was(
        self, methods: frozenset[str], seconds: float, *, age: float | None = None, resource: str = ""
    ) -> None:
        """For so many seconds from now these methods show what is now, or what was `age` seconds before they show it.

        Of `resource` alone, where one is named.
        """
        now = self.now()
        with self._lock:
            self._spells = [one for one in self._spells if one.until > now]
            self._spells.append(Spell(methods, now, now + seconds, age, resource))

    def age(self, method: str, resource: str) -> float:
        """How many seconds ago was what a look at the resource shows now, besides the faults of a single one."""
        now = self.now()
        if self.is_spared(resource):
            return 0.0
        return max((spell.age_at(now, method, resource) for spell in self._spells), default=0.0)

    @contextmanager
    def running(self) -> Iterator[TpuApi]:
        """Serve on a free port of loopback."""
        server = grpc.server(ThreadPoolExecutor(max_workers=64))
        tpu = {
            "ListNodes": (tpu_v2.ListNodesRequest.pb(), self._list_nodes),
            "GetNode": (tpu_v2.GetNodeRequest.pb(), self._get_node),
            "StopNode": (tpu_v2.StopNodeRequest.pb(), self._stop_node),
            "StartNode": (tpu_v2.StartNodeRequest.pb(), self._start_node),
            "ListQueuedResources": (tpu_v2.ListQueuedResourcesRequest.pb(), self._list_queues),
            "ResetQueuedResource": (tpu_v2.ResetQueuedResourceRequest.pb(), self._reset_queue),
        }
        operations = {"ListOperations": (operations_pb2.ListOperationsRequest, self._list_operations)}
        for service, methods in (("google.cloud.tpu.v2.Tpu", tpu), ("google.longrunning.Operations", operations)):
            handlers = {name: self._handler(name, *given) for name, given in methods.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield self
        finally:
            self._closing.set()
            server.stop(None).wait()
            for thread in self._late:
                thread.join()

    # -- a call

    def _handler(self, method: str, request_type: Any, do: Callable[[Any, Call], Any]) -> Any:
        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            resource = getattr(request, "name", "") or getattr(request, "parent", "")
            with self._lock:
                fault = self._fault(method) if not self.is_spared(resource) else None
                call = Call(self.now(), method, resource, _client(context), fault, str(context.peer()))
                self.calls.append(call)
            try:
                if method in CHANGING:
                    self.on_change(call)
                answer = self._carried_out(call, lambda: do(request, call), context)
            except RefusalError as refusal:
                call.code = refusal.code.name
                context.abort(refusal.code, str(refusal))
            call.code = "OK"
            return answer

        return grpc.unary_unary_rpc_method_handler(
            handle, request_type.FromString, lambda message: message.SerializeToString()
        )

    def _carried_out(self, call: Call, do: Callable[[], Any], context: grpc.ServicerContext) -> Any:
        fault = call.fault
        if fault is Fault.QUOTA:
            call.code = "RESOURCE_EXHAUSTED"
            self._over_quota(context)
        if fault is Fault.STOCKOUT:
            raise RefusalError(grpc.StatusCode.RESOURCE_EXHAUSTED, STOCKOUT)
        if fault is Fault.PRECONDITION:
            raise RefusalError(grpc.StatusCode.FAILED_PRECONDITION, "Another operation is in progress.")
        if fault is Fault.UNHEARD:
            raise RefusalError(grpc.StatusCode.UNAVAILABLE, "The service is currently unavailable.")
        if fault is Fault.LATE:
            thread = threading.Thread(target=self._done_late, args=(do, self._seconds(LATE_SECONDS)))
            self._late.append(thread)
            thread.start()
        if fault in (Fault.LATE, Fault.BLACK_HOLE):
            self._hang(context)
        answer = do()
        if fault is Fault.LOST:
            raise RefusalError(grpc.StatusCode.UNAVAILABLE, "502:Bad Gateway")
        if fault is Fault.HANGS:
            self._hang(context)
        if fault is Fault.SLOW:
            self._closing.wait(self._seconds(5.0) / self._speed)
        return answer

    def _done_late(self, do: Callable[[], Any], seconds: float) -> None:
        if self._closing.wait(seconds / self._speed):
            return
        try:
            do()
        except RefusalError:
            return  # nobody learns of it

    def _hang(self, context: grpc.ServicerContext) -> NoReturn:
        """Answer nothing until the client has left."""
        left = threading.Event()
        if context.add_callback(left.set):
            deadline = time.monotonic() + HANG_SECONDS
            while not left.wait(0.05) and not self._closing.is_set() and time.monotonic() < deadline:
                pass
        raise RefusalError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _over_quota(self, context: grpc.ServicerContext) -> NoReturn:
        message = "Quota exceeded for quota metric 'Write requests' and limit 'Write requests per minute'."
        status = status_pb2.Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message=message)
        later = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=self._rng.randint(5, 20)))
        status.details.add().Pack(later)
        context.abort_with_status(rpc_status.to_status(status))
        raise AssertionError  # abort_with_status has raised

    def _fault(self, method: str) -> Fault | None:
        if self._next[method]:
            return self._next[method].popleft()
        point = self._rng.random()
        for fault, share in self.shares.get(method, {}).items():
            point -= share
            if point < 0:
                return fault
        return None

    def _seconds(self, most: float) -> float:
        return self._rng.uniform(0.0, most)

    def _age(self, call: Call) -> Callable[[str], float]:
        least = self._seconds(STALE_SECONDS) if call.fault is Fault.STALE else 0.0
        return lambda resource: max(least, self.age(call.method, resource))

    # -- google.cloud.tpu.v2.Tpu

    def _list_nodes(self, request: Any, call: Call) -> Any:
        nodes = self.nodes.all_in(request.parent, age=self._age(call))
        answer = tpu_v2.ListNodesResponse.pb()()
        if call.fault is Fault.LACKS and nodes:
            nodes.pop(self._rng.randrange(len(nodes)))
        if call.fault is Fault.TWICE:
            nodes = [*nodes, *map(_otherwise, nodes)]
            self._rng.shuffle(nodes)
        if call.fault is Fault.PART:
            nodes = nodes[: len(nodes) // 2]
            answer.unreachable.append(request.parent)
        page, answer.next_page_token = _page(request, nodes)
        answer.nodes.extend(page)
        return answer

    def _get_node(self, request: Any, call: Call) -> Any:
        call.age = self._age(call)(request.name)
        call.node = self.nodes.get(request.name, age=call.age)
        return call.node

    def _stop_node(self, request: Any, call: Call) -> Any:
        return self._change(call, self.nodes.stop, request.name)

    def _start_node(self, request: Any, call: Call) -> Any:
        return self._change(call, self.nodes.start, request.name)

    def _reset_queue(self, request: Any, call: Call) -> Any:
        return self._change(call, self.nodes.reset, request.name)

    def _change(self, call: Call, do: Callable[..., Any], name: str) -> Any:
        operation = do(name, call.by, fails=call.fault is Fault.FAILS, listed=call.fault is not Fault.VANISHES)
        call.done_at, call.operation = self.now(), operation.name
        return operation

    def _list_queues(self, request: Any, _call: Call) -> Any:
        nodes = self.nodes.all_in(request.parent)
        queues = [self._queue(name) for name in sorted({node.queued_resource for node in nodes} - {""})]
        answer = tpu_v2.ListQueuedResourcesResponse.pb()()
        page, answer.next_page_token = _page(request, queues)
        answer.queued_resources.extend(page)
        return answer

    def _queue(self, name: str) -> Any:
        queue = tpu_v2.QueuedResource.pb()(name=name)
        queue.state.state = tpu_v2.QueuedResourceState.State.ACTIVE
        with self.nodes.lock:
            for node in self.nodes.of_queue(name):
                queue.tpu.node_spec.add(parent=node.rpartition("/nodes/")[0], node_id=node.rpartition("/")[2])
        return queue

    # -- google.longrunning.Operations

    def _list_operations(self, request: Any, call: Call) -> Any:
        page, token = _page(request, self.nodes.operations(request.name, age=self._age(call)))
        return operations_pb2.ListOperationsResponse(operations=page, next_page_token=token)


def _otherwise(node: Any) -> Any:
    """The node with another health."""
    other = type(node)()
    other.CopyFrom(node)
    other.health = Health.TIMEOUT if node.health != Health.TIMEOUT else Health.HEALTHY
    return other


def _page(request: Any, items: list[Any]) -> tuple[list[Any], str]:
    """A page, and the token of the next one (AIP-158)."""
    first, size = request.page_token or "0", request.page_size
    if size < 0 or not first.isdecimal() or int(first) > len(items):
        raise RefusalError(grpc.StatusCode.INVALID_ARGUMENT, "Invalid page size or page token.")
    end = int(first) + min(size or PAGE, PAGE)
    return items[int(first) : end], str(end) if end < len(items) else ""


def _client(context: grpc.ServicerContext) -> str:
    """The client, as Google's library names it: with its user agent among others."""
    return next((str(value) for key, value in context.invocation_metadata() if key == "x-goog-api-client"), "")
