"""What the Cloud TPU API said of nodes, for the next run: else all would seem to have changed when tpuwatch began."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tpuwatch.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpuwatch.health.evidence import CloudNode
    from tpuwatch.journal import Journal

_MOST_OTHERS = 20_000  # nodes that are kept in mind though no list has them: new ones come for ever

_log = logging.getLogger(__name__)


class CloudMemory:
    """Keeps in the journal what nodes are, whenever that changes. For one thread.

    Where the journal cannot be read, nothing is known of before; what it does not take is offered again.
    """

    def __init__(self, journal: Journal, failed: Callable[[], None]) -> None:
        """`failed` is told of each error of the journal; it is in tpuwatch's log too."""
        self._journal = journal
        self._failed = failed
        self._kept: dict[tuple[str, str, str], CloudNode] = {}
        try:
            self._kept = {_key(node): node for node in journal.cloud_nodes()}
        except JournalError as error:
            self._complain(error)

    def node(self, project: str, zone: str, name: str) -> CloudNode | None:
        """A node as it was last kept."""
        return self._kept.get((project, zone, name))

    def keep(self, nodes: Iterable[CloudNode]) -> None:
        """Keep what these nodes are now."""
        now = {_key(node): node for node in nodes}
        changed = {key: node for key, node in now.items() if _differ(self._kept.get(key), node)}
        if not changed:
            return
        try:
            self._journal.put_cloud_nodes(tuple(changed.values()))
        except JournalError as error:
            self._complain(error)
            return
        self._kept.update(changed)
        if len(self._kept) > 2 * len(now) + _MOST_OTHERS:
            self._kept = now

    def _complain(self, error: JournalError) -> None:
        self._failed()
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
