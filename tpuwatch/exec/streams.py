"""Where the command's standard output and standard error go, and how they are read on the way.

A regular file that can be read is given to the command as it is: it is read there, and nothing stands between. A
terminal becomes one of tpuwatch's own, so that the command still finds a terminal of the same size; all else becomes a
pipe. What comes out of these is copied on as it is (exec.copier). Two that lead to the same place share one, so
that what is written to both keeps its order.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import termios
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

STDOUT, STDERR = 1, 2
PIPE_BYTES = 1 << 20  # the largest that a user may make a pipe, unless the machine says otherwise
_OPOST_INDEX = 1  # of a terminal's output flags in its attributes
_SIZE_BYTES = 8  # of struct winsize


class Stream:
    """One place that the command writes to. Numbers are descriptors of ours."""

    # To make a dataclass takes a millisecond, which the command would begin later.
    def __init__(self, sink: int, given: int, source: int | None = None, *, terminal: bool = False) -> None:
        self.sink = sink  # where the output goes in the end: 1 or 2
        self.numbers = [sink]  # what the command has it as: 1, 2 or both
        self.given = given  # what the command gets
        self.source = source  # the other end of it, to be copied to `sink`; None: the command writes there itself
        self.terminal = terminal
        self.file: int | None = None  # a descriptor that the file can be read by, where the command writes it itself
        self.start = 0  # from which offset on that file is this command's


class Streams:
    """Both of them, or the one that they are."""

    def __init__(self) -> None:
        self.all: list[Stream] = []

    @property
    def copied(self) -> list[Stream]:
        """Those that go through tpuwatch."""
        return [stream for stream in self.all if stream.source is not None]

    def resize(self) -> None:
        """Give our terminals the size of the real one."""
        for stream in self.copied:
            if stream.terminal and stream.source is not None:
                with contextlib.suppress(OSError):
                    copy_size(stream.sink, stream.source)

    def forget_given(self) -> None:
        """The command has its ends: let go of them, or they would never end."""
        for stream in self.copied:
            os.close(stream.given)


def open_streams(closed: Collection[int] = ()) -> Streams:
    """Look at our own standard output and standard error, and prepare those of the command, but for `closed` ones."""
    streams = Streams()
    places: dict[tuple[int, int, int], Stream] = {}
    for number in (STDOUT, STDERR):
        if number in closed:
            continue
        entry = os.fstat(number)
        # A device is the same under all its names.
        place = (entry.st_rdev, 0, 0) if stat.S_ISCHR(entry.st_mode) else (0, entry.st_dev, entry.st_ino)
        if place in places:
            places[place].numbers.append(number)
            continue
        places[place] = _open_stream(number, entry)
        streams.all.append(places[place])
    return streams


def _open_stream(number: int, entry: os.stat_result) -> Stream:
    if stat.S_ISREG(entry.st_mode):
        file = _open_file(number, entry)
        if file is not None:
            stream = Stream(number, number)
            stream.file, stream.start = file, _written(number, entry)
            return stream
    if os.isatty(number):
        with contextlib.suppress(OSError, termios.error):  # no terminals are left: a pipe is used
            return _open_terminal(number)
    source, given = os.pipe()
    with contextlib.suppress(OSError):  # more than this user may have: the pipe stays as it is
        fcntl.fcntl(given, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return Stream(number, given, source)


def _open_file(number: int, entry: os.stat_result) -> int | None:
    """A descriptor to read the file by, if that is allowed and leads to the same file."""
    try:
        file = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    found = os.fstat(file)
    if (found.st_dev, found.st_ino) == (entry.st_dev, entry.st_ino):
        return file
    os.close(file)
    return None


def _written(number: int, entry: os.stat_result) -> int:
    """Where the command begins to write."""
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND:
        return entry.st_size
    return os.lseek(number, 0, os.SEEK_CUR)


def _open_terminal(number: int) -> Stream:
    """A terminal that does nothing to what is written to it: the real one does that."""
    source, given = os.openpty()
    try:
        attributes = termios.tcgetattr(number)
        attributes[_OPOST_INDEX] &= ~termios.OPOST
        termios.tcsetattr(given, termios.TCSANOW, attributes)
        copy_size(number, given)
    except (OSError, termios.error):
        os.close(source)
        os.close(given)
        raise
    return Stream(number, given, source, terminal=True)


def copy_size(source: int, target: int) -> None:
    """Give a terminal the rows and columns of another. Raises OSError."""
    size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * _SIZE_BYTES)
    fcntl.ioctl(target, termios.TIOCSWINSZ, size)


def close_all_but(kept: Collection[int]) -> None:
    """Hold none but these descriptors any more."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208 (pathlib would be loaded for it)
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)
