"""Recognises files that are copies of what was read under another name, as logrotate's copytruncate and cp make them.

Only text is compared: libtpu's records are distinguished by their text, wherever they stand.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from tpuwatch.logs.parse.parser import StreamKind
from tpuwatch.logs.tail.files import HEAD_BYTES, is_libtpu_name
from tpuwatch.logs.tail.followed_file import read_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.logs.tail.followed_file import FollowedFile
    from tpuwatch.model import Cursor

_NUMBERS = re.compile(r"\d+")
_MAX_HEADS = 2000
_MAX_CURSORS = 32  # of files that begin alike


class Copies:
    """Keeps how far files were read that were closed or truncated since, and compares new files with them.

    A file that took the name of the other one is no copy: the job ran again. Nor is one whose name differs in its
    numbers alone, as run-1.log and run-2.log: these are runs, or workers, that print the same. Nor is one that is too
    short to tell.
    """

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self._cursors: dict[bytes, deque[Cursor]] = {}  # by a file's first bytes, the latest last
        self.add(cursors)

    def add(self, cursors: Iterable[Cursor]) -> None:
        """Add cursors of a file that is about to be closed or was truncated."""
        for cursor in cursors:
            if not _tells(cursor):
                continue
            alike = self._cursors.pop(cursor.head, None) or deque(maxlen=_MAX_CURSORS)
            alike.append(cursor)
            self._cursors[cursor.head] = alike
            if len(self._cursors) > _MAX_HEADS:
                del self._cursors[next(iter(self._cursors))]

    def find(self, log: FollowedFile, others: Iterable[FollowedFile]) -> Cursor | None:
        """Where to go on in a file that nothing was read of; None if it is no copy. `others` are open.

        Raises OSError if a file cannot be read.
        """
        if log.file.kind is not StreamKind.TEXT or len(log.head) < HEAD_BYTES:
            return None
        cursors = list(self._cursors.get(log.head, ()))
        others = [
            other
            for other in others
            if other is not log and other.head == log.head and log.file.path not in (other.file.path, other.first_path)
            if not _of_a_series(log.file.path, other.file.path)
        ]
        for other in others:  # it may be truncated by now
            cursors += filter(_tells, other.recent)
        found = [
            (min(log.size, other.size), cursor)
            for other in others
            if not log.rewrites  # the job may have begun alike again, or its inode be that of a deleted copy
            if not other.is_new
            if (cursor := log.common_start(other)) is not None
        ]
        found += [
            (read_until(cursor), cursor)
            for cursor in cursors
            if cursor.path != log.file.path and not _of_a_series(log.file.path, cursor.path) and log.continues(cursor)
        ]
        return max(found, key=_size, default=(0, None))[1]


def _of_a_series(one: str, other: str) -> bool:
    """Whether two paths are the same but for their numbers: rotation adds to a name instead."""
    return _NUMBERS.sub("0", one) == _NUMBERS.sub("0", other)


def _tells(cursor: Cursor) -> bool:
    """Whether a copy can be known by this cursor of the original."""
    if len(cursor.head) < HEAD_BYTES or "salt" not in cursor.state:
        return False
    return not is_libtpu_name(cursor.path.rpartition("/")[2], strict=False)


def _size(found: tuple[int, Cursor]) -> int:
    """How many bytes are the same."""
    return found[0]
