"""Remembers what came of the lines of one stream, by their shape: in most logs few shapes come again and again.

A line of which nothing came, and of whose shape nothing came before, is passed over. Of a shape of which the same
faults came again and again, the lines are counted, and the last one of a block is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.logs.rules.shape import shape

if TYPE_CHECKING:
    from tpuwatch.logs.rules.catalogue import Rule

_MOST: Final = 1024  # shapes that were seen lately, and as many before them
_MAX_LINE: Final = 2048  # bytes
TWICE: Final = 2  # lines, after which it is believed that nothing comes of a shape
OFTEN: Final = 16  # and that the same faults come of it, or in a block the same where more than the shape decides


@dataclass(slots=True, eq=False)
class Shape:
    """What came of the lines of one shape that were read."""

    found: frozenset[Rule] | None = frozenset()  # matches of these rules; None: not of each line the same
    read: int = 0  # lines
    block: int = 0  # of which block, where more than the shape decides what comes of a line; 0: of all
    framed: bool = False  # whether they have a header
    looks_around: bool = False  # what comes of a line may depend on other lines
    told_by_digits: frozenset[Rule] = frozenset()  # of the rules that tell its lines apart those that match them

    def is_sure(self, block: int) -> bool:
        """Whether enough lines were read to believe that the same comes of another one in this block."""
        return (self.block == block and self.read >= OFTEN) if self.block else self.read >= TWICE

    def add(self, found: frozenset[Rule] | None) -> None:
        """Take what came of a line; None: something that may be another thing for another line."""
        self.found = found if not self.read or self.found == found else None
        self.read += 1

    def begin(self, block: int) -> None:
        """In each block it is looked again, until the same has come of a few lines."""
        if self.block != block:
            sure = self.found is not None and self.read >= OFTEN
            self.read, self.block = (OFTEN - TWICE if sure else 0), block
            self.found = self.found if sure else frozenset()


class Shapes:
    """The shapes of one stream. Those that were not seen for long are forgotten."""

    def __init__(self) -> None:
        self._lately: dict[bytes, Shape] = {}
        self._before: dict[bytes, Shape] = {}

    def get(self, form: bytes) -> Shape | None:
        """What is known of lines of a shape; None if that is nothing."""
        return self._lately.get(form)

    def of(self, line: bytes) -> Shape | None:
        """What is known of lines like this one, to be added to; None if it is never remembered."""
        if len(line) > _MAX_LINE or not (form := shape(line)):
            return None
        known = self._lately.get(form)
        if known is None:
            known = self._before.get(form) or Shape()
            if len(self._lately) >= _MOST:
                self._before, self._lately = self._lately, {}
            self._lately[form] = known
        return known
