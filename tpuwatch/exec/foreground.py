"""The command in the foreground: signals on their way to it, stops and continuations, and its end.

What the terminal's keys send, the kernel sends to the command too, as it is in our process group; so it is not passed
on. What is sent to tpuwatch alone is. All signals are blocked and taken one by one, so that none is lost and no handler
runs in the middle of anything.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.exec.signal_sentinel import SignalSentinel

_FROM_KERNEL: Final = 0x80  # SI_KERNEL: the terminal's keys, its size, its end
_OWN = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT}
TAKEN: Final = frozenset(signal.valid_signals()) - _OWN - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}
ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
STOPPING: Final = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_FLUSH_SECONDS = 1.0


def block() -> set[int]:
    """Have signals wait until they are taken; the mask that there was before."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored the command's end would go unnoticed
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN))


class Foreground:
    """Stands in for the command `pid` towards the process that started us."""

    def __init__(
        self,
        pid: int,
        *,
        sentinel: SignalSentinel,
        resize: Callable[[], None],
        flush: Callable[[float], None],
        others: Callable[[], None],
    ) -> None:
        """`resize`: the terminal's size may have changed. `flush`: have all output written, in so many seconds.
        `others`: another child may have ended.
        """
        self._pid = pid
        self._sentinel = sentinel
        self._resize = resize
        self._flush = flush
        self._others = others
        self._stops = 0

    def wait(self) -> int:
        """Until the command has ended; its wait status."""
        while True:
            info = signal.sigwaitinfo(TAKEN)
            if info.si_signo == signal.SIGCHLD:
                status = self._changed()
                if status is not None:
                    return status
                self._others()
            elif info.si_signo == signal.SIGCONT:
                status = self._go_on()
                if status is not None:
                    return status
            elif self._is_to_pass(info):
                self._send(info.si_signo)

    def _is_to_pass(self, info: signal.struct_siginfo) -> bool:
        number = info.si_signo
        if number == signal.SIGWINCH:
            self._resize()
            return True  # it may have looked at the size before we changed it
        if self._sentinel.was_sent_to_group(number):
            return False
        # Of what the kernel sends to us alone, only a terminal that hangs up concerns the command.
        return info.si_code != _FROM_KERNEL or number == signal.SIGHUP

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or become another user's
            os.kill(self._pid, number)

    def _go_on(self) -> int | None:
        """SIGCONT was received; the command's wait status, if it has ended.

        A shell has the command go on too. Then one that is stopped was stopped since, and has to stay so: that stop
        had us stop as well, so it is distinguished from one that we knew of.
        """
        self._resize()
        stopped, stops = _is_stopped(self._pid), self._stops
        status = self._changed()
        if status is None and stopped and stops == self._stops:
            self._send(signal.SIGCONT)
        return status

    def _changed(self) -> int | None:
        """A child of ours ended, stopped or went on; the command's wait status, if it is that and has ended."""
        while True:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return 0  # how it ended is unknown
            if pid == 0:
                return None
            if not os.WIFSTOPPED(status):
                return status
            self._stop(os.WSTOPSIG(status))

    def _stop(self, number: int) -> None:
        """The command was stopped: stop as well, so that the shell takes the terminal, until SIGCONT."""
        if number not in STOPPING and not in_foreground():
            return  # the command alone was stopped, and will be continued alone
        self._stops += 1
        self._flush(_FLUSH_SECONDS)
        if number in STOPPING:
            os.kill(os.getpid(), number)  # blocked still: with one from the terminal that waits already it is one
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
            self._sentinel.forget(number)
        elif _is_stopped(self._pid):
            os.kill(os.getpid(), signal.SIGSTOP)
        self._resize()


def in_foreground() -> bool:
    """Whether we have the terminal, so that a user waits."""
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2].split()[:1] == [b"T"]
    except OSError:
        return False


def asked_to_end() -> bool:
    """Whether a signal has requested our end; for when the command has ended."""
    return signal.sigtimedwait(ENDING, 0) is not None


def release_stops() -> None:
    """From now on stop as any program does: there is no command any more to do it first."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def release() -> None:
    """From now on be as any program: no signal waits."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TAKEN)
