"""What follows from how programs ended: the node is free, and why; or they fail again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.health import testimony
from tpuwatch.health.case import Case
from tpuwatch.health.causes import NODE_FAULTS, OTHERS_FAULTS, PROGRAM_FAULTS
from tpuwatch.health.remedies import Step
from tpuwatch.health.rules_cloud import is_bad, is_well
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.health.words import length
from tpuwatch.model import Cause, Outcome

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import Event, Launch

_SAME_END_SECONDS = 60.0  # a program's last events come within this time
_TOGETHER_SECONDS = 30.0  # a job's processes are launched within this time
# Which events explain that nothing runs, what is said of them, and what would help.
_ENDS: Final[tuple[tuple[frozenset[Cause], str, Rung, Step], ...]] = (
    (PROGRAM_FAULTS, "The last program ended by a fault of its own ({cause}).", Rung.FIX_PROGRAM, Step.FIX_PROGRAM),
    (
        OTHERS_FAULTS,
        "The last program ended because of another worker ({cause}).",
        Rung.ASK,
        Step.OTHER_WORKERS,
    ),
    (
        frozenset({Cause.TPU_IN_USE}),
        "The last program found the TPU in use ({cause}), and nobody is seen to hold it.",
        Rung.ASK,
        Step.AGAIN,
    ),
    (NODE_FAULTS, "The last program met a fault of the TPU ({cause}).", Rung.ASK, Step.DESCRIBE),
)
_CAUSES: Final[frozenset[Cause]] = frozenset().union(*(causes for causes, *_ in _ENDS))


def failing(facts: Facts) -> Case | None:
    """Launch after launch fails, however many processes each has."""
    failed = _failed_in_a_row(facts)
    if len(failed) < facts.limits.again_count or facts.chips:
        return None
    if facts.holders and (facts.quiet is None or facts.quiet >= facts.limits.compile_grace_seconds):
        return None  # the latest has lasted; or who holds the TPU is why they fail
    age = length(facts.age(failed[-1].started) or 0.0)
    ended = _end(facts)
    why = f", the last one by {ended[0].cause.value}" if ended else ""
    summary = f"Launch after launch fails: the last {len(failed)}, all within {age}{why}."
    reasons = testimony.told(
        testimony.launch(facts, failed[0]),
        testimony.event(facts, ended[0]) if ended else None,
        testimony.holders(facts) if facts.holders else None,
    )
    rung, steps = (ended[2], _steps(facts, ended)) if ended else (Rung.ASK, (Step.UNBUFFER,))
    return Case(Verdict.JOB_STUCK, Sureness.LIKELY, rung, summary, reasons, steps)


def free(facts: Facts) -> Case | None:
    """Nobody holds the TPU."""
    if facts.host is None or facts.program:
        return None
    ended = _end(facts)
    reasons = testimony.told(
        testimony.free(facts),
        testimony.event(facts, ended[0]) if ended else None,
        testimony.cloud(facts) if is_well(facts) else None,
    )
    sureness = Sureness.CERTAIN if is_well(facts) and not facts.host.unseen else Sureness.LIKELY
    if ended:
        event, said, rung, _ = ended
        seen = " As far as can be seen, the node is free." if facts.host.unseen else " The node is free."
        if event.cause is Cause.TPU_IN_USE and facts.host.unseen:
            summary = "The last program found the TPU in use (tpu_in_use), by a process that tpuwatch cannot see."
            return Case(Verdict.UNKNOWN, Sureness.WEAK, rung, summary, reasons[1:2], (Step.FIND_HOLDER,))
        summary = said.format(cause=event.cause.value) + seen
        return Case(Verdict.IDLE, Sureness.LIKELY, rung, summary, reasons, _steps(facts, ended))
    if facts.killed:
        summary = "The kernel killed for lack of memory, and no program has come up since. The node is free."
        reasons = testimony.told(testimony.memory(facts), *reasons)
        return Case(Verdict.IDLE, Sureness.LIKELY, Rung.FIX_PROGRAM, summary, reasons, (Step.HOST_MEMORY,))
    if facts.host.unseen and not (facts.absent and facts.serves_metrics):
        return None  # nobody has seen that there is none
    if is_bad(facts):
        summary = f"No program uses the TPU; the API says {testimony.cloud_word(facts)}."
        return Case(Verdict.IDLE, Sureness.WEAK, Rung.WAIT, summary, reasons)
    return Case(Verdict.IDLE, sureness, Rung.NOTHING, "No program uses the TPU.", reasons)


def out_of_sight(facts: Facts) -> Case | None:
    """Nobody is seen to hold the TPU, and nobody could have seen it."""
    if facts.host is None or facts.program:
        return None
    summary = "No program is seen to use the TPU, but not every process can be looked at."
    return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.WAIT, summary, (testimony.free(facts),))


def _steps(facts: Facts, ended: tuple[Event, str, Rung, Step]) -> tuple[Step, ...]:
    """What helps after an end, as far as it could be seen."""
    cause, host = ended[0].cause, facts.host
    if cause is Cause.HOST_OOM:
        return ended[3], Step.HOST_MEMORY
    if cause is Cause.TPU_IN_USE and host is not None and host.unseen:
        return (Step.FIND_HOLDER,)
    if cause is Cause.TPU_IN_USE and host is not None and host.lock_file:
        return (Step.LOCK_FILE,)
    return (ended[3],)


def _failed_in_a_row(facts: Facts) -> list[Launch]:
    """The launches that failed one after another, the newest first; of those that began together, one."""
    failed: list[Launch] = []
    for launch in facts.launches:
        if facts.older(launch.started, facts.limits.again_seconds) or _came_up(facts, launch):
            break
        ended = launch.outcome in (Outcome.FAILED, Outcome.KILLED) or not facts.lives(launch)
        if ended and (not failed or failed[-1].started - launch.started >= _TOGETHER_SECONDS):
            failed.append(launch)
    return failed


def _came_up(facts: Facts, launch: Launch) -> bool:
    """Whether a launch is none that failed: it came up and met no fault, or somebody ended it."""
    causes = {one.cause for one in (facts.logs.events if facts.logs else ()) if _is_of(one, launch)}
    if facts.is_up(launch):
        return facts.lives(launch) or not causes & _CAUSES
    return Cause.INTERRUPTED in causes


def _is_of(event: Event, launch: Launch) -> bool:
    return not event.history and event.pid == launch.pid and event.when >= launch.started


def _end(facts: Facts) -> tuple[Event, str, Rung, Step] | None:
    """The event that explains why nothing runs: of those round the newest one that does, the first class above."""
    newest = facts.event(_CAUSES)
    if newest is None:
        return None
    for causes, said, rung, step in _ENDS:
        event = facts.event(causes)
        if event is not None and newest.when - event.when <= _SAME_END_SECONDS:
            return event, said, rung, step
    return None
