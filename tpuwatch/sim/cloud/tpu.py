"""The Cloud TPU API, google.cloud.tpu.v2.Tpu and google.cloud.tpu.v2alpha1.Tpu, over one world.

Methods raise ServiceError; the server's interceptor makes it the answer, strikes with faults and lets time pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tpuwatch.sim.cloud import lifecycle, work
from tpuwatch.sim.cloud.queued_resources import find_queued_resource, list_queued_resources
from tpuwatch.sim.cloud.responses import ServiceError, generic_handler, page_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.operations import SimOperation
    from tpuwatch.sim.cloud.queued_resources import SimulatedQueuedResource
    from tpuwatch.sim.cloud.wire import ApiVersion
    from tpuwatch.sim.cloud.world import World

OPERATIONS_SERVICE: Final = "google.longrunning.Operations"
# What UpdateNode lets people change.
_CHANGEABLE: Final[dict[str, Callable[[Any], Any]]] = {
    "description": lambda message: message.description,
    "labels": lambda message: dict(message.labels),
    "metadata": lambda message: dict(message.metadata),
    "tags": lambda message: list(message.tags),
}


class TpuService:
    """One version of the Cloud TPU API."""

    def __init__(self, world: World, api: ApiVersion) -> None:
        self._world = world
        self._api = api

    def handler(self) -> grpc.GenericRpcHandler:
        """It, for a grpc server."""
        methods = {
            "ListNodes": self.list_nodes,
            "GetNode": self.get_node,
            "CreateNode": self.create_node,
            "DeleteNode": self._beginning(lifecycle.delete),
            "StopNode": self._beginning(lifecycle.stop),
            "StartNode": self._beginning(lifecycle.start),
            "UpdateNode": self.update_node,
            "ListQueuedResources": self.list_queued_resources,
            "GetQueuedResource": self.get_queued_resource,
            "ResetQueuedResource": self.reset_queued_resource,
        }
        if self._api.version == "v2alpha1":
            methods["SimulateMaintenanceEvent"] = self.simulate_maintenance_event
            methods["PerformMaintenance"] = self.perform_maintenance
            methods["PerformMaintenanceQueuedResource"] = self.perform_maintenance_queued_resource
        return generic_handler(
            self._world,
            self._api.service,
            {name: (method, self._api.message(f"{name}Request")) for name, method in methods.items()},
        )

    def list_nodes(self, request: Any) -> Any:
        """A page of the nodes of a location, by name; of all, for the location "-"."""
        world = self._world
        names, token = page_of(self._within(request.parent, "nodes", world.nodes), request, world.page_limit)
        nodes = [self._api.node(world.nodes[name]) for name in names]
        return self._api.message("ListNodesResponse")(nodes=nodes, next_page_token=token)

    def get_node(self, request: Any) -> Any:
        """One node."""
        return self._api.node(lifecycle.find(self._world, request.name))

    def create_node(self, request: Any) -> Any:
        """Create a node."""
        lifecycle.check_parent(self._world, request.parent)
        node = self._api.read_node(request.parent, request.node_id, request.node)
        return self._begun(lifecycle.create(self._world, node, self._api.version))

    def update_node(self, request: Any) -> Any:
        """Change description, labels, metadata or tags, as the mask says."""
        paths = list(request.update_mask.paths)
        if not paths or not set(paths) <= _CHANGEABLE.keys():
            raise ServiceError("INVALID_ARGUMENT", f"Invalid update mask: {', '.join(paths) or 'it is empty'}")
        values = {path: _CHANGEABLE[path](request.node) for path in paths}

        def change(node: SimNode) -> None:
            for path, value in values.items():
                setattr(node, path, value)

        return self._begun(lifecycle.update(self._world, request.node.name, self._api.version, change))

    def list_queued_resources(self, request: Any) -> Any:
        """A page of the queued resources of a location."""
        found = list_queued_resources(self._world, f"{_project(request.parent)}/")
        within = self._within(request.parent, "queuedResources", found)
        names, token = page_of(within, request, self._world.page_limit)
        resources = [self._api.queued_resource(found[name]) for name in names]
        return self._api.message("ListQueuedResourcesResponse")(queued_resources=resources, next_page_token=token)

    def get_queued_resource(self, request: Any) -> Any:
        """One queued resource."""
        return self._api.queued_resource(self._queued(request.name))

    def reset_queued_resource(self, request: Any) -> Any:
        """Boot all hosts of all nodes of a queued resource."""
        resource = self._queued(request.name)
        if resource.state != "ACTIVE":
            raise ServiceError("FAILED_PRECONDITION", f"Cannot reset {resource.path}: its state is {resource.state}.")
        return self._begun(lifecycle.reset(self._world, resource.path, self._api.version, resource.nodes))

    def simulate_maintenance_event(self, request: Any) -> Any:
        """Have an unscheduled maintenance begin on a node; the workers in the request are ignored."""
        return self._maintain("SimulateMaintenanceEvent", request.name, [lifecycle.find(self._world, request.name)])

    def perform_maintenance(self, request: Any) -> Any:
        """Have the maintenance that is announced for a node begin now."""
        return self._maintain(
            "PerformMaintenance", request.name, [_announced(lifecycle.find(self._world, request.name))]
        )

    def perform_maintenance_queued_resource(self, request: Any) -> Any:
        """Have the maintenance begin now that is announced for the named nodes of a queued resource, or for all."""
        resource = self._queued(request.name)
        wanted = {name.rpartition("/")[2] for name in request.node_names}
        nodes = [_announced(node) for node in resource.nodes if not wanted or node.name in wanted]
        return self._maintain("PerformMaintenanceQueuedResource", resource.path, nodes)

    def _beginning(self, change: Callable[[World, str, str], SimOperation]) -> Callable[[Any], Any]:
        """A method that begins an operation on the node of its request."""
        return lambda request: self._begun(change(self._world, request.name, self._api.version))

    def _maintain(self, method: str, path: str, nodes: list[SimNode]) -> Any:
        return self._begun(lifecycle.maintain(self._world, path, self._api.version, method, nodes))

    def _queued(self, path: str) -> SimulatedQueuedResource:
        lifecycle.check_parent(self._world, path.partition("/queuedResources/")[0])
        return find_queued_resource(self._world, path)

    def _within(self, parent: str, collection: str, names: dict[str, Any]) -> list[str]:
        lifecycle.check_parent(self._world, parent)
        start = f"{_project(parent)}/locations/" if parent.endswith("/locations/-") else f"{parent}/{collection}/"
        return [name for name in names if name.startswith(start)]

    def _begun(self, operation: SimOperation) -> Any:
        return show_operation(self._world, self._api, operation)


class OperationsService:
    """google.longrunning.Operations, for the operations that either version of the API began."""

    def __init__(self, world: World, apis: dict[str, ApiVersion]) -> None:
        self._world = world
        self._apis = apis

    def handler(self) -> grpc.GenericRpcHandler:
        """It, for a grpc server."""
        methods = {
            "GetOperation": self.get_operation,
            "ListOperations": self.list_operations,
            "CancelOperation": self.cancel_operation,
            "DeleteOperation": self.delete_operation,
            "WaitOperation": self.get_operation,  # which may return before the operation has ended
        }
        return generic_handler(
            self._world,
            OPERATIONS_SERVICE,
            {name: (method, getattr(operations_pb2, f"{name}Request")) for name, method in methods.items()},
        )

    def get_operation(self, request: Any) -> Any:
        """An operation as it stands."""
        return self._show(work.find(self._world, request.name))

    def list_operations(self, request: Any) -> Any:
        """A page of a location's operations; filters are not known."""
        lifecycle.check_parent(self._world, request.name)
        within = [name for name in self._world.operations if name.startswith(f"{request.name}/")]
        names, token = page_of(within, request, self._world.page_limit)
        shown = [self._show(self._world.operations[name]) for name in names]
        return operations_pb2.ListOperationsResponse(operations=shown, next_page_token=token)

    def cancel_operation(self, request: Any) -> Any:
        """Write the wish down; the operation goes on, as the contract of this method allows."""
        work.find(self._world, request.name).cancel_requested = True
        return empty_pb2.Empty()

    def delete_operation(self, request: Any) -> Any:
        """Forget an operation; what it does goes on."""
        del self._world.operations[work.find(self._world, request.name).name]
        return empty_pb2.Empty()

    def _show(self, operation: SimOperation) -> Any:
        return show_operation(self._world, self._apis[operation.api], operation)


def show_operation(world: World, api: ApiVersion, operation: SimOperation) -> Any:
    """The operation's message; one that is done carries the node, without its health, or the queued resource."""
    result = None
    if operation.ended is not None and operation.error is None and operation.verb != "delete":
        if "/queuedResources/" in operation.target:
            found = list_queued_resources(world, operation.target).get(operation.target)
            result = found and api.queued_resource(found)
        elif operation.node is not None:
            result = api.node(operation.node)
    return api.operation(operation, common_metadata=world.common_metadata, result=result)


def _announced(node: SimNode) -> SimNode:
    if node.maintenance is None:
        raise ServiceError("FAILED_PRECONDITION", f"No maintenance is announced for node {node.name}.")
    return node


def _project(parent: str) -> str:
    return "/".join(parent.split("/")[:2])
