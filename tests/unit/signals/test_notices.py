from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.standins.runtime_server import listening
from tests.unit.whole_text import findings_in
from tpuwatch.core.clock import ManualClock, SystemClock
from tpuwatch.google.metadata import MetadataClient, MetadataError
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.answers import Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Event
from tpuwatch.model.signals import Maintenance, Notices
from tpuwatch.signals.notices import (
    KUBERNETES,
    MAX_PAUSE,
    PATH,
    SOURCE,
    NoticesSignal,
    combined,
    new_events,
    parse_maintenance,
    parse_notices,
)
from tpuwatch.sim.cloud.metadata_pages import Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import World


class FakeMetadata:
    """Plays back answers: texts with their etags, or errors."""

    def __init__(self, *answers: tuple[str, str] | MetadataError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, float]] = []
        self.closed = False

    def wait(self, path: str, last_etag: str, seconds: float) -> tuple[str, str]:
        self.asked.append((path, last_etag, seconds))
        answer = self.answers.pop(0)
        if isinstance(answer, MetadataError):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def signal_of(metadata: Any, clock: ManualClock | SystemClock | None = None) -> NoticesSignal:
    return NoticesSignal(metadata, clock=clock or ManualClock(), rng=random.Random(1))


def instance(**values: Any) -> str:
    return json.dumps({"maintenanceEvent": "NONE", "preempted": "FALSE", "id": 7, **values})


def test_the_first_answer_comes_at_once_and_later_ones_when_something_changes() -> None:
    fake = FakeMetadata((instance(), "e1"), (instance(preempted="TRUE"), "e2"), (instance(preempted="TRUE"), "e3"))
    clock = ManualClock()
    signal = signal_of(fake, clock)
    assert signal.due_in == 0
    answer = signal.ask()
    assert (answer.value, answer.problem, answer.at, answer.tried) == (Notices(), None, clock.time(), clock.time())
    assert signal.due_in <= 1
    assert signal.ask().value == Notices(preempted=True)
    signal.ask()
    assert fake.asked == [(PATH, "", 60.0), (PATH, "e1", 60.0), (PATH, "e2", 60.0)]


def test_all_three_notices_are_reported() -> None:
    upcoming = {
        "can_reschedule": "true",
        "latest_window_start_time": "2026-11-22T07:00:00+00:00",
        "maintenance_status": "PENDING",
        "maintenance_reasons": ["PLANNED_UPDATE"],
        "type": "SCHEDULED",
        "window_end_time": "2026-11-21T10:00:00.123456789Z",
        "window_start_time": "2026-11-21T07:00:00",
    }
    text = instance(maintenanceEvent="TERMINATE_ON_HOST_MAINTENANCE", preempted="TRUE", upcomingMaintenance=upcoming)
    start = datetime(2026, 11, 21, 7, tzinfo=timezone.utc).timestamp()
    maintenance = Maintenance("SCHEDULED", "PENDING", start, start + 3 * 3600, start + 86_400, can_reschedule=True)
    assert parse_notices(text) == Notices("TERMINATE_ON_HOST_MAINTENANCE", preempted=True, maintenance=maintenance)


@pytest.mark.parametrize(
    "value",
    [None, {}, "NONE", [], 3, {"error": "no notifications have been received yet, try again later"}, {"type": None}],
)
def test_no_announcement_is_none(value: Any) -> None:
    assert parse_maintenance(value) is None


def test_an_announcement_in_camel_case_is_the_same() -> None:
    notice = {"type": "UNSCHEDULED", "maintenanceStatus": "ONGOING", "windowStartTime": "2026-11-21T07:00:00Z"}
    start = datetime(2026, 11, 21, 7, tzinfo=timezone.utc).timestamp()
    assert parse_maintenance(notice) == Maintenance("UNSCHEDULED", "ONGOING", start, None)


@pytest.mark.parametrize(
    "start",
    [None, 5, "soon", "2026-13-45T00:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2" * 99],
)
def test_a_time_that_makes_no_sense_is_unknown_and_the_announcement_stays(start: Any) -> None:
    notice = parse_maintenance({"type": "SCHEDULED", "window_start_time": start})
    assert notice is not None
    assert notice.start is None or abs(notice.start) < 1e12


@pytest.mark.parametrize("event", ["x" * 100, "a\x1bb", 5, None, "", ["NONE"], "é"])
def test_an_event_that_is_no_word_is_none(event: Any) -> None:
    assert parse_notices(instance(maintenanceEvent=event)) == Notices()


@pytest.mark.parametrize("text", ["", "null", "[]", "5", "{", "{}", '{"id": 7}', "<html>", "[" * 100_000, "9" * 10_000])
def test_a_server_without_notices_is_foreign(text: str) -> None:
    answer = signal_of(FakeMetadata((text, "e"))).ask()
    assert (answer.problem, answer.value) == (Problem.FOREIGN, None)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=8,
)
KEYS = (
    "type",
    "maintenance_status",
    "window_start_time",
    "windowEndTime",
    "latest_window_start_time",
    "can_reschedule",
)


@given(
    json_values,
    json_values,
    json_values | st.dictionaries(st.sampled_from(KEYS), json_values | st.datetimes().map(datetime.isoformat)),
)
def test_no_value_can_make_reading_it_fail(event: Any, preempted: Any, upcoming: Any) -> None:
    notices = parse_notices(instance(maintenanceEvent=event, preempted=preempted, upcomingMaintenance=upcoming))
    if notices is not None:
        assert notices.maintenance_event.isascii()
        assert 0 < len(notices.maintenance_event) <= 64


