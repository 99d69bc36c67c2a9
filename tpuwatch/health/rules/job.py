"""What follows from the machine itself: runtime metrics, holders, processors, launches and events of the logs.

No rule here applies to a node that is watched from elsewhere: it has no local signals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import length
from tpuwatch.health import reason
from tpuwatch.health.facts import Cpu
from tpuwatch.health.proposal import Proposal, node_action, suspect
from tpuwatch.health.rules.cloud import is_bad, is_well
from tpuwatch.health.stuck_evidence import find_stuck_evidence, find_trusted_evidence, newest_fault
from tpuwatch.model import Action, Confidence, RemedyStep, Source, Verdict, Whose

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.health.stuck_evidence import StuckEvidence
    from tpuwatch.model import Reason

_END_OR_LOG: Final = (RemedyStep.END_HOLDER, RemedyStep.UNBUFFER)


def training(facts: Facts) -> Proposal | None:
    """Programs run on the chips: whatever other signals report, the node works."""
    if not facts.running:
        return None
    reasons = reason.present(reason.running(facts), reason.cloud(facts) if is_well(facts) else None)
    if is_bad(facts) and facts.cloud is not None:
        summary = f"Programs run on the chips, though the API says {reason.cloud_state(facts)}."
        failed = facts.cloud.state == "UNKNOWN"  # the next fault may be the last
        action, steps = (Action.CHECKPOINT, (RemedyStep.CHECKPOINT,)) if failed else (Action.WAIT, ())
        return Proposal(Verdict.HEALTHY, Confidence.LOW, action, summary, reasons, steps)
    if (fault := facts.hanging_event) is not None:
        summary = f"The chips count as busy, though the log reports {fault.cause.value}: look whether it goes on."
        return Proposal(Verdict.HEALTHY, Confidence.LOW, Action.MANUAL, summary, reasons, (RemedyStep.OTHER_WORKERS,))
    if (port := facts.hung_port) is not None and facts.is_older(port.since, facts.limits.compile_grace_seconds):
        silence = length(facts.age(port.since) or 0.0)
        summary = f"Programs run on some chips, and port {port.port} has not answered for {silence}."
        return Proposal(Verdict.HEALTHY, Confidence.LOW, Action.MANUAL, summary, reasons, (RemedyStep.LOOK,))
    if facts.rarely_runs:
        summary = "Programs run on the chips, minutes apart."
        return Proposal(Verdict.HEALTHY, Confidence.MEDIUM, Action.NONE, summary, reasons)
    confidence = Confidence.HIGH if is_well(facts) else Confidence.MEDIUM
    return Proposal(Verdict.HEALTHY, confidence, Action.NONE, "Programs run on the chips.", reasons)


def booting(facts: Facts) -> Proposal | None:
    """The machine has only just booted."""
    age = facts.age(facts.booted_at)
    if facts.host is None or age is None or age >= facts.limits.boot_grace_seconds:
        return None
    summary = f"The machine booted {length(age)} ago and is given {length(facts.limits.boot_grace_seconds)}."
    return Proposal(Verdict.STARTING, Confidence.MEDIUM, Action.WAIT, summary, (reason.boot(facts),))


def waiting_for_others(facts: Facts) -> Proposal | None:
    """The program waits for another worker: the fault is there, not here."""
    fault = facts.event(Whose.OTHER_WORKER)
    if fault is None or not facts.has_program or facts.awaits_input or facts.stepping is not None:
        return None
    idle = facts.idle_seconds is not None and facts.idle_seconds >= facts.limits.step_seconds
    if not (idle or facts.hung_port is not None or facts.runtime_absent) or facts.cpu is Cpu.BUSY:
        return None
    reasons = reason.present(
        reason.event(facts, fault),
        reason.idle(facts) if idle else None,
        reason.hung(facts) if facts.hung_port is not None else None,
    )
    summary = "The program waits for another worker; the fault is there and not on this one."
    return Proposal(Verdict.JOB_STUCK, Confidence.MEDIUM, Action.MANUAL, summary, reasons, (RemedyStep.OTHER_WORKERS,))


def hung(facts: Facts) -> Proposal | None:
    """The runtime takes connections and does not answer."""
    port = facts.hung_port
    if port is None or facts.holder_steps:
        return None
    limits = facts.limits
    first, memory, symptom = reason.hung(facts), reason.memory(facts), reason.symptom(facts)
    is_runtime = facts.hung_source is Source.RUNTIME
    if not facts.is_older(port.since, limits.compile_grace_seconds):
        if port.since is not None and facts.age(port.since) is not None:
            return suspect("The runtime does not answer", port.since, limits.compile_grace_seconds, (first,))
        summary = f"The runtime does not answer, which counts from {length(limits.compile_grace_seconds)} on."
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, (first,))
    if facts.quiet_seconds is not None and facts.quiet_seconds < limits.compile_grace_seconds:
        summary = f"The runtime does not answer; its program's latest sign is {length(facts.quiet_seconds)} old."
        return Proposal(Verdict.STARTING, Confidence.LOW, Action.WAIT, summary, (first,))
    steps = (RemedyStep.RESTART_RUNTIME, *((RemedyStep.HOST_MEMORY,) if memory else ()))
    summary = f"The runtime has not answered for {length(facts.age(port.since) or 0.0)}"
    rests = reason.holders(facts, is_fault=is_runtime) if facts.cpu is Cpu.IDLE else None
    if facts.cpu is not Cpu.BUSY and (rests or memory or symptom):
        steps = (*steps, *node_action(facts)[1])  # where the runtime does not come back
        reasons = reason.present(first, reason.blocked(facts), memory, rests, symptom)
        summary += ", and the machine is or was out of memory." if memory else ", and its program does not work."
        pids = facts.program_pids
        return Proposal(Verdict.RUNTIME_STUCK, Confidence.HIGH, Action.RESTART_RUNTIME, summary, reasons, steps, pids)
    if facts.cpu is Cpu.BUSY and memory is None and not facts.is_older(port.since, limits.max_compile_seconds):
        summary += ", but its program works: a compile may keep it from answering."
        return Proposal(Verdict.COMPILING, Confidence.LOW, Action.WAIT, summary, (reason.holders(facts), first))
    confidence = Confidence.LOW if facts.cpu is Cpu.BUSY else Confidence.MEDIUM
    reasons = reason.present(first, memory)
    return Proposal(Verdict.RUNTIME_STUCK, confidence, Action.MANUAL, f"{summary}.", reasons, steps, facts.program_pids)


def stepping(facts: Facts) -> Proposal | None:
    """The job reports steps, and no runtime metrics show what the chips do.

    A holder that sends heartbeats is not stuck, however little the processor has to do. Steps in an output may be
    anybody's: they are believed where nothing speaks against it.
    """
    loop = facts.stepping
    if loop is None or facts.chips or not facts.has_program:
        return None
    if not facts.holder_steps and (facts.cpu is Cpu.IDLE or find_trusted_evidence(facts) is not None):
        return None
    reasons = reason.present(reason.steps(facts, loop), reason.holders(facts) if facts.holders else None)
    summary = f"The job reports that its steps go on (step {loop.step}); no runtime metrics show more."
    return Proposal(Verdict.HEALTHY, Confidence.LOW, Action.NONE, summary, reasons)


def idling(facts: Facts) -> Proposal | None:
    """The runtime answers, and no chip runs anything."""
    if not facts.chips:
        return None
    limits, idle = facts.limits, facts.idle_seconds
    first = reason.idle(facts)
    within = facts.quiet_seconds is not None and facts.quiet_seconds < limits.compile_grace_seconds
    longest = max(limits.max_compile_seconds, limits.idle_seconds)
    if facts.queued_programs:
        longest = limits.idle_seconds  # they are compiled
    if within or (facts.cpu is Cpu.BUSY and (idle is None or idle < longest)):
        return _compiling(facts, first)
    if idle is None or idle < limits.idle_seconds:
        counts = f"which counts from {length(limits.idle_seconds)} on" if idle is not None else "since an unknown time"
        summary = f"The chips run nothing under a live program, {counts}."
        confidence = Confidence.MEDIUM if idle is not None else Confidence.LOW
        return Proposal(Verdict.IDLE, confidence, Action.WAIT, summary, (first,))
    return _without_work(facts, first, f"The chips have run nothing for {length(idle)} under a live program")


def _without_work(facts: Facts, first: Reason, summary: str) -> Proposal:
    """The chips have run nothing for long. That alone is no fault: a notebook does so while its user thinks."""
    found, symptom = find_stuck_evidence(facts), reason.symptom(facts)
    waits = bool(facts.queued_programs)
    rests = reason.holders(facts, is_fault=waits) if facts.cpu is Cpu.IDLE else None
    working = facts.cpu is Cpu.BUSY
    if found is None:
        summary += ", though the host works." if working else "; it may be stuck, or wait for its user."
        confidence = Confidence.LOW if working else Confidence.MEDIUM
        reasons, steps = reason.present(first, rests), (RemedyStep.LOOK,)
        return Proposal(Verdict.IDLE, confidence, Action.NONE, summary, reasons, steps, facts.program_pids)
    reasons = reason.present(first, rests, reason.memory(facts), found.reason)
    if (loop := facts.stepping) is not None and (facts.holder_steps or find_trusted_evidence(facts) is None):
        summary += f", and the job reports that its steps go on (step {loop.step})."
        shown = (first, reason.steps(facts, loop))  # what speaks for a fault supports no unknown verdict
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, shown, (RemedyStep.LOOK,))
    steps = (RemedyStep.END_HOLDER,)
    if not working and (rests or symptom):
        summary += ", and the program does not work on the host either." if rests else "."
        reasons = tuple(dict.fromkeys((*reasons, *reason.present(symptom))))
        return Proposal(Verdict.JOB_STUCK, Confidence.HIGH, Action.END_HOLDER, summary, reasons, steps, found.pids)
    summary += ", though the host works." if working else "."
    confidence = Confidence.LOW if working else Confidence.MEDIUM
    return Proposal(Verdict.JOB_STUCK, confidence, Action.MANUAL, summary, reasons, steps, found.pids)


def held(facts: Facts) -> Proposal | None:
    """A process holds the TPU, and no runtime metrics show what it does."""
    if not facts.holders:
        return None
    launch, stalled = facts.launch, facts.stalled_loop is not None
    up = facts.holder_loop is not None or (launch is not None and facts.is_up(launch))  # what has stepped has come up
    if not up and facts.quiet_seconds is not None and facts.quiet_seconds < facts.limits.compile_grace_seconds:
        summary = f"A program took the TPU {length(facts.quiet_seconds)} ago and is coming up."
        return Proposal(Verdict.STARTING, Confidence.MEDIUM, Action.WAIT, summary, _held(facts))
    if facts.cpu is Cpu.BUSY:
        return _works_unseen(facts)
    if up and not stalled:
        return _up_unseen(facts)
    if facts.holders_source is Source.PROCESS and facts.host is not None and not facts.host.unseen:
        summary = (
            "A process of a user has locked libtpu's lock file and holds no device, so nothing shows that it works."
        )
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, _held(facts), (RemedyStep.LOOK,))
    if (loop := facts.output_loop) is not None and find_trusted_evidence(facts) is None:
        summary = (
            f"A program holds the TPU. An output of no known process shows steps (step {loop.step}), and nothing else "
            "shows whether the program works."
        )
        reasons = (*_held(facts), reason.steps(facts, loop))
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, reasons, (RemedyStep.LOOK,))
    found = find_stuck_evidence(facts)
    conclusive = found is not None or (facts.runtime_absent and facts.serves_metrics)
    if facts.cpu is Cpu.UNCLEAR or facts.quiet_seconds is None or not conclusive:
        summary = "A program holds the TPU; nothing shows whether it works."
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, _held(facts))
    return _stuck(facts, found)


def launching(facts: Facts) -> Proposal | None:
    """A launch is under way by its log, and no process can be seen to hold the TPU."""
    launch = facts.launch
    if launch is None or facts.quiet_seconds is None:
        return None
    if facts.is_up(launch):
        return _up_unseen(facts)
    reasons: tuple[Reason, ...] = (reason.launch(facts, launch),)
    if facts.quiet_seconds < facts.limits.compile_grace_seconds:
        summary = "A program initialises the TPU."
        return Proposal(Verdict.STARTING, Confidence.MEDIUM, Action.WAIT, summary, reasons)
    summary = f"A launch has logged nothing for {length(facts.quiet_seconds)}; nothing shows whether it works."
    return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, reasons)


def _compiling(facts: Facts, first: Reason) -> Proposal:
    quiet = facts.quiet_seconds
    within = quiet is not None and quiet < facts.limits.compile_grace_seconds
    works = reason.holders(facts) if facts.cpu is Cpu.BUSY else None
    summary = "The program compiles or prepares data"
    summary += f": its latest sign is {length(quiet)} old." if within and quiet is not None else ": the host works."
    reasons = reason.present(works, first)
    return Proposal(Verdict.COMPILING, Confidence.MEDIUM, Action.WAIT, summary, reasons)


def _works_unseen(facts: Facts) -> Proposal:
    launch = facts.launch
    reasons = reason.present(*_held(facts), reason.cloud(facts) if is_well(facts) else None)
    waits = launch is not None and not facts.is_up(launch)
    if waits and (facts.quiet_seconds or 0.0) < facts.limits.max_compile_seconds:
        return _compiling(facts, *_launch(facts))
    if waits:
        summary = f"A launch has not come up for {length(facts.quiet_seconds or 0.0)}, though its process works."
        pids = facts.program_pids
        return Proposal(Verdict.JOB_STUCK, Confidence.LOW, Action.MANUAL, summary, reasons, _END_OR_LOG, pids)
    confidence = Confidence.MEDIUM if launch is not None else Confidence.LOW
    summary = "A program holds the TPU and works; it serves no runtime metrics that would show more."
    return Proposal(Verdict.HEALTHY, confidence, Action.NONE, summary, reasons)


def _up_unseen(facts: Facts) -> Proposal:
    if not facts.lacks_metrics:
        summary = "A program came up and holds the TPU; without runtime metrics nothing shows whether it works."
        loop = facts.holder_loop
        reasons = reason.present(*_held(facts), reason.steps(facts, loop) if loop is not None else None)
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, reasons)
    event = newest_fault(facts) if facts.cpu is Cpu.IDLE and facts.stepping is None else None
    if event is not None:
        summary = f"A program came up; since then its log reports {event.cause.value}, and it does not work."
        reasons = reason.present(*_held(facts), reason.event(facts, event))
        pids = tuple(pid for pid in facts.program_pids if pid == event.pid)
        return Proposal(Verdict.JOB_STUCK, Confidence.LOW, Action.MANUAL, summary, reasons, _END_OR_LOG, pids)
    summary = "A program came up and holds the TPU; this TPU serves no runtime metrics that would show more."
    return Proposal(Verdict.HEALTHY, Confidence.LOW, Action.NONE, summary, _held(facts))


def _stuck(facts: Facts, found: StuckEvidence | None) -> Proposal:
    """A program holds the TPU, rests, and has not come up. That it should is known only by a sign."""
    left = found is not None and found.ended
    has_stepped = facts.holder_loop is not None or facts.stalled_loop is not None
    summary = (
        f"A program has held the TPU for {length(facts.quiet_seconds or 0.0)} without coming up, and does not work."
    )
    if has_stepped:
        summary = "The training loop of the program that holds the TPU stands still, and its process does not work."
    if left:
        summary = "A program has ended and left a process behind that holds the TPU and does not work."
    if found is None:
        steps = (RemedyStep.LOOK, RemedyStep.UNBUFFER)
        return Proposal(
            Verdict.JOB_STUCK, Confidence.LOW, Action.MANUAL, summary, _held(facts), steps, facts.program_pids
        )
    steps = (RemedyStep.END_HOLDER, RemedyStep.LOCK_FILE if left else RemedyStep.UNBUFFER)
    reasons = reason.present(reason.holders(facts), found.reason)
    if facts.runtime_absent and facts.serves_metrics and not has_stepped:  # one that comes up would serve metrics
        reasons = (reasons[0], reason.no_metrics(facts), *reasons[1:])
        return Proposal(Verdict.JOB_STUCK, Confidence.MEDIUM, Action.END_HOLDER, summary, reasons, steps, found.pids)
    return Proposal(Verdict.JOB_STUCK, Confidence.LOW, Action.MANUAL, summary, reasons, steps, found.pids)


def _held(facts: Facts) -> tuple[Reason, ...]:
    return ((reason.holders(facts),) if facts.holders else ()) + _launch(facts)


def _launch(facts: Facts) -> tuple[Reason, ...]:
    launch = facts.launch
    return (reason.launch(facts, launch),) if launch is not None else ()
