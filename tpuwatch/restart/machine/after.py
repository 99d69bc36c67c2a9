"""The phases of a restart from the stop that was accepted to the node that is well again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.health.evidence import WELL_HEALTH
from tpuwatch.health.words import clean, length
from tpuwatch.restart.machine import commands
from tpuwatch.restart.machine.case import MAINTENANCE, backoff
from tpuwatch.restart.machine.endings import LOST, lost
from tpuwatch.restart.machine.sights import Call
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from tpuwatch.restart.machine.case import Case
    from tpuwatch.restart.machine.sights import Move, Operation
    from tpuwatch.restart.record import Target


def stopping(case: Case) -> Move:
    """The stop was accepted, or has shown."""
    if (move := _after_the_stop(case)) is not None:
        return move
    state = case.sight.shown
    if state == "READY":
        return _not_stopped(case, case.operation(Call.STOP))
    what = f"{case.node} is being stopped" if state == "STOPPING" else f"{case.node} is {state} after its stop"
    then = f"It is started as soon as it is stopped; nothing can be called before. {_look(case)}"
    return case.wait(what, case.limits.stop_seconds, then)


def _after_the_stop(case: Case) -> Move | None:
    """What follows alike before and after the stop has shown; None: the state alone does not tell."""
    state = case.sight.shown
    if state in LOST:
        return lost(case)
    if state == "STOPPED":
        return start(case)
    if state == "STARTING":
        return _found_starting(case)
    return None


def _not_stopped(case: Case, operation: Operation | None) -> Move:
    """The node is READY though its stop was accepted: it has not begun, has failed, or somebody started the node."""
    node, limits = case.record.target.node, case.limits
    # A list that is not whole may hide it; without end nothing is waited for that may have been forgotten.
    patience = limits.stop_seconds if case.sight.listed else 2 * limits.stop_seconds
    if operation is None and case.lasting and case.elapsed >= patience:
        return case.enter(Phase.VERIFYING, f"The stop of {node} has vanished: what the node is like is looked at.")
    if operation is None or not operation.done:
        then = f"If the stop is carried out yet, the node is started again. {_look(case)}"
        return case.wait(f"{case.node} is to stop, and is READY still", limits.stop_seconds, then)
    if not operation.code:
        return case.enter(
            Phase.STOPPED,
            f"The stop of {node} was carried out, and it is READY: has somebody started it?",
            down=case.now,
        )
    if case.elapsed < limits.doubt_seconds:
        return case.stay(f"The stop of {node} has failed; it is watched for {length(limits.doubt_seconds)}.")
    return case.end(Phase.FAILED, f"The stop of {node} has failed ({_said(operation)}): it is READY as before.")


def stopped(case: Case) -> Move:
    """The node is to be started; perhaps that was called already. It is called again until the node starts."""
    if (move := _after_the_stop(case)) is not None:
        return move
    state = case.sight.shown
    if state == "READY" and case.lasting:
        return case.enter(Phase.VERIFYING, f"{case.node} runs again.")
    what = f"{case.node} is to be started, and is {state}"
    then = f"Nothing can be called in this state. {_look(case)}"
    return case.wait(what, case.limits.wait_seconds, then)


def start(case: Case) -> Move:
    """It is STOPPED: start it, unless it is to be waited for."""
    held, note = case.held_for, case.record.note if case.record.phase is Phase.STOPPED else ""
    if held:
        sentence = f"{case.node} is stopped; it is started in {length(held)}. {note}"
        return case.stay(sentence.rstrip(), again=held)
    down = case.record.down or (case.now if case.record.stops else 0.0)
    sentence = f"{case.node} is stopped and is started now; that may take {length(case.limits.start_seconds)}."
    return case.call(Call.START, Phase.STOPPED, sentence, operation="", note=note, down=down)


def _found_starting(case: Case) -> Move:
    operation = replace(case, record=replace(case.record, operation="")).operation(Call.START)
    down = case.record.down or case.now
    return case.adopt(Phase.STARTING, operation, f"{case.node} is starting.", down=down)


def starting(case: Case) -> Move:
    """The start, or the reset, was accepted, or has shown."""
    state = case.sight.shown
    if state in LOST:
        return lost(case)
    if case.several:
        return _resetting(case)
    if state == "READY":
        return case.enter(Phase.VERIFYING, f"{case.node} runs again. {_verified_for(case)}")
    if state == "STOPPED":
        return _stopped_again(case)
    then = f"Nothing can be called before it has started or failed. {_look(case)}"
    return case.wait(f"{case.node} is to start, and is {state}", case.limits.start_seconds, then)


def _resetting(case: Case) -> Move:
    node, state, operation = case.record.target.node, case.sight.state, case.operation(Call.RESET)
    down = case.record.down or (case.now if state in ("RESTARTING", "STARTING") else 0.0)
    over = case.elapsed >= case.limits.start_seconds
    if state == "READY" and operation is not None and operation.done and operation.code:
        if case.elapsed < case.limits.doubt_seconds:
            left = length(case.limits.doubt_seconds)
            return case.stay(f"The reset of {node} has failed; it is watched for {left}.")
        return case.end(Phase.FAILED, f"The reset of {node} has failed ({_said(operation)}): it is READY as before.")
    if state == "READY" and operation is not None and operation.done:
        return case.enter(Phase.VERIFYING, f"{case.node} was reset. {_verified_for(case)}", down=case.now)
    if state == "READY" and operation is None and case.lasting and (down or over):
        return case.enter(Phase.VERIFYING, f"{case.node} is READY after its reset. {_verified_for(case)}", down=down)
    what = f"The queued resource of {node} is reset, and the node is {state}"
    then = f"Nothing can be called meanwhile. {_look(case)}"
    move = case.wait(what, case.limits.start_seconds, then)
    return replace(move, record=replace(move.record, down=down))


def _stopped_again(case: Case) -> Move:
    """STOPPED though the start was accepted: it has not begun, has failed, or somebody stopped the node."""
    node, operation = case.record.target.node, case.operation(Call.START)
    if case.stopped_by_another:
        return _left_stopped(case)
    if operation is not None and operation.done and operation.code:
        return _failed_start(case, f"The start of {node} has failed: {_said(operation)}.")
    if operation is not None and not operation.done and case.elapsed < case.limits.start_seconds:
        return case.stay(
            f"{case.node} is to start, and is STOPPED still; that may take {length(case.limits.start_seconds)}."
        )
    if not case.lasting or case.elapsed < case.limits.doubt_seconds:
        left = length(case.limits.doubt_seconds - case.elapsed)
        return case.stay(f"{case.node} is STOPPED still; {left} are given for its start to show.")
    return _failed_start(case, f"The start of {node} has come to nothing.")


def _failed_start(case: Case, why: str) -> Move:
    tries = case.record.tries + 1
    later = backoff(tries, case.limits)
    note = loud(case.record.target, why, tries) if tries >= case.limits.capacity_tries else ""
    sentence = f"{why} It is tried again in {length(later)}."
    return case.enter(Phase.STOPPED, sentence, operation="", tries=tries, not_before=case.now + later, note=note)


def verifying(case: Case) -> Move:
    """It runs again, as far as was shown. Does it stay well?"""
    state = case.sight.shown
    if state in LOST:
        return lost(case)
    if state == "STOPPED" and not case.several:
        return _stopped_while_verified(case)
    if state != "READY" or case.sight.health == MAINTENANCE:
        what = f"{case.node} was restarted, and is {state if state != 'READY' else 'under maintenance'}"
        then = f"{_look(case)}"
        return case.wait(what, case.limits.verify_seconds, then)
    if case.sight.health in WELL_HEALTH and case.sight.answers is not False:
        return _well(case)
    return _unwell(case)


def _well(case: Case) -> Move:
    since, needed = case.record.well_since or case.now, max(case.limits.settle_seconds, case.limits.stale_seconds)
    left = needed - case.since(since)
    if left > 0 or not case.lasting:
        again = min(max(left, 0.5), case.limits.poll_seconds)
        return case.stay(f"{case.node} is well; it is watched for {length(left)} more.", again=again, well_since=since)
    if not case.record.down:
        return case.end(Phase.FAILED, _unproven(case))
    took = length(case.since(case.record.began))
    return case.end(Phase.DONE, f"{case.node} was restarted in {took}, and has been well for {length(needed)}.")


def _unwell(case: Case) -> Move:
    bad = case.sight.health not in WELL_HEALTH
    told = f"its health is {clean(case.sight.health, 40)}" if bad else "nothing in it answers"
    unwell_for = min(case.elapsed, case.since(case.record.shown_since))
    if unwell_for < case.limits.verify_seconds:
        left = length(case.limits.verify_seconds - unwell_for)
        return case.stay(f"{case.node} runs, but {told}; {left} are left for it to get well.", well_since=0.0)
    if not case.record.down:
        return case.end(Phase.FAILED, _unproven(case))
    return case.end(
        Phase.FAILED,
        f"{case.node} was restarted and runs, but for {length(unwell_for)} {told}. Another restart will hardly help. "
        f"Look: {commands.describe(case.record.target)}.",
    )


def _stopped_while_verified(case: Case) -> Move:
    if case.stopped_by_another:
        return _left_stopped(case)
    if not case.lasting:
        left = length(case.limits.stale_seconds)
        return case.stay(f"{case.node} is shown as STOPPED; if that lasts for {left} it is started.", well_since=0.0)
    return case.enter(Phase.STOPPED, f"{case.node} is STOPPED: it is started again.", operation="")


def _left_stopped(case: Case) -> Move:
    if not case.lasting:
        return case.stay(f"Somebody has stopped {case.record.target.node}; that is looked at again.")
    return case.end(
        Phase.NEEDS_PERSON,
        f"{case.node} is STOPPED: somebody else stopped it after tpuwatch had started it, so it is left to them. "
        f"To start it: {commands.start(case.record.target)}.",
    )


def loud(target: Target, why: str, tries: int) -> str:
    """What a person must know of a node that is stopped and does not start."""
    return (
        f"Node {target.node} is STOPPED and does not start: {why} It was tried {tries} times, and is tried on without "
        f"end. By hand: {commands.start(target)}."
    )


def _look(case: Case) -> str:
    return f"Look: {commands.describe(case.record.target)}."


def _verified_for(case: Case) -> str:
    return f"It must stay well for {length(case.limits.settle_seconds)}, within {length(case.limits.verify_seconds)}."


def _unproven(case: Case) -> str:
    return (
        f"{case.node} is READY, and it is not known whether it was restarted: the API never showed it going down. If "
        f"it is as bad as before, ask for the restart again. {_look(case)}"
    )


def _said(operation: Operation) -> str:
    return clean(operation.message) or f"code {operation.code}"
