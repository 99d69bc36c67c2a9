"""Variables of running jobs that libtpu takes for something else: events, and findings with the right value."""

from __future__ import annotations

import pytest

from tests.unit.tune.recorded import NOW, launch
from tpuwatch.daemon.view import findings_of
from tpuwatch.ingest import bad_values
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause

SIZE = "TPU_PREMAPPED_BUFFER_SIZE"


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        (SIZE, "4GB", f"export {SIZE}=4294967296"),
        (SIZE, "abc", f"export {SIZE}=4294967296"),
        (SIZE, "0", f"unset {SIZE}"),
        (SIZE, "-1", f"export {SIZE}=4294967296"),
        (SIZE, "1000000", f"export {SIZE}=1003520"),
        ("TPU_PREMAPPED_BUFFER_PARTITION_COUNT", "3", "export TPU_PREMAPPED_BUFFER_PARTITION_COUNT=2"),
        ("TPU_PRE_MAPPED_BUFFER_SIZE", "8589934592", f"export {SIZE}=8589934592"),
    ],
)
def test_an_event_names_the_fault_and_the_right_value(name: str, value: str, right: str) -> None:
    events = bad_values.bad_value_events(launch(environment={name: value, "TPU_LOG_DIR": "/logs"}), NOW)
    (finding,) = findings_of(events, load_catalogue())
    assert (finding.cause, finding.count) == (Cause.BAD_FLAG, 1)
    assert name in finding.summary
    assert right in finding.remedy[0].do
    assert events[0].time == launch().started


def test_the_text_is_the_summary_of_its_rule() -> None:
    (event,) = bad_values.bad_value_events(launch(environment={SIZE: "4GB"}), NOW)
    rule = load_catalogue().rule(event.rule)
    assert rule.search(event.text.encode()) is not None
    assert rule.details(event.text.encode()) == event.details


def test_each_launch_and_variable_has_one_event() -> None:
    wrong = launch(environment={SIZE: "4GB", "TPU_WORKER_ID": "one"})
    keys = [event.key for event in bad_values.bad_value_events(wrong, NOW)]
    assert keys == [event.key for event in bad_values.bad_value_events(wrong, NOW + 60)]
    other = launch(environment={SIZE: "4GB"}, started=NOW - 99)
    assert len({*keys, *(event.key for event in bad_values.bad_value_events(other, NOW))}) == 3


@pytest.mark.parametrize(
    ("announced", "right"),
    [
        (4, "4294967296"),
        (512, "536870912"),
        (1_000_000, "1003520"),
        (4 << 30, ""),
        (65_536, ""),
        (0, ""),
        (None, ""),
    ],
    ids=str,
)
def test_the_logged_size_is_used_if_the_environment_is_hidden(announced: int | None, right: str) -> None:
    events = bad_values.bad_value_events(launch(environment={}, premapped_bytes=announced), NOW)
    assert [event.details["fix"] for event in events] == ([f"export {SIZE}={right}"] if right else [])


def test_the_environment_takes_precedence_over_the_logged_size() -> None:
    assert bad_values.bad_value_events(launch(environment={"TPU_LOG_DIR": "/x"}, premapped_bytes=4), NOW) == []


def test_an_empty_size_is_as_none_and_no_event() -> None:
    assert bad_values.bad_value_events(launch(environment={SIZE: "", "TPU_LOG_DIR": "/logs"}), NOW) == []


def test_history_has_no_events() -> None:
    assert bad_values.bad_value_events(launch(environment={SIZE: "4GB"}, history=True), NOW) == []


def test_text_of_others_is_cleaned_and_truncated() -> None:
    (event,) = bad_values.bad_value_events(launch(environment={SIZE: "4\x1b[31m\n\ud800" + "G" * 10_000}), NOW)
    assert event.text.isprintable()
    assert len(event.text) < 800
