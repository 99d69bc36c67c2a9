"""A queued resource that concerns watched nodes, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.model.events import Remedy
    from tpuwatch.model.signals import QueuedResource


@unique
class QueuedProblem(Enum):
    """What can be wrong with a queued resource."""

    ENDED = "ended"  # it makes no nodes any more, and counts against the quota
    ORPHANED = "orphaned"  # it is ACTIVE, and the zone does not list its nodes
    NOT_FOUND = "not_found"  # nodes name it, and the zone does not list it
    OVERDUE = "overdue"  # it has waited for longer than `request_wait_seconds` under [cloud]


@dataclass(frozen=True, slots=True)
class JudgedQueuedResource:
    """A queued resource with the problem that it has. All of it rests on the Cloud TPU API."""

    queued: QueuedResource
    problem: QueuedProblem | None = None
    summary: str = ""  # a sentence on the problem
    remedy: tuple[Remedy, ...] = ()

    @property
    def label(self) -> str:
        """What identifies it among all that concern watched nodes."""
        return self.queued.label
