"""Stores the states of nodes for the next run: without them all would seem to have changed when tpuwatch started."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tpuwatch.core import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpuwatch.model import CloudNode
    from tpuwatch.store import EventStore

_MAX_OTHERS = 20_000  # nodes that are remembered though no list has them: new ones never end

_log = logging.getLogger(__name__)


class CloudMemory:
    """Keeps in the store what nodes are, whenever that changes. For one thread.

    Where the store cannot be read, nothing is known of before; what it does not take is offered again.
    """

    def __init__(self, store: EventStore, on_error: Callable[[], None]) -> None:
        """Calls `on_error` after each error of the store, which is also logged."""
        self._store = store
        self._on_error = on_error
        self._kept: dict[tuple[str, str, str], CloudNode] = {}
        try:
            self._kept = {_key(node): node for node in store.cloud_nodes()}
        except StoreError as error:
            self._log_error(error)

    def node(self, project: str, zone: str, name: str) -> CloudNode | None:
        """Return a node as it was last stored."""
        return self._kept.get((project, zone, name))

    def keep(self, nodes: Iterable[CloudNode]) -> None:
        """Store the present states of these nodes."""
        now = {_key(node): node for node in nodes}
        changed = {key: node for key, node in now.items() if _differ(self._kept.get(key), node)}
        if not changed:
            return
        try:
            self._store.save_cloud_nodes(tuple(changed.values()))
        except StoreError as error:
            self._log_error(error)
            return
        self._kept.update(changed)
        if len(self._kept) > 2 * len(now) + _MAX_OTHERS:
            self._kept = now

    def _log_error(self, error: StoreError) -> None:
        self._on_error()
        _log.warning("%s", error)


def _key(node: CloudNode) -> tuple[str, str, str]:
    return node.project, node.zone, node.name


def _differ(kept: CloudNode | None, node: CloudNode) -> bool:
    """Whether something is new that is worth a write."""
    if kept is None or kept is node:
        return kept is None
    return (kept.state, kept.health, kept.created, kept.changed) != (
        node.state,
        node.health,
        node.created,
        node.changed,
    )
