"""A failure that libtpu logs and the program prints is one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.store.make import NOW, event
from tpuwatch.ingest.double_reports import REPORT_SECONDS, DoubleReports
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Event, Place


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
        assert reports.first_key(first) is None
        assert reports.first_key(other) == (first.key if second else None)


def test_each_record_of_the_log_has_one_second_report() -> None:
    reports = DoubleReports()
    logged = [failure(number, time=NOW, severity="E", pid=4711 + number) for number in range(3)]
    assert not any(reports.first_key(one) for one in (*logged, *logged))  # one record in two files has one key
    printed = [failure(number) for number in range(10, 15)]
    assert [reports.first_key(one) for one in printed] == [b"0", b"1", b"2", None, None]


def test_a_record_in_several_files_is_the_second_report_in_each() -> None:
    reports = DoubleReports()
    assert reports.first_key(failure(2)) is None
    assert [reports.first_key(LOGGED), reports.first_key(LOGGED)] == [b"2", b"2"]


def test_a_records_line_in_the_output_of_a_job_takes_part_in_no_pair() -> None:
    """It has the record's key, by which the store drops one of them."""
    reports = DoubleReports()
    line = failure(1, severity="E")
    others = [failure(number, time=NOW, severity="E", pid=number) for number in (2, 3)]
    assert [reports.first_key(one) for one in (line, *others, line)] == [None] * 4


def test_what_is_remembered_is_bounded() -> None:
    reports = DoubleReports()
    for number in range(3000):
        reports.first_key(failure(number, time=NOW, severity="E", pid=number))
    assert len(reports._reports) <= 1002
    assert sum(map(len, reports._unpaired.values())) <= 100
    reports.first_key(failure(9000, observed=NOW + 3 * REPORT_SECONDS, time=NOW + 3 * REPORT_SECONDS))
    assert len(reports._reports) == 1


def place(report: Event) -> Place:
    return Place(report.key, report.file, report.offset, report.time, report.severity)


def test_a_restart_in_between_changes_nothing() -> None:
    """What was stored is all that is known then: the first reports, with the places of the second ones."""
    printed = failure(2)
    for first, other in ((LOGGED, printed), (printed, LOGGED)):
        reports = DoubleReports([first])
        assert reports.first_key(first) is None  # a copy of it in another file
        assert reports.first_key(other) == first.key
        paired = replace(first, places=(place(other),))
        reports = DoubleReports([paired])
        assert reports.first_key(other) == first.key  # a copy of the second report
        assert reports.first_key(failure(3)) is None
    chained = replace(printed, places=(replace(place(printed), offset=900),))
    assert DoubleReports([chained]).first_key(LOGGED) == printed.key
