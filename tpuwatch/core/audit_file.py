"""The audit file: one line of JSON for each decision, for people.

Nothing reads it to decide anything, and a failed write delays nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core.files import open_private
from tpuwatch.core.json_text import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_BYTES: Final = 8 << 20  # then audit.jsonl is renamed to audit.jsonl.1, which replaces the previous one

_log = logging.getLogger(__name__)


class AuditFile:
    """Appends to one file, also from several processes at once. Used from one thread. Never raises."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._failing = False

    def write(self, document: Mapping[str, Any]) -> None:
        """Append it as one line. A failure is logged."""
        try:
            self._append(f"{dumps(document)}\n".encode("ascii"))
        except OSError as error:
            if not self._failing:
                _log.warning(
                    "The audit %s cannot be written (%s): decisions are not recorded. Check the owner and the free "
                    "space of its directory.",
                    self.path,
                    error.strerror,
                )
            self._failing = True
        else:
            if self._failing:
                _log.warning("The audit %s is written again; decisions in between are missing.", self.path)
            self._failing = False

    def _append(self, line: bytes) -> None:
        if not self._try_append(line, may_rotate=True):
            self._try_append(line, may_rotate=False)

    def _try_append(self, line: bytes, *, may_rotate: bool) -> bool:
        """Append it in one write, so that lines of several processes do not mix. False if it was rotated instead."""
        descriptor = open_private(self.path, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            if may_rotate and size and size + len(line) > self._max_bytes and self._rotate(descriptor):
                return False
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # the disk was full in the middle of the last one
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        return True

    def _rotate(self, descriptor: int) -> bool:
        """Rename the file, unless another process is doing so. Whether this process did."""
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when it is closed
            if os.path.samestat(os.fstat(descriptor), self.path.lstat()):
                self.path.replace(f"{self.path}.1")
            return True
        return False
