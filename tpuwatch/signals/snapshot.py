"""Where SignalsService posts the latest answers, and where JudgeService reads them. Safe from any thread."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tpuwatch.model import Answer, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable


class SnapshotStore:
    """Holds the latest snapshot. Calls `on_change`, from the poster's thread, after each post that changes something.

    An answer that differs from the one before only in its time is no change: the judge checks ages by itself.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._snapshot = Snapshot()

    @property
    def snapshot(self) -> Snapshot:
        """The latest answers. Replaced by each post, never changed."""
        return self._snapshot

    def post(self, **answers: Any) -> None:
        """Replace answers, by the names of Snapshot's fields."""
        with self._lock:
            before = self._snapshot
            self._snapshot = replace(before, **answers)
        if any(_differs(getattr(before, name), answer) for name, answer in answers.items()):
            self._on_change()

    def post_server_epoch(self, epoch: float | None) -> None:
        """What time it is by Google's servers: nothing is judged by that."""
        if epoch is not None:
            with self._lock:
                self._snapshot = replace(self._snapshot, server_epoch=epoch)


def _differs(before: Any, now: Any) -> bool:
    if isinstance(before, Answer) and isinstance(now, Answer):
        return (before.value, before.problem, before.detail) != (now.value, now.problem, now.detail)
    return before is not now
