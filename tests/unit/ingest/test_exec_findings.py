"""What `tpuwatch exec` found, as events of the daemon, and which of them the daemon has read itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.store.make import event
from tests.unit.tune.recorded import NOW, finding, record
from tpuwatch.ingest.exec_findings import ReportedFailure, reported_failures
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import EXEC, Event, Place

RULES = {rule.id: rule for rule in load_catalogue().rules}
DETAILS = {"requested_bytes": 2 << 30, "free_bytes": 3 << 29}


def reported(begun: float = 0.0, owner: str = "alice", **fields: Any) -> ReportedFailure:
    """Read at NOW."""
    (failure,) = reported_failures(record(findings=(finding(**fields),), owner=owner), RULES, NOW, begun)
    return failure


def read(**changes: Any) -> Event:
    """An event of the daemon's own."""
    facts = {"cause": Cause.HBM_OOM_RUNTIME, "time": NOW - 12, "observed": NOW - 12, "details": DETAILS}
    return event("own", **(facts | changes))


def test_it_has_the_records_facts_and_says_whose_it_is() -> None:
    made = reported().event
    assert (made.cause, made.rule, made.details) == (Cause.HBM_OOM_RUNTIME, "hbm-oom-runtime", DETAILS)
    assert (made.when, made.observed, made.history) == (NOW - 12, NOW, False)
    assert (made.pid, made.severity) == (None, "")  # as a line of a job's output
    assert (made.file, made.is_from_exec) == ("exec of train (alice)", True)
    assert reported(begun=NOW - 5).event.history


def test_its_key_is_its_own() -> None:
    keys = {reported(owner=owner, cause=cause).event.key for owner in ("a", "b") for cause in ("hang", "host_oom")}
    assert (len(keys), reported().event.key) == (4, reported().event.key)


def test_no_time_and_no_number_is_taken_on_trust() -> None:
    assert reported(last=NOW + 1e6).event.when == NOW - 10  # when the run ended
    assert reported(last=-1e9).event.when == NOW - 110  # when it began
    many = reported(count=1 << 30).repetition()
    assert many is not None
    assert len(many.keys) == 99
    assert len({*many.keys, many.event.key}) == 100
    assert reported().repetition() is None


def test_a_text_is_what_the_rule_captures_or_is_harmless() -> None:
    given: dict[str, Any] = {"path": "$(reboot)", "hosts": "10.0.0.1:8471, 10.0.0.2", "op": "`reboot`", "used_bytes": 5}
    assert reported(details=given).event.details == {"hosts": given["hosts"], "used_bytes": 5}
    rule = next(one for one in RULES.values() if one.id == "bad-value")
    text = "In the environment of process 1: a; b. Right for the next launch: c; d"
    captured = rule.details(text.encode())
    assert captured == {"fault": "a; b", "fix": "c; d"}
    given = {"cause": "bad_flag", "rule": "bad-value", "text": text}
    assert reported(**given, details={**captured, "fault": "x; y"}).event.details == {"fix": "c; d"}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        pytest.param({}, True, id="the same record"),
        pytest.param({"time": NOW - 3}, True, id="a moment later"),
        pytest.param({"time": NOW - 30}, False, id="before"),
        pytest.param({"time": NOW}, False, id="after"),
        pytest.param({"time": None, "observed": NOW - 11, "severity": ""}, True, id="printed"),
        pytest.param({"time": None, "observed": NOW - 100, "severity": ""}, False, id="printed before"),
        pytest.param({"time": None, "observed": NOW - 1, "severity": ""}, True, id="printed, and read late"),
        pytest.param({"details": {}}, True, id="that states less"),
        pytest.param({"details": {**DETAILS, "free_bytes": 1}}, False, id="with another number"),
        pytest.param({"cause": Cause.HANG}, False, id="of another cause"),
        pytest.param({"file": f"{EXEC}train (bob)"}, False, id="another run's"),
        pytest.param({"history": True}, False, id="history"),
        pytest.param({"places": (Place(b"x", f"{EXEC}b", 0, NOW, "E"),)}, False, id="reported by another run"),
    ],
)
def test_an_event_of_the_daemons_own_is_of_the_same_failure(changes: dict[str, Any], *, same: bool) -> None:
    assert (reported().known_event([read(**changes)]) is not None) is same


def test_the_same_record_finds_its_event_again_and_another_run_has_another() -> None:
    failure = reported()
    place = failure.place(read())
    assert failure.known_event([read(places=(place,))]) is not None
    assert failure.known_event([read()], frozenset({b"own"})) is None


def test_of_several_failures_any_is_enough() -> None:
    several = reported(count=3, first=NOW - 100)
    assert several.known_event([read(time=NOW - 60, details={"requested_bytes": 7})]) is not None
    assert several.known_event([read(time=NOW - 111)]) is None
