"""Log files as libtpu's logging library keeps them: one per severity, with copies, links, rotation and late INFO."""

from __future__ import annotations

import getpass
import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.core import Clock

SEVERITIES = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}  # in rising order
LETTERS = "".join(SEVERITIES)
BUFFER_BYTES = 4096  # INFO reaches the disk in blocks of this size, whatever line they end in
RECORD_BYTES = 14_977  # a longer record is cut here, mid-line, and closed with a newline
ROTATE_BYTES = 1024 << 20  # TPU_MAX_LOG_SIZE_MB=1024, the library's default
BUILT = "Oct 21 2026 06:24:49 (1792589089)"
BINARY = (  # what each file's head says of the library
    f"Binary: Built on {BUILT}",
    "Binary: Built at release@builder.example:/build/libtpu     ",  # padded with blanks, as in the field
    "Binary: Built for gcc-4.X.Y-crosstool-v18-llvm-grtev4-k8.k8",
)


def prefix(severity: str, now: float, thread: int, source: str) -> str:
    """What stands before a record's text: severity, local date and time without year or zone, thread, file:line."""
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    microseconds = int(now % 1 * 1_000_000)
    return f"{severity}{stamp}.{microseconds:06d} {thread:>7} {source}] "


@dataclass(slots=True)
class _File:
    descriptor: int
    stamp: str
    size: int = 0
    pending: bytearray = field(default_factory=bytearray)

    def append(self, data: bytes) -> None:
        self.pending += data
        self.size += len(data)
        whole = len(self.pending) // BUFFER_BYTES * BUFFER_BYTES
        self._write(whole)

    def flush(self) -> None:
        self._write(len(self.pending))

    def _write(self, count: int) -> None:
        while count > 0:
            written = os.write(self.descriptor, self.pending[:count])
            del self.pending[:written]
            count -= written


class GlogFiles:
    """The log files of one process.

    A record stands in the file of its own severity and in those of all lower ones. A file is created by the first
    record that belongs into it, together with a link `tpu_driver.SEVERITY` that replaces an existing one.
    """

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        pid: int | None = None,
        host: str = "",
        user: str = "",
        rotate_at: int = ROTATE_BYTES,
        minimum: str = "I",
        buffered: bool = True,
    ) -> None:
        """By default of this process. `minimum` is TPU_MIN_LOG_LEVEL as a severity letter.

        Not `buffered` is what `--logbuflevel=-1` does: INFO reaches the disk at once too.
        """
        self.directory = directory
        self.clock = clock
        self.pid = os.getpid() if pid is None else pid
        self.host = host or socket.gethostname()
        self.user = user or getpass.getuser()
        self.rotate_at = rotate_at
        self.minimum = minimum
        self.buffered = buffered
        self._files: dict[str, _File] = {}

    def write(self, severity: str, record: str) -> None:
        """Add a record (prefix and text, no newline at its end) to every file that it belongs into.

        A record above INFO is flushed at once, everywhere; an INFO record waits for its block to fill.
        """
        data = record.encode()[:RECORD_BYTES] + b"\n"
        for letter in self._wanted(severity):
            file = self._file(letter)
            file.append(data)
            if severity != "I" or not self.buffered:
                file.flush()

    def path(self, severity: str) -> Path:
        """The file that records of this severity go to now; it must have been opened."""
        return self.directory / self._name(severity, self._files[severity].stamp)

    def flush(self) -> None:
        """Put everything that is waiting on the disk."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """End as an orderly process does: flush, then close."""
        self.flush()
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    def _wanted(self, severity: str) -> str:
        return LETTERS[LETTERS.index(self.minimum) : LETTERS.index(severity) + 1]

    def _file(self, severity: str) -> _File:
        file = self._files.get(severity)
        if file is not None and file.size < self.rotate_at:
            return file
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self.clock.time()))
        if file is not None:
            if file.stamp == stamp:
                return file  # the name is taken until the next second: a fast writer overshoots its limit by far
            file.flush()
            os.close(file.descriptor)
        self._files[severity] = file = self._create(severity, stamp)
        return file

    def _create(self, severity: str, stamp: str) -> _File:
        self.directory.mkdir(parents=True, exist_ok=True)
        name = self._name(severity, stamp)
        descriptor = os.open(self.directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._point(self.directory / f"tpu_driver.{SEVERITIES[severity]}", name)
        file = _File(descriptor, stamp)
        created = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(self.clock.time()))
        lines = (
            f"Log file created at: {created}",
            f"Running on machine: {self.host}",
            *BINARY,
            "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg",
        )
        file.append("".join(f"{line}\n" for line in lines).encode())
        return file

    def _name(self, severity: str, stamp: str) -> str:
        return f"tpu_driver.{self.host}.{self.user}.log.{SEVERITIES[severity]}.{stamp}.{self.pid}"

    @staticmethod
    def _point(link: Path, name: str) -> None:
        # Unlink, then link: for a moment there is none, and under a sticky directory another user's link stays.
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(name)
        except (PermissionError, FileExistsError):
            return
