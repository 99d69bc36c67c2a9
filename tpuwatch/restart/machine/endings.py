"""Nodes that are lost in the middle of a restart, by nobody's doing here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import length
from tpuwatch.restart.machine import commands
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from tpuwatch.restart.machine.case import Case
    from tpuwatch.restart.machine.sights import Move

LOST: Final = frozenset({"GONE", "PREEMPTED", "TERMINATED"})


def lost(case: Case) -> Move:
    """The node is gone, or will never run again: nothing of it can be started. One look at it may be an old one."""
    target, shown = case.record.target, case.sight.shown
    what = f"{case.node} {'is gone: the API knows no such node' if case.sight.gone else f'is {shown}'}"
    if not case.lasting:
        left = length(case.limits.stale_seconds)
        return case.stay(f"{what}. It is looked at again for {left} before that is believed.")
    anew = commands.create(target) if case.sight.gone else commands.recreate(target, case.sight.queued_resource)
    return case.end(
        Phase.NEEDS_PERSON, f"{what}, in the middle of its restart: it cannot be started. To have it again: {anew}."
    )
