"""This machine, as acting on it takes it: /proc, pidfds, and libtpu's lock file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import selectors
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.config import THIS_MACHINE
from tpuwatch.core import clean, length
from tpuwatch.host import LOCK_FILE, Holders, HolderScan, ProcFs, parse_locks, parse_stat
from tpuwatch.model import ProcessId
from tpuwatch.restart.local.system import CommandOutcome, PidHandle, ProcessEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import IO

    from tpuwatch.core import Clock


_BLIND_SECONDS: Final = 0.2  # between two looks where the kernel does not report the end of processes
_MAX_THREADS: Final = 4096
_MAX_STATUS: Final = 1 << 16


class Linux:
    """The machine below `root`, which tests choose. Nothing raises for what has ended meanwhile."""

    def __init__(self, clock: Clock, root: Path = Path("/")) -> None:
        self._clock = clock
        self._root = root
        self._processes = ProcFs(root / "proc")
        self._holders = Holders(self._processes, root)
        self._is_ours = root == THIS_MACHINE

    # -- what there is

    def boot_id(self) -> str:
        """Of this boot; "" if it is not known."""
        return self._processes.boot_id()

    def own(self) -> int:
        """Our own pid."""
        return os.getpid()

    def entries(self) -> dict[int, ProcessEntry]:
        """All processes that can be seen, by pid."""
        found = (self._entry(f"{pid}/stat", pid) for pid in self._processes.pids())
        return {entry.process.pid: entry for entry in found if entry is not None}

    def held(self) -> HolderScan:
        """Who holds the TPU."""
        uptime = self._processes.uptime()
        booted = None if uptime is None else self._clock.time() - uptime
        return self._holders.look(booted, self._clock.monotonic())

    def holds(self, pid: int) -> bool:
        """Whether that process holds the TPU now."""
        return self._holders.holds(pid)

    def catches(self, pid: int, number: signal.Signals) -> bool:
        """Whether it handles that signal, which would else end it."""
        return number in self._processes.signals(pid, "SigCgt")

    def read_text(self, pid: int, name: str) -> str:
        """The beginning of /proc/PID/NAME, fit to be shown; "" where it cannot be read."""
        return clean(self._processes.read(f"{pid}/{name}", _MAX_STATUS).decode("utf-8", "replace"))

    def blocked(self, process: ProcessId) -> bool:
        """Whether a thread of it waits in the kernel where no signal reaches it (state D)."""
        return self._is(process) and any(entry.state == "D" for entry in self._threads(process.pid))

    # -- signals

    @contextlib.contextmanager
    def handle(self, process: ProcessId) -> Iterator[PidHandle | None]:
        """A hold on that very process; None if it has ended."""
        descriptor = _descriptor(process.pid)
        try:
            # If it is that process now it was when the descriptor was made: its number was not free since.
            yield PidHandle(process, descriptor) if self._is(process) else None
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def is_over(self, handle: PidHandle) -> bool:
        """Whether all of the process has ended."""
        if handle.descriptor >= 0:
            return bool(_ended([handle.descriptor], 0.0))
        return not self._is(handle.process) or all(entry.over for entry in self._threads(handle.process.pid))

    def send(self, handle: PidHandle, number: signal.Signals) -> bool:
        """Send a signal; whether the process was still there. Raises PermissionError."""
        try:
            if handle.descriptor >= 0:
                signal.pidfd_send_signal(handle.descriptor, number)
            elif self._is(handle.process):
                os.kill(handle.process.pid, number)
            else:
                return False
        except ProcessLookupError:
            return False
        return True

    def wait(self, handles: Sequence[PidHandle], seconds: float) -> None:
        """Wait until one of these processes has ended, at most so long."""
        known = [handle.descriptor for handle in handles if handle.descriptor >= 0]
        _ended(known, seconds if len(known) == len(handles) else min(seconds, _BLIND_SECONDS))

    # -- all else

    def run(
        self, argv: Sequence[str], seconds: float, environment: Mapping[str, str], leave: Callable[[], bool]
    ) -> CommandOutcome:
        """Run a program without a shell, for at most so long. `leave` is called about every second; its True ends it.

        `environment` comes on top of tpuwatch's own. What it leaves running in its own session is ended where it was
        ended itself.
        """
        if not self._is_ours and "/" not in argv[0]:
            return CommandOutcome(None, fault=f"it is not looked for outside of {self._root}")
        inherited = {name: value for name, value in os.environ.items() if name not in _OURS}
        try:
            process = subprocess.Popen(  # noqa: S603 (it is the configuration's, or one of ours)
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**inherited, **environment},
                start_new_session=True,
                cwd="/",
            )
        except (OSError, ValueError) as error:
            return CommandOutcome(None, fault=f"it cannot be started ({getattr(error, 'strerror', None) or error})")
        try:
            return _followed(process, self._clock.monotonic() + seconds, seconds, leave, self._clock)
        finally:
            if process.poll() is None:
                _end(process)
            if process.stdout is not None:
                process.stdout.close()

    def find(self, program: str) -> str:
        """Its path, if it is installed; else ""."""
        if not self._is_ours:
            return ""  # it would act on this machine
        # Beside the Python that runs tpuwatch, where pip puts programs, before wherever the system has them.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        return shutil.which(program, path=path) or ""

    def remove_lock_file(self) -> tuple[bool, str]:
        """Remove libtpu's lock file if it is a regular one without a lock on it.

        Whether it was there and is removed; and else why it was left, a clause: "" where there was none.
        """
        path = self._root / LOCK_FILE
        with ExitStack() as opened:
            try:
                directory = os.open(path.parent, _DIRECTORY)
                opened.callback(os.close, directory)
                file = os.open(path.name, _FILE, dir_fd=directory)
                opened.callback(os.close, file)
                return _remove(path.name, directory, file, self._root / "proc/locks")
            except FileNotFoundError:
                return False, ""
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO):
                    return False, "it is no regular file"
                why = "tpuwatch may not" if error.errno in _KEPT else (error.strerror or str(error))
                return False, why

    # -- /proc

    def _is(self, process: ProcessId) -> bool:
        entry = self._entry(f"{process.pid}/stat", process.pid)
        return entry is not None and entry.process == process

    def _threads(self, pid: int) -> list[ProcessEntry]:
        try:
            names = os.listdir(self._root / f"proc/{pid}/task")[:_MAX_THREADS]  # noqa: PTH208 (names are what is wanted)
        except OSError:
            return []
        found = (self._entry(f"{pid}/task/{name}/stat", pid) for name in names)
        return [entry for entry in found if entry is not None]

    def _entry(self, name: str, pid: int) -> ProcessEntry | None:
        """The contents of such a file; None if it is gone or malformed."""
        stat = parse_stat(self._processes.read(name, _MAX_STATUS))
        if stat is None:
            return None
        return ProcessEntry(ProcessId(pid, stat.started_ticks), stat.parent, stat.group, stat.state, stat.kernel)


def _descriptor(pid: int) -> int:
    """A pidfd; -1 where there is none to be had."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # an old kernel, a filter that forbids it, or no such process
        return -1


