"""What follows from the machine itself: runtime metrics, holders, processors, launches and events of the logs.

No rule here speaks of a node that is watched from elsewhere: nothing local is heard of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.health import testimony
from tpuwatch.health.case import Case
from tpuwatch.health.causes import HARDWARE_FAULTS, OTHERS_FAULTS
from tpuwatch.health.facts import Cpu
from tpuwatch.health.remedies import Step
from tpuwatch.health.rules_cloud import is_bad, is_well
from tpuwatch.health.signs import sign
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.health.words import length

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.health.signs import Sign
    from tpuwatch.health.verdict import Reason


def training(facts: Facts) -> Case | None:
    """Programs run on the chips: whatever others say, the node works."""
    if not facts.stepping:
        return None
    reasons = testimony.told(testimony.stepping(facts), testimony.cloud(facts) if is_well(facts) else None)
    if is_bad(facts) and facts.cloud is not None:
        summary = f"Programs run on the chips, though the API says {testimony.cloud_word(facts)}."
        failed = facts.cloud.state == "UNKNOWN"  # the next fault may be the last
        rung, steps = (Rung.CHECKPOINT, (Step.CHECKPOINT,)) if failed else (Rung.WAIT, ())
        return Case(Verdict.HEALTHY, Sureness.WEAK, rung, summary, reasons, steps)
    if (told := facts.event(OTHERS_FAULTS | HARDWARE_FAULTS)) is not None:
        summary = f"The chips count as busy, though the log told of {told.cause.value}: look whether it goes on."
        return Case(Verdict.HEALTHY, Sureness.WEAK, Rung.ASK, summary, reasons, (Step.OTHER_WORKERS,))
    if (port := facts.hung) is not None and facts.older(port.since, facts.limits.compile_grace_seconds):
        silence = length(facts.age(port.since) or 0.0)
        summary = f"Programs run on some chips, and port {port.port} has not answered for {silence}."
        return Case(Verdict.HEALTHY, Sureness.WEAK, Rung.ASK, summary, reasons, (Step.LOOK,))
    if facts.slow:
        summary = "Programs run on the chips, minutes apart."
        return Case(Verdict.HEALTHY, Sureness.LIKELY, Rung.NOTHING, summary, reasons)
    sureness = Sureness.CERTAIN if is_well(facts) else Sureness.LIKELY
    return Case(Verdict.HEALTHY, sureness, Rung.NOTHING, "Programs run on the chips.", reasons)


def booting(facts: Facts) -> Case | None:
    """The machine has only just booted."""
    age = facts.age(facts.booted)
    if facts.host is None or age is None or age >= facts.limits.boot_grace_seconds:
        return None
    summary = f"The machine booted {length(age)} ago and is given {length(facts.limits.boot_grace_seconds)}."
    return Case(Verdict.STARTING, Sureness.LIKELY, Rung.WAIT, summary, (testimony.boot(facts),))


def waiting_for_others(facts: Facts) -> Case | None:
    """The program waits for another worker: the fault is there, not here."""
    told = facts.event(OTHERS_FAULTS)
    if told is None or not facts.program:
        return None
    idle = facts.idle is not None and facts.idle >= facts.limits.step_seconds
    if not (idle or facts.hung is not None or facts.absent) or facts.cpu is Cpu.WORKING:
        return None
    reasons = testimony.told(
        testimony.event(facts, told),
        testimony.idle(facts) if idle else None,
        testimony.hung(facts) if facts.hung is not None else None,
    )
    summary = "The program waits for another worker; the fault is there and not on this one."
    return Case(Verdict.JOB_STUCK, Sureness.LIKELY, Rung.ASK, summary, reasons, (Step.OTHER_WORKERS,))


def hung(facts: Facts) -> Case | None:
    """The runtime takes connections and does not answer."""
    port = facts.hung
    if port is None:
        return None
    limits = facts.limits
    said, memory, symptom = testimony.hung(facts), testimony.memory(facts), testimony.symptom(facts)
    if not facts.older(port.since, limits.compile_grace_seconds):
        summary = f"The runtime does not answer, which counts from {length(limits.compile_grace_seconds)} on."
        return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.WAIT, summary, (said,))
    if facts.quiet is not None and facts.quiet < limits.compile_grace_seconds:
        summary = f"The runtime does not answer; its program's latest sign is {length(facts.quiet)} old."
        return Case(Verdict.STARTING, Sureness.WEAK, Rung.WAIT, summary, (said,))
    steps = (Step.RESTART_RUNTIME, *((Step.HOST_MEMORY,) if memory else ()))
    summary = f"The runtime has not answered for {length(facts.age(port.since) or 0.0)}"
    rests = testimony.processors(facts) if facts.cpu is Cpu.RESTING else None
    if facts.cpu is not Cpu.WORKING and (rests or memory or symptom):
        reasons = testimony.told(said, memory, rests, symptom)
        summary += ", and the machine is or was out of memory." if memory else ", and its program does not work."
        pids = facts.culprits
        return Case(Verdict.RUNTIME_STUCK, Sureness.CERTAIN, Rung.RESTART_RUNTIME, summary, reasons, steps, pids)
    if facts.cpu is Cpu.WORKING and memory is None and not facts.older(port.since, limits.longest_compile_seconds):
        summary += ", but its program works: a compile may keep it from answering."
        return Case(Verdict.COMPILING, Sureness.WEAK, Rung.WAIT, summary, (testimony.processors(facts), said))
    sureness = Sureness.WEAK if facts.cpu is Cpu.WORKING else Sureness.LIKELY
    reasons = testimony.told(said, memory)
    return Case(Verdict.RUNTIME_STUCK, sureness, Rung.ASK, f"{summary}.", reasons, steps, facts.culprits)


def idling(facts: Facts) -> Case | None:
    """The runtime answers, and no chip runs anything."""
    if not facts.chips:
        return None
    limits, idle = facts.limits, facts.idle
    said = testimony.idle(facts)
    within = facts.quiet is not None and facts.quiet < limits.compile_grace_seconds
    longest = max(limits.longest_compile_seconds, limits.idle_seconds)
    if facts.waiting:
        longest = limits.idle_seconds  # they are compiled
    if within or (facts.cpu is Cpu.WORKING and (idle is None or idle < longest)):
        return _compiling(facts, said)
    if idle is None or idle < limits.idle_seconds:
        counts = f"which counts from {length(limits.idle_seconds)} on" if idle is not None else "since when is not told"
        summary = f"The chips run nothing under a live program, {counts}."
        sureness = Sureness.LIKELY if idle is not None else Sureness.WEAK
        return Case(Verdict.IDLE, sureness, Rung.WAIT, summary, (said,))
    return _without_work(facts, said, f"The chips have run nothing for {length(idle)} under a live program")


def _without_work(facts: Facts, said: Reason, summary: str) -> Case:
    """The chips have run nothing for too long."""
    found, symptom = sign(facts), testimony.symptom(facts)
    rests = testimony.processors(facts) if facts.cpu is Cpu.RESTING else None
    working = facts.cpu is Cpu.WORKING
    reasons = testimony.told(said, rests, testimony.memory(facts), found.reason if found else None)
    if found is None:
        summary += ", though the host works." if working else "; it may be stuck, or wait for its user."
        sureness = Sureness.WEAK if working else Sureness.LIKELY
        return Case(Verdict.JOB_STUCK, sureness, Rung.ASK, summary, reasons, (Step.LOOK,), facts.culprits)
    if not working and (rests or symptom):
        summary += ", and the program does not work on the host either." if rests else "."
        reasons = tuple(dict.fromkeys((*reasons, *testimony.told(symptom))))
        steps = (Step.END_HOLDER,)
        return Case(Verdict.JOB_STUCK, Sureness.CERTAIN, Rung.END_HOLDER, summary, reasons, steps, found.pids)
    summary += ", though the host works." if working else "."
    sureness = Sureness.WEAK if working else Sureness.LIKELY
    return Case(Verdict.JOB_STUCK, sureness, Rung.ASK, summary, reasons, (Step.END_HOLDER,), found.pids)


def held(facts: Facts) -> Case | None:
    """Somebody holds the TPU, and no runtime metrics tell what it does."""
    if not facts.holders:
        return None
    launch = facts.launch
    up = launch is not None and facts.is_up(launch)
    if not up and facts.quiet is not None and facts.quiet < facts.limits.compile_grace_seconds:
        summary = f"A program took the TPU {length(facts.quiet)} ago and is coming up."
        return Case(Verdict.STARTING, Sureness.LIKELY, Rung.WAIT, summary, _held(facts))
    if facts.cpu is Cpu.WORKING:
        return _works_unseen(facts)
    if up:
        return _up_unseen(facts)
    found = sign(facts)
    told = found is not None or (facts.absent and facts.serves_metrics)
    if facts.cpu is Cpu.UNCLEAR or facts.quiet is None or not told:
        summary = "A program holds the TPU; nothing tells whether it works."
        return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.WAIT, summary, _held(facts))
    return _stuck(facts, found)


def launching(facts: Facts) -> Case | None:
    """A launch is under way by its log, and nobody can be seen to hold the TPU."""
    launch = facts.launch
    if launch is None or facts.quiet is None:
        return None
    if facts.is_up(launch):
        return _up_unseen(facts)
    reasons: tuple[Reason, ...] = (testimony.launch(facts, launch),)
    if facts.quiet < facts.limits.compile_grace_seconds:
        summary = "A program initialises the TPU."
        return Case(Verdict.STARTING, Sureness.LIKELY, Rung.WAIT, summary, reasons)
    if facts.cpu is Cpu.WORKING:
        return _compiling(facts, *reasons)
    if facts.cpu is Cpu.RESTING:
        summary = f"A launch has said nothing for {length(facts.quiet)}, and the machine does not work."
        reasons = (testimony.processors(facts), *reasons)
        return Case(Verdict.JOB_STUCK, Sureness.WEAK, Rung.ASK, summary, reasons, (Step.END_HOLDER, Step.UNBUFFER))
    summary = f"A launch has said nothing for {length(facts.quiet)}; nothing tells whether it works."
    return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.WAIT, summary, reasons)


def _compiling(facts: Facts, said: Reason) -> Case:
    quiet = facts.quiet
    within = quiet is not None and quiet < facts.limits.compile_grace_seconds
    works = testimony.processors(facts) if facts.cpu is Cpu.WORKING else None
    summary = "The program compiles or prepares data"
    summary += f": its latest sign is {length(quiet)} old." if within and quiet is not None else ": the host works."
    reasons = testimony.told(works, said)
    return Case(Verdict.COMPILING, Sureness.LIKELY, Rung.WAIT, summary, reasons)


def _works_unseen(facts: Facts) -> Case:
    launch = facts.launch
    reasons = testimony.told(*_held(facts), testimony.cloud(facts) if is_well(facts) else None)
    waits = launch is not None and not facts.is_up(launch)
    if waits and (facts.quiet or 0.0) < facts.limits.longest_compile_seconds:
        return _compiling(facts, *_launch(facts))
    if waits:
        summary = f"A launch has not come up for {length(facts.quiet or 0.0)}, though its process works."
        steps = (Step.END_HOLDER, Step.UNBUFFER)
        return Case(Verdict.JOB_STUCK, Sureness.WEAK, Rung.ASK, summary, reasons, steps, facts.culprits)
    sureness = Sureness.LIKELY if launch is not None else Sureness.WEAK
    summary = "A program holds the TPU and works; it serves no runtime metrics that would tell more."
    return Case(Verdict.HEALTHY, sureness, Rung.NOTHING, summary, reasons)


def _up_unseen(facts: Facts) -> Case:
    if not facts.lacks_metrics:
        summary = "A program came up and holds the TPU; without runtime metrics nothing tells whether it works."
        return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.WAIT, summary, _held(facts))
    summary = "A program came up and holds the TPU; this TPU serves no runtime metrics that would tell more."
    return Case(Verdict.HEALTHY, Sureness.WEAK, Rung.NOTHING, summary, _held(facts))


def _stuck(facts: Facts, found: Sign | None) -> Case:
    """A program holds the TPU, rests, and has not come up. That it should is known only by a sign."""
    left = found is not None and found.ended
    summary = f"A program has held the TPU for {length(facts.quiet or 0.0)} without coming up, and does not work."
    if left:
        summary = "A program has ended and left a process behind that holds the TPU and does not work."
    if found is None:
        steps = (Step.LOOK, Step.UNBUFFER)
        return Case(Verdict.JOB_STUCK, Sureness.WEAK, Rung.ASK, summary, _held(facts), steps, facts.culprits)
    steps = (Step.END_HOLDER, Step.LOCK_FILE if left else Step.UNBUFFER)
    reasons = testimony.told(testimony.holders(facts), found.reason)
    if facts.absent and facts.serves_metrics:  # a program on this TPU would serve metrics by now
        reasons = (reasons[0], testimony.no_metrics(facts), *reasons[1:])
        return Case(Verdict.JOB_STUCK, Sureness.LIKELY, Rung.END_HOLDER, summary, reasons, steps, found.pids)
    return Case(Verdict.JOB_STUCK, Sureness.WEAK, Rung.ASK, summary, reasons, steps, found.pids)


def _held(facts: Facts) -> tuple[Reason, ...]:
    return ((testimony.holders(facts),) if facts.holders else ()) + _launch(facts)


def _launch(facts: Facts) -> tuple[Reason, ...]:
    launch = facts.launch
    return (testimony.launch(facts, launch),) if launch is not None else ()
