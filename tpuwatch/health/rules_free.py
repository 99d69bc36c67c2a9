"""What follows when nobody uses the TPU: the node is free, and the last program's end may say why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.health import testimony
from tpuwatch.health.case import Case
from tpuwatch.health.causes import NODE_FAULTS, OTHERS_FAULTS, PROGRAM_FAULTS
from tpuwatch.health.remedies import Step
from tpuwatch.health.rules_cloud import is_bad, is_well
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import Event

_SAME_END_SECONDS = 60.0  # a program's last events come within this time
# Which events explain that nothing runs, what is said of them, and what would help.
_ENDS: tuple[tuple[frozenset[Cause], str, Rung, Step], ...] = (
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
        Step.LOCK_FILE,
    ),
    (NODE_FAULTS, "The last program met a fault of the TPU ({cause}).", Rung.ASK, Step.DESCRIBE),
)


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
        event, said, rung, step = ended
        seen = " As far as can be seen, the node is free." if facts.host.unseen else " The node is free."
        summary = said.format(cause=event.cause.value) + seen
        steps = (step, Step.HOST_MEMORY) if event.cause is Cause.HOST_OOM else (step,)
        return Case(Verdict.IDLE, Sureness.LIKELY, rung, summary, reasons, steps)
    if facts.killed:
        summary = "The kernel killed for lack of memory, and no program has come up since. The node is free."
        reasons = testimony.told(testimony.memory(facts), *reasons)
        return Case(Verdict.IDLE, Sureness.LIKELY, Rung.FIX_PROGRAM, summary, reasons, (Step.HOST_MEMORY,))
    if is_bad(facts):
        summary = f"No program uses the TPU; the API says {testimony.cloud_word(facts)}."
        return Case(Verdict.IDLE, Sureness.WEAK, Rung.WAIT, summary, reasons)
    return Case(Verdict.IDLE, sureness, Rung.NOTHING, "No program uses the TPU.", reasons)


def _end(facts: Facts) -> tuple[Event, str, Rung, Step] | None:
    """The event that explains why nothing runs: of those round the newest one that does, the first class above."""
    newest = facts.event(frozenset().union(*(causes for causes, *_ in _ENDS)))
    if newest is None:
        return None
    for causes, said, rung, step in _ENDS:
        event = facts.event(causes)
        if event is not None and newest.when - event.when <= _SAME_END_SECONDS:
            return event, said, rung, step
    return None
