"""What one plan gives otherwise than the one before it."""

from __future__ import annotations

import pytest

from tpuwatch.tune.changes import DIRECTIONS, changes
from tpuwatch.tune.model import SIZE, Decision, Plan, Setting, Step

LEVEL = "TPU_MIN_LOG_LEVEL"
GIB = 1 << 30


def plan(step: Step = Step.GROW, before: int | None = None, /, **values: str) -> Plan:
    settings = tuple(Setting(name, value, f"why {name}") for name, value in values.items())
    return Plan("w", 0.0, settings, Decision(step, None, None, ("It was too small.",), before))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, plan(**{SIZE: "1"}), [(SIZE, "set")]),
        (None, plan(Step.GROW, 4 * GIB, **{SIZE: str(8 * GIB)}), [(SIZE, "up")]),
        (plan(**{SIZE: "8192"}), plan(**{SIZE: "4096"}), [(SIZE, "down")]),
        (plan(**{SIZE: "8192"}), plan(Step.BACK, **{SIZE: "4096"}), [(SIZE, "back")]),
        (plan(**{SIZE: "8192"}), plan(), [(SIZE, "unset")]),
        (plan(**{SIZE: "8192"}), plan(Step.KEEP, 4096), [(SIZE, "unset")]),
        (None, plan(Step.KEEP, 4096), []),
        (plan(TPU_LOG_DIR="/a"), plan(TPU_LOG_DIR="/b"), [("TPU_LOG_DIR", "changed")]),
        (plan(**{LEVEL: "1"}), plan(**{LEVEL: "0"}), [(LEVEL, "down")]),
        (plan(**{LEVEL: "0"}), plan(**{LEVEL: "0"}), []),
        (plan(TPU_A="9" * 400), plan(TPU_A="1"), [("TPU_A", "changed")]),
    ],
    ids=[
        "set",
        "up from libtpu's own",
        "down",
        "back",
        "left to libtpu",
        "left to libtpu again",
        "as ever",
        "a word",
        "a level",
        "same",
        "long",
    ],
)
def test_each_variable_goes_one_way(before: Plan | None, after: Plan, told: list[tuple[str, str]]) -> None:
    found = changes(before, after)
    assert [(one.variable, one.direction) for one in found] == told
    assert {one.direction for one in found} <= set(DIRECTIONS)


def test_a_change_is_told_with_its_reason() -> None:
    (grown,) = changes(plan(**{SIZE: str(4 * GIB)}), plan(**{SIZE: str(8 * GIB)}))
    assert grown.sentence() == f"{SIZE} goes up from 4 GiB to 8 GiB: why {SIZE}"
    (gone,) = changes(plan(**{SIZE: str(4 * GIB)}), plan())
    assert gone.sentence() == f"{SIZE} is left to libtpu, after 4 GiB: It was too small."
    (other,) = changes(plan(TPU_LOG_DIR="/a"), plan(TPU_LOG_DIR="/b"))
    assert other.sentence() == "TPU_LOG_DIR changes from /a to /b: why TPU_LOG_DIR"
