"""The command as a process: started as a shell would start it, in our own session and process group."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from tpuwatch.errors import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpuwatch.exec.streams import Streams

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit codes, as shells have them
_SHELL = "/bin/sh"
_LOST = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them; whoever called it had them as they usually are


class CommandError(TpuwatchError):
    """The command could not be started."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status  # the exit code that says so


def start(command: Sequence[str], environ: Mapping[str, str], streams: Streams, mask: set[int]) -> int:
    """Start the command; its process number. `mask`: the signals that it has blocked. Raises CommandError.

    It inherits standard input and all descriptors that we were given to pass on. It runs when this returns.
    """
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(command, environ, streams, mask, tell)
    os.close(tell)
    with open(told, "rb") as file:
        failure = file.read()  # nothing once the command runs: its end of the pipe is closed by that
    if failure:
        os.waitpid(pid, 0)
        raise _error(command[0], int(failure))
    return pid


def _become(
    command: Sequence[str], environ: Mapping[str, str], streams: Streams, mask: set[int], tell: int
) -> NoReturn:
    """In the new process: put everything in its place, and become the command."""
    number = errno.EIO
    try:
        for stream in streams.copied:
            for place in stream.numbers:
                os.dup2(stream.given, place)
        for lost in _LOST:
            signal.signal(lost, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _execute(command, environ)
    except OSError as error:
        number = error.errno or number
    finally:
        with contextlib.suppress(OSError):
            os.write(tell, str(number).encode())
        os._exit(NOT_FOUND)


def _execute(command: Sequence[str], environ: Mapping[str, str]) -> None:
    try:
        os.execvpe(command[0], list(command), environ)  # noqa: S606 (what the operator wrote, without a shell)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script that does not say what runs it: a shell does.
    path = find(command[0], environ)
    os.execve(_SHELL, [_SHELL, path or command[0], *command[1:]], environ)  # noqa: S606


def find(name: str, environ: Mapping[str, str]) -> str | None:
    """The file that a command's name means."""
    if "/" in name:
        return name if os.path.exists(name) else None  # noqa: PTH110 (pathlib would be loaded for it)
    for directory in environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory, name)  # noqa: PTH118
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
            return path
    return None


def _error(name: str, number: int) -> CommandError:
    missing = number in (errno.ENOENT, errno.ENOTDIR)
    if missing and "/" in name and os.path.exists(name):  # noqa: PTH110
        return CommandError(
            f"cannot run {name}: the program that its first line names is not there; correct that line", NOT_EXECUTABLE
        )
    if missing and "/" not in name:
        return CommandError(f"{name}: there is no such command in PATH; check its name, or give its path", NOT_FOUND)
    if missing:
        return CommandError(f"{name}: there is no such file; check the path of the command", NOT_FOUND)
    if number == errno.EACCES:
        return CommandError(f"cannot run {name}: it is not executable; run `chmod +x` on it", NOT_EXECUTABLE)
    return CommandError(f"cannot run {name}: {os.strerror(number)}", NOT_EXECUTABLE)


def shell_status(status: int) -> int:
    """What a shell makes of a process's wait status: 128 and more for signals."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def end_as(status: int) -> NoReturn:
    """End as the command did: with its exit code, or by the signal that ended it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if os.WIFSIGNALED(status):
        _die(os.WTERMSIG(status))
    os._exit(shell_status(status))


def _die(number: int) -> None:
    """End by a signal, without a core dump: the command has left its own."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    # 1 is too small for a file, and for a program that takes dumps it says that there is to be none; 0 does not.
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, most) if most >= 0 else 1, most))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
