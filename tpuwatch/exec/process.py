"""The command's process: started as a shell would start it, in our own session and process group, and ended as it ends.

Little is loaded and little is done before its first instruction.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from tpuwatch.core import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpuwatch.exec.streams import Streams


NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit codes, as shells have them
_SHELL = "/bin/sh"
_MISSING = (errno.ENOENT, errno.ENOTDIR)
_PASSED_OVER = (*_MISSING, errno.EACCES, errno.ENODEV, errno.ESTALE, errno.ETIMEDOUT)  # another one in PATH may do
_LOST = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them; its caller had them at their defaults


class CommandError(TpuwatchError):
    """The command could not be started."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status  # the exit code for it


def start(command: Sequence[str], environ: Mapping[str, str], streams: Streams, mask: set[int]) -> int:
    """Start the command; its process number. `mask`: the signals that it has blocked. Raises CommandError.

    It inherits standard input and all descriptors that we were given to pass on. It runs when this returns.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(command, environ, streams, mask, writer)
    os.close(writer)
    with open(reader, "rb") as file:
        failure = file.read()  # nothing once the command runs: its end of the pipe is closed by that
    if failure:
        os.waitpid(pid, 0)
        raise _error(command[0], int(failure), environ)
    return pid


def become(command: Sequence[str], environ: Mapping[str, str], mask: set[int]) -> NoReturn:
    """Be the command ourselves, where no other process can. Raises CommandError."""
    try:
        _execute(command, environ, mask)
    except OSError as error:
        raise _error(command[0], error.errno or errno.EIO, environ) from error


def _become(
    command: Sequence[str], environ: Mapping[str, str], streams: Streams, mask: set[int], writer: int
) -> NoReturn:
    """In the new process: put everything in its place, and become the command."""
    number = errno.EIO
    try:
        for stream in streams.copied:
            for place in stream.numbers:
                os.dup2(stream.given, place)
        _execute(command, environ, mask)
    except OSError as error:
        number = error.errno or number
    finally:
        with contextlib.suppress(OSError):
            os.write(writer, str(number).encode())
        os._exit(NOT_FOUND)


def _execute(command: Sequence[str], environ: Mapping[str, str], mask: set[int]) -> NoReturn:
    """Be the first file that can be executed of those that the name means. Raises OSError."""
    for lost in _LOST:
        signal.signal(lost, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    failure = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _files(command[0], environ):
        try:
            os.execve(path, list(command), environ)  # noqa: S606 (what the operator wrote, without a shell)
        except OSError as error:  # noqa: PERF203 (each may fail in its own way)
            if error.errno == errno.ENOEXEC:  # a script that does not say what runs it: a shell does
                os.execve(_SHELL, [_SHELL, path, *command[1:]], environ)  # noqa: S606
            if error.errno not in _MISSING:
                failure = error
            if error.errno not in _PASSED_OVER:
                break
    raise failure


def _files(name: str, environ: Mapping[str, str]) -> list[str]:
    """Where a command may be, as a shell looks for it. Without a name it is nowhere."""
    if "/" in name or not name:
        return [name] * bool(name)
    return [os.path.join(directory, name) for directory in environ.get("PATH", os.defpath).split(os.pathsep)]  # noqa: PTH118 (pathlib would be loaded for it)


def _error(name: str, number: int, environ: Mapping[str, str]) -> CommandError:
    files = [path for path in _files(name, environ) if os.path.exists(path)]  # noqa: PTH110 (as above)
    programs = [path for path in files if not os.path.isdir(path)]  # noqa: PTH112
    if "/" not in name and not programs:
        text = f"{name or 'an empty name'}: there is no such command in PATH; check its name, or give its path"
        return CommandError(text, NOT_FOUND)
    if number in _MISSING and programs:
        return CommandError(
            f"cannot run {name}: the program that its first line names is not there; correct that line", NOT_EXECUTABLE
        )
    if number in _MISSING:
        return CommandError(f"{name}: there is no such file; check the path of the command", NOT_FOUND)
    if files and not programs:
        return CommandError(f"cannot run {name}: it is a directory; name a program in it", NOT_EXECUTABLE)
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
