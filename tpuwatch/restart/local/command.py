"""Running a program: no shell, no input, bounded in time and in what is kept of its words."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import length
from tpuwatch.restart.local.system import Ran

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO

    from tpuwatch.clock import Clock

KEPT_BYTES: Final = 16_384  # of the end of its words
_LOOK_SECONDS: Final = 1.0
_BLIND_SECONDS: Final = 0.1  # … where the kernel does not tell its end
_END_SECONDS: Final = 5.0
# What systemd tells tpuwatch alone: with these a program could speak in its name.
_OURS: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def run(
    argv: Sequence[str],
    seconds: float,
    environment: Mapping[str, str],
    leave: Callable[[], bool],
    clock: Clock,
) -> Ran:
    """As `System.run` says. `environment` comes on top of tpuwatch's own."""
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
        return Ran(None, fault=f"it cannot be started ({getattr(error, 'strerror', None) or error})")
    try:
        return _followed(process, clock.monotonic() + seconds, seconds, leave, clock)
    finally:
        if process.poll() is None:
            _end(process)
        if process.stdout is not None:
            process.stdout.close()


def _followed(
    process: subprocess.Popen[bytes], until: float, seconds: float, leave: Callable[[], bool], clock: Clock
) -> Ran:
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
                return Ran(None, _text(words), f"it was not done within {length(seconds)}, and was ended")
            if leave():
                return Ran(None, _text(words), "tpuwatch is to end, and so it was ended")
            selector.select(min(left, longest))
            if more:
                words, more = _read(process.stdout, words)
                if not more:
                    selector.unregister(process.stdout)
    # What it has left running may hold the pipe for ever: what is in it now is all that is read.
    if more:
        words, _ = _read(process.stdout, words)
    return Ran(process.returncode, _text(words))


def _watch_end(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, opened: ExitStack) -> float:
    """Have its end wake the selector; how long that may be asked to wait then."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        return _BLIND_SECONDS
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
