"""A failure that libtpu logs and the program prints is one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.store.make import NOW, event
from tpuwatch.ingest.copies import COPY_SECONDS, FailureCopies
from tpuwatch.model.events import Cause, Event


def failure(number: int, **changes: Any) -> Event:
    printed: dict[str, Any] = {"cause": Cause.HBM_OOM_RUNTIME, "time": None, "pid": None, "details": {}}
    return event(str(number), **(printed | changes))


LOGGED = failure(1, time=NOW, pid=4711, details={"requested_bytes": 5, "free_bytes": 1})


@pytest.mark.parametrize(
    ("changes", "copy"),
    [
        ({}, True),
        ({"details": {"requested_bytes": 5}}, True),
        ({"details": {"requested_bytes": 6}}, False),
        ({"details": {"device": "0x0x0"}}, True),
        ({"pid": 4711}, True),
        ({"pid": 4712}, False),
        ({"cause": Cause.HBM_OOM_COMPILE}, False),
        ({"observed": NOW + COPY_SECONDS}, True),
        ({"observed": NOW + COPY_SECONDS + 1}, False),
        ({"history": True}, False),
        ({"time": NOW}, False),  # another record of the log
    ],
)
def test_what_is_printed_of_a_failure_in_the_log(changes: dict[str, Any], *, copy: bool) -> None:
    for first, second in ((LOGGED, failure(2, **changes)), (failure(2, **changes), LOGGED)):
        copies = FailureCopies()
        assert not copies.is_copy(first)
        assert copies.is_copy(second) is copy


def test_each_record_of_the_log_has_one_copy() -> None:
    copies = FailureCopies()
    logged = [failure(number, time=NOW, pid=4711 + number) for number in range(3)]
    assert [copies.is_copy(one) for one in (*logged, *logged)] == [
        False
    ] * 6  # a key is that of one record in two files
    printed = [failure(number) for number in range(10, 15)]
    assert [copies.is_copy(one) for one in printed] == [True, True, True, False, False]


def test_what_is_remembered_is_bounded() -> None:
    copies = FailureCopies()
    for number in range(3000):
        copies.is_copy(failure(number, time=NOW, pid=number))
    assert len(copies._keys) <= 1001
    assert sum(map(len, copies._unpaired.values())) <= 100
    copies.is_copy(failure(9000, observed=NOW + 3 * COPY_SECONDS, time=NOW + 3 * COPY_SECONDS))
    assert len(copies._keys) == 1
