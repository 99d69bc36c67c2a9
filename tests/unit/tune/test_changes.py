"""What one plan gives otherwise than the one before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.tune.recorded import NOW
from tpuwatch.daemon.view import findings_of
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Event
from tpuwatch.model.tune import DIRECTIONS, SIZE, SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.tune import changes as change_events
from tpuwatch.tune.changes import changes

LEVEL = "TPU_MIN_LOG_LEVEL"
GIB = 1 << 30


def plan(step: SizeStep = SizeStep.GROW, before: int | None = None, /, **values: str) -> TunePlan:
    settings = tuple(VariableSetting(name, value, f"why {name}") for name, value in values.items())
    return TunePlan("w", 0.0, settings, SizeDecision(step, None, None, ("It was too small.",), before))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, plan(**{SIZE: "1"}), [(SIZE, "set")]),
        (None, plan(SizeStep.GROW, 4 * GIB, **{SIZE: str(8 * GIB)}), [(SIZE, "up")]),
        (plan(**{SIZE: "8192"}), plan(**{SIZE: "4096"}), [(SIZE, "down")]),
        (plan(**{SIZE: "8192"}), plan(SizeStep.BACK, **{SIZE: "4096"}), [(SIZE, "back")]),
        (plan(**{SIZE: "8192"}), plan(), [(SIZE, "unset")]),
        (plan(**{SIZE: "8192"}), plan(SizeStep.KEEP, 4096), [(SIZE, "unset")]),
        (None, plan(SizeStep.KEEP, 4096), []),
        (plan(TPU_LOG_DIR="/a"), plan(TPU_LOG_DIR="/b"), [("TPU_LOG_DIR", "changed")]),
        (plan(**{LEVEL: "1"}), plan(**{LEVEL: "0"}), [(LEVEL, "down")]),
        (plan(**{LEVEL: "0"}), plan(**{LEVEL: "0"}), []),
        (plan(TPU_A="9" * 400), plan(TPU_A="1"), [("TPU_A", "changed")]),
    ],
    ids=range(11),
)
def test_each_variable_goes_one_way(before: TunePlan | None, after: TunePlan, expected: list[tuple[str, str]]) -> None:
    found = changes(before, after)
    assert [(one.variable, one.direction) for one in found] == expected
    assert {one.direction for one in found} <= set(DIRECTIONS)


def test_a_change_is_reported_with_its_reason() -> None:
    (grown,) = changes(plan(**{SIZE: str(4 * GIB)}), plan(**{SIZE: str(8 * GIB)}))
    assert grown.sentence() == f"{SIZE} goes up from 4 GiB to 8 GiB: why {SIZE}"
    (gone,) = changes(plan(**{SIZE: str(4 * GIB)}), plan())
    assert gone.sentence() == f"{SIZE} is left to libtpu, after 4 GiB: It was too small."
    (other,) = changes(plan(TPU_LOG_DIR="/a"), plan(TPU_LOG_DIR="/b"))
    assert other.sentence() == "TPU_LOG_DIR changes from /a to /b: why TPU_LOG_DIR"


BEFORE = TunePlan(
    "train", NOW - 60, (VariableSetting(SIZE, str(4 * GIB), ""),), SizeDecision(SizeStep.KEEP, 4 * GIB, None, ())
)
AFTER = TunePlan(
    "train",
    NOW,
    (VariableSetting(SIZE, str(6 * GIB), "6 GiB were needed."),),
    SizeDecision(SizeStep.GROW, 6 * GIB, None, (), 4 * GIB),
)


def made(before: TunePlan | None = BEFORE, after: TunePlan = AFTER, *, launch: float = 0.0) -> Event:
    found = changes(before, after)
    (event,) = change_events.events(after, found, acts=False, file="/plans/x", before=before, last_launch=launch)
    return event


def test_a_change_says_what_the_next_launch_gets_and_why() -> None:
    event = made()
    assert event.text == f"Advice for the next launch of train: {SIZE} goes up from 4 GiB to 6 GiB: 6 GiB were needed."
    assert (event.cause, event.severity, event.pid, event.file) == (Cause.TUNE_CHANGE, "I", None, "/plans/x")
    assert (event.when, event.history) == (NOW, False)
    assert event.details == {
        "workload": "train",
        "mode": "observe",
        "step": "grow",
        "variable": SIZE,
        "direction": "up",
        "before": str(4 * GIB),
        "after": str(6 * GIB),
        "why": "6 GiB were needed.",
    }


def test_the_same_change_after_the_same_plan_is_the_same_event() -> None:
    assert made().key == made(after=replace(AFTER, decided=NOW + 5)).key
    others = [
        made(replace(BEFORE, decided=NOW - 30)),  # it has changed back meanwhile
        made(after=replace(AFTER, workload="other")),
        made(after=replace(AFTER, settings=(VariableSetting(SIZE, str(8 * GIB), ""),))),
        made(None, launch=NOW - 100),
        made(None, launch=NOW - 50),
    ]
    assert len({made().key, *(one.key for one in others)}) == 6
    assert made(None, launch=NOW - 50).key == made(None, replace(AFTER, decided=NOW + 5), launch=NOW - 50).key


def test_it_is_no_finding_whatever_rules_there_are() -> None:
    catalogue = load_catalogue()
    assert findings_of([made()], catalogue) == []
    named = replace(made(), rule=catalogue.rules[0].id)
    assert findings_of([named], catalogue) == []
    assert findings_of([replace(named, cause=Cause.HANG)], catalogue) != []


def test_a_value_is_cleaned_and_cut() -> None:
    hostile = replace(AFTER, settings=(VariableSetting("TPU_X", "\x1b[31m\n\ud800" + "x" * 10_000, ""),))
    event = made(None, hostile)
    assert event.details["variable"] == "TPU_X"
    assert event.text.isprintable()
    assert event.details["after"].isprintable()
    assert max(len(event.text), len(event.details["after"])) <= 1000
