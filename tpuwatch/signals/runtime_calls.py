"""The gRPC calls of one poll of the runtime metrics. Loaded only where a process serves some."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from tpuwatch.libtpu import (
    GET_METRIC,
    LIST_METRICS,
    METRICS,
    ListSupportedMetricsRequest,
    ListSupportedMetricsResponse,
    MetricRequest,
    MetricResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpuwatch.core import Clock

_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),  # a proxy in the environment is not for this machine's own ports
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.use_local_subchannel_pool", 1),  # nothing is left of a connection when its channel is closed
)
OK: Final = "OK"
_MAX_NAMES: Final = 10_000
_SILENT: Final = frozenset({"DEADLINE_EXCEEDED", "UNAVAILABLE"})


@dataclass(frozen=True, slots=True)
class RuntimeReply:
    """How a call ended: the name of its code, or "MALFORMED", and with "OK" what came."""

    code: str
    message: Any = None


@dataclass(slots=True)
class Replies:
    """What one port replied."""

    supported: RuntimeReply | None = None  # None: it was known which metrics to ask for
    metrics: dict[str, RuntimeReply] = field(default_factory=dict)  # by name, of those that it was asked for


def call_all(
    addresses: Mapping[int, str],
    known: Mapping[int, Sequence[str]],
    clock: Clock,
    end: float,
    on_call: Callable[[str, str], None],
    *,
    own: bool,
) -> Iterator[tuple[int, Replies]]:
    """Ask the processes on these ports, each at its address, for the metrics that are `known` of it; where none are,
    first which there are. Gives each port's replies as soon as it has all of them.

    All are asked at once, until `end` in monotonic seconds, and none waits for another. With `own` each reports on
    itself alone: one that knows the others could report their chips too. `on_call` is called with the
    method and the code of each call, from any thread.
    """

    def ask(port: int) -> Replies:
        with _channel(addresses[port], port) as channel:
            return _Process(channel, clock, end, on_call).replies(known.get(port, ()), own=own)

    if len(addresses) == 1:
        (port,) = addresses
        yield port, ask(port)
        return
    ended: queue.SimpleQueue[tuple[int, Replies | Exception]] = queue.SimpleQueue()

    def run(port: int) -> None:
        try:
            ended.put((port, ask(port)))
        except Exception as error:  # noqa: BLE001 # it is raised where it is waited for
            ended.put((port, error))

    for port in addresses:  # no pool of threads: the program's end would wait for one that hangs
        threading.Thread(target=run, args=(port,), name=f"runtime {port}", daemon=True).start()
    for _ in addresses:
        port, replies = ended.get()
        if isinstance(replies, Exception):
            raise replies
        yield port, replies


class _Process:
    """Who answers on one channel. Its calls come one after the other, which is cheaper than all at once, and who owes
    one answer is asked for no other."""

    def __init__(self, channel: grpc.Channel, clock: Clock, end: float, on_call: Callable[[str, str], None]) -> None:
        self._channel = channel
        self._clock = clock
        self._end = end
        self._on_call = on_call

    def replies(self, known: Sequence[str], *, own: bool) -> Replies:
        replies = Replies()
        if not known:
            replies.supported = self._call(LIST_METRICS, ListSupportedMetricsRequest(), ListSupportedMetricsResponse)
            known = _wanted(replies.supported)
        for name in known:
            request = MetricRequest(metric_name=name, skip_node_aggregation=own)
            replies.metrics[name] = reply = self._call(GET_METRIC, request, MetricResponse)
            if reply.code in _SILENT:
                break
        return replies

    def _call(self, method: str, request: Any, kind: Any) -> RuntimeReply:
        seconds = max(0.0, self._end - self._clock.monotonic())
        try:
            reply = RuntimeReply(OK, self._channel.unary_unary(method)(request.SerializeToString(), timeout=seconds))
        except grpc.RpcError as error:
            reply = RuntimeReply(error.code().name)
        self._on_call(method.rpartition("/")[2], reply.code)
        return _read(reply, kind)


def _channel(address: str, port: int) -> grpc.Channel:
    return grpc.insecure_channel(f"ipv6:[{address}]:{port}" if ":" in address else f"ipv4:{address}:{port}", _OPTIONS)


def _read(reply: RuntimeReply, kind: Any) -> RuntimeReply:
    if reply.code != OK:
        return reply
    try:
        return RuntimeReply(OK, kind.FromString(reply.message))
    except DecodeError:
        return RuntimeReply("MALFORMED")


def _wanted(supported: RuntimeReply) -> tuple[str, ...]:
    """The metrics to ask for: those that are supported, or all where that is not known."""
    if supported.code in _SILENT:
        return ()  # metrics would be no different
    if supported.code != OK:
        return METRICS
    names = {metric.metric_name for metric in supported.message.supported_metric[:_MAX_NAMES]}
    return tuple(name for name in METRICS if name in names)
