"""A process of ours in the command's process group that takes no signal: what waits there was sent to the whole group.

The kernel reports what waits, so the sentinel need not run for it, however busy the machine is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from typing import Final, NoReturn

from tpuwatch.exec.streams import close_all_but

_REACH_SECONDS: Final = 0.05  # in which what is sent to one process after the other has reached all
_LOOK_SECONDS: Final = 0.001
_IGNORED: Final = frozenset({signal.SIGWINCH, signal.SIGCONT, signal.SIGCHLD})  # of these it is never asked


class SignalSentinel:
    """Detects whether a signal that we got was sent to our whole process group, so that the command has it too.

    To be made when all signals are blocked.
    """

    def __init__(self) -> None:
        self._over, self._held = os.pipe()  # no other process holds it, so it closes when we end
        self._known: set[int] = set()  # sent to all, and waiting where there is no sentinel any more
        self._pid = self._start()

    def was_sent_to_group(self, number: int) -> bool:
        """Whether the signal that we have just taken was sent to all; each is reported once."""
        deadline = time.monotonic() + _REACH_SECONDS
        while number not in self._known and number not in _waiting(self._pid):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        self.forget(number)
        return True

    def forget(self, number: int) -> None:
        """If this comes again, it was sent again."""
        if number in _waiting(self._pid):
            self._replace()
        self._known.discard(number)

    def end(self) -> None:
        """End the process."""
        _end(self._pid)
        self._pid = -1

    def _replace(self) -> None:
        """What waits stays until its process ends, so another takes the place. What comes meanwhile is kept, once."""
        while True:
            other = self._start()
            waiting = _waiting(self._pid)
            if not _waiting(other):
                break
            _end(other)
        _end(self._pid)
        self._pid = other
        self._known |= waiting

    def _start(self) -> int:
        """The new process; -1 if there can be none."""
        with contextlib.suppress(OSError), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: it uses nothing that these may hold
            pid = os.fork()
            if pid == 0:
                _stand_by(self._over)
            return pid
        return -1


def _stand_by(over: int) -> NoReturn:
    """Hold nothing, take no signal, and end when our parent does."""
    try:
        close_all_but({over})
        os.read(over, 1)
    finally:
        os._exit(0)


def _waiting(pid: int) -> set[int]:
    """The signals that wait for a process."""
    from tpuwatch.host import ProcFs  # not before the command has begun

    return ProcFs().signals(pid, "ShdPnd") - _IGNORED


def _end(pid: int) -> None:
    if pid > 0:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
