"""The gRPC calls of one poll of the runtime metrics. Loaded only where a process serves some."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from tpuwatch.node.runtime_proto import (
    GET_METRIC,
    LIST_METRICS,
    ListSupportedMetricsRequest,
    ListSupportedMetricsResponse,
    MetricRequest,
    MetricResponse,
)
from tpuwatch.node.runtime_values import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.clock import Clock

    _Key = tuple[int, str]  # port, metric or ""

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
class Reply:
    """How a call ended: the name of its code, or "MALFORMED", and with "OK" what came."""

    code: str
    message: Any = None


@dataclass(slots=True)
class Replies:
    """What one port replied."""

    supported: Reply
    metrics: dict[str, Reply] = field(default_factory=dict)  # by name, of those that it was asked for


def call_all(
    addresses: Mapping[int, str], clock: Clock, end: float, counted: Callable[[str, str], None], *, own: bool
) -> dict[int, Replies]:
    """Ask the processes on these ports, each at its address, which metrics they know, and then for those.

    All are asked at once, and until `end` in monotonic seconds. With `own` each is to tell of itself alone: one that
    knows the others could tell of their chips too. `counted` is told each call's method and code.
    """
    with contextlib.ExitStack() as stack:
        channels = {port: stack.enter_context(_channel(address, port)) for port, address in addresses.items()}
        calls = _Calls(channels, clock, end, counted)
        lists = calls.make(LIST_METRICS, {(port, ""): ListSupportedMetricsRequest() for port in addresses})
        replies = {port: Replies(_read(reply, ListSupportedMetricsResponse)) for (port, _), reply in lists.items()}
        requests = {
            (port, name): MetricRequest(metric_name=name, skip_node_aggregation=own)
            for port, reply in replies.items()
            for name in _wanted(reply.supported)
        }
        for (port, name), reply in calls.make(GET_METRIC, requests).items():
            replies[port].metrics[name] = _read(reply, MetricResponse)
    return replies


class _Calls:
    """Calls on several channels, by port, that share a deadline."""

    def __init__(
        self, channels: Mapping[int, grpc.Channel], clock: Clock, end: float, counted: Callable[[str, str], None]
    ) -> None:
        self._channels = channels
        self._clock = clock
        self._end = end
        self._counted = counted

    def make(self, method: str, requests: Mapping[_Key, Any]) -> dict[_Key, Reply]:
        """Make a call for each request, all at once; the replies' messages are bytes."""
        seconds = max(0.0, self._end - self._clock.monotonic())
        on = {port: channel.unary_unary(method) for port, channel in self._channels.items()}
        calls = {
            (port, name): on[port].future(request.SerializeToString(), timeout=seconds)
            for (port, name), request in requests.items()
        }
        replies = {}
        for key, call in calls.items():
            code = call.code().name  # waits for the reply or the deadline
            self._counted(method.rpartition("/")[2], code)
            replies[key] = Reply(code, call.result() if code == OK else None)
        return replies


def _channel(address: str, port: int) -> grpc.Channel:
    return grpc.insecure_channel(f"ipv6:[{address}]:{port}" if ":" in address else f"ipv4:{address}:{port}", _OPTIONS)


def _read(reply: Reply, kind: Any) -> Reply:
    if reply.code != OK:
        return reply
    try:
        return Reply(OK, kind.FromString(reply.message))
    except DecodeError:
        return Reply("MALFORMED")


def _wanted(supported: Reply) -> tuple[str, ...]:
    """The metrics to ask for: those that are supported, or all where that could not be told."""
    if supported.code in _SILENT:
        return ()  # metrics would be no different
    if supported.code != OK:
        return METRICS
    names = {metric.metric_name for metric in supported.message.supported_metric[:_MAX_NAMES]}
    return tuple(name for name in METRICS if name in names)
