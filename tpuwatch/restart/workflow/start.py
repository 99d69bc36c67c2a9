"""The phases of a restart from the stop that was accepted to the node that is well again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean, counted, length
from tpuwatch.model import WELL_HEALTH, Phase
from tpuwatch.restart.workflow import commands
from tpuwatch.restart.workflow.step import MAINTENANCE, backoff
from tpuwatch.restart.workflow.types import ApiCall, Step, Within

if TYPE_CHECKING:
    from tpuwatch.model import Target
    from tpuwatch.restart.workflow.step import StepContext
    from tpuwatch.restart.workflow.types import Operation


def stopping(ctx: StepContext) -> Step:
    """The stop was accepted, or has shown."""
    if (step := _after_the_stop(ctx)) is not None:
        return step
    state = ctx.observation.shown
    if state == "READY":
        return _not_stopped(ctx, ctx.operation(ApiCall.STOP))
    what = f"{ctx.node} is being stopped" if state == "STOPPING" else f"{ctx.node} is {state} after its stop"
    then = f"It is started as soon as it is stopped; nothing can be called before. {_describe_hint(ctx)}"
    return ctx.wait(what, ctx.limits.stop_seconds, then)


def _after_the_stop(ctx: StepContext) -> Step | None:
    """The step that the state alone decides; None if it decides nothing."""
    state = ctx.observation.shown
    if state in LOST:
        return lost(ctx)
    if state == "STOPPED":
        return start(ctx)
    if state == "STARTING":
        return _found_starting(ctx)
    return None


def _not_stopped(ctx: StepContext, operation: Operation | None) -> Step:
    """The node is READY though its stop was accepted: not begun yet, failed, or another client started the node."""
    node, limits = ctx.record.target.node, ctx.limits
    # A list that is not whole may hide it; without end nothing is waited for that may have been forgotten.
    patience = limits.stop_seconds if ctx.observation.listed else 2 * limits.stop_seconds
    if operation is None and ctx.lasting and ctx.elapsed >= patience:
        return ask_by_start(ctx, f"The stop of {node} has vanished, and the API shows it READY.")
    if operation is None or not operation.done:
        then = f"If the stop is carried out yet, the node is started again. {_describe_hint(ctx)}"
        return ctx.wait(f"{ctx.node} is to stop, and is READY still", limits.stop_seconds, then)
    if not operation.code:
        return ctx.enter(
            Phase.STOPPED,
            f"The stop of {node} was carried out, and the API shows it READY: was it started by another client, or is "
            "what the API shows old?",
            down=ctx.now,
        )
    if ctx.elapsed < limits.doubt_seconds:
        return ctx.stay(f"The stop of {node} has failed; it is watched for {length(limits.doubt_seconds)}.")
    return _came_to_nothing(ctx, f"The stop of {node} has failed ({_refusal(operation)}): it is READY as before.")


def _came_to_nothing(ctx: StepContext, note: str) -> Step:
    """What was accepted was not carried out: it is no restart that did not help."""
    return replace(ctx, record=replace(ctx.record, stops=ctx.record.stops - 1)).end(Phase.FAILED, note)


def stopped(ctx: StepContext) -> Step:
    """The node is to be started; perhaps that was called already. It is called again until the node starts."""
    if (step := _after_the_stop(ctx)) is not None:
        return step
    state = ctx.observation.shown
    if state == "READY" and ctx.lasting:
        return ask_by_start(ctx, f"{ctx.node} was stopped, and the API shows it READY.")
    what = f"{ctx.node} is to be started, and is {state}"
    then = f"Nothing can be called in this state. {_describe_hint(ctx)}"
    return ctx.wait(what, ctx.limits.wait_seconds, then)


def start(ctx: StepContext) -> Step:
    """It is STOPPED: start it, unless it is to be waited for."""
    held, note = ctx.held_for, ctx.record.note if ctx.record.phase is Phase.STOPPED else ""
    if held:
        sentence = f"{ctx.node} is stopped; it is started in {length(held)}. {note}"
        return ctx.stay(sentence.rstrip(), again=held)
    down = ctx.record.down or (ctx.now if ctx.record.stops else 0.0)
    sentence = f"{ctx.node} is stopped and is started now; that may take {length(ctx.limits.start_seconds)}."
    return ctx.call(ApiCall.START, Phase.STOPPED, sentence, operation="", note=note, down=down)


def ask_by_start(ctx: StepContext, why: str) -> Step:
    """The API shows READY what tpuwatch may have stopped, and what it shows may be old: the start is called.

    The service looks at the node itself: it starts one that is stopped, and refuses that for one that runs.
    """
    if ctx.recreated:
        return created_again(ctx)
    if held := ctx.held_for:
        return ctx.stay(f"{why} Whether it runs is found out by a start, in {length(held)}.", again=held)
    return Step(ctx.record, ApiCall.START, sentence=f"{why} A start is called, which the service refuses if it runs.")


def _found_starting(ctx: StepContext) -> Step:
    operation = replace(ctx, record=replace(ctx.record, operation="")).operation(ApiCall.START)
    down = ctx.record.down or ctx.now
    return ctx.enter_with(Phase.STARTING, operation, f"{ctx.node} is starting.", down=down)


def starting(ctx: StepContext) -> Step:
    """The start, or the reset, was accepted, or has shown."""
    state = ctx.observation.shown
    if state in LOST:
        return lost(ctx)
    if ctx.several:
        return _resetting(ctx)
    operation = ctx.operation(ApiCall.START) if state in ("READY", "STOPPED") else None
    if state == "READY" and operation is None:
        return ask_by_start(ctx, f"{ctx.node} is to start, and the API shows it READY, and no start.")
    if state == "READY" and operation is not None and operation.done and not operation.code:
        return ctx.enter(Phase.VERIFYING, f"{ctx.node} runs again. {_verified_for(ctx)}")
    if state == "STOPPED" or (operation is not None and operation.done):
        return _stopped_again(ctx, operation)
    then = f"Nothing can be called before it has started or failed. {_describe_hint(ctx)}"
    return ctx.wait(f"{ctx.node} is to start, and is {state}", ctx.limits.start_seconds, then)


def _resetting(ctx: StepContext) -> Step:
    node, state = ctx.record.target.node, ctx.observation.state
    operation = ctx.operation(ApiCall.RESET) if state == "READY" else None
    down = ctx.record.down or (ctx.now if state in ("RESTARTING", "STARTING") else 0.0)
    over = ctx.elapsed >= ctx.limits.start_seconds
    if state == "READY" and operation is not None and operation.done and operation.code:
        if ctx.elapsed < ctx.limits.doubt_seconds:
            left = length(ctx.limits.doubt_seconds)
            return ctx.stay(f"The reset of {node} has failed; it is watched for {left}.")
        return _came_to_nothing(ctx, f"The reset of {node} has failed ({_refusal(operation)}): it is READY as before.")
    if state == "READY" and operation is not None and operation.done:
        return ctx.enter(Phase.VERIFYING, f"{ctx.node} was reset. {_verified_for(ctx)}", down=ctx.now)
    if state == "READY" and operation is None and ctx.lasting and (down or over):
        return ctx.enter(Phase.VERIFYING, f"{ctx.node} is READY after its reset. {_verified_for(ctx)}", down=down)
    what = f"The queued resource of {node} is reset, and the node is {state}"
    then = f"Nothing can be called meanwhile. {_describe_hint(ctx)}"
    step = ctx.wait(what, ctx.limits.start_seconds, then)
    return replace(step, record=replace(step.record, down=down))


def _stopped_again(ctx: StepContext, operation: Operation | None) -> Step:
    """STOPPED though the start was accepted: it has not begun, has failed, or another client stopped the node."""
    node = ctx.record.target.node
    if ctx.stopped_by_another:
        return _left_stopped(ctx)
    if operation is not None and operation.done and operation.code:
        return _failed_start(ctx, f"The start of {node} has failed: {_refusal(operation)}.")
    if operation is not None and not operation.done and ctx.elapsed < ctx.limits.start_seconds:
        return ctx.stay(
            f"{ctx.node} is to start, and is STOPPED still; that may take {length(ctx.limits.start_seconds)}."
        )
    if not ctx.lasting or ctx.elapsed < ctx.limits.doubt_seconds:
        left = length(ctx.limits.doubt_seconds - ctx.elapsed)
        return ctx.stay(f"{ctx.node} is STOPPED still; {left} are given for its start to show.")
    return _failed_start(ctx, f"The start of {node} has come to nothing.")


def _failed_start(ctx: StepContext, why: str) -> Step:
    tries = ctx.record.tries + 1
    later = backoff(tries, ctx.limits)
    note = start_failing_note(ctx.record.target, why, tries) if tries >= ctx.limits.stockout_alert_after else ""
    sentence = f"{why} It is tried again in {length(later)}."
    again: dict[str, Any] = {"tries": tries, "failure": why, "not_before": ctx.now + later}
    return ctx.enter(Phase.STOPPED, sentence, operation="", **again, note=note)


def verifying(ctx: StepContext) -> Step:
    """It runs again, as far as was shown. Does it stay well?"""
    state = ctx.observation.shown
    if state in LOST:
        return lost(ctx)
    if state == "STOPPED" and not ctx.several:
        return _stopped_while_verified(ctx)
    if state != "READY" or ctx.observation.health == MAINTENANCE:
        what = f"{ctx.node} was restarted, and is {state if state != 'READY' else 'under maintenance'}"
        then = f"{_describe_hint(ctx)}"
        return ctx.wait(what, ctx.limits.verify_seconds, then)
    if ctx.recreated:
        return created_again(ctx)
    if ctx.observation.health in WELL_HEALTH and ctx.present.within is not Within.STUCK:
        return _well(ctx)
    return _unwell(ctx)


def _well(ctx: StepContext) -> Step:
    since, needed = ctx.record.well_since or ctx.now, ctx.limits.well_seconds
    left = needed - ctx.since(since)
    if left > 0 or not ctx.lasting:
        again = min(max(left, 0.5), ctx.limits.poll_seconds)
        return ctx.stay(f"{ctx.node} is well; it is watched for {length(left)} more.", again=again, well_since=since)
    if not ctx.record.down:
        return ctx.end(Phase.FAILED, _unproven(ctx))
    if ctx.present.within is Within.SILENT and ctx.elapsed < ctx.limits.verify_seconds:
        patience = length(ctx.limits.verify_seconds - ctx.elapsed)
        return ctx.stay(f"{ctx.node} is well by the API's word, but {ctx.present.heard}; {patience} are left for that.")
    by = "" if ctx.record.stops or ctx.record.operations else " by another client"
    done = f"{ctx.node} was restarted{by} in {length(ctx.since(ctx.record.began))}"
    if ctx.present.within is Within.ANSWERS:
        return ctx.end(Phase.DONE, f"{done}, and has been well for {length(needed)}: {ctx.present.heard}.")
    heard = ctx.present.heard or "nothing in it can be asked from here"
    return ctx.end(
        Phase.NOT_VERIFIED,
        f"{done}, but that it works is not verified: the API calls it well, as it does many a dead node, and {heard}. "
        f"See whether a job runs on it, or {_describe_hint(ctx)[:1].lower()}{_describe_hint(ctx)[1:]}",
    )


def _unwell(ctx: StepContext) -> Step:
    bad = ctx.observation.health not in WELL_HEALTH
    symptom = f"its health is {clean(ctx.observation.health, 40)}" if bad else ctx.present.heard
    unwell_for = min(ctx.elapsed, ctx.since(ctx.record.shown_since))
    if unwell_for < ctx.limits.verify_seconds:
        left = length(ctx.limits.verify_seconds - unwell_for)
        return ctx.stay(f"{ctx.node} runs, but {symptom}; {left} are left for it to get well.", well_since=0.0)
    if not ctx.record.down:
        return ctx.end(Phase.FAILED, _unproven(ctx))
    return ctx.end(
        Phase.FAILED,
        f"{ctx.node} was restarted and runs, but for {length(unwell_for)} {symptom}. Another restart will hardly help. "
        f"Look: {commands.describe(ctx.record.target)}.",
    )


def created_again(ctx: StepContext) -> Step:
    """It is not the node of which the restart was asked for."""
    return ctx.withdraw(
        f"Another client has created {ctx.record.target.node} again since its restart was requested: it is another "
        "node now, and is left as it is."
    )


def _stopped_while_verified(ctx: StepContext) -> Step:
    if ctx.stopped_by_another:
        return _left_stopped(ctx)
    if not ctx.lasting:
        left = length(ctx.limits.stale_seconds)
        return ctx.stay(f"{ctx.node} is shown as STOPPED; if that lasts for {left} it is started.", well_since=0.0)
    return ctx.enter(Phase.STOPPED, f"{ctx.node} is STOPPED: it is started again.", operation="")


def _left_stopped(ctx: StepContext) -> Step:
    if not ctx.lasting:
        return ctx.stay(f"Another client has stopped {ctx.record.target.node}; that is looked at again.")
    return ctx.end(
        Phase.NEEDS_OPERATOR,
        f"{ctx.node} is STOPPED: another client stopped it after tpuwatch had started it, so it is left to them. "
        f"To start it: {commands.start(ctx.record.target)}.",
    )


def start_failing_note(target: Target, why: str, tries: int) -> str:
    """What an operator must know of a node that is stopped and does not start."""
    return (
        f"Node {target.node} is STOPPED and does not start: {why} It was tried {counted(tries, 'time')}, and is tried "
        f"on without end. By hand: {commands.start(target)}."
    )


def _describe_hint(ctx: StepContext) -> str:
    return f"Look: {commands.describe(ctx.record.target)}."


def _verified_for(ctx: StepContext) -> str:
    return f"It must stay well for {length(ctx.limits.well_seconds)}, within {length(ctx.limits.verify_seconds)}."


def _unproven(ctx: StepContext) -> str:
    return (
        f"{ctx.node} is READY, and it is not known whether it was restarted: the API never showed it going down. If "
        f"it is as bad as before, ask for the restart again. {_describe_hint(ctx)}"
    )


def _refusal(operation: Operation) -> str:
    return clean(operation.message).rstrip(".") or f"code {operation.code}"


LOST: Final = frozenset({"GONE", "PREEMPTED", "TERMINATED"})


def lost(ctx: StepContext) -> Step:
    """The node is gone, or will never run again: nothing of it can be started. One look at it may be an old one."""
    target, shown = ctx.record.target, ctx.observation.shown
    what = f"{ctx.node} {'is gone: the API knows no such node' if ctx.observation.gone else f'is {shown}'}"
    if not ctx.lasting:
        left = length(ctx.limits.stale_seconds)
        return ctx.stay(f"{what}. It is looked at again for {left} before that is believed.")
    return ctx.end(
        Phase.NEEDS_OPERATOR,
        f"{what}, in the middle of its restart: it cannot be started. {commands.renew(target, ctx.observation)}.",
    )
