"""The phases of a restart in which the node has not gone down yet, as far as is known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, length
from tpuwatch.model import WELL, Phase, Source
from tpuwatch.restart.workflow import commands
from tpuwatch.restart.workflow.start import ask_by_start, created_again, lost, start
from tpuwatch.restart.workflow.step import MAINTENANCE, StepContext
from tpuwatch.restart.workflow.types import ApiCall, Standing

if TYPE_CHECKING:
    from tpuwatch.restart.workflow.types import NodeObservation, PresentEvidence, Step

_RECREATED: Final = {
    "GONE": "the API knows no such node",
    "PREEMPTED": "it was preempted, and only a new one can take its place",
    "TERMINATED": "it was terminated, and only a new one can take its place",
    "UNKNOWN": "a repair by the service has failed (its state is UNKNOWN)",
}
_WELL_AGAIN: Final = "has become well since this was requested"


def requested(ctx: StepContext) -> Step:
    """Nothing was called, or what was called is known not to have been carried out."""
    record, observation = ctx.record, ctx.observation
    if (why := _impossible(ctx)) is not None:
        return ctx.end(Phase.NEEDS_OPERATOR, why)
    if observation.state in ("STOPPING", "STOPPED") and record.signals and record.untouched:
        return _left_to_others(ctx)
    if observation.state == "STOPPED":
        return start(ctx)
    if (step := _pointless(ctx)) is not None:
        return step
    if ctx.since(record.began) >= ctx.limits.wait_seconds:
        return ctx.end(Phase.FAILED, _expired(ctx))
    hindrance = _hindrance(ctx)
    if hindrance or ctx.held_for:
        left = ctx.limits.wait_seconds - ctx.since(record.began)
        return ctx.stay(
            f"{hindrance or f'{ctx.node} could not be restarted yet. {record.note}'} Nothing is called for now; it is "
            f"tried for up to {length(left)} more.",
            again=max(ctx.held_for, ctx.limits.poll_seconds),
        )
    if ctx.restarted_by_another:
        sentence = f"Another client has restarted {ctx.record.target.node} since this was asked for, so it is not done"
        return ctx.enter(Phase.VERIFYING, f"{sentence} again: what the node is like is looked at.", down=ctx.now)
    return _take_down(ctx)


def _take_down(ctx: StepContext) -> Step:
    if not ctx.record.signals and _has_become_well(ctx):
        well = ctx.present.sentence if ctx.present.standing is Standing.RECOVERED else _shown(ctx)
        note = f"{ctx.node} {_WELL_AGAIN}: {well}"
        soon = length(ctx.limits.poll_seconds)
        sentence = f"{note} It is restarted all the same in {soon}, unless you interrupt this."
        return ctx.stay(sentence, note=note)
    if ctx.several:
        name = ctx.observation.queued_resource
        sentence = f"{ctx.node} has {ctx.observation.hosts} hosts: its queued resource {clean(name, 100)} is reset now."
        return ctx.bring_down(ApiCall.RESET, sentence, queued_resource=name)
    return ctx.bring_down(ApiCall.STOP, f"{ctx.node} is stopped now, to be started again.")


def _pointless(ctx: StepContext) -> Step | None:
    """The step where the node is not taken down after all; None where it is.

    It is another one by now, or it is not seen that what the policy decided on still holds. While something is done to
    the node, perhaps for this restart, only that is waited for.
    """
    if ctx.observation.state != "READY" or any(not one.done for one in ctx.operations):
        return None
    if ctx.recreated:
        return created_again(ctx)
    is_settled = not ctx.record.signals or ctx.present.standing is Standing.HOLDS  # an operator's word stands
    if not is_settled:
        return _unproven(ctx)
    if ctx.record.signals and withdrawn_by_cloud(ctx.observation, ctx.present):
        return ctx.withdraw(
            f"{ctx.node} is not restarted. It was {ctx.record.cause} when that was decided "
            f"({ctx.record.reason.rstrip('.')}). {_shown(ctx)} {ctx.undone}"
        )
    return _beside(ctx) if ctx.several and ctx.record.signals else None


def withdrawn_by_cloud(observation: NodeObservation, present: PresentEvidence) -> bool:
    """Whether the API, which called the node ill when it was judged, does not do so any more."""
    return present.ill and not observation.ill and observation.health != MAINTENANCE


def _shown(ctx: StepContext) -> str:
    return (
        f"The Cloud TPU API calls it {ctx.observation.state}, {clean(ctx.observation.health, 40) or 'no health'} now."
    )


def _unproven(ctx: StepContext) -> Step:
    present, record = ctx.present, ctx.record
    if present.standing is not Standing.UNKNOWN:
        return ctx.withdraw(
            f"{ctx.node} is not restarted. It was {record.cause} when that was decided ({record.reason.rstrip('.')}). "
            f"{present.sentence} {ctx.undone}"
        )
    left = ctx.limits.wait_seconds - ctx.since(record.began)
    if left <= 0:
        return ctx.withdraw(
            f"{ctx.node} is not restarted: for {length(ctx.limits.wait_seconds)} it could not be judged whether it is "
            f"still {record.cause}. {present.sentence} {ctx.undone}"
        )
    return ctx.stay(
        f"{ctx.node} is not taken down before it is judged again whether it is still {record.cause}. "
        f"{present.sentence} That is waited for, for up to {length(left)} more."
    )


def _beside(ctx: StepContext) -> Step | None:
    """The step where a reset would restart other nodes that are not known to be bad, or may; None where it would not.

    An operator has confirmed them by name.
    """
    beside = ctx.observation.beside
    if beside is None:
        why = f"Which other nodes a reset would restart is not known. {ctx.observation.beside_fault}".rstrip()
        if ctx.since(ctx.record.began) >= ctx.limits.wait_seconds:
            return ctx.withdraw(f"{ctx.node} is not restarted. {why} {ctx.undone}")
        return ctx.stay(f"{ctx.node} is not taken down yet. {why}")
    spared = [f"{one.name} ({one.said})" for one in beside if not one.ill and one.name not in ctx.present.stuck_beside]
    if not spared:
        return None
    return ctx.withdraw(
        f"{ctx.node} is not restarted: a reset of its queued resource would restart other nodes too, which are not "
        f"known to be bad: {clean(', '.join(spared), 300)}. {ctx.undone}"
    )


def _has_become_well(ctx: StepContext) -> bool:
    """Whether an operator has to hear, before anything is done, that the node has become well."""
    was_bad = bool(ctx.record.grounds.verdict) and ctx.record.grounds.verdict not in {one.value for one in WELL}
    is_told = ctx.record.note.startswith(f"{ctx.node} {_WELL_AGAIN}")
    by_cloud = Source.CLOUD.value in ctx.record.sources and ctx.observation.well
    return was_bad and (ctx.present.standing is Standing.RECOVERED or by_cloud) and not is_told


def intent(ctx: StepContext) -> Step:
    """The stop, or the reset, was about to be called: it is not known whether it was carried out."""
    call = ApiCall.RESET if ctx.several else ApiCall.STOP
    state, operation = ctx.observation.shown, ctx.operation(call)
    if ctx.several and state in ("RESTARTING", "STARTING"):
        return _accepted(ctx, Phase.STARTING, f"{ctx.node} is being reset ({state}).", down=ctx.now)
    if not ctx.several and state in ("STOPPING", "STOPPED", "STARTING"):
        # The next look goes on from there, by what the state is then.
        return _accepted(ctx, Phase.STOPPING, f"The stop of {ctx.record.target.node} was carried out ({state}).")
    if state in _RECREATED and state != "UNKNOWN":
        return lost(ctx)
    if state != "READY":
        what = f"{ctx.node} is {state}, and it is not known whether the {call.value} was carried out"
        return ctx.wait(what, ctx.limits.wait_seconds, f"Look at it: {commands.describe(ctx.record.target)}.")
    if operation is not None:
        phase = Phase.STARTING if ctx.several else Phase.STOPPING
        return _accepted(ctx, phase, f"The {call.value} of {ctx.record.target.node} was accepted.")
    return _in_doubt(ctx, call)


def _in_doubt(ctx: StepContext, call: ApiCall) -> Step:
    left = ctx.limits.doubt_seconds - min(ctx.elapsed, ctx.since(ctx.record.shown_since))
    if left > 0:
        return ctx.stay(
            f"It is not known whether the {call.value} of {ctx.record.target.node} was carried out; {length(left)} "
            "are given for that to show."
        )
    if ctx.recreated:
        return created_again(ctx)
    node, listed = ctx.record.target.node, ctx.observation.listed
    if listed:  # it was not, unless the list is an old one
        tries, note = ctx.record.tries + 1, f"The {call.value} was not carried out."
        again = replace(ctx.record, phase=Phase.REQUESTED, tries=tries, failure=note, note=note)
        step = requested(replace(ctx, record=again))
        if ctx.several:
            return step
        if step.call is not None:  # that it is refused now is no proof: the one before may have been carried out
            return replace(step, record=replace(step.record, phase=Phase.STOPPING))
    if ctx.elapsed < ctx.limits.wait_seconds:
        shown = "it is not to be called again now" if listed else "not all operations on it can be listed"
        return ctx.stay(
            f"It is not known whether the {call.value} of {node} was carried out, and {shown}; it is looked at for up "
            f"to {length(ctx.limits.wait_seconds - ctx.elapsed)} more. {ctx.observation.fault}".rstrip()
        )
    if ctx.several:
        return ctx.enter(
            Phase.VERIFYING,
            f"It cannot be found out whether the {call.value} of {node} was carried out, so it is not called again: "
            f"what the node is like is looked at for up to {length(ctx.limits.verify_seconds)}.",
        )
    return ask_by_start(ctx, f"It is not known whether {node} was stopped; the API shows it READY.")


def _accepted(ctx: StepContext, phase: Phase, sentence: str, **changes: float) -> Step:
    operation = ctx.operation(ApiCall.RESET if ctx.several else ApiCall.STOP)
    # What was found may be another client's stop, with ours still on its way: nothing is called before that is over.
    changes["not_before"] = max(ctx.record.not_before, ctx.record.entered + ctx.limits.doubt_seconds)
    return ctx.enter_with(phase, operation, sentence, stops=max(1, ctx.record.stops), tries=0, **changes)


def _left_to_others(ctx: StepContext) -> Step:
    """Nothing was ever called for this record: another's stop is respected. An operator's request is carried out."""
    what = f"{ctx.node} is {ctx.observation.state}, and not by tpuwatch"
    if not ctx.lasting:
        return ctx.stay(f"{what}; that is looked at again before it is believed.")
    return ctx.end(
        Phase.NEEDS_OPERATOR,
        f"{what}: another client stopped it before anything was done about it, so it is left to them. To start it: "
        f"{commands.start(ctx.record.target)}.",
    )


def _impossible(ctx: StepContext) -> str | None:
    """Why only an operator can help, and how."""
    observation, target = ctx.observation, ctx.record.target
    renew = commands.renew(target, observation)
    if (why := _RECREATED.get(observation.shown)) is not None:
        return f"{ctx.node} cannot be restarted: {why}. {ctx.undone} {renew}."
    if observation.spot:
        return (
            f"{ctx.node} is not restarted: it is a spot or preemptible node, whose capacity may not come back. "
            f"{ctx.undone} {renew}."
        )
    if ctx.several and (observation.state == "STOPPED" or not observation.queued_resource):
        return (
            f"{ctx.node} has {observation.hosts} hosts, so that it cannot be stopped, and has no queued resource "
            f"that could be reset now (its state is {observation.state}). {ctx.undone} {renew}."
        )
    return None


def _hindrance(ctx: StepContext) -> str:
    """Why nothing may be called now, a sentence; "" if it may."""
    observation = ctx.observation
    if observation.state != "READY":
        return f"{ctx.node} is {observation.state}: in that state nothing may be called."
    if observation.health == MAINTENANCE:
        return f"{ctx.node} is under maintenance."
    if any(not operation.done for operation in ctx.operations):
        return f"Another operation on {ctx.record.target.node} is under way."
    return ""


def _expired(ctx: StepContext) -> str:
    why = _hindrance(ctx) or ctx.record.note or "It was not called in time."
    return (
        f"{ctx.node} was not restarted within {length(ctx.limits.wait_seconds)}: {why} {ctx.undone} "
        f"Look at it: {commands.describe(ctx.record.target)}; then ask for the restart again."
    )
