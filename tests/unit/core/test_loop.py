"""Loops with real threads: they meet the test at barriers, never by time."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tpuwatch.core import loop as loop_module
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.loop import Loop, Waker

SECONDS = 30.0  # for a thread to do its part
NEVER = 3600.0


class Turns:
    """What a loop does, one step at a time."""

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
        self.clock = ManualClock()
        self.count = 0
        self.error: Exception | None = None
        self.due = NEVER

    def turn(self) -> float:
        self.count += 1
        self.clock.advance(0.5)
        self.begun.put(self.count)
        if self.error is not None:
            raise self.error
        return self.due


def loop_of(turns: Turns) -> Loop:
    return Loop("test", turns.turn, clock=turns.clock, done=lambda name, seconds: turns.done.put((name, seconds)))


@contextmanager
def running(turns: Turns) -> Iterator[Loop]:
    loop = loop_of(turns)
    loop.start()
    yield loop
    loop.stop()
    assert loop.join(SECONDS)


def test_the_first_turn_comes_at_once_and_the_next_when_it_is_woken() -> None:
    turns = Turns()
    with running(turns) as loop:
        assert turns.begun.get(timeout=SECONDS) == 1
        assert turns.done.get(timeout=SECONDS) == ("test", 0.5)
        loop.wake()
        assert turns.begun.get(timeout=SECONDS) == 2


def test_turns_follow_each_other_when_they_are_due() -> None:
    turns = Turns()
    turns.due = 0.0
    with running(turns):
        assert [turns.begun.get(timeout=SECONDS) for _ in range(3)] == [1, 2, 3]


def test_it_outlives_what_nobody_foresaw(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(loop_module, "RETRY_SECONDS", 0.0)
    turns = Turns()
    turns.error = RuntimeError("nobody foresaw this")
    with running(turns):
        assert [turns.begun.get(timeout=SECONDS) for _ in range(2)] == [1, 2]
        turns.error = None
        assert turns.done.get(timeout=SECONDS) == ("test", 0.5)  # the first success
    assert "A turn of the loop test failed." in caplog.text


def test_one_that_waits_for_long_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "SIGN_SECONDS", 0.001)
    turns = Turns()  # the next turn is due in an hour
    with running(turns) as loop:
        assert [turns.done.get(timeout=SECONDS) for _ in range(3)] == [("test", 0.5)] * 3
        assert turns.count == 1
        loop.wake()
        assert [turns.begun.get(timeout=SECONDS) for _ in range(2)] == [1, 2]


def test_one_that_is_stopped_in_a_turn_begins_no_other() -> None:
    begun, go_on = threading.Event(), threading.Event()
    count = 0

    def turn() -> float:
        nonlocal count
        count += 1
        begun.set()
        assert go_on.wait(SECONDS)
        return 0.0

    loop = Loop("test", turn, clock=ManualClock(), done=lambda *_: None)
    loop.start()
    assert begun.wait(SECONDS)
    loop.stop()
    assert not loop.join(0.0)
    go_on.set()
    assert loop.join(SECONDS)
    assert count == 1


def test_one_that_never_began_has_nothing_to_wait_for() -> None:
    loop = loop_of(Turns())
    loop.stop()
    assert loop.join(0.0)


def test_many_calls_are_one() -> None:
    waker = Waker()
    for _ in range(1000):
        waker.wake()
    assert waker.wait(0)
    assert not waker.wait(0)


def test_a_call_from_another_thread_ends_a_wait() -> None:
    waker = Waker()
    thread = threading.Thread(target=waker.wake)
    thread.start()
    assert waker.wait(30)
    thread.join()


def test_a_call_from_a_signal_handler_ends_a_wait() -> None:
    waker = Waker()
    before = signal.signal(signal.SIGUSR1, lambda *_: waker.wake())
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        assert waker.wait(30)
    finally:
        signal.signal(signal.SIGUSR1, before)
