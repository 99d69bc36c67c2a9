"""The copy of a stream for the watcher, which may be slow, hang or die: nothing ever waits for it.

Pieces are handed over in memory, bounded, and a thread writes them to a file without a name, from which they are read.
The file's pages are memory as long as the machine has some to spare, and its disk space is given back as it is read.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MEMORY_BYTES = 64 << 20  # of pieces that are not in the file yet
FILE_BYTES = 4 << 30  # that are in the file and not read yet
_FREE_SHARE = 4  # one part in so many of the disk's free space, if that is less
_LOOK_BYTES = 16 << 20  # the disk is looked at after so many


class OutputBuffer:
    """The output of one stream, in order. `file` is a descriptor of it; `lost` counts bytes that had no room."""

    def __init__(
        self, file: int, taken: Callable[[], int], *, memory_bytes: int = MEMORY_BYTES, file_bytes: int = FILE_BYTES
    ) -> None:
        """`taken`: how many bytes of the file its reader is done with."""
        self.file = file
        self.lost = 0
        self._taken = taken
        self._memory_bytes, self._file_bytes = memory_bytes, file_bytes
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._gap = False  # something was left out before what comes next
        self._written = 0
        self._room = 0  # bytes to be written before the disk is looked at again
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True, name="buffer")

    def start(self) -> None:
        """Begin to write what is handed over. Where there can be no further thread that is done at the end."""
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def add(self, data: bytes) -> None:
        """Add a piece. Never blocks: where there is no room, the oldest pieces are left out."""
        with self._changed:
            if self._closed:
                return
            self._pieces.append(data)
            self._held += len(data)
            while self._held > self._memory_bytes and len(self._pieces) > 1:
                self._lose(self._pieces.popleft())
            self._changed.notify()

    def close(self, seconds: float) -> None:
        """Nothing more comes: wait until all is written, but not longer than that."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is None:  # it could not be started
            self._run()
        else:
            self._thread.join(seconds)
        with self._changed:
            while self._pieces:
                self._lose(self._pieces.popleft())

    def drop(self) -> None:
        """No reader is left: drop all, and accept nothing."""
        with self._changed:
            self._closed = True
            self._pieces.clear()
            self._held = 0
            self._changed.notify()

    def _lose(self, piece: bytes) -> None:
        self._held -= len(piece)
        self.lost += len(piece)
        self._gap = True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._pieces or self._closed):
                    self._changed.wait()
                if not self._pieces:
                    return
                piece = self._pieces.popleft()
                self._held -= len(piece)
                if not self._has_room(len(piece)):
                    self._held += len(piece)
                    self._lose(piece)
                    continue
                gap, self._gap = self._gap, False
            try:
                self._write(b"\n" + piece if gap else piece)  # the lines beside a gap are two
            except OSError:
                with self._changed:
                    self._held += len(piece)
                    self._lose(piece)

    def _has_room(self, size: int) -> bool:
        """Whether the file may grow: by what its reader is behind, and what the disk has."""
        if self._room < size:
            limit = min(self._file_bytes, _disk_bytes(self.file))
            self._room = min(_LOOK_BYTES, limit - (self._written - self._taken()))
        if self._room < size:
            return False
        self._room -= size
        return True

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            size = os.pwrite(self.file, left, self._written)
            self._written += size
            left = left[size:]


def open_file(environ: Mapping[str, str]) -> tuple[int, int]:
    """A file without a name to read and write, and how large it may become. Raises OSError.

    It is in memory where no disk has room: a full disk may be what the output is about.
    """
    for directory in (environ.get("TMPDIR"), "/var/tmp", "/tmp"):  # noqa: S108 (the file has no name)
        if directory:
            with contextlib.suppress(OSError):
                file = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
                if _disk_bytes(file) >= MEMORY_BYTES:
                    return file, FILE_BYTES
                os.close(file)
    return os.memfd_create("tpuwatch-exec"), MEMORY_BYTES


def _disk_bytes(file: int) -> int:
    """What a file may take of its disk: a share of what is free."""
    disk = os.fstatvfs(file)
    # Memory that no one has set a limit to reports no blocks at all.
    return disk.f_bavail * disk.f_frsize // _FREE_SHARE if disk.f_blocks else FILE_BYTES
