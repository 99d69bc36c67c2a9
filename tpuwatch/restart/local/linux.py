"""This machine, as acting on it takes it: /proc, pidfds, and libtpu's lock file."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import clean
from tpuwatch.node.holders import LOCK_FILE, Held, Holders
from tpuwatch.processes import ProcFs, parse_stat
from tpuwatch.restart.local import command, lockfile
from tpuwatch.restart.local.system import Entry, Grip, Ran, Who

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpuwatch.clock import Clock

_BLIND_SECONDS: Final = 0.2  # between two looks where the kernel tells nobody's end
_MAX_THREADS: Final = 4096
_MAX_STATUS: Final = 1 << 16


class Linux:
    """The machine below `root`, which tests choose."""

    def __init__(self, clock: Clock, root: Path = Path("/")) -> None:
        self._clock = clock
        self._root = root
        self._processes = ProcFs(root / "proc")
        self._holders = Holders(self._processes, root)

    # -- what there is

    def boot_id(self) -> str:
        return self._processes.boot_id()

    def own(self) -> int:
        return os.getpid()

    def entries(self) -> dict[int, Entry]:
        found = (self._entry(f"{pid}/stat", pid) for pid in self._processes.pids())
        return {entry.who.pid: entry for entry in found if entry is not None}

    def held(self) -> Held:
        uptime = self._processes.uptime()
        booted = None if uptime is None else self._clock.time() - uptime
        return self._holders.look(booted, self._clock.monotonic())

    def holds(self, pid: int) -> bool:
        return self._holders.holds(pid)

    def catches(self, pid: int, number: signal.Signals) -> bool:
        return number in self._processes.signals(pid, "SigCgt")

    def told(self, pid: int, name: str) -> str:
        return clean(self._processes.read(f"{pid}/{name}", _MAX_STATUS).decode("utf-8", "replace"))

    def blocked(self, who: Who) -> bool:
        return self._is(who) and any(entry.state == "D" for entry in self._threads(who.pid))

    # -- signals

    def grip(self, who: Who) -> Grip | None:
        grip = Grip(who, _descriptor(who.pid))
        if self._is(who):  # and was when the descriptor was made: its number was not free since
            return grip
        self.loose(grip)
        return None

    def loose(self, grip: Grip) -> None:
        if grip.descriptor >= 0:
            os.close(grip.descriptor)

    def is_over(self, grip: Grip) -> bool:
        if grip.descriptor >= 0:
            return bool(_ended([grip.descriptor], 0.0))
        return not self._is(grip.who) or all(entry.over for entry in self._threads(grip.who.pid))

    def send(self, grip: Grip, number: signal.Signals) -> bool:
        try:
            if grip.descriptor >= 0:
                signal.pidfd_send_signal(grip.descriptor, number)
            elif self._is(grip.who):
                os.kill(grip.who.pid, number)
            else:
                return False
        except ProcessLookupError:
            return False
        return True

    def wait(self, grips: Sequence[Grip], seconds: float) -> None:
        told = [grip.descriptor for grip in grips if grip.descriptor >= 0]
        _ended(told, seconds if len(told) == len(grips) else min(seconds, _BLIND_SECONDS))

    # -- all else

    def run(
        self, argv: Sequence[str], seconds: float, environment: Mapping[str, str], leave: Callable[[], bool]
    ) -> Ran:
        return command.run(argv, seconds, environment, leave, self._clock)

    def find(self, program: str) -> str:
        # Beside the Python that runs tpuwatch, where pip puts programs, before wherever the system has them.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        return shutil.which(program, path=path) or ""

    def remove_lock_file(self) -> tuple[bool, str]:
        return lockfile.remove(self._root / LOCK_FILE, self._root / "proc/locks")

    # -- /proc

    def _is(self, who: Who) -> bool:
        entry = self._entry(f"{who.pid}/stat", who.pid)
        return entry is not None and entry.who == who

    def _threads(self, pid: int) -> list[Entry]:
        try:
            names = os.listdir(self._root / f"proc/{pid}/task")[:_MAX_THREADS]  # noqa: PTH208 (names are what is wanted)
        except OSError:
            return []
        found = (self._entry(f"{pid}/task/{name}/stat", pid) for name in names)
        return [entry for entry in found if entry is not None]

    def _entry(self, name: str, pid: int) -> Entry | None:
        """What such a file says; None for one that is gone or makes no sense."""
        stat = parse_stat(self._processes.read(name, _MAX_STATUS))
        if stat is None:
            return None
        return Entry(Who(pid, stat.started_ticks), stat.parent, stat.group, stat.state, stat.kernel)


def _descriptor(pid: int) -> int:
    """A pidfd; -1 where there is none to be had."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # an old kernel, a filter that forbids it, or nobody there
        return -1


def _ended(descriptors: Sequence[int], seconds: float) -> list[tuple[int, int]]:
    """Those of the processes that have ended, of which at least one is waited for so long."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll.poll(max(0, round(seconds * 1000)))
