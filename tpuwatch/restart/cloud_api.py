"""The Cloud TPU API as the executor needs it, by Google's own client: what it shows of a node, and the three calls.

Every call has a deadline and nothing is retried. The library never waits for an operation: one look of its own may take
ten minutes, and it raises on the metadata that the real service sends. Imports Google's packages: import it lazily.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    from google.cloud import tpu_v2
    from google.protobuf.message import DecodeError

from tpuwatch.core import clean
from tpuwatch.google import (
    MAX_PAGES,
    PAGE_SIZE,
    ApiError,
    ApiFault,
    CloudClient,
    NodeConverter,
    PermissionsClient,
    RequestContext,
    short_name,
)
from tpuwatch.model import Problem
from tpuwatch.restart.workflow.types import ApiCall, CallAnswer, NodeObservation, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.config import CloudConfig
    from tpuwatch.core import Clock
    from tpuwatch.model import CloudNode, Target

MAX_SECONDS: Final = 20.0  # for a look or a call: well below a lease
_PERMISSION_SECONDS: Final = 4.0  # for the credentials, and for the answer: of MAX_SECONDS
MAX_NAME: Final = 256
_MAX_TEXT: Final = 240  # characters of a message of the service
MAX_OPERATIONS: Final = 500  # listed of one node, the newest
# With these codes the service has not carried out the call. After all others it may have: the answer may be lost, or
# come from something on the way.
_REFUSED: Final = frozenset(
    {
        "ALREADY_EXISTS",
        "FAILED_PRECONDITION",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "OUT_OF_RANGE",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "UNIMPLEMENTED",
    }
)
# Faults whose sentence names what has to be changed.
_EXPLAINED: Final = frozenset({Problem.CREDENTIALS, Problem.DENIED, Problem.DISABLED, Problem.SCOPE})
_STARTED_AT: Final = re.compile(r"/operation-(\d{13})-")  # milliseconds, in the names that the service gives
_VERBS: Final = ("stop", "start", "reset")
_METHODS: Final = {ApiCall.STOP: "StopNode", ApiCall.START: "StartNode", ApiCall.RESET: "ResetQueuedResource"}
_PERMISSIONS: Final = {
    "GetNode": "tpu.nodes.get",
    "ListOperations": "tpu.operations.list",
    "StopNode": "tpu.nodes.stop",
    "StartNode": "tpu.nodes.start",
    "ResetQueuedResource": "tpu.nodes.reset",
}


class CloudNodeApi:
    """One server of the Cloud TPU API, as [cloud] configures it. Connects at the first call. Used from one thread."""

    def __init__(
        self,
        cloud: CloudConfig,
        *,
        clock: Clock,
        counted: Callable[[str, str], None] = lambda *_: None,
        permissions: PermissionsClient | None = None,
    ) -> None:
        """`counted` is called with the method and the code of each call. `permissions` are by default Google's, and
        with another endpoint none."""
        self._client = CloudClient(cloud, clock=clock, on_call=counted)
        self._clock = clock
        self._seconds = cloud.timeout_seconds
        self._permissions = permissions or (PermissionsClient(clock) if not cloud.endpoint else None)

    def look(self, target: Target, *, since: float | None) -> NodeObservation:
        """What it shows of the node, with the operations on it that were created at or after `since`. Never raises.

        With None they are not asked for: the service lists them for the whole zone, of all nodes and of days.
        Takes MAX_SECONDS at most, all calls together.
        """
        now, deadline = self._clock.time(), self._deadline()
        try:
            raw = self._get(target, deadline)
        except ApiError as error:
            if error.fault.code == "NOT_FOUND":
                return self._with_operations(NodeObservation(now, "", gone=True), target, since, deadline)
            return NodeObservation(now, "", fault=str(error))
        node = NodeConverter(target.project, target.zone, now).convert(raw, target.node, None)
        observation = NodeObservation(
            at=now,
            state=node.state,
            health=node.health,
            spot=node.spot,
            hosts=node.hosts,
            queued_resource=node.queued_resource,
            created=node.created,
        )
        return self._with_operations(observation, target, since, deadline)

    def call(self, call: ApiCall, target: Target, queued_resource: str) -> CallAnswer:
        """Make the call. A lost answer is a CallAnswer with only a message. Never raises.

        No node is stopped that could not be started: such a stop is refused here.
        """
        deadline = self._deadline()
        if call is ApiCall.STOP and (denied := self._denied_start(target)):
            return CallAnswer(code="PERMISSION_DENIED", message=denied)
        method = _METHODS[call]
        if call is ApiCall.RESET:
            what, request = (
                f"reset of queued resource {queued_resource}",
                {"name": _queued_path(target, queued_resource)},
            )
        else:
            what, request = f"{call.value} of node {target.node}", {"name": target.path}

        def made(client: Any, seconds: float) -> str:
            calls = {
                ApiCall.STOP: client.stop_node,
                ApiCall.START: client.start_node,
                ApiCall.RESET: client.reset_queued_resource,
            }
            # The future is left alone: its metadata may be of a type that it does not know.
            return str(calls[call](request=request, retry=None, timeout=seconds).operation.name)

        try:
            return CallAnswer(operation=self._ask(method, f"the {what}", target, deadline, made))
        except ApiError as error:
            return _answer_to(error, what)

    def _denied_start(self, target: Target) -> str:
        """Why the node could be stopped and then not be started, a sentence; "" where that is not so or not known."""
        if self._permissions is None:
            return ""
        stop, start = _PERMISSIONS["StopNode"], _PERMISSIONS["StartNode"]
        held = self._permissions.held(target.project, (stop, start), min(self._seconds, _PERMISSION_SECONDS))
        if held is None or stop not in held or start in held:  # without the first it may be granted on the node alone
            return ""
        return (
            f"Node {target.node} is not stopped, because it could not be started again: the credentials have {stop} on "
            f"project {target.project}, and not {start}. Grant roles/tpu.admin."
        )

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def _deadline(self) -> float:
        return self._clock.monotonic() + MAX_SECONDS

    def _get(self, target: Target, deadline: float) -> Any:
        def got(client: Any, seconds: float) -> Any:
            return client.get_node(request={"name": target.path}, retry=None, timeout=seconds)

        node = self._ask("GetNode", f"node {target.node}", target, deadline, got)
        return type(node).pb(node)

    def _with_operations(
        self, observation: NodeObservation, target: Target, since: float | None, deadline: float
    ) -> NodeObservation:
        """The observation with the operations on the node and on its queued resource, as far as they can be listed."""
        if since is None:
            return replace(observation, operations=None, beside=None)
        observation = self._with_beside(observation, target, deadline)
        places = {_place(target.path)}
        if observation.queued_resource:
            places.add(_place(_queued_path(target, observation.queued_resource)))
        try:
            listed = [one for raw in self._operations(target, deadline) if (one := _listed(raw)).began(since)]
        except ApiError as error:
            return replace(observation, fault=str(error))
        found = [one.operation for one in listed if one.place in places]
        found.sort(key=lambda one: one.created or 0.0, reverse=True)
        fault = ""
        if unread := sum(not one.place for one in listed):
            fault = f"{unread} operations in zone {target.zone} name their node in no known form."
        elif len(found) > MAX_OPERATIONS:
            fault = f"There are too many operations on node {target.node} to be listed."
        return replace(observation, operations=tuple(found[:MAX_OPERATIONS]), listed=not fault, fault=fault)

    def _with_beside(self, observation: NodeObservation, target: Target, deadline: float) -> NodeObservation:
        """The observation with the other nodes of the queued resource: a reset would restart them too."""
        if observation.hosts == 1 or not observation.queued_resource:
            return observation
        try:
            return replace(observation, beside=tuple(self._beside(observation, target, deadline)))
        except ApiError as error:
            return replace(observation, beside=None, beside_fault=str(error))

    def _beside(self, observation: NodeObservation, target: Target, deadline: float) -> Iterator[CloudNode]:
        """Raises ApiError, also for a list that may lack nodes."""
        converter = NodeConverter(target.project, target.zone, observation.at)
        for page in self._client.list_nodes(target.project, target.zone):
            names = [short_name(raw.name) for raw in page.nodes]
            if page.unreachable or not all(names) or self._clock.monotonic() >= deadline:
                sentence = f"The Cloud TPU API has not listed all nodes of zone {target.zone}."
                raise ApiError(ApiFault(Problem.UNREACHABLE, "OK", sentence))
            for name, raw in zip(names, page.nodes, strict=True):
                of_it = raw.queued_resource.rpartition("/")[2] == observation.queued_resource
                if of_it and name != target.node:
                    yield converter.convert(raw, name, None)

    def _operations(self, target: Target, deadline: float) -> Iterator[Any]:
        """All operations of the zone. Raises ApiError.

        The service has a filter without documented words. One that it does not understand, or understands otherwise,
        would hide what matters most: so nothing is filtered there.
        """
        token = ""
        for _ in range(MAX_PAGES):
            page = self._page_of_operations(target, deadline, token)
            yield from page.operations
            token = page.next_page_token
            if not token:
                return
        sentence = (
            f"The Cloud TPU API does not come to an end of the operations in zone {target.zone}. It is asked again."
        )
        raise ApiError(ApiFault(Problem.SERVER, "OK", sentence))

    def _page_of_operations(self, target: Target, deadline: float, token: str) -> Any:
        request = {"name": target.path.rpartition("/nodes/")[0], "page_size": PAGE_SIZE, "page_token": token}

        def listed(client: Any, seconds: float) -> Any:
            return client.list_operations(request=request, retry=None, timeout=seconds)

        return self._ask("ListOperations", "the operations", target, deadline, listed)

    def _ask(self, method: str, what: str, target: Target, deadline: float, call: Callable[[Any, float], Any]) -> Any:
        place = f"zone {target.zone} in project {target.project}"
        context = RequestContext(
            what=f"{what} in {place}",
            place=place,
            project=target.project,
            server=self._client.server,
            seconds=max(0.001, min(self._seconds, deadline - self._clock.monotonic())),
            permission=_PERMISSIONS[method],
            role="roles/tpu.admin",
        )
        return self._client.ask(method, context, call)


def _answer_to(error: ApiError, what: str) -> CallAnswer:
    fault = error.fault
    refused = fault.code in _REFUSED
    if fault.problem in _EXPLAINED:
        message = fault.sentence
    else:
        detail = clean(str(getattr(error.__cause__, "message", error.__cause__)), _MAX_TEXT)
        came = "was refused" if refused else "was not answered, and may have been carried out or not"
        message = f"The {what} {came} ({fault.code})."
        if detail:
            message += f' The message: "{detail}"' + ("" if detail.endswith(".") else ".")
    return CallAnswer(code=fault.code if refused else "", message=message, retry_after=fault.retry_after)


def _queued_path(target: Target, queued_resource: str) -> str:
    return f"{target.path.rpartition('/nodes/')[0]}/queuedResources/{queued_resource}"


def _place(path: str) -> str:
    """A resource's name without its project, which may be given by its number."""
    return path.partition("/locations/")[2]


