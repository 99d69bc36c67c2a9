"""Findings as the daemon shows them: with what it knows of its machine in their commands."""

from __future__ import annotations

from pathlib import Path

from tests.unit.goodput.simulated import Plan, simulate
from tests.unit.store.make import NOW, event
from tests.unit.web import samples
from tpuwatch.config import PeersConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.daemon.view import DaemonView, findings_of
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import EXEC
from tpuwatch.store import EventStore


def test_commands_have_the_process_and_the_place_as_far_as_the_host_knows_them(tmp_path: Path) -> None:
    clock, catalogue = ManualClock(), load_catalogue()
    hang = next(rule for rule in catalogue.rules if any("kill -QUIT PID" in step.remedy.do for step in rule.steps))
    store = EventStore.open(tmp_path, clock)
    store.commit([event("a", rule=hang.id, cause=hang.cause, pid=4242, observed=NOW, time=NOW)], [])
    view = DaemonView(store, catalogue, clock, samples.status(), PeersConfig())

    def steps() -> str:
        return " ".join(step.do for finding in view.findings() for step in finding.remedy)

    assert "`kill -QUIT PID`" in steps()  # a log alone names the process
    view.update(samples.status(host=samples.host(), identity=samples.identity()), ())
    assert "`kill -QUIT 4242`" in steps()
    store.close()


def test_what_is_history_is_no_finding(tmp_path: Path) -> None:
    clock = ManualClock()
    store = EventStore.open(tmp_path, clock)
    for key, history in (("a", True), ("b", False)):
        store.commit([event(key, cause=Cause.HOST_OOM, observed=NOW, time=NOW, history=history)], [])
    view = DaemonView(store, load_catalogue(), clock, samples.status(), PeersConfig())
    assert [(finding.count, finding.first.key) for finding in view.findings()] == [(1, b"b")]
    store.close()


def test_goodput_is_that_of_the_last_week_or_since_a_time(tmp_path: Path) -> None:
    given = simulate(Plan())
    clock = ManualClock(given.now)
    store = EventStore.open(tmp_path, clock)
    store.commit([], [], given.launches)
    store.save_steps(given.runs, given.spans)
    view = DaemonView(store, load_catalogue(), clock, samples.status(), PeersConfig())
    week = view.goodput()
    assert (week.since, week.until) == (given.now - 7 * 86_400, given.now)
    assert round(week.total_seconds, 3) == round(given.total, 3)
    assert round(view.goodput(since=given.now - 600).total_seconds, 3) == 600.0
    assert view.goodput(workload="other").trainings == ()
    store.close()


def test_of_a_finding_of_exec_the_cause_holds_whatever_the_daemons_rules_are() -> None:
    catalogue = load_catalogue()
    general = next(rule for rule in catalogue.rules if rule.whole_text and rule.cause is Cause.HOST_OOM)

    def shown(rule: str, file: str = f"{EXEC}train") -> list[tuple[Cause, bool]]:
        one = event("a", rule=rule, cause=Cause.HOST_OOM, file=file, text="It ended.", details={})
        return [(found.cause, found.summary == general.summary) for found in findings_of([one], catalogue)]

    assert shown(general.id) == [(Cause.HOST_OOM, True)]  # `exec` has seen that the text is a TPU's
    assert shown("their-own") == [(Cause.HOST_OOM, False)]
    assert shown("hang") == [(Cause.HOST_OOM, False)]  # which is a rule of another cause
    assert shown(general.id, file="/logs/a") == []
    assert shown("their-own", file="/logs/a") == []


def test_a_failure_that_no_rule_explains_is_an_event_and_no_problem_of_the_machine() -> None:
    one = event("a", rule="unknown-exception", cause=Cause.UNKNOWN_FAILURE, text="ValueError: too many cooks")
    assert findings_of([one], load_catalogue()) == []
