"""A failure that libtpu logs and the program prints is one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.store.make import NOW, event
from tpuwatch.ingest.double_reports import REPORT_SECONDS, DoubleReports
from tpuwatch.model.events import Cause, Event


def failure(number: int, **changes: Any) -> Event:
    printed: dict[str, Any] = {"cause": Cause.HBM_OOM_RUNTIME, "time": None, "severity": "", "pid": None, "details": {}}
    return event(str(number), **(printed | changes))


LOGGED = failure(1, time=NOW, severity="E", pid=4711, details={"requested_bytes": 5, "free_bytes": 1})


@pytest.mark.parametrize(
    ("changes", "second"),
    [
        ({}, True),
        ({"details": {"requested_bytes": 5}}, True),
        ({"details": {"requested_bytes": 6}}, False),
        ({"details": {"device": "0x0x0"}}, True),
        ({"pid": 4711}, True),
        ({"pid": 4712}, False),
        ({"cause": Cause.HBM_OOM_COMPILE}, False),
        ({"observed": NOW + REPORT_SECONDS}, True),
        ({"observed": NOW + REPORT_SECONDS + 1}, False),
        ({"history": True}, False),
        ({"time": NOW, "severity": "E"}, False),  # another record of the log
    ],
)
def test_what_is_printed_of_a_failure_in_the_log(changes: dict[str, Any], *, second: bool) -> None:
    for first, other in ((LOGGED, failure(2, **changes)), (failure(2, **changes), LOGGED)):
        reports = DoubleReports()
        assert not reports.is_second(first)
        assert reports.is_second(other) is second


def test_each_record_of_the_log_has_one_second_report() -> None:
    reports = DoubleReports()
    logged = [failure(number, time=NOW, severity="E", pid=4711 + number) for number in range(3)]
    assert not any(reports.is_second(one) for one in (*logged, *logged))  # one record in two files has one key
    printed = [failure(number) for number in range(10, 15)]
    assert [reports.is_second(one) for one in printed] == [True, True, True, False, False]


def test_a_record_in_several_files_is_the_second_report_in_each() -> None:
    reports = DoubleReports()
    assert not reports.is_second(failure(2))
    assert [reports.is_second(LOGGED), reports.is_second(LOGGED)] == [True, True]


def test_a_records_line_in_the_output_of_a_job_takes_part_in_no_pair() -> None:
    """It has the record's key, by which the store drops one of them."""
    reports = DoubleReports()
    line = failure(1, severity="E")
    others = [failure(number, time=NOW, severity="E", pid=number) for number in (2, 3)]
    assert [reports.is_second(one) for one in (line, *others, line)] == [False] * 4


def test_what_is_remembered_is_bounded() -> None:
    reports = DoubleReports()
    for number in range(3000):
        reports.is_second(failure(number, time=NOW, severity="E", pid=number))
    assert len(reports._reports) <= 1002
    assert sum(map(len, reports._unpaired.values())) <= 100
    reports.is_second(failure(9000, observed=NOW + 3 * REPORT_SECONDS, time=NOW + 3 * REPORT_SECONDS))
    assert len(reports._reports) == 1
