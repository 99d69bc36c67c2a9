"""A file of decisions, a line of JSON each, for people who ask afterwards.

Nothing reads it to decide anything, and a disk on which it cannot be written holds nothing up.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.jsontext import dumps
from tpuwatch.privatefile import open_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_BYTES: Final = 8 << 20  # then audit.jsonl becomes audit.jsonl.1, and the one before that goes

_log = logging.getLogger(__name__)


class AuditFile:
    """Appends to one file, which several processes may do at a time. Used from one thread. Never raises."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._failing = False

    def write(self, document: Mapping[str, Any]) -> None:
        """Write it as one line. If that fails, it is told in tpuwatch's own log."""
        try:
            self._append(f"{dumps(document)}\n".encode("ascii"))
        except OSError as error:
            if not self._failing:
                _log.warning(
                    "The audit %s cannot be written (%s): what is decided is not noted there. Check its directory's "
                    "owner and free space.",
                    self.path,
                    error.strerror,
                )
            self._failing = True
        else:
            if self._failing:
                _log.warning("The audit %s is written again; decisions in between are not in it.", self.path)
            self._failing = False

    def _append(self, line: bytes) -> None:
        if not self._appended(line, may_rotate=True):
            self._appended(line, may_rotate=False)

    def _appended(self, line: bytes, *, may_rotate: bool) -> bool:
        """Write it, in one write: lines of several processes do not mix. False: the file was set aside instead."""
        descriptor = open_private(self.path, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            if may_rotate and size and size + len(line) > self._max_bytes and self._rotated(descriptor):
                return False
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # the disk was full in the middle of the last one
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        return True

    def _rotated(self, descriptor: int) -> bool:
        """Set the file aside, unless another process does so."""
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # freed when it is closed
            if os.path.samestat(os.fstat(descriptor), self.path.lstat()):
                self.path.replace(f"{self.path}.1")
            return True
        return False
