"""The phases of a restart in which the node has not gone down yet, as far as is known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import clean, length
from tpuwatch.restart.machine import commands
from tpuwatch.restart.machine.after import start
from tpuwatch.restart.machine.case import MAINTENANCE, Case
from tpuwatch.restart.machine.endings import lost
from tpuwatch.restart.machine.sights import Call
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from tpuwatch.restart.machine.sights import Move

_RECREATED: Final = {
    "GONE": "the API knows no such node",
    "PREEMPTED": "it was preempted, and only a new one can take its place",
    "TERMINATED": "it was terminated, and only a new one can take its place",
    "UNKNOWN": "a repair by the service has failed (its state is UNKNOWN)",
}


def requested(case: Case) -> Move:
    """Nothing was called, or what was called is known not to have been carried out."""
    record, sight = case.record, case.sight
    if (why := _out_of_reach(case)) is not None:
        return case.end(Phase.NEEDS_PERSON, why)
    if sight.state in ("STOPPING", "STOPPED") and record.witnesses and case.untouched:
        return _left_to_others(case)
    if sight.state == "STOPPED":
        return start(case)
    if case.since(record.began) >= case.limits.wait_seconds:
        return case.end(Phase.FAILED, _given_up(case))
    hindrance = _hindrance(case)
    if hindrance or case.held_for:
        left = case.limits.wait_seconds - case.since(record.began)
        return case.stay(
            f"{hindrance or f'{case.node} could not be restarted yet. {record.note}'} Nothing is called for now; it is "
            f"tried for up to {length(left)} more.",
            again=max(case.held_for, case.limits.poll_seconds),
        )
    if case.restarted_by_another:
        sentence = f"Somebody else has restarted {case.record.target.node} since this was asked for, so it is not done"
        return case.enter(Phase.VERIFYING, f"{sentence} again: what the node is like is looked at.", down=case.now)
    if case.several:
        name = sight.queued_resource
        sentence = f"{case.node} has {sight.hosts} hosts: its queued resource {clean(name, 100)} is reset now."
        return case.bring_down(Call.RESET, sentence, queued_resource=name)
    return case.bring_down(Call.STOP, f"{case.node} is stopped now, to be started again.")


def intent(case: Case) -> Move:
    """The stop, or the reset, was about to be called: nobody knows whether it was carried out."""
    call = Call.RESET if case.several else Call.STOP
    state, operation = case.sight.shown, case.operation(call)
    if case.several and state in ("RESTARTING", "STARTING"):
        return _accepted(case, Phase.STARTING, f"{case.node} is being reset ({state}).", down=case.now)
    if not case.several and state in ("STOPPING", "STOPPED", "STARTING"):
        # The next look goes on from there, by what the state is then.
        return _accepted(case, Phase.STOPPING, f"The stop of {case.record.target.node} was carried out ({state}).")
    if state in _RECREATED and state != "UNKNOWN":
        return lost(case)
    if state != "READY":
        what = f"{case.node} is {state}, and it is not known whether the {call.value} was carried out"
        return case.wait(what, case.limits.wait_seconds, f"Look at it: {commands.describe(case.record.target)}.")
    if operation is not None:
        phase = Phase.STARTING if case.several else Phase.STOPPING
        return _accepted(case, phase, f"The {call.value} of {case.record.target.node} was accepted.")
    return _in_doubt(case, call)


def _in_doubt(case: Case, call: Call) -> Move:
    left = case.limits.doubt_seconds - min(case.elapsed, case.since(case.record.shown_since))
    if left > 0:
        return case.stay(
            f"It is not known whether the {call.value} of {case.record.target.node} was carried out; {length(left)} "
            "are given for that to show."
        )
    if case.sight.listed:  # it was not
        tries, note = case.record.tries + 1, f"The {call.value} was not carried out."
        again = replace(case.record, phase=Phase.REQUESTED, tries=tries, note=note)
        return requested(replace(case, record=again))
    if case.elapsed < case.limits.wait_seconds:
        return case.stay(
            f"It is not known whether the {call.value} of {case.record.target.node} was carried out, and not all "
            "operations on it can be listed; they are asked for again for up to "
            f"{length(case.limits.wait_seconds - case.elapsed)}. {case.sight.fault}".rstrip()
        )
    return case.enter(
        Phase.VERIFYING,
        f"It cannot be found out whether the {call.value} of {case.record.target.node} was carried out, so it is not "
        f"called again: what the node is like is looked at for up to {length(case.limits.verify_seconds)}.",
    )


def _accepted(case: Case, phase: Phase, sentence: str, **changes: float) -> Move:
    operation = case.operation(Call.RESET if case.several else Call.STOP)
    # What was found may be somebody else's stop, with ours still on its way: nothing is called before that is over.
    changes["not_before"] = case.record.entered + case.limits.doubt_seconds
    return case.adopt(phase, operation, sentence, stops=max(1, case.record.stops), tries=0, **changes)


def _left_to_others(case: Case) -> Move:
    """Nothing was ever called for this record: whoever stops the node wants that. An operator's wish is carried out."""
    what = f"{case.node} is {case.sight.state}, and not by tpuwatch"
    if not case.lasting:
        return case.stay(f"{what}; that is looked at again before it is believed.")
    return case.end(
        Phase.NEEDS_PERSON,
        f"{what}: somebody else stopped it before anything was done about it, so it is left to them. To start it: "
        f"{commands.start(case.record.target)}.",
    )


def _out_of_reach(case: Case) -> str | None:
    """Why only a person can help, and how."""
    sight, target = case.sight, case.record.target
    anew = commands.create(target) if sight.gone else commands.recreate(target, sight.queued_resource)
    if (why := _RECREATED.get(sight.shown)) is not None:
        return f"{case.node} cannot be restarted: {why}. Nothing was done. To have it again: {anew}."
    if sight.spot:
        return (
            f"{case.node} is not restarted: it is a spot or preemptible node, whose capacity may not come back. "
            f"Nothing was done. To have it anew: {anew}."
        )
    if case.several and (sight.state == "STOPPED" or not sight.queued_resource):
        return (
            f"{case.node} has {sight.hosts} hosts, so it cannot be stopped and started, and it has no queued resource "
            f"that could be reset now (its state is {sight.state}). Nothing was done. To have it anew: {anew}."
        )
    return None


def _hindrance(case: Case) -> str:
    """Why nothing may be called now, a sentence; "" if it may."""
    sight = case.sight
    if sight.state != "READY":
        return f"{case.node} is {sight.state}: in that state nothing may be called."
    if sight.health == MAINTENANCE:
        return f"{case.node} is under maintenance."
    if any(not operation.done for operation in sight.operations):
        return f"Another operation on {case.record.target.node} is under way."
    return ""


def _given_up(case: Case) -> str:
    why = _hindrance(case) or case.record.note or "It was not called in time."
    return (
        f"{case.node} was not restarted within {length(case.limits.wait_seconds)}: {why} Nothing was done: the node is "
        f"as it was. Look at it: {commands.describe(case.record.target)}; then ask for the restart again."
    )
