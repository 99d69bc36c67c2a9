"""The Cloud TPU API, google.cloud.tpu.v2.Tpu and google.cloud.tpu.v2alpha1.Tpu, over one world.

Methods raise ServiceError; the server's interceptor makes it the answer, strikes with faults and lets time pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.longrunning import operations_pb2

from tpuwatch.sim.cloud import lifecycle, work
from tpuwatch.sim.cloud.queued_resources import find_queued_resource, list_queued_resources
from tpuwatch.sim.cloud.responses import ServiceError, generic_handler, page_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from tpuwatch.sim.cloud.operations import SimOperation
    from tpuwatch.sim.cloud.queued_resources import SimulatedQueuedResource
    from tpuwatch.sim.cloud.wire import ApiVersion
    from tpuwatch.sim.cloud.world import World

OPERATIONS_SERVICE: Final = "google.longrunning.Operations"


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
            "ListQueuedResources": self.list_queued_resources,
            "GetQueuedResource": self.get_queued_resource,
            "ResetQueuedResource": self.reset_queued_resource,
        }
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

    def _beginning(self, change: Callable[[World, str, str], SimOperation]) -> Callable[[Any], Any]:
        """A method that begins an operation on the node of its request."""
        return lambda request: self._begun(change(self._world, request.name, self._api.version))

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


def _project(parent: str) -> str:
    return "/".join(parent.split("/")[:2])
