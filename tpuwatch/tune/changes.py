"""What one plan gives otherwise than the one before it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.tune.model import SIZE, THRESHOLD, Step
from tpuwatch.tune.visibility import NAMES
from tpuwatch.units import format_size

if TYPE_CHECKING:
    from tpuwatch.tune.model import Plan

VARIABLES: Final = (SIZE, THRESHOLD, *sorted(NAMES))  # that metrics know by name; pins may name others
DIRECTIONS: Final = ("set", "up", "down", "back", "changed", "unset")
_SIZES: Final = frozenset({SIZE, THRESHOLD})
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Change:
    """One variable that the next launch gets otherwise than it would have got it."""

    variable: str
    direction: str  # one of DIRECTIONS
    before: str | None  # None: it was not set
    after: str | None
    why: str

    def sentence(self) -> str:
        """The change in words."""
        told = {
            "set": f"is set to {_shown(self.variable, self.after)}",
            "unset": f"is left to libtpu, after {_shown(self.variable, self.before)}",
        }
        between = f"from {_shown(self.variable, self.before)} to {_shown(self.variable, self.after)}"
        what = told.get(self.direction, f"goes {self.direction} {between}".replace("goes changed", "changes"))
        return f"{self.variable} {what}" + (f": {self.why}" if self.why else ".")


def changes(before: Plan | None, after: Plan) -> list[Change]:
    """The variables that another plan before it gave otherwise, or not at all."""
    old = {one.name: one.value for one in before.settings} if before is not None else {}
    if after.decision.before_bytes is not None:  # what libtpu took by itself
        old.setdefault(SIZE, str(after.decision.before_bytes))
    new = {one.name: one for one in after.settings}
    found = [
        Change(name, _direction(after, name, old.get(name), one.value), old.get(name), one.value, one.why)
        for name, one in new.items()
        if old.get(name) != one.value
    ]
    set_before = {one.name for one in before.settings} if before is not None else set()
    gone = [
        Change(name, "unset", value, None, _why(after, name))
        for name, value in old.items()
        if name in set_before and name not in new
    ]
    return found + gone


def _direction(plan: Plan, name: str, old: str | None, new: str) -> str:
    if old is None:
        return "set"
    if name in _SIZES and plan.decision.step is Step.BACK:
        return "back"
    if not (_NUMBER.fullmatch(old) and _NUMBER.fullmatch(new)):
        return "changed"
    return "up" if int(new) > int(old) else "down"


def _why(plan: Plan, name: str) -> str:
    return plan.decision.reasons[0] if name in _SIZES and plan.decision.reasons else ""


def _shown(name: str, value: str | None) -> str:
    if value is not None and name in _SIZES and _NUMBER.fullmatch(value):
        return format_size(int(value))
    return value or "nothing"
