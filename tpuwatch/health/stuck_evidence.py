"""What distinguishes a program that is stuck from one that waits: for its user, as a notebook does, or for requests.

Chips that run nothing and an idle CPU look the same in both. So a program is ended only with evidence that something
should run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.health import reason
from tpuwatch.health.facts import SLACK_SECONDS
from tpuwatch.model import Whose

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import Event, Launch, Reason

_ITS_FAULTS: Final = (Whose.PROGRAM, Whose.SETUP, Whose.NODE, Whose.UNCLEAR)  # after which it may stand still


@dataclass(frozen=True, slots=True)
class StuckEvidence:
    """Evidence that something should run."""

    pids: tuple[int, ...]  # of the program at fault, among those that hold the TPU; empty if not known
    reason: Reason | None  # None: the runtime's own reason already covers it
    ended: bool = False  # the program has ended and left processes behind that hold the TPU


def find_stuck_evidence(facts: Facts) -> StuckEvidence | None:
    """Return the strongest evidence. What can be proven comes first, so that no text of a user decides which process it
    is that is ended."""
    if (trusted := find_trusted_evidence(facts)) is not None:
        return trusted
    if facts.awaits_input:
        return None  # a cell or a request that failed is over: the program waits for the next one
    held = {holder.pid for holder in facts.main_holders}
    if (event := newest_fault(facts)) is not None:
        return StuckEvidence(tuple(held & {event.pid or 0}), reason.event(facts, event))
    if (loop := facts.stalled_loop) is not None:
        return StuckEvidence(tuple(held & {loop.pid or 0}), reason.steps(facts, loop))
    launch = facts.launch
    if launch is not None and launch.pid in held and not facts.is_up(launch):
        return StuckEvidence((launch.pid,), reason.launch(facts, launch))
    if (left := _launch_that_left_holders(facts)) is not None:
        return StuckEvidence(facts.program_pids, reason.launch(facts, left), ended=True)
    return None


def find_trusted_evidence(facts: Facts) -> StuckEvidence | None:
    """Return the strongest evidence that no user can forge."""
    if facts.blocked is not None:
        return StuckEvidence((facts.blocked.pid,), reason.blocked(facts))
    if facts.queued_programs:
        return StuckEvidence(facts.program_pids, None)
    if (symptom := reason.symptom(facts)) is not None:
        return StuckEvidence(facts.program_pids, symptom)
    return None


def newest_fault(facts: Facts) -> Event | None:
    """Return the newest fault of the program that holds the TPU, if the chips are not known to have run since."""
    faults = (one for one in facts.events if one.cause.row.whose in _ITS_FAULTS and facts.is_of_program(one))
    return next((one for one in faults if facts.lacks_metrics or facts.is_since_idle(one.when)), None)


def _launch_that_left_holders(facts: Facts) -> Launch | None:
    """Return the launch that has ended and left behind every process that holds the TPU, if there is one.

    They started while it ran: a process from before or after it may be unrelated. A launch that found the TPU in use
    does not count.
    """
    others = (one for one in facts.launches if one.cause is None or one.cause.row.whose is not Whose.HOLDER)
    newest = next(others, None)
    alive = facts.logs.alive if facts.logs is not None else frozenset()
    if newest is None or newest.pid in alive or not facts.main_holders:
        return None
    if (alive | {newest.pid}) & {holder.pid for holder in facts.main_holders}:
        return None
    end = max(newest.started, newest.last_heard or 0.0) + SLACK_SECONDS
    started = [holder.started for holder in facts.main_holders]
    its_own = all(when is not None and newest.started - SLACK_SECONDS <= when <= end for when in started)
    return newest if its_own else None
