from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.standins.machine import Machine
from tpuwatch.core.clock import ManualClock, SystemClock
from tpuwatch.model.answers import Problem
from tpuwatch.model.signals import Host
from tpuwatch.signals.host import LOOK_SECONDS, HostSignal


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def signal(machine: Machine, clock: ManualClock) -> HostSignal:
    return HostSignal(clock=clock, root=machine.root)


def host(signal: HostSignal) -> Host:
    answer = signal.ask()
    assert (answer.problem, answer.detail) == (None, "")
    assert answer.value is not None
    return answer.value


def test_a_quiet_machine(clock: ManualClock, signal: HostSignal) -> None:
    answer = signal.ask()
    assert (answer.problem, answer.at, answer.tried) == (None, clock.time(), clock.time())
    assert answer.value == Host(
        boot_id="4c206349-4c05-46c5-9b3d-3ae5e69ee5c6",
        booted=clock.time() - 1000,
        memory_total_bytes=1000 * 1024,
        memory_available_bytes=600 * 1024,
        memory_pinned_bytes=20 * 1024,
        oom_kills=0,
    )
    assert signal.due_in == LOOK_SECONDS


def test_holders_memory_and_lock_are_reported_together(machine: Machine, signal: HostSignal) -> None:
    machine.lock(40)
    machine.process(40, files=("/dev/vfio/0", machine.lock_path), uid=1001, pinned=(500, 0))
    seen = host(signal)
    assert [(holder.pid, holder.user, holder.locks) for holder in seen.holders] == [(40, "alice", True)]
    assert (seen.lock_file, seen.memory_pinned_bytes) == (True, 500 * 1024)


def test_the_memory_of_a_limited_holder_is_its_limit(machine: Machine, signal: HostSignal) -> None:
    machine.process(40, files=("/dev/vfio/0",))
    machine.write("proc/40/cgroup", "0::/docker/abc\n")
    machine.write("sys/fs/cgroup/docker/abc/memory.max", f"{500 * 1024}\n")
    machine.write("sys/fs/cgroup/docker/abc/memory.current", f"{450 * 1024}\n")
    machine.write("sys/fs/cgroup/docker/abc/memory.stat", f"anon 1\ninactive_file {50 * 1024}\n")
    seen = host(signal)
    assert (seen.memory_total_bytes, seen.memory_available_bytes) == (500 * 1024, 100 * 1024)


def test_kills_are_dated_when_their_number_grows(machine: Machine, clock: ManualClock, signal: HostSignal) -> None:
    machine.write("proc/vmstat", "oom_kill 3\n")
    first = host(signal)
    assert (first.oom_kills, first.last_oom_kill) == (3, None)  # before tpuwatch looked: at an unknown time
    clock.advance(10)
    machine.write("proc/vmstat", "oom_kill 4\n")
    killed = clock.time()
    assert host(signal).last_oom_kill == killed
    clock.advance(10)
    later = host(signal)
    assert (later.oom_kills, later.last_oom_kill) == (4, killed)


def test_a_kernel_that_does_not_count_kills_is_reported(machine: Machine, signal: HostSignal) -> None:
    machine.write("proc/vmstat", "nr_free_pages 1\n")
    seen = host(signal)
    assert seen.oom_kills is None
    assert "oom_kill" in seen.unseen[0]


def test_without_proc_there_is_a_problem_and_the_last_word_stays(
    machine: Machine, clock: ManualClock, signal: HostSignal
) -> None:
    seen = signal.ask()
    (machine.root / "proc").rename(machine.root / "gone")
    clock.advance(10)
    answer = signal.ask()
    assert answer.problem is Problem.INTERNAL
    assert "mount /proc" in answer.detail
    assert (answer.value, answer.at, answer.tried) == (seen.value, seen.at, clock.time())


@pytest.mark.parametrize("name", ["uptime", "meminfo", "vmstat", "sys/kernel/random/boot_id", "locks"])
@pytest.mark.parametrize("text", [b"", b"\xff\xfe\0\n", b"x " * 1000, b"cpu x x x x x x\nMemTotal: kB\n", None])
def test_files_that_are_missing_or_malformed_cost_only_their_own_facts(
    machine: Machine, signal: HostSignal, name: str, text: bytes | None
) -> None:
    machine.process(40, files=("/dev/accel0",))
    if text is None:
        (machine.root / "proc" / name).unlink()
    else:
        machine.write(f"proc/{name}", text)
    signal.ask()
    assert [holder.pid for holder in host(signal).holders] == [40]


# -- the real machine


def test_this_very_machine_can_be_looked_at() -> None:
    seen = host(HostSignal(clock=SystemClock()))
    assert len(seen.boot_id) == 36
    assert seen.booted is not None
    assert seen.booted < time.time()
    assert seen.memory_total_bytes is not None
    assert seen.memory_total_bytes > 1 << 28


def test_many_processes_are_looked_at_in_little_time() -> None:
    """CPU time of this thread, so that other programs do not count: 10 ms for 500 on a small machine."""
    sleepers = [subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE) for _ in range(40)]  # noqa: S607
    try:
        signal = HostSignal(clock=SystemClock())
        signal.ask()
        processes = sum(name.isdigit() for name in os.listdir("/proc"))  # noqa: PTH208
        before = time.thread_time()
        for _ in range(10):
            signal.ask()
        each = (time.thread_time() - before) / 10
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.communicate()
    assert each / processes * 500 < 0.1, f"{each * 1000:.1f} ms for {processes} processes"
