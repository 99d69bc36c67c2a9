"""What the watcher is given, and the numbers that it and the process that serves the command both see."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SLOTS: Final = 8
_LOGS: Final = 7  # the slot that holds how many logs there are, and one, after a look when the command had ended
_SLOT = struct.Struct("=Q")


@dataclass(frozen=True, slots=True)
class Text:
    """Something to be read: output of the command's."""

    name: str  # as it is shown
    file: int  # a descriptor
    start: int  # offset
    copy: bool  # a copy without other readers, whose space is given back


@dataclass(frozen=True, slots=True)
class WatcherJob:
    """What the watcher needs to know."""

    launch: str  # the launch's id
    pid: int  # of the command
    started: float  # seconds since the epoch
    environ: Mapping[str, str]  # the command's
    config: Path | None  # the configuration's file, where one was named
    texts: tuple[Text, ...]


class WatcherCounters:
    """Numbers that both processes see: how much was done at all, and how far each text was read."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _SLOT.size * _SLOTS)

    def get(self, slot: int) -> int:
        value: int = _SLOT.unpack_from(self._shared, slot * _SLOT.size)[0]
        return value

    def put(self, slot: int, value: int) -> None:
        _SLOT.pack_into(self._shared, slot * _SLOT.size, value)

    def read_offset(self, text: int) -> int:
        """Up to which offset the text was read and is done with."""
        return self.get(1 + text)

    def set_read_offset(self, text: int, offset: int) -> None:
        self.put(1 + text, offset)

    def report_logs(self, number: int) -> None:
        """The command has ended, and so many of its logs are known since."""
        self.put(_LOGS, number + 1)

    @property
    def logs(self) -> int | None:
        """As reported; None before that."""
        return self.get(_LOGS) - 1 if self.get(_LOGS) else None

    def advance(self) -> None:
        """Something was done."""
        self.put(0, self.get(0) + 1)
