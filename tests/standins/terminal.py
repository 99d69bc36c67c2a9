"""A terminal with a program in it: a real pseudo-terminal, and the screen that its output makes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pyte

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

SECONDS = 30.0  # for anything that is waited for


class _Screen(pyte.Screen):
    """pyte's, with the sequences by which curses has a region scroll."""

    def scroll_up(self, count: int = 1) -> None:
        self._scroll(count, up=True)

    def scroll_down(self, count: int = 1) -> None:
        self._scroll(count, up=False)

    def _scroll(self, count: int, *, up: bool) -> None:
        line = self.cursor.y
        top, bottom = self.margins or (0, self.lines - 1)
        self.cursor.y = bottom if up else top
        for _ in range(count or 1):
            (self.index if up else self.reverse_index)()
        self.cursor.y = line


class _Stream(pyte.ByteStream):
    csi: ClassVar = {**pyte.ByteStream.csi, "S": "scroll_up", "T": "scroll_down"}
    events = pyte.ByteStream.events | {"scroll_up", "scroll_down"}


class Terminal:
    """Runs a command in a session of its own, whose terminal this is."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        columns: int = 80,
        lines: int = 24,
        term: str = "screen-256color",
    ) -> None:
        """`term`: its name; this one is told nothing that pyte does not obey, such as to repeat a letter."""
        self.output = b""
        self._screen = _Screen(columns, lines)
        self._stream = _Stream(self._screen)
        self._master, slave = pty.openpty()
        self.resize(columns, lines, tell=False)
        self.settings_before = termios.tcgetattr(slave)
        self._slave = slave  # kept open: what the program leaves of the settings can be read
        self.process = subprocess.Popen(
            command,
            env={**environment, "TERM": term},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def __enter__(self) -> Terminal:  # noqa: PYI034 (Python 3.10 has no Self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)
        os.close(self._master)
        os.close(self._slave)

    @property
    def text(self) -> str:
        """The screen, a line each without the spaces at its end."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def cells(self) -> Mapping[int, Mapping[int, Any]]:
        """By line and column: each has `data`, `fg`, `bold`, `reverse`."""
        return self._screen.buffer

    @property
    def settings(self) -> list[Any]:
        """The terminal's, as the program has set them."""
        return termios.tcgetattr(self._slave)

    def press(self, keys: str) -> None:
        """Keys as the terminal sends them."""
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int, *, tell: bool = True) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen.resize(lines, columns)
        if tell:
            os.killpg(self.process.pid, signal.SIGWINCH)

    def wait_for(self, shown: str | Callable[[], bool], what: str = "") -> None:
        """Read what is drawn until that text stands on the screen, or until that is so."""
        end = time.monotonic() + SECONDS
        while not (shown in self.text if isinstance(shown, str) else shown()):
            if time.monotonic() > end:
                raise AssertionError(f"no {what or shown!r} on the screen:\n{self.text}")
            self._read(0.1)

    def ended(self) -> int:
        """The exit code, once it has ended, as subprocess gives it."""
        self.wait_for(lambda: self.process.poll() is not None, "end")
        self._read(0.0)
        return int(self.process.returncode)

    def _read(self, seconds: float) -> None:
        if select.select([self._master], [], [], seconds)[0]:
            drawn = os.read(self._master, 65536)
            self.output += drawn
            self._stream.feed(drawn)
