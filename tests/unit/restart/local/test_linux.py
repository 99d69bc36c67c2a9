"""On this machine: real processes, real signals, real locks. Their /tmp, where libtpu's lock file is, is the test's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.standins.memory_ledger import MemoryLedger
from tests.unit.restart.records import TARGET, record
from tpuwatch.config.restart import RestartConfig
from tpuwatch.core.clock import ManualClock, SystemClock
from tpuwatch.host.holders import LOCK_FILE, HolderScan
from tpuwatch.model.restart import Phase, ProcessId, RestartRecord
from tpuwatch.model.signals import Holder
from tpuwatch.model.verdict import Action
from tpuwatch.restart.local.driver import LocalDriver
from tpuwatch.restart.local.linux import Linux
from tpuwatch.restart.local.system import PidHandle

SECONDS = 60.0  # in which a loaded machine does anything

# Takes its own part of the lock file, so that parent and child may both hold it, then says so, and each signal it gets.
HOLDER = """
import fcntl, os, signal, sys
path, handled, children = sys.argv[1], sys.argv[2].split(","), sys.argv[3]
def report(number, frame=None):
    os.write(1, f"{signal.Signals(number).name} {os.getpid()}\\n".encode())
for name in filter(None, handled):
    signal.signal(getattr(signal, name), report)
def hold(part):
    file = os.open(path, os.O_RDWR)
    fcntl.lockf(file, fcntl.LOCK_EX, 1, part)
    return file
file = hold(0)
here, there = os.pipe()
for part, kind in enumerate(children, 1):  # h: holds it too; s: in a session of its own; i: has only inherited it
    if os.fork() == 0:
        if kind == "s":
            os.setsid()
        if kind in "hs":
            hold(part)
        os.write(there, f"{os.getpid()} ".encode())
        while True:
            signal.pause()
pids = b""
while pids.count(b" ") < len(children):
    pids += os.read(here, 1000)
os.write(1, f"{os.getpid()} {pids.decode()}\\n".encode())
while True:
    signal.pause()
