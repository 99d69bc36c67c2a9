"""Waking a loop that waits."""

from __future__ import annotations

import os
import signal
import threading

from tpuwatch.waker import Waker


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
