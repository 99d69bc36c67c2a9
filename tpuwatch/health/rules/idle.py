"""What follows from how programs ended: the node is free, and why; or they fail again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import length, listed
from tpuwatch.health import reason
from tpuwatch.health.proposal import Proposal
from tpuwatch.health.rules.cloud import is_bad, is_well
from tpuwatch.model import Action, Cause, Confidence, Outcome, RemedyStep, Verdict, Whose

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import Event, Launch

_SAME_END_SECONDS = 60.0  # a program's last events come within this time
_TOGETHER_SECONDS = 30.0  # a job's processes are launched within this time
# Whose fault explains that nothing runs, the summary, and what would help.
_ENDS: Final[tuple[tuple[tuple[Whose, ...], str, Action, RemedyStep], ...]] = (
    (
        (Whose.PROGRAM, Whose.SETUP),
        "The last program ended by a fault of its own ({cause}).",
        Action.FIX_PROGRAM,
        RemedyStep.FIX_PROGRAM,
    ),
    (
        (Whose.OTHER_WORKER,),
        "The last program ended because of another worker ({cause}).",
        Action.MANUAL,
        RemedyStep.OTHER_WORKERS,
    ),
    (
        (Whose.HOLDER,),
        "The last program found the TPU in use ({cause}), and no process is seen to hold it.",
        Action.MANUAL,
        RemedyStep.AGAIN,
    ),
    ((Whose.NODE,), "The last program met a fault of the TPU ({cause}).", Action.MANUAL, RemedyStep.DESCRIBE),
)
_EXPLAINING: Final = tuple(one for whose, *_ in _ENDS for one in whose)


def failing(facts: Facts) -> Proposal | None:
    """Launch after launch fails, however many processes each has."""
    failed = _failed_in_a_row(facts)
    if len(failed) < facts.limits.again_count or facts.chips:
        return None
    if facts.holders and (facts.quiet_seconds is None or facts.quiet_seconds >= facts.limits.compile_grace_seconds):
        return None  # the latest has lasted; or who holds the TPU is why they fail
    age = length(facts.age(failed[-1].started) or 0.0)
    ended = _end(facts)
    why = f", the last one by {ended[0].cause.value}" if ended else ""
    summary = f"Launch after launch fails: the last {len(failed)}, all within {age}{why}."
    reasons = reason.present(
        reason.launch(facts, failed[0]),
        reason.event(facts, ended[0]) if ended else None,
        reason.holders(facts) if facts.holders else None,
    )
    action, steps = (ended[2], _steps(facts, ended)) if ended else (Action.MANUAL, (RemedyStep.UNBUFFER,))
    return Proposal(Verdict.JOB_STUCK, Confidence.MEDIUM, action, summary, reasons, steps, facts.program_pids)


def free(facts: Facts) -> Proposal | None:
    """No process holds the TPU."""
    if facts.host is None or facts.has_program:
        return None
    ended = _end(facts)
    reasons = reason.present(
        reason.free(facts),
        reason.event(facts, ended[0]) if ended else None,
        reason.cloud(facts) if is_well(facts) else None,
    )
    confidence = Confidence.HIGH if is_well(facts) and not facts.host.unseen else Confidence.MEDIUM
    if ended:
        event, template, action, _ = ended
        seen = " As far as can be seen, the node is free." if facts.host.unseen else " The node is free."
        if event.cause.row.whose is Whose.HOLDER and facts.host.unseen:
            found = f"The last program found the TPU in use ({event.cause.value})"
            summary = f"{found}, by a process that tpuwatch cannot see."
            return Proposal(Verdict.UNKNOWN, Confidence.LOW, action, summary, reasons[1:2], (RemedyStep.FIND_HOLDER,))
        summary = template.format(cause=event.cause.value) + seen
        return Proposal(Verdict.IDLE, Confidence.MEDIUM, action, summary, reasons, _steps(facts, ended))
    if facts.oom_killed:
        reasons = (*reasons, *reason.present(reason.memory(facts)))
    if facts.launch_oom_killed:
        summary = "The kernel killed the last program for lack of memory. The node is free."
        return Proposal(
            Verdict.IDLE, Confidence.MEDIUM, Action.FIX_PROGRAM, summary, reasons, (RemedyStep.HOST_MEMORY,)
        )
    if facts.host.unseen and not (facts.runtime_absent and facts.serves_metrics):
        return None  # no signal has shown that there is none
    if is_bad(facts):
        summary = f"No program uses the TPU; the API says {reason.cloud_state(facts)}."
        return Proposal(Verdict.IDLE, Confidence.LOW, Action.WAIT, summary, reasons)
    if facts.kubernetes is not None and (ill := facts.kubernetes.conditions):
        summary = f"No program uses the TPU. Kubernetes reports of the node: {listed(ill)}."
        return Proposal(Verdict.IDLE, Confidence.LOW, Action.MANUAL, summary, reasons, (RemedyStep.DESCRIBE,))
    return Proposal(Verdict.IDLE, confidence, Action.NONE, "No program uses the TPU.", reasons)


def out_of_sight(facts: Facts) -> Proposal | None:
    """No process is seen to hold the TPU, and none could have been seen."""
    if facts.host is None or facts.has_program:
        return None
    summary = "No program is seen to use the TPU, but not every process can be looked at."
    return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, (reason.free(facts),))


def _steps(facts: Facts, ended: tuple[Event, str, Action, RemedyStep]) -> tuple[RemedyStep, ...]:
    """What helps after an end, as far as it could be seen."""
    cause, host = ended[0].cause, facts.host
    if cause is Cause.HOST_OOM:
        return ended[3], RemedyStep.HOST_MEMORY
    is_held = cause.row.whose is Whose.HOLDER
    if is_held and facts.holders:  # who holds it is seen
        return RemedyStep.LOOK, RemedyStep.END_HOLDER
    if is_held and host is not None and host.unseen:
        return (RemedyStep.FIND_HOLDER,)
    if is_held and host is not None and host.lock_file:
        return (RemedyStep.LOCK_FILE,)
    return (ended[3],)


def _failed_in_a_row(facts: Facts) -> list[Launch]:
    """The launches that failed one after another, the newest first; of those that began together, one."""
    failed: list[Launch] = []
    for launch in facts.launches:
        if facts.is_older(launch.started, facts.limits.again_seconds) or _came_up(facts, launch):
            break
        ended = launch.outcome in (Outcome.FAILED, Outcome.KILLED) or not facts.is_alive(launch)
        if ended and (not failed or failed[-1].started - launch.started >= _TOGETHER_SECONDS):
            failed.append(launch)
    return failed


def _came_up(facts: Facts, launch: Launch) -> bool:
    """Whether a launch is none that failed: it came up and met no fault, or a user ended it."""
    causes = {one.cause for one in (facts.logs.events if facts.logs else ()) if _is_of(one, launch)}
    if facts.is_up(launch):
        return facts.is_alive(launch) or not any(cause.row.whose in _EXPLAINING for cause in causes)
    return Cause.INTERRUPTED in causes


def _is_of(event: Event, launch: Launch) -> bool:
    return not event.history and event.pid == launch.pid and event.when >= launch.started


def _end(facts: Facts) -> tuple[Event, str, Action, RemedyStep] | None:
    """The event that explains why nothing runs: of those round the newest one that does, the first class above."""
    newest = facts.event(*_EXPLAINING)
    if newest is None:
        return None
    for whose, template, action, step in _ENDS:
        event = facts.event(*whose)
        if event is not None and newest.when - event.when <= _SAME_END_SECONDS:
            return event, template, action, step
    return None
