"""The simulator's nodes, queued resources and operations as messages of the Cloud TPU API, in both of its versions."""

from __future__ import annotations

import datetime as dt
import zlib
from typing import TYPE_CHECKING, Any, Final

from google.cloud import tpu_v2, tpu_v2alpha1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tpuwatch.core import code_number
from tpuwatch.sim.cloud.metadata_tree import address
from tpuwatch.sim.cloud.nodes import QueuedRequest, SimNode

if TYPE_CHECKING:
    from tpuwatch.model import Maintenance
    from tpuwatch.sim.cloud.operations import SimOperation
    from tpuwatch.sim.cloud.queued_resources import SimulatedQueuedResource

TPU_PORT: Final = 8470
COMMON_METADATA: Final = "type.googleapis.com/google.cloud.common.OperationMetadata"


class ApiVersion:
    """One version of the Cloud TPU API, "v2" or "v2alpha1": its messages, and how to fill them."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.service = f"google.cloud.tpu.{version}.Tpu"
        self._module: Any = {"v2": tpu_v2, "v2alpha1": tpu_v2alpha1}[version]
        self._node: Any = self.message("Node")
        self._states = _numbers(self._node, "State")
        self._health = _numbers(self._node, "Health")
        self._symptoms = _numbers(self.message("Symptom"), "SymptomType")
        self._queued_states = _numbers(self.message("QueuedResourceState"), "State")
        self._initiators = _numbers(self.message("QueuedResourceState"), "StateInitiator")
        self._api_version = _numbers(self._node, "ApiVersion")["V2" if version == "v2" else "V2_ALPHA1"]

    def message(self, name: str) -> Any:
        """The class of a message, without the wrapper that people use."""
        return getattr(self._module, name).pb()

    def node(self, node: SimNode) -> Any:
        """A node as the API shows it."""
        message = self._node(
            name=node.path,
            accelerator_type=node.accelerator_type,
            state=_number(node.state, self._states),
            health_description=node.health_description,
            runtime_version=node.runtime_version,
            health=_number(node.health, self._health),
            labels=node.labels,
            id=_id(node),
            api_version=self._api_version,
            queued_resource=f"{node.parent}/queuedResources/{node.queued_resource}" if node.queued_resource else "",
        )
        _set_time(message.create_time, node.created)
        message.scheduling_config.spot = node.spot
        message.network_config.network = f"projects/{node.project}/global/networks/default"
        for worker in range(node.hosts if node.endpoints is None else node.endpoints):
            message.network_endpoints.add(ip_address=address(node, worker), port=TPU_PORT)
        for symptom in node.symptoms:
            shown = message.symptoms.add(
                symptom_type=_number(symptom.kind, self._symptoms), details=symptom.details, worker_id=symptom.worker
            )
            _set_time(shown.create_time, symptom.at)
        if node.maintenance is not None and self.version == "v2alpha1":
            _fill_maintenance(message.upcoming_maintenance, node.maintenance)
        return message

    def read_node(self, parent: str, name: str, message: Any) -> SimNode:
        """The node of a request to create one."""
        _, project, _, zone = parent.split("/")
        return SimNode(
            project,
            zone,
            name,
            accelerator_type=message.accelerator_type,
            runtime_version=message.runtime_version,
            labels=dict(message.labels),
            spot=message.scheduling_config.spot or message.scheduling_config.preemptible,
        )

    def queued_resource(self, resource: SimulatedQueuedResource) -> Any:
        """A queued resource as the API shows it."""
        message = self.message("QueuedResource")(name=resource.path)
        _set_time(message.create_time, resource.created)
        for node in resource.nodes:
            shown = message.tpu.node_spec.add(parent=node.parent, node_id=node.name).node
            shown.accelerator_type, shown.runtime_version = node.accelerator_type, node.runtime_version
        (message.spot if resource.spot else message.guaranteed).SetInParent()
        message.state.state = self._queued_states[resource.state]
        if resource.request is not None:
            self._fill_request(message, resource.request)
        return message

    def _fill_request(self, message: Any, request: QueuedRequest) -> None:
        _set_time(message.queueing_policy.valid_until_time, request.valid_until)
        message.state.state_initiator = _number(request.initiator, self._initiators)
        if request.error:
            message.state.failed_data.error.message = request.error

    def operation(self, operation: SimOperation, *, common_metadata: bool, result: Any | None) -> Any:
        """An operation; `result` is the message that a finished one carries, None for an empty one.

        google.cloud.common.OperationMetadata has the same fields by the same numbers as the API's own.
        """
        message = operations_pb2.Operation(name=operation.name, done=operation.ended is not None)
        metadata = self.message("OperationMetadata")(
            target=operation.target,
            verb=operation.verb,
            api_version=operation.api,
        )
        _set_time(metadata.create_time, operation.created)
        _set_time(metadata.end_time, operation.ended)
        message.metadata.Pack(metadata)
        if common_metadata:
            message.metadata.type_url = COMMON_METADATA
        if operation.error is not None:
            message.error.code, message.error.message = code_number(operation.error.code), operation.error.message
        elif operation.ended is not None:
            message.response.Pack(empty_pb2.Empty() if result is None else result)
        return message


def _numbers(message: Any, enum: str) -> dict[str, int]:
    values = message.DESCRIPTOR.enum_types_by_name[enum].values
    return {value.name: value.number for value in values}


def _number(name: str | int, numbers: dict[str, int]) -> int:
    """The enum's number; 0, which is none, for a name that this version of the API does not know."""
    return name if isinstance(name, int) else numbers.get(name, 0)


def _set_time(field: Any, seconds: float | None) -> None:
    if seconds is not None:
        field.FromMicroseconds(round(seconds * 1e6))


def _fill_maintenance(message: Any, maintenance: Maintenance) -> None:
    message.type_ = _number(maintenance.kind, _numbers(message, "MaintenanceType"))
    message.maintenance_status = _number(maintenance.status, _numbers(message, "MaintenanceStatus"))
    message.can_reschedule = maintenance.can_reschedule
    for field, seconds in (
        ("window_start_time", maintenance.start),
        ("window_end_time", maintenance.end),
        ("latest_window_start_time", maintenance.latest_start),
    ):
        if seconds is not None:  # text, other than all other times
            time = dt.datetime.fromtimestamp(seconds, dt.timezone.utc)
            setattr(message, field, time.isoformat(timespec="seconds").replace("+00:00", "Z"))


def _id(node: SimNode) -> int:
    return zlib.crc32(f"{node.path}@{node.created}".encode()) << 16
