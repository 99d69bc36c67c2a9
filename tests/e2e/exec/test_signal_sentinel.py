"""Which signals are for the whole process group, asked by a process with a group of its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_process import SECONDS
from tests.e2e.exec.running import is_stopped, wait_for

# It blocks its signals, takes one for each number that it reads, and prints whether that was for all.
ASKER = """
import os, signal, sys
from tpuwatch.exec import foreground
from tpuwatch.exec.signal_sentinel import SignalSentinel
foreground.block()
sentinel = SignalSentinel()
for line in sys.stdin:
    number = int(line) and signal.sigwaitinfo({int(line)}).si_signo
    print(sentinel.was_sent_to_group(number) if number else "there", flush=True)
"""


class Asker:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.ask(0)

    @property
    def sentinel(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def ask(self, number: int) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def is_for_all(self, number: int) -> bool:
        return self.ask(number) == "True"


@pytest.fixture
def asker() -> Iterator[Asker]:
    with subprocess.Popen(
        [sys.executable, "-c", ASKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Asker(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_those_to_the_group_are_each_reported_once_and_those_to_us_are_not(asker: Asker) -> None:
    os.killpg(asker.process.pid, signal.SIGTERM)
    os.killpg(asker.process.pid, signal.SIGUSR1)
    assert asker.is_for_all(signal.SIGUSR1)
    assert asker.is_for_all(signal.SIGTERM)
    for number in (signal.SIGUSR1, signal.SIGTERM):
        asker.process.send_signal(number)
        assert not asker.is_for_all(number)


def test_it_need_not_run_for_that(asker: Asker) -> None:
    """On a machine that is too busy it has no processor; here it is stopped."""
    sentinel = asker.sentinel
    os.kill(sentinel, signal.SIGSTOP)
    wait_for(lambda: is_stopped(sentinel), "the sentinel to be stopped")
    os.killpg(asker.process.pid, signal.SIGTERM)
    assert asker.is_for_all(signal.SIGTERM)


def test_without_it_nothing_is_for_all(asker: Asker) -> None:
    sentinel = os.pidfd_open(asker.sentinel)
    try:
        os.kill(asker.sentinel, signal.SIGKILL)
        assert select.select([sentinel], [], [], SECONDS)[0]  # until then it may still report signals
    finally:
        os.close(sentinel)
    os.killpg(asker.process.pid, signal.SIGTERM)
    assert not asker.is_for_all(signal.SIGTERM)


def test_it_ends_with_us(asker: Asker) -> None:
    sentinel = os.pidfd_open(asker.sentinel)
    try:
        asker.process.kill()
        assert asker.process.wait(SECONDS) == -signal.SIGKILL
        assert select.select([sentinel], [], [], SECONDS)[0]
    finally:
        os.close(sentinel)
