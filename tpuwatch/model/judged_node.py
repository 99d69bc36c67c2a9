"""A watched node: how it was judged last, and what the cloud and its own tpuwatch answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.model.labels import node_label

if TYPE_CHECKING:
    from tpuwatch.model.signals import CloudNode, Peer, QueuedResource
    from tpuwatch.model.slices import Failure, Slice
    from tpuwatch.model.verdict import Judgement


@dataclass(frozen=True, slots=True)
class JudgedNode:
    """One watched node as it was judged last: its judgement, and the answers of the cloud and of its own tpuwatch."""

    node: str  # its name
    project: str
    zone: str
    own: bool  # tpuwatch runs on a machine of it
    judgement: Judgement
    cloud: CloudNode | None
    peer: Peer | None = None  # its own tpuwatch, where the node is watched from elsewhere and that has answered
    queued: QueuedResource | None = None  # of a node that the API does not list, where it is known
    slice: Slice | None = None  # of a node with several workers
    failure: Failure | None = None  # of this machine, if it is one of the node's
    in_api: bool = True  # False: the Cloud TPU API is not known to have it, so it is never restarted through it

    @property
    def label(self) -> str:
        """What identifies it among all that are watched."""
        return node_label(self.zone, self.node)