"""


class Ending(Linux):
    """After a signal that the holder handles, its word on that is waited for, and the time of grace is over at once."""

    def __init__(self, clock: ManualClock, root: Path) -> None:
        super().__init__(clock, root)
        self.manual = clock
        self.sent: list[tuple[int, str]] = []
        self.words: Iterator[str] = iter(())
        self.handled: tuple[str, ...] = ()

    def held(self) -> HolderScan:
        return replace(super().held(), unseen=())  # the tests may run in a container

    def send(self, handle: PidHandle, number: signal.Signals) -> bool:
        self.sent.append((handle.process.pid, number.name))
        return super().send(handle, number)

    def wait(self, handles: Sequence[PidHandle], seconds: float) -> None:  # noqa: ARG002 (see above)
        number = self.sent[-1][1]
        if number in self.handled:
            self.handled = tuple(name for name in self.handled if name != number)
            assert next(self.words).startswith(number)
            self.manual.advance(100)
        elif not any(self.is_over(handle) for handle in handles):
            super().wait(handles, SECONDS)


class Scene:
    """A machine with a holder that a test has started, and its ledger."""

    def __init__(self, root: Path) -> None:
        (root / "proc").symlink_to("/proc")
        (root / "tmp").mkdir()
        self.lock_file = root / LOCK_FILE
        self.lock_file.touch()
        self.clock = ManualClock(time.time())
        self.system = Ending(self.clock, root)
        self.ledger = MemoryLedger()
        self.started: list[subprocess.Popen[str]] = []
        self.pids: list[int] = []

    def holder(self, handled: str = "", children: str = "") -> int:
        """Start one, with its children; its pid."""
        argv = [sys.executable, "-c", HOLDER, str(self.lock_file), handled, children]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.started.append(process)
        assert process.stdout is not None
        self.pids = [int(pid) for pid in process.stdout.readline().split()]
        self.system.words = iter(process.stdout)
        self.system.handled = tuple(filter(None, handled.split(",")))
        return process.pid

    def seen(self) -> tuple[Holder, ...]:
        return self.system.held().holders

    def end(self, *at_fault: Holder) -> RestartRecord:
        now = self.clock.time()
        self.ledger.write(record(action=Action.END_HOLDER, requested=now, entered=now), 0)
        driver = LocalDriver(
            self.ledger,
            TARGET,
            system=self.system,
            settings=RestartConfig(),
            clock=self.clock,
            wait=self.wait,
            at_fault=at_fault,
            lease_seconds=1e6,
        )
        return driver.drive()

    def wait(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        return False

    def close(self) -> None:
        for pid in self.pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.communicate()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def test_children_that_hold_it_too_and_the_group_go_with_it(scene: Scene) -> None:
    pid = scene.holder(children="hsi")
    by_pid = {one.pid: one for one in scene.seen()}
    assert (len(by_pid), by_pid.keys() <= set(scene.pids)) == (3, True)
    assert scene.end(by_pid[pid]).phase is Phase.DONE
    assert {one for one, _ in scene.system.sent} == set(scene.pids)
    assert scene.seen() == ()


def test_a_pid_that_is_another_process_is_not_gripped(scene: Scene) -> None:
    pid = scene.holder()
    process = scene.system.entries()[pid].process
    with scene.system.handle(ProcessId(pid, process.ticks + 1)) as other:
        assert other is None
    with scene.system.handle(process) as handle:
        assert handle is not None
        scene.started[0].kill()
        scene.system.sent.append((pid, "SIGKILL"))
        scene.system.wait([handle], SECONDS)
        assert scene.system.is_over(handle)
        scene.started[0].wait(SECONDS)
        assert scene.system.send(handle, signal.SIGTERM) is False
    with scene.system.handle(process) as gone:
        assert gone is None


def test_without_pidfds_it_goes_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.restart.local.linux._descriptor", lambda _: -1)
    pid = scene.holder("SIGINT")
    assert scene.end(*scene.seen()).phase is Phase.DONE
    assert scene.system.sent == [(pid, "SIGINT"), (pid, "SIGTERM")]


def test_what_a_process_handles_is_seen(scene: Scene) -> None:
    pid = scene.holder("SIGUSR1")
    assert scene.system.catches(pid, signal.SIGUSR1)
    assert not scene.system.catches(pid, signal.SIGUSR2)
    assert not scene.system.catches(2**22 + 1, signal.SIGUSR1)
    assert not scene.system.blocked(scene.system.entries()[pid].process)


# -- the lock file


def test_a_lock_file_that_somebody_holds_stays(scene: Scene) -> None:
    scene.holder()
    assert scene.system.remove_lock_file() == (False, "it is locked")
    assert scene.lock_file.exists()


def test_a_lock_by_flock_counts_too(scene: Scene) -> None:
    with open(scene.lock_file) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert scene.system.remove_lock_file() == (False, "it is locked")
    assert scene.system.remove_lock_file() == (True, "")
    assert scene.system.remove_lock_file() == (False, "")


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_nothing_but_a_regular_file_is_removed(scene: Scene, kind: str) -> None:
    other = scene.lock_file.with_name("other")
    scene.lock_file.rename(other)
    if kind == "link":
        scene.lock_file.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(scene.lock_file)
    else:
        scene.lock_file.mkdir()
    assert scene.system.remove_lock_file() == (False, "it is no regular file")
    assert scene.lock_file.is_symlink() or scene.lock_file.exists()
    assert other.exists()


def test_a_directory_that_is_a_link_is_not_followed(scene: Scene) -> None:
    directory = scene.lock_file.parent
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to(directory.with_name("elsewhere"))
    assert scene.system.remove_lock_file()[0] is False
    assert scene.lock_file.exists()


# -- commands


def run(code: str, seconds: float = SECONDS, leave: bool = False) -> tuple[int | None, str, str]:
    ran = Linux(SystemClock()).run([sys.executable, "-c", code], seconds, {"TPUWATCH_NODE": "n"}, lambda: leave)
    return ran.code, ran.words, ran.fault


def test_a_command_has_its_environment_and_its_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    code = "import os, sys; print(os.environ['TPUWATCH_NODE'], 'NOTIFY_SOCKET' in os.environ); sys.exit(3)"
    assert run(code) == (3, "n False\n", "")


def test_of_many_words_the_end_is_kept() -> None:
    code, words, _ = run("print('x' * 1000000 + 'end')")
    assert (code, len(words), words[-4:]) == (0, 16_384, "end\n")


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as lives:
        os.set_blocking(lives.fileno(), True)
        code = f"import os, signal; os.fork(); f = open({str(pipe)!r}, 'w'); signal.pause()"
        status, _, fault = run(code, seconds=0.5)
        assert (status, "was not done within" in fault) == (None, True)
        assert lives.read() == b""  # until no process has it open any more


def test_a_command_is_ended_where_somebody_wants_an_end() -> None:
    assert run("import signal; signal.pause()", leave=True)[2].startswith("tpuwatch is to end")


def test_what_a_command_leaves_running_is_not_waited_for() -> None:
    code = "import os, signal\nif pid := os.fork():\n print(pid, flush=True)\n os._exit(0)\nsignal.pause()"
    status, words, _ = run(code)
    assert status == 0
    os.kill(int(words), signal.SIGKILL)


@pytest.mark.parametrize("argv", [["/nonexistent/program"], ["/etc/passwd"], ["/bin/a\0b"]])
def test_a_command_that_cannot_be_started_is_reported(argv: list[str]) -> None:
    ran = Linux(SystemClock()).run(argv, 1.0, {}, lambda: False)
    assert (ran.code, ran.fault.startswith("it cannot be started")) == (None, True)
