"""The gRPC interceptor of the simulated cloud: the log of calls, access tokens, faults and errors."""

from __future__ import annotations

import threading
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from tpuwatch.core import code_number
from tpuwatch.sim.cloud.responses import STATUS_KEY, ServiceError
from tpuwatch.sim.cloud.world import LoggedCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.sim.cloud.faults import InjectedFault
    from tpuwatch.sim.cloud.world import World

NEW_ENUM_NUMBER: Final = 99
_READ_METHODS: Final = frozenset(
    {"GetNode", "ListNodes", "GetOperation", "ListOperations", "GetQueuedResource", "ListQueuedResources"}
)
_MESSAGES: Final = {
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": "Request had insufficient authentication scopes.",
    "ACCESS_TOKEN_EXPIRED": "Request had invalid authentication credentials.",
    "CREDENTIALS_MISSING": "Request is missing required authentication credential.",
    "SERVICE_DISABLED": "The API has not been used in the project before, or it is disabled.",
}


class Interceptor(grpc.ServerInterceptor):  # type: ignore[misc]
    """Handles every call to the services of a server."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._closing = threading.Event()
        self._waiting: set[threading.Event] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """End all waits for latency and black holes, now and from here on."""
        with self._lock:
            self._closing.set()
            for waiting in self._waiting:
                waiting.set()

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Called by grpc for each call."""
        service, _, method = details.method.lstrip("/").partition("/")
        handler = continuation(details)
        if handler is None or handler.unary_unary is None:
            self._log(LoggedCall(self._world.clock.time(), service, method, "", "UNIMPLEMENTED"))
            return None
        token = dict(details.invocation_metadata).get("authorization", "")

        def serve(request: Any, context: Any) -> Any:
            call = LoggedCall(self._world.clock.time(), service, method, _resource(request))
            self._log(call)
            try:
                response = self._serve(call, token, lambda: handler.unary_unary(request, context), context)
            except ServiceError as error:
                call.code = error.code
                _abort(context, error, service)
            except _CallAbandonedError:
                context.abort(grpc.StatusCode.CANCELLED, "not answered")
            except Exception:
                call.code = "UNKNOWN"  # as grpc answers for it
                raise
            call.code = "OK"
            return response

        return grpc.unary_unary_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)

    def _serve(self, call: LoggedCall, token: str, answer: Callable[[], Any], context: Any) -> Any:
        fault = self._world.faults.take(call.method, call.resource, service=call.service)
        if fault is None:
            return self._answer(token, answer)
        if fault.stale_seconds > 0 and call.method in _READ_METHODS:
            answer = self._answer_from_past(answer, fault.stale_seconds)
        response = self._answer(token, answer) if fault.after_work else None
        if fault.black_hole or fault.latency_seconds > 0:
            self._delay(context, None if fault.black_hole else fault.latency_seconds)
        if fault.code not in ("", "OK"):
            raise _error_of(fault)
        if response is None:
            response = self._answer(token, answer)
        return _distorted(response, fault)

    def _log(self, call: LoggedCall) -> None:
        with self._world.lock:
            self._world.calls.append(call)

    def _answer(self, token: str, answer: Callable[[], Any]) -> Any:
        self._check_token(token, self._world.advance())
        return answer()

    def _answer_from_past(self, answer: Callable[[], Any], seconds: float) -> Callable[[], Any]:
        def answer_from_past() -> Any:
            with self._world.rewound(seconds):
                return answer()

        return answer_from_past

    def _check_token(self, authorization: str, now: float) -> None:
        tokens = self._world.tokens
        if tokens is None:
            return
        expires = tokens.get(authorization.removeprefix("Bearer "))
        if expires is None or expires <= now:
            reason = "ACCESS_TOKEN_EXPIRED" if authorization else "CREDENTIALS_MISSING"
            raise ServiceError("UNAUTHENTICATED", _MESSAGES[reason], reason=reason)

    def _delay(self, context: Any, seconds: float | None) -> None:
        """Wait, forever if `seconds` is None.

        Raises _CallAbandonedError if the caller gives up or the server closes.
        """
        over = threading.Event()
        with self._lock:
            self._waiting.add(over)
            if self._closing.is_set() or not context.add_callback(over.set):
                over.set()
        woken = over.wait(seconds)
        with self._lock:
            self._waiting.discard(over)
        if woken:
            raise _CallAbandonedError


class _CallAbandonedError(Exception):
    """Nobody waits for the answer any more."""


def _resource(request: Any) -> str:
    """Return the resource of a request: its name, or parent, or the name of its node."""
    for field in ("name", "parent"):
        value = getattr(request, field, "")
        if isinstance(value, str) and value:
            return value
    return str(getattr(getattr(request, "node", None), "name", ""))


def _error_of(fault: InjectedFault) -> ServiceError:
    message = fault.message or _MESSAGES.get(fault.reason, f"A fault is set: {fault.code}.")
    return ServiceError(fault.code, message, reason=fault.reason, retry_after_seconds=fault.retry_after_seconds)


def _abort(context: Any, error: ServiceError, service: str) -> None:
    """End the call with the error and its details, as Google's services carry them. Raises."""
    host = "monitoring.googleapis.com" if "monitoring" in service else "tpu.googleapis.com"
    details = list(error.details)
    if error.reason:
        details.append(
            error_details_pb2.ErrorInfo(reason=error.reason, domain="googleapis.com", metadata={"service": host})
        )
    if error.resource:
        details.append(error_details_pb2.ResourceInfo(resource_name=error.resource))
    if error.retry_after_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(error.retry_after_seconds * 1000))
        details.append(retry)
    if details:
        status = status_pb2.Status(code=code_number(error.code), message=error.message)
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        context.set_trailing_metadata(((STATUS_KEY, status.SerializeToString()),))
    context.abort(getattr(grpc.StatusCode, error.code, grpc.StatusCode.UNKNOWN), error.message)


def _distorted(message: Any, fault: InjectedFault) -> Any:
    """The response without the nodes and fields that the fault leaves out, and with unknown enum numbers."""
    if fault.omit and hasattr(message, "nodes"):
        kept = [node for node in message.nodes if not _is_omitted(node.name, fault)]
        del message.nodes[:]
        message.nodes.extend(kept)
    if fault.drop or fault.wrong_enum:
        _distort(message, frozenset(fault.drop), wrong_enum=fault.wrong_enum)
    return message


def _is_omitted(path: str, fault: InjectedFault) -> bool:
    return any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in fault.omit)


def _distort(message: Any, drop: frozenset[str], *, wrong_enum: bool) -> None:
    for field, value in message.ListFields():
        if field.name in drop:
            message.ClearField(field.name)
        elif field.enum_type is not None and wrong_enum and isinstance(value, int):
            setattr(message, field.name, NEW_ENUM_NUMBER)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in [value] if hasattr(value, "ListFields") else value:
                _distort(part, drop, wrong_enum=wrong_enum)
