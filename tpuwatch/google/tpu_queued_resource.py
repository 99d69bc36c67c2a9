"""Conversion of a protobuf QueuedResource of the Cloud TPU API, with all text cleaned and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean
from tpuwatch.google.tpu_node import enum_name, short_name, time_of
from tpuwatch.model import QueuedResource

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_NODES: Final = 4096  # of one queued resource
_MAX_TEXT: Final = 500
_NO_INITIATOR: Final = "STATE_INITIATOR_UNSPECIFIED"


def convert_queued_resource(raw: Any, project: str, zone: str) -> QueuedResource | None:
    """Convert a raw QueuedResource of v2; None if its name cannot be read."""
    name = short_name(raw.name)
    if not name:
        return None
    state, policy = raw.state, raw.queueing_policy
    initiator = enum_name(state, "state_initiator", "STATE_INITIATOR")
    return QueuedResource(
        name=name,
        state=enum_name(state, "state", "STATE"),
        project=project,
        zone=zone,
        nodes=tuple(dict.fromkeys(_nodes(raw, name)))[:_MAX_NODES],
        spot=raw.HasField("spot"),
        initiator="" if initiator == _NO_INITIATOR else initiator,
        detail=clean(state.failed_data.error.message, _MAX_TEXT) if state.HasField("failed_data") else "",
        created=time_of(raw, "create_time"),
        valid_until=time_of(policy, "valid_until_time"),
    )


def _nodes(raw: Any, queued_resource: str) -> Iterator[str]:
    """The names of the nodes that it makes: several slices are named by a prefix and a number."""
    for spec in raw.tpu.node_spec:
        if spec.HasField("multislice_params"):
            several = spec.multislice_params
            prefix = several.node_id_prefix or queued_resource
            names = (f"{prefix}-{number}" for number in range(min(several.node_count, _MAX_NODES)))
            yield from filter(None, map(short_name, names))
        elif name := short_name(spec.node_id):
            yield name
