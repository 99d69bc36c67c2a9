"""The HBM that libtpu's compiler has assigned, from its log: known in the first seconds of a compilation, while to
make the code takes minutes.

What is read was seen with libtpu 0.0.51, for each generation: for each module the bytes by each of up to four
strategies, of which the compiler takes the least; modules for the SparseCore come before the program's own; a line of
the next stage follows only where the memory suffices. A libtpu that writes none of it is waited for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tpuwatch.program.output import logs_of

if TYPE_CHECKING:
    from pathlib import Path

VMODULE: Final = "TPU_VMODULE"
MODULES: Final = "buffer_assignment=1,deepsea_compiler_base=1"  # of the compiler, that are to write more
_LINES: Final = re.compile(
    rb"(?P<begin>Assigning buffers to module)"
    rb"|memory limit for color 0 \((?P<bytes>[0-9]{1,18}) bytes"
    rb"|(?P<next>Global Core Count|The input HBM logging buffer size)"
)


class AssignmentLog:
    """The log of one compilation after another, read as it grows."""

    def __init__(self, directory: Path) -> None:
        """`directory`: libtpu's, for its logs alone."""
        self._directory = directory
        self.begin()

    def begin(self) -> None:
        """The next compilation begins: what is there already is of others."""
        self.since = {path: path.stat().st_size for path in logs_of(self._directory)}
        self._read = dict(self.since)
        self._least: int | None = None
        self.needed_bytes: int | None = None  # by the last assignment that is done, whether there is so much or not
        self.accepted = False  # there is

    def look(self) -> None:
        """Read what has been written since."""
        for path in logs_of(self._directory):
            begin = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(begin)
                lines = file.read()
            lines = lines[: lines.rfind(b"\n") + 1]
            self._read[path] = begin + len(lines)
            for found in _LINES.finditer(lines):
                self._take(found)

    def _take(self, found: re.Match[bytes]) -> None:
        if found["begin"]:
            self._least = None
        elif found["bytes"]:
            size = int(found["bytes"])
            self._least = self.needed_bytes = size if self._least is None else min(size, self._least)
        elif self._least is not None:
            self.accepted = True