class _ListedOperation(NamedTuple):
    """An operation, and what it is on."""

    operation: Operation
    place: str  # "" where that cannot be read: it may be the one looked for

    def began(self, since: float) -> bool:
        """Whether it was created then or later, as far as is known."""
        return self.operation.created is None or self.operation.created >= since


def _listed(raw: Any) -> _ListedOperation:
    """An operation as the service lists it.

    Its metadata is google.cloud.tpu.v2.OperationMetadata or google.cloud.common.OperationMetadata, which has the same
    fields by the same numbers.
    """
    metadata = tpu_v2.OperationMetadata.pb()()
    try:
        metadata.ParseFromString(raw.metadata.value)
    except DecodeError:
        metadata.Clear()
    verb = metadata.verb.lower()
    operation = Operation(
        name=clean(raw.name, MAX_NAME),
        verb=next((known for known in _VERBS if verb.startswith(known)), clean(verb, MAX_NAME)),
        created=_created(raw.name, metadata),
        done=raw.done,
        code=raw.error.code if raw.HasField("error") else 0,
        message=clean(raw.error.message, _MAX_TEXT),
    )
    return _ListedOperation(operation, _place(metadata.target))


def _created(name: str, metadata: Any) -> float | None:
    """When it was created, in seconds since the epoch; from its name where the metadata lacks it."""
    if metadata.HasField("create_time"):
        return float(metadata.create_time.seconds + metadata.create_time.nanos / 1e9)
    match = _STARTED_AT.search(name)
    return int(match[1]) / 1000 if match else None
