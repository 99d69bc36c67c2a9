"""What changes of a plan are as events."""

from __future__ import annotations

from dataclasses import replace

from tests.tune.recorded import NOW
from tpuwatch.daemon import tunechanges
from tpuwatch.daemon.shown import findings_of
from tpuwatch.logs.catalogue import load_catalogue
from tpuwatch.model import Cause, Event
from tpuwatch.tune.changes import changes
from tpuwatch.tune.model import SIZE, Decision, Plan, Setting, Step

GIB = 1 << 30
BEFORE = Plan("train", NOW - 60, (Setting(SIZE, str(4 * GIB), ""),), Decision(Step.KEEP, 4 * GIB, None, ()))
AFTER = Plan(
    "train",
    NOW,
    (Setting(SIZE, str(6 * GIB), "6 GiB were needed."),),
    Decision(Step.GROW, 6 * GIB, None, (), 4 * GIB),
)


def made(before: Plan | None = BEFORE, after: Plan = AFTER, *, applies: bool = False, launch: float = 0.0) -> Event:
    found = changes(before, after)
    (event,) = tunechanges.events(after, found, applies=applies, file="/plans/x", before=before, last_launch=launch)
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


def test_what_is_applied_is_no_advice() -> None:
    event = made(applies=True)
    assert event.text.startswith(f"The next launch of train: {SIZE} goes up")
    assert event.details["mode"] == "apply"


def test_the_same_change_after_the_same_plan_is_the_same_event() -> None:
    assert made().key == made(after=replace(AFTER, decided=NOW + 5)).key
    others = [
        made(replace(BEFORE, decided=NOW - 30)),  # it has changed back meanwhile
        made(after=replace(AFTER, workload="other")),
        made(after=replace(AFTER, settings=(Setting(SIZE, str(8 * GIB), ""),))),
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
    hostile = replace(AFTER, settings=(Setting("TPU_X", "\x1b[31m\n\ud800" + "x" * 10_000, ""),))
    event = next(
        one
        for one in tunechanges.events(
            hostile, changes(None, hostile), applies=False, file="/plans/x", before=None, last_launch=0.0
        )
        if one.details["variable"] == "TPU_X"
    )
    assert event.text.isprintable()
    assert event.details["after"].isprintable()
    assert max(len(event.text), len(event.details["after"])) <= 1000
