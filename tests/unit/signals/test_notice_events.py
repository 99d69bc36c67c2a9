from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.events import Cause, Event
from tpuwatch.model.signals import Maintenance, Notices
from tpuwatch.signals.notices import SOURCE, new_events

NOW = 1_790_000_000.0
QUIET = Notices()
TERMINATION = Notices(maintenance_event="TERMINATE_ON_HOST_MAINTENANCE")
COMING = Notices(maintenance=Maintenance("SCHEDULED", "PENDING", NOW + 600, None))
PREEMPTED = Notices(preempted=True)


def announced(notices: Notices, before: Notices | None = None, *, now: float = NOW, boot_id: str = "b") -> list[Event]:
    return new_events(notices, before, now=now, boot_id=boot_id)


def test_quiet_is_no_event() -> None:
    assert announced(QUIET) == []
    assert announced(QUIET, TERMINATION) == []
    assert announced(Notices(maintenance_event="")) == []


@pytest.mark.parametrize(
    ("notices", "cause"),
    [(TERMINATION, Cause.MAINTENANCE), (COMING, Cause.MAINTENANCE), (PREEMPTED, Cause.PREEMPTED)],
)
def test_a_notice_is_one_event_of_its_cause(notices: Notices, cause: Cause) -> None:
    (event,) = announced(notices, QUIET)
    assert (event.cause, event.file, event.time, event.history) == (cause, SOURCE, NOW, False)
    assert announced(notices, notices) == []


def test_what_comes_to_it_is_announced_alone() -> None:
    both = replace(TERMINATION, preempted=True)
    assert [event.cause for event in announced(both, TERMINATION)] == [Cause.PREEMPTED]
    assert [event.cause for event in announced(both, None)] == [Cause.PREEMPTED, Cause.MAINTENANCE]


def test_a_restart_under_the_same_notice_makes_the_same_event_and_another_boot_another() -> None:
    (first,), (again,), (rebooted,) = (
        announced(TERMINATION),
        announced(TERMINATION, now=NOW + 5),
        announced(TERMINATION, boot_id="c"),
    )
    assert first.key == again.key
    assert first.key != rebooted.key
    assert announced(TERMINATION, now=NOW + 3 * 86_400)[0].key != first.key


@pytest.mark.parametrize("notices", [TERMINATION, COMING, PREEMPTED])
def test_a_notice_has_a_rule_with_a_remedy_and_its_text_is_known_to_diagnose(notices: Notices) -> None:
    (event,) = announced(notices)
    rules = {rule.id: rule for rule in load_catalogue().rules}
    assert rules[event.rule].cause is event.cause
    assert rules[event.rule].remedy
    findings = findings_in(event.text.encode(), Scanner(load_catalogue()), "notice.txt", NOW)
    assert [finding.cause for finding in findings] == [event.cause]
