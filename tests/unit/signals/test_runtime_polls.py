"""What a poll of the runtime metrics asks for, and what a port owes while it does not answer."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from tests.standins.runtime_server import listening, refused
from tests.unit.signals.test_runtime import CHIPS, HTTP, LONG, Poller, Start, answer_with, none_left, of_chip, two_chips
from tpuwatch.libtpu.metrics_values import DUTY_CYCLE, HBM_TOTAL, IDLE
from tpuwatch.signals.runtime import LIST_SECONDS


def test_a_port_owes_an_answer_from_the_question_on_until_it_has_given_it(start: Start) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def late() -> list[dict[str, Any]]:
        asked.set()
        go_on.wait(LONG)
        return [of_chip(0, as_int=9)]

    process = start({IDLE: late})
    poller = Poller(process.port)
    assert poller.signal.pending() == {process.port: 0.0}
    thread = threading.Thread(target=poller.signal.ask)
    thread.start()
    assert asked.wait(LONG)
    poller.clock.advance(2.5)
    assert poller.signal.pending() == {process.port: 2.5}
    go_on.set()
    thread.join()
    assert poller.signal.pending() == {process.port: 0.0}


def test_one_that_hangs_owes_its_answer_until_it_ends_however_rarely_it_is_asked() -> None:
    with listening() as hung, refused() as closed:
        poller = Poller(hung, closed, timeout=0.05)
        began = poller.clock.monotonic()
        for _ in range(5):
            poller.next()
            assert poller.signal.pending() == {hung: poller.clock.monotonic() - began, closed: 0.0}
    poller.next()
    assert poller.signal.pending() == {hung: 0.0, closed: 0.0}


@pytest.mark.parametrize("text", [HTTP, b""], ids=["http", "nothing"])
def test_what_answers_something_else_owes_no_answer(text: bytes) -> None:
    with listening(answer_with(text)) as foreign:
        poller = Poller(foreign)
        poller.next()
        poller.clock.advance(5)
        assert poller.signal.pending() == {foreign: 0.0}


def test_where_no_port_can_be_asked_none_owes_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as hung:
        poller = Poller(hung, timeout=0.05)
        poller.next()
        monkeypatch.setattr("tpuwatch.signals.runtime.probe_ports", none_left)
        poller.next()
        assert poller.signal.pending() == {hung: 0.0}


def test_which_metrics_there_are_is_asked_now_and_then(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    polls = 0
    while poller.calls.count(("ListSupportedMetrics", "OK")) < 2:
        assert poller.next().value.chips == CHIPS
        polls += 1
    assert LIST_SECONDS / 11 < polls - 1 <= LIST_SECONDS / 10


def test_which_metrics_there_are_is_asked_again_when_one_fails(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    for broken in ([], grpc.StatusCode.NOT_FOUND, []):
        process.metrics[DUTY_CYCLE] = broken
        poller.next()
    full = ["ListSupportedMetrics"] + ["GetRuntimeMetric"] * 5
    assert [method for method, _ in poller.calls] == [*full, *full[2:], *full]


def test_what_does_not_change_is_asked_for_with_the_list_alone(start: Start) -> None:
    process = start(two_chips())
    poller = Poller(process.port)
    assert poller.next().value.chips == poller.next().value.chips == CHIPS
    assert [request.metric_name for request in process.asked].count(HBM_TOTAL) == 1
