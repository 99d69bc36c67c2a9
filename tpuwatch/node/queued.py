"""What became of the queued resources that gone nodes came from."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.node.apifaults import ApiError
from tpuwatch.node.cloudnode import enum_name, short_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.clock import Clock
    from tpuwatch.node.cloudclient import CloudClient
    from tpuwatch.node.watchlist import Watch

ASK_SECONDS: Final = 300.0


class QueuedResources:
    """Of one zone; asked for at most every five minutes, whether that succeeds or not. A fault leaves what was told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked = -math.inf
        self._told: dict[str, str] = {}

    def told(self, client: CloudClient, watch: Watch) -> dict[str, str]:
        """A sentence on each queued resource, under "/" and its name, and under the names of its watched nodes."""
        now = self._clock.monotonic()
        if now - self._asked >= ASK_SECONDS:
            self._asked = now
            with contextlib.suppress(ApiError):  # the call is counted; nodes are judged without it
                self._told = dict(_sentences(client, watch))
        return self._told


def _sentences(client: CloudClient, watch: Watch) -> Iterator[tuple[str, str]]:
    for page in client.list_queued_resources(watch.project, watch.zone):
        for raw in page.queued_resources:
            name = short_name(raw.name)
            if name:
                sentence = f"Its queued resource {name} is {enum_name(raw.state, 'state', 'STATE')}."
                yield f"/{name}", sentence
                for node in _node_ids(raw, watch):
                    yield node, sentence


def _node_ids(raw: Any, watch: Watch) -> set[str]:
    """The watched names that a queued resource makes nodes of."""
    ids: set[str] = set()
    for spec in raw.tpu.node_spec:
        if spec.node_id in watch.names:
            ids.add(spec.node_id)
        # Several slices are named by a prefix and a number.
        prefix = spec.multislice_params.node_id_prefix if spec.HasField("multislice_params") else ""
        if prefix:
            ids.update(name for name in watch.names if name.rpartition("-")[0] == prefix and name[-1].isdigit())
    return ids
