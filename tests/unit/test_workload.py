"""Heartbeats as a job sends them: what leaves, how often, and that nothing of it ever disturbs the job."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tpuwatch import workload


class Listener:
    """The daemon's end of the socket."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(path)

    def heard(self) -> list[dict[str, Any]]:
        messages = []
        while select.select([self.socket], [], [], 0)[0]:
            messages.append(json.loads(self.socket.recv(4096)))
        return messages


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    with tempfile.TemporaryDirectory() as directory:  # a path that is short enough
        monkeypatch.setenv(workload.SOCKET_VARIABLE, f"{directory}/socket")
        listener = Listener(f"{directory}/socket")
        yield listener
        listener.socket.close()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(workload, "time", clock)
    monkeypatch.setattr(workload, "_loops", {})
    return clock


def test_at_most_one_message_a_second_leaves_and_says_what_the_calls_between_said(
    listener: Listener, clock: Clock
) -> None:
    for step in range(1, 26):
        workload.heartbeat(step, input_seconds=0.01, loss=float(step))
        clock.now += 0.125
    messages = listener.heard()
    assert [message["step"] for message in messages] == [1, 9, 17, 25]
    assert messages[1] == {
        "step": 9,
        "steps": 8,
        "seconds": 1.0,
        "input_seconds": pytest.approx(0.08),
        "numbers": {"loss": 9.0},
        "nan": [],
    }


def test_the_last_call_is_sent_at_the_end(listener: Listener) -> None:
    for step in range(1, 4):
        workload.heartbeat(step)
    assert [message["step"] for message in listener.heard()] == [1]
    workload.flush()
    workload.flush()
    assert [message["step"] for message in listener.heard()] == [3]


def test_the_end_of_a_process_sends_it_too(listener: Listener) -> None:
    code = "from tpuwatch.workload import heartbeat\nfor step in range(500): heartbeat(step)"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert listener.heard()[-1]["step"] == 499


def test_no_socket_is_left_open_at_the_end(listener: Listener) -> None:
    code = """
import atexit, gc
from tpuwatch import workload
@atexit.register
def end():  # after the module's own, as Python clears modules
    del workload._socket
    gc.collect()
workload.heartbeat(1)
workload.heartbeat(2)
"""
    command = [sys.executable, "-X", "dev", "-c", code]
    done = subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.stderr == b""
    assert [message["step"] for message in listener.heard()] == [1, 2]


def test_a_number_that_is_none_is_not_lost_between_two_messages(listener: Listener, clock: Clock) -> None:
    workload.heartbeat(1, loss=1.0)
    workload.heartbeat(2, loss=float("nan"))
    clock.now += 2
    workload.heartbeat(3, loss=1.0, scale=float("inf"))
    assert listener.heard()[1] == {
        "step": 3,
        "steps": 2,
        "seconds": 2.0,
        "input_seconds": 0.0,
        "numbers": {"loss": 1.0},
        "nan": ["loss"],
    }


class LazyArray:
    """An array of JAX: to read it before it is computed would wait for the device."""

    size = 1
    ready = False

    def is_ready(self) -> bool:
        return self.ready

    def __float__(self) -> float:
        assert self.ready, "it was waited for"
        return 2.5

    def __ne__(self, other: object) -> bool:
        raise AssertionError("a comparison is a program of its own")


LazyArray.__module__ = "jaxlib._jax"


def test_an_array_that_is_not_computed_yet_is_not_waited_for(listener: Listener, clock: Clock) -> None:
    first = LazyArray()
    workload.heartbeat(1, loss=first)
    workload.heartbeat(2, loss=LazyArray())
    assert listener.heard() == []
    first.ready = True
    clock.now += 0.1
    workload.heartbeat(3, loss=LazyArray())
    assert [(message["step"], message["numbers"]) for message in listener.heard()] == [(1, {"loss": 2.5})]
    workload.flush()
    assert [(message["step"], message["numbers"]) for message in listener.heard()] == [(3, {})]


def test_what_a_tensor_holds_is_left_alone(listener: Listener) -> None:
    class Tensor:
        def __float__(self) -> float:
            raise AssertionError("it was waited for")

    workload.heartbeat(1, loss=Tensor())
    assert listener.heard() == [{"step": 1, "numbers": {}, "nan": []}]


def test_a_full_queue_neither_blocks_nor_raises(listener: Listener, clock: Clock) -> None:
    for step in range(5000):
        workload.heartbeat(step)
        clock.now += 1
    kept = len(listener.heard())
    assert 0 < kept < 5000
    workload.heartbeat(5000)
    (message,) = listener.heard()
    assert message["step"] == 5000


@pytest.mark.parametrize("step", [None, "x", float("nan"), [1], object()])
def test_nothing_is_raised(listener: Listener, step: object) -> None:
    workload.heartbeat(step)
    workload.heartbeat(1, name="no such name")
    workload.heartbeat(1, name=["unhashable"])  # type: ignore[arg-type]
    workload.done(name="unknown")
    assert listener.heard() == []


def test_where_nobody_listens_nothing_happens(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    for path in ("/nonexistent/socket", "x" * 200, "/dev/null"):
        monkeypatch.setenv(workload.SOCKET_VARIABLE, path)
        clock.now += 2
        workload.heartbeat(1)


def test_steps_counts_and_times_the_input(listener: Listener, clock: Clock) -> None:
    def batches() -> Iterator[str]:
        for _ in range(3):
            clock.now += 0.5
            yield "batch"

    loop = workload.steps(batches(), name="train", start=10)
    for batch in loop:
        assert batch == "batch"
        clock.now += 1.5
        loop.note(loss=1.25)
    messages = listener.heard()
    assert [message["step"] for message in messages] == [11, 12, 13, 13]
    assert (messages[1]["seconds"], messages[1]["input_seconds"]) == (2.0, 0.5)
    assert messages[1]["numbers"] == {"loss": 1.25}
    assert [message.get("done") for message in messages] == [None, None, None, True]
    assert {message["name"] for message in messages} == {"train"}


def test_a_loop_that_is_left_is_done(listener: Listener) -> None:
    loop = iter(workload.steps(range(5)))
    next(loop)
    next(loop)
    loop.close()  # type: ignore[attr-defined]
    assert [message.get("done") for message in listener.heard()] == [None, True]


def test_a_child_does_not_speak_for_its_parent(listener: Listener) -> None:
    workload.heartbeat(1)
    workload.heartbeat(2)
    listener.heard()
    child = os.fork()
    if not child:
        workload.flush()
        os._exit(len(workload._loops))
    assert os.waitpid(child, 0)[1] == 0
    assert listener.heard() == []


def test_the_file_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "heartbeats.py").write_text(Path(workload.__file__).read_text())
    code = (
        "import sys; before = set(sys.modules); import heartbeats; heartbeats.heartbeat(1)\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert new <= set(sys.stdlib_module_names) | {'heartbeats'}, new\n"
    )
    subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, check=True)


def test_the_package_brings_nothing_else_along() -> None:
    code = (
        "import sys, tpuwatch.workload\n"
        "assert {name for name in sys.modules if name.startswith('tpuwatch.')} == {'tpuwatch.workload'}\n"
        "assert not {'pydantic', 're2', 'hyperscan', 'prometheus_client', 'keras'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
