"""From changes of a plan to events, so that they are on record beside the faults that they answer."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import clean
from tpuwatch.model import Cause, Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.tune.changes import Change
    from tpuwatch.tune.model import Plan

RULE: Final = "tune-change"  # no rule of the catalogue: no text of a log stands for it
_TEXT: Final = 1000
_VALUE: Final = 300


def events(
    plan: Plan, changes: Sequence[Change], *, applies: bool, file: str, before: Plan | None, last_launch: float
) -> list[Event]:
    """One event for each change. `file` is where the next launch reads it; `before` is the plan that this one follows,
    and `last_launch` the start of the latest launch that it was decided by.
    """
    # Whoever decides the same again after the same plan, as after a crash, has no new event. Without a plan before it
    # the launch tells which decision it was.
    follows = f"plan {before.decided!r}" if before is not None else f"launch {last_launch!r}"
    return [_event(plan, change, applies=applies, file=file, follows=follows) for change in changes]


def _event(plan: Plan, change: Change, *, applies: bool, file: str, follows: str) -> Event:
    known = f"{RULE}\0{plan.workload}\0{follows}\0{change.variable}\0{change.after!r}"
    return Event(
        key=hashlib.sha256(known.encode("utf-8", "replace")).digest()[:16],
        rule=RULE,
        cause=Cause.TUNE_CHANGE,
        observed=plan.decided,
        time=plan.decided,
        severity="I",
        pid=None,
        file=file,
        offset=0,
        text=clean(sentence(plan, change, applies=applies), _TEXT),
        details={
            "workload": plan.workload,
            "mode": "apply" if applies else "observe",
            "step": plan.decision.step.value,
            "variable": change.variable,
            "direction": change.direction,
            "before": _shown(change.before),
            "after": _shown(change.after),
            "why": clean(change.why, _TEXT),
        },
    )


def sentence(plan: Plan, change: Change, *, applies: bool) -> str:
    """The change in words: as advice, unless it is written where the next launch gets it."""
    return f"{'The next launch' if applies else 'Advice for the next launch'} of {plan.workload}: {change.sentence()}"


def _shown(value: str | None) -> str | None:
    return None if value is None else clean(value, _VALUE)
