"""What tells a program that is stuck from one that only waits for its user, as a notebook does between two cells.

Chips that run nothing and processors that rest look the same in both. So a program is ended only with a sign that
something should run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.health import testimony
from tpuwatch.health.causes import NODE_FAULTS, PROGRAM_FAULTS
from tpuwatch.health.facts import SLACK_SECONDS
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.health.verdict import Reason
    from tpuwatch.model import Event, Launch

_FAULTS = PROGRAM_FAULTS | NODE_FAULTS | {Cause.HANG, Cause.DEADLINE_EXCEEDED}


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign that something should run."""

    pids: tuple[int, ...]  # of the program at fault, among those that hold the TPU; none where that is not known
    reason: Reason | None  # None: it is told by what the runtime says
    ended: bool = False  # the program has ended, and who holds the TPU was left behind


def sign(facts: Facts) -> Sign | None:
    """The sign that tells most of whose fault it is that nothing runs."""
    held = {holder.pid for holder in facts.holding}
    if (event := _fault(facts)) is not None:
        return Sign(tuple(held & {event.pid or 0}), testimony.event(facts, event))
    launch = facts.launch
    if launch is not None and launch.pid in held and not facts.is_up(launch):
        return Sign((launch.pid,), testimony.launch(facts, launch))
    if (ended := _ended(facts)) is not None:
        return Sign(facts.culprits, testimony.launch(facts, ended), ended=True)
    if (symptom := testimony.symptom(facts)) is not None:
        return Sign(facts.culprits, symptom)
    return Sign(facts.culprits, None) if facts.waiting else None


def _fault(facts: Facts) -> Event | None:
    """The newest fault of the program that holds the TPU, if the chips have run nothing since."""
    return next(
        (one for one in facts.events if one.cause in _FAULTS and facts.of_program(one) and facts.since_idle(one.when)),
        None,
    )


def _ended(facts: Facts) -> Launch | None:
    """The launch that has ended and left all that holds the TPU behind, if that is so.

    They began while it ran: who came before or after it may be anybody. A launch that found the TPU in use had no part.
    """
    newest = next((one for one in facts.launches if one.cause is not Cause.TPU_IN_USE), None)
    alive = facts.logs.alive if facts.logs is not None else frozenset()
    if newest is None or not facts.holding or (alive | {newest.pid}) & {holder.pid for holder in facts.holding}:
        return None
    if newest.pid in alive:
        return None
    heard = max(newest.started, newest.last_heard or 0.0)
    begun = (holder.started for holder in facts.holding)
    its_own = all(
        when is not None and newest.started - SLACK_SECONDS <= when <= heard + SLACK_SECONDS for when in begun
    )
    return newest if its_own else None
