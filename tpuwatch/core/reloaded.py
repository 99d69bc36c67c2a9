"""What is made from files and made again when one of them changes: certificates, tokens."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from tpuwatch.core.errors import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Reloaded(Generic[T]):
    """A value made from files. Thread-safe.

    Renewed files need no signal. If the value cannot be made from what they hold now, the one before
    stays in use until they change again: a certificate and its key are not replaced in one moment.
    """

    def __init__(self, paths: Sequence[Path], make: Callable[[], T]) -> None:
        """Raises the TpuwatchError that `make` raises."""
        self._paths = paths
        self._make = make
        self._lock = threading.Lock()
        self._seen = self._look()  # before they are read: a change in the meantime is noticed
        self._value = make()
        self._problem = ""

    def get(self) -> T:
        """The value by what the files hold now, or held when they were last good."""
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._renew()
            return self._value

    @property
    def problem(self) -> str:
        """Why the files as they are now are not in use: a sentence, or ""."""
        return self._problem

    def _renew(self) -> None:
        names = ", ".join(map(str, self._paths))
        try:
            self._value = self._make()
        except TpuwatchError as error:
            self._problem = f"What was read from {names} before stays in use: {error}."
            _log.warning("%s", self._problem)
        else:
            self._problem = ""
            _log.info("Read again, as they have changed: %s", names)

    def _look(self) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(map(_state, self._paths))


def _state(path: Path) -> tuple[int, ...] | None:
    """What differs when a file, or a link to it, is replaced, written or given other permissions."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
