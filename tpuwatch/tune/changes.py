"""What one plan gives otherwise than the one before it. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, format_size
from tpuwatch.model import SIZE, THRESHOLD, Cause, Event, SizeStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import TunePlan


_SIZES: Final = frozenset({SIZE, THRESHOLD})
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class PlanChange:
    """One variable that the next launch gets otherwise than it would have got it."""

    variable: str
    direction: str  # one of DIRECTIONS
    before: str | None  # None: it was not set
    after: str | None
    why: str

    def sentence(self) -> str:
        """The change in words."""
        ways = {
            "set": f"is set to {_format(self.variable, self.after)}",
            "unset": f"is left to libtpu, after {_format(self.variable, self.before)}",
        }
        between = f"from {_format(self.variable, self.before)} to {_format(self.variable, self.after)}"
        what = ways.get(self.direction, f"goes {self.direction} {between}".replace("goes changed", "changes"))
        return f"{self.variable} {what}" + (f": {self.why}" if self.why else ".")


def changes(before: TunePlan | None, after: TunePlan) -> list[PlanChange]:
    """The variables that another plan before it gave otherwise, or not at all."""
    old = {one.name: one.value for one in before.settings} if before is not None else {}
    if after.decision.before_bytes is not None:  # what libtpu took by itself
        old.setdefault(SIZE, str(after.decision.before_bytes))
    new = {one.name: one for one in after.settings}
    found = [
        PlanChange(name, _direction(after, name, old.get(name), one.value), old.get(name), one.value, one.why)
        for name, one in new.items()
        if old.get(name) != one.value
    ]
    gone = [
        PlanChange(one.name, "unset", one.value, None, _why(after, one.name))
        for one in (before.settings if before is not None else ())
        if one.name not in new
    ]
    return found + gone


def _direction(plan: TunePlan, name: str, old: str | None, new: str) -> str:
    if old is None:
        return "set"
    if name in _SIZES and plan.decision.step is SizeStep.BACK:
        return "back"
    if not (_NUMBER.fullmatch(old) and _NUMBER.fullmatch(new)):
        return "changed"
    return "up" if int(new) > int(old) else "down"


def _why(plan: TunePlan, name: str) -> str:
    return plan.decision.reasons[0] if name in _SIZES and plan.decision.reasons else ""


def _format(name: str, value: str | None) -> str:
    if value is not None and name in _SIZES and _NUMBER.fullmatch(value):
        return format_size(int(value))
    return value or "nothing"


RULE: Final = "tune-change"  # no rule of the catalogue: no text of a log stands for it
_TEXT: Final = 1000
_VALUE: Final = 300


def events(
    plan: TunePlan,
    changes: Sequence[PlanChange],
    *,
    acts: bool,
    file: str,
    before: TunePlan | None,
    last_launch: float,
) -> list[Event]:
    """One event for each change. `file` is where the next launch reads it; `before` is the plan that this one follows,
    and `last_launch` the start of the latest launch that it was decided by.
    """
    # The same decision after the same plan, as after a crash, is no new event. Without a plan before it
    # the launch identifies the decision.
    follows = f"plan {before.decided!r}" if before is not None else f"launch {last_launch!r}"
    return [_event(plan, change, acts=acts, file=file, follows=follows) for change in changes]


def _event(plan: TunePlan, change: PlanChange, *, acts: bool, file: str, follows: str) -> Event:
    before, after = (None if value is None else clean(value, _VALUE) for value in (change.before, change.after))
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
        text=clean(sentence(plan, change, acts=acts), _TEXT),
        details=facts(plan, replace(change, before=before, after=after, why=clean(change.why, _TEXT)), acts=acts),
    )


def facts(plan: TunePlan, change: PlanChange, *, acts: bool) -> dict[str, str | None]:
    """The change as events and the audit file have it."""
    return {
        "workload": plan.workload,
        "mode": "act" if acts else "observe",
        "step": plan.decision.step.value,
        "variable": change.variable,
        "direction": change.direction,
        "before": change.before,
        "after": change.after,
        "why": change.why,
    }


def sentence(plan: TunePlan, change: PlanChange, *, acts: bool) -> str:
    """The change in words: as advice, unless it is written where the next launch gets it."""
    return f"{'The next launch' if acts else 'Advice for the next launch'} of {plan.workload}: {change.sentence()}"
