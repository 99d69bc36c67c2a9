"""Long-running operations as data: what they are about, when they end, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tpuwatch.sim.cloud.nodes import SimNode


class Error(NamedTuple):
    """Why an operation failed."""

    code: str  # a gRPC code's name
    message: str


@dataclass(slots=True)
class SimOperation:
    """An operation on a node or a queued resource."""

    name: str  # projects/P/locations/Z/operations/operation-…
    verb: str  # "stop", "start", …
    target: str  # the resource name
    api: str  # "v2" or "v2alpha1": what it was begun by
    created: float
    ended: float | None = None
    error: Error | None = None
    node: SimNode | None = None  # as it was at the end