def test_after_a_fault_the_last_word_stays_and_the_next_answer_comes_at_once() -> None:
    broken = MetadataError(Problem.UNREACHABLE, "The connection broke.")
    fake = FakeMetadata((instance(), "e1"), broken, (instance(), "e1"))
    clock = ManualClock()
    signal = signal_of(fake, clock)
    first = signal.ask()
    clock.advance(30)
    answer = signal.ask()
    assert (answer.problem, answer.detail, answer.tried) == (Problem.UNREACHABLE, "The connection broke.", clock.time())
    assert (answer.value, answer.at) == (first.value, first.at)
    assert signal.ask().problem is None
    assert [etag for _, etag, _ in fake.asked] == ["", "e1", ""]


def test_faults_that_last_are_asked_ever_less_often() -> None:
    fake = FakeMetadata(*[MetadataError(Problem.ABSENT, "None here.")] * 20)
    clock = ManualClock()
    signal = signal_of(fake, clock)
    dues = []
    for _ in range(20):
        signal.ask()
        dues.append(signal.due_in)
        clock.advance(signal.due_in)
    assert dues[0] <= 1
    assert max(dues) <= MAX_PAUSE
    assert dues[-1] > MAX_PAUSE / 2


def test_a_server_that_asks_for_patience_gets_it() -> None:
    signal = signal_of(FakeMetadata(MetadataError(Problem.THROTTLED, "Too often.", retry_after=300)))
    signal.ask()
    assert signal.due_in >= 300


def test_a_stopped_signal_asks_no_server() -> None:
    fake = FakeMetadata()
    signal = signal_of(fake)
    signal.close()
    assert (signal.ask().problem, fake.asked, fake.closed) == (Problem.OFF, [], True)


def test_stop_ends_a_wait_without_an_answer() -> None:
    begun = threading.Event()

    def swallow(connection: Any) -> None:
        begun.set()
        while connection.recv(4096):
            pass

    with listening(swallow) as port:
        signal = NoticesSignal(
            MetadataClient(f"127.0.0.1:{port}", clock=SystemClock(), timeout_seconds=600),
            clock=SystemClock(),
            rng=random.Random(1),
        )
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(signal.ask()))
        thread.start()
        assert begun.wait(30)
        signal.close()
        thread.join(30)
        assert not thread.is_alive()
    assert answers[0].problem is Problem.OFF


# -- against the simulated metadata server


class Cloud:
    """A simulated metadata server, and a signal that waits at it."""

    def __init__(self) -> None:
        self.world = World(SystemClock())
        self.node = self.world.add(SimNode("project", "zone", "node"))
        self.server = MetadataServer(self.world, Pages(self.world, self.node.path))
        self.server.start()
        self.metadata = MetadataClient(self.server.address, clock=SystemClock(), timeout_seconds=30)
        self.signal = signal_of(self.metadata, SystemClock())

    def next_with(self, **changes: Any) -> Any:
        """The answer to a request during which the node changes."""
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(self.signal.ask()))
        thread.start()
        with self.world.lock:
            for name, value in changes.items():
                setattr(self.node, name, value)
        thread.join(30)  # half of what it waits for where nothing changes
        assert not thread.is_alive()
        return answers[0]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.signal.close()
    cloud.server.close()


def test_every_kind_of_notice_ends_the_wait(cloud: Cloud) -> None:
    assert cloud.signal.ask().value == Notices()
    assert cloud.next_with(notice="TERMINATE_ON_HOST_MAINTENANCE").value == Notices("TERMINATE_ON_HOST_MAINTENANCE")
    announced = Maintenance("SCHEDULED", "PENDING", 1_795_000_000.0, 1_795_003_600.0, 1_795_086_400.0, True)
    assert cloud.next_with(maintenance=announced).value.maintenance == announced
    assert cloud.next_with(preempted=True).value.preempted
    assert cloud.next_with(notice="NONE", maintenance=None, preempted=False).value == Notices()


# -- the events of notices


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


def test_what_kubernetes_announces_too_is_one_notice_and_the_rest_is_its_own() -> None:
    later = Maintenance("SCHEDULED", "PENDING", NOW + 900, None)
    kubernetes = Notices(maintenance=later, terminating=True, conditions=("Ready is Unknown",))
    both = combined(COMING, kubernetes)
    assert both == replace(COMING, terminating=True, conditions=("Ready is Unknown",))
    events = new_events(both, None, now=NOW, boot_id="b", kubernetes=kubernetes)
    assert [event.file for event in events] == [SOURCE, KUBERNETES]
    assert (combined(None, None), combined(None, kubernetes), combined(COMING, None)) == (None, kubernetes, COMING)
    assert combined(QUIET, kubernetes) == kubernetes


@pytest.mark.parametrize("notices", [TERMINATION, COMING, PREEMPTED, Notices(terminating=True)])
def test_a_notice_has_a_rule_with_a_remedy_and_its_text_is_known_to_diagnose(notices: Notices) -> None:
    (event,) = announced(notices)
    rules = {rule.id: rule for rule in load_catalogue().rules}
    assert rules[event.rule].cause is event.cause
    assert rules[event.rule].remedy
    findings = findings_in(event.text.encode(), Scanner(load_catalogue()), "notice.txt", NOW)
    assert [finding.cause for finding in findings] == [event.cause]
