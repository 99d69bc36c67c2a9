"""Heartbeats of real processes to the real daemon: over its restarts, its standstill, from other users, and forged."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_process import NO_CLOUD, DaemonProcess, wait_for
from tests.e2e.ordinary_user import NOBODY
from tests.paths import ROOT
from tpuwatch import workload

# Prints a line for each step, so that it can be seen from outside whether it goes on.
JOB = """
import sys, time
from tpuwatch.workload import heartbeat
step = 0
while True:
    step += 1
    heartbeat(step, loss=2.5, input_seconds=0.001)
    print(step, flush=True)
    time.sleep(0.01)
"""


@contextmanager
def running_job(socket_path: Path, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), workload.SOCKET_VARIABLE: str(socket_path)}
    with output.open("wb") as stream:
        job = subprocess.Popen([sys.executable, "-c", JOB], stdout=stream, env=environ)
    try:
        yield job
    finally:
        job.kill()
        job.wait()


def steps_of(output: Path) -> int:
    """How many steps the job has printed."""
    return len(output.read_bytes().splitlines())


def loop_of(daemon: DaemonProcess, pid: int) -> dict[str, Any]:
    """What the daemon shows of a process's loop; empty if nothing."""
    return next((loop for loop in daemon.api("status")["training"] if loop["pid"] == pid), {})


def test_a_job_is_seen_over_a_crash_and_a_standstill_of_the_daemon_and_never_waits(tmp_path: Path) -> None:
    output = tmp_path / "job.out"
    with DaemonProcess(tmp_path) as daemon:
        daemon.start()
        with running_job(daemon.state / "heartbeats.socket", output) as job:
            loop = wait_for(lambda: (one := loop_of(daemon, job.pid)) and one["input_share"] and one, "its steps")
            assert loop["source"] == "heartbeat"
            assert loop["loss"] == 2.5
            assert 0 < loop["input_share"] < 0.5
            assert loop["alive"] is True
            before = loop["step"]
            assert daemon.metric("tpuwatch_workload_step") >= before

            daemon.kill()
            daemon.start()
            wait_for(lambda: loop_of(daemon, job.pid).get("step", 0) > before, "its steps after a crash")

            os.kill(daemon.process.pid, signal.SIGSTOP)
            try:
                _fill(daemon.state / "heartbeats.socket")
                stood = steps_of(output)
                wait_for(lambda: steps_of(output) > stood + 250, "the job to go on for some seconds")
            finally:
                os.kill(daemon.process.pid, signal.SIGCONT)
            reached = steps_of(output)
            wait_for(lambda: loop_of(daemon, job.pid).get("step", 0) >= reached, "its steps after a standstill")
            assert job.poll() is None

        wait_for(lambda: loop_of(daemon, job.pid).get("alive") is False, "the end of the job to be seen")
        wait_for(lambda: daemon.metric("tpuwatch_workload_loops") == 0, "no loop to run")
        assert daemon.stop() == 0
        assert not (daemon.state / "heartbeats.socket").exists()


def test_a_slow_down_is_shown_and_is_still_known_after_a_crash_of_the_daemon(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        daemon.start()
        path = daemon.state / "heartbeats.socket"
        _say_minutes(path, range(40), 5.0)
        wait_for(lambda: loop_of(daemon, os.getpid()).get("usual_step_seconds"), "the baseline")
        assert daemon.metric("tpuwatch_workload_slowdown_ratio") == 0
        _say_minutes(path, range(40, 70), 6.0)
        wait_for(lambda: daemon.metric('tpuwatch_workload_loop_faults{cause="slow_steps"}') == 1, "the slow-down")
        wait_for(lambda: [one for one in daemon.api("events")["events"] if one["cause"] == "slow_steps"], "its event")

        daemon.kill()
        daemon.start()
        _say_minutes(path, range(70, 73), 6.0)
        loop = wait_for(lambda: loop_of(daemon, os.getpid()), "the loop after a crash")
        assert loop["usual_step_seconds"] == pytest.approx(5.0)
        assert loop["slowdown"]["slower"] == pytest.approx(0.2)
        assert loop["slowdown"]["step"] == 480
        assert "20 % slower since step 480 (" in loop["sentence"]
        assert daemon.metric("tpuwatch_workload_slowdown_ratio") == pytest.approx(0.2)
        assert len([one for one in daemon.api("events")["events"] if one["cause"] == "slow_steps"]) == 1


def test_what_others_write_is_counted_and_dropped(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        daemon.start()
        hostile = (b"", b"\0" * 3000, b'{"step": "x"}', b'{"step": 1, "name": "../../etc"}', b"[" * 2000)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for message in (*hostile, b'{"step": 3, "pid": 1}'):
                sender.sendto(message, str(daemon.state / "heartbeats.socket"))
        daemon.counts('tpuwatch_heartbeats_total{result="malformed"}', len(hostile))
        daemon.counts('tpuwatch_heartbeats_total{result="taken"}', 1)
        wait_for(lambda: loop_of(daemon, os.getpid()), "the loop of the sender")
        assert len(daemon.api("status")["training"]) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_job_of_another_user_is_heard_as_that_user(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as directory, DaemonProcess(tmp_path) as daemon:
        Path(directory).chmod(0o711)
        path = f"{directory}/socket"
        daemon.configure(more=f'{NO_CLOUD}\n[workload]\nsocket = "{path}"')
        daemon.start()
        child = os.fork()
        if not child:
            os.environ[workload.SOCKET_VARIABLE] = path
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            workload.heartbeat(7, name="other")
            os._exit(0)
        os.waitpid(child, 0)
        wait_for(lambda: loop_of(daemon, child), "its heartbeat")
        loop = loop_of(daemon, child)
        assert (loop["user"], loop["name"], loop["step"]) in {("nobody", "other", 7), (str(NOBODY), "other", 7)}


def test_output_shows_steps_without_any_change_of_the_job(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        daemon.start()
        with (daemon.jobs / "train.log").open("w", buffering=1) as file:
            file.write("loading 3/4 files\nstep 1 loss 2.5 0.5 s/step\n")
            wait_for(lambda: daemon.api("status")["training"], "the first step")
            file.write("step 2 loss 2.25 0.5 s/step\nsaved\nstep 3 lo")
            wait_for(lambda: daemon.metric("tpuwatch_workload_step") == 2, "the second step")
        wait_for(  # whether a process has the file open is looked at now and then
            lambda: [(one["step"], one["alive"]) for one in daemon.api("status")["training"]] == [(2, None)],
            "the status to show the second step, and that the file was closed",
        )
        (loop,) = daemon.api("status")["training"]
        assert (loop["source"], loop["name"], loop["loss"]) == ("output", "train.log", 2.25)


def _say_minutes(path: Path, minutes: range, seconds: float) -> None:
    """Say that twelve steps of so many seconds were made in each minute."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for minute in minutes:
            message = {"step": 12 * (minute + 1), "steps": 12, "seconds": 12 * seconds}
            sender.sendto(json.dumps(message).encode(), str(path))


def _fill(path: Path) -> None:
    """Fill the daemon's queue."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender, suppress(BlockingIOError):
        for _ in range(100_000):
            sender.sendto(b"{}", str(path))
        raise AssertionError("the queue has no end")