def _ended(descriptors: Sequence[int], seconds: float) -> list[tuple[int, int]]:
    """Those of the processes that have ended, of which at least one is waited for so long."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll.poll(max(0, round(seconds * 1000)))


KEPT_BYTES: Final = 16_384  # of the end of its words
_LOOK_SECONDS: Final = 1.0
_UNSEEN_SECONDS: Final = 0.1  # … where the kernel does not report its end
_END_SECONDS: Final = 5.0
# Meant for tpuwatch alone: with these a program could notify systemd in its name.
_OURS: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def _followed(
    process: subprocess.Popen[bytes], until: float, seconds: float, leave: Callable[[], bool], clock: Clock
) -> CommandOutcome:
    """Read its words until it has ended, or is to be."""
    assert process.stdout is not None  # noqa: S101 (for the type checker: it is a pipe)
    words = b""
    os.set_blocking(process.stdout.fileno(), False)
    with ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        longest, more = _watch_end(process, selector, opened), True
        selector.register(process.stdout, selectors.EVENT_READ)
        while process.poll() is None:
            left = until - clock.monotonic()
            if left <= 0:
                return CommandOutcome(None, _text(words), f"it was not done within {length(seconds)}, and was ended")
            if leave():
                return CommandOutcome(None, _text(words), "tpuwatch is to end, and so it was ended")
            selector.select(min(left, longest))
            if more:
                words, more = _read(process.stdout, words)
                if not more:
                    selector.unregister(process.stdout)
    # What it has left running may hold the pipe for ever: what is in it now is all that is read.
    if more:
        words, _ = _read(process.stdout, words)
    return CommandOutcome(process.returncode, _text(words))


def _watch_end(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, opened: ExitStack) -> float:
    """Have its end wake the selector; how long that may be asked to wait then."""
    descriptor = _descriptor(process.pid)
    if descriptor < 0:
        return _UNSEEN_SECONDS
    opened.callback(os.close, descriptor)
    selector.register(descriptor, selectors.EVENT_READ)
    return _LOOK_SECONDS


def _read(pipe: IO[bytes], words: bytes) -> tuple[bytes, bool]:
    """The end of its words with what is in the pipe; and whether there may be more."""
    for _ in range(64):  # then its end is looked at: it may write faster than it is read
        try:
            chunk = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return words, True
        if not chunk:
            return words, False
        words = (words + chunk)[-KEPT_BYTES:]
    return words, True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with its session. It has not been waited for, so the number is still its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)


def _text(words: bytes) -> str:
    return words.decode("utf-8", "replace")


_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Anybody may put something else in its place: a link is not followed, and a pipe is not waited for.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_LOCKS: Final = 1 << 20
_KEPT: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})


def _remove(name: str, directory: int, file: int, locks: Path) -> tuple[bool, str]:
    entry = os.fstat(file)
    if not stat.S_ISREG(entry.st_mode):
        return False, "it is no regular file"
    try:
        # It is held for the moment in which it is removed: a program that would lock it now would lock a file
        # without a name, beside which the next program makes another one.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # more is not allowed to who only reads
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False, "it is locked"
        raise
    with open(locks, "rb") as listed:
        others = parse_locks(listed.read(_MAX_LOCKS), entry.st_dev, entry.st_ino) - {os.getpid()}
    if others:
        return False, "it is locked"
    now = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (now.st_dev, now.st_ino) != (entry.st_dev, entry.st_ino):
        return False, "it has just been replaced"
    os.unlink(name, dir_fd=directory)
    return True, ""
