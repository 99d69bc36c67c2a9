"""Lines of a storm, taken together: records of known shapes in a row, and what comes of all without looking at each.

All lines of a shape have the same length, and the same fields in the same places. So a block of them is split and
sorted by shape at once. The last line of a shape is a match; those before it are its repeats, of which only the keys
are made. They give the matches that they stand for when these are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.logs.rules.digits import shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from tpuwatch.logs.parse.known_lines import KnownLine
    from tpuwatch.logs.parse.match import Match

LEAST: Final = 8  # lines in a run, and of a shape in it: fewer are matches of their own
_WINDOWS: Final = (4 << 10, 32 << 10, 256 << 10)  # bytes that are split at once: the next if all lines are known


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """The records before a match that differ from it in digits alone: its cause, remedy and author are theirs."""

    lines: Sequence[bytes]  # without newlines
    offsets: Sequence[int]  # of the lines in the stream
    match_of: Callable[[bytes, int], Match]  # the match of a line and its offset
    keys_of: Callable[[Sequence[bytes], Sequence[int]], list[bytes]]  # of these matches
    values_of: Callable[[Sequence[bytes]], dict[str, list[Any]]]  # of each detail in these lines, as `Event.spread` has

    def __len__(self) -> int:
        return len(self.lines)

    def matches(self, last: int | None = None) -> Iterator[Match]:
        """The matches that these stand for, or the last so many of them, in order."""
        first = 0 if last is None else max(0, len(self) - last)
        return map(self.match_of, self.lines[first:], self.offsets[first:])

    def keys(self) -> list[bytes]:
        """The keys of these matches, in order."""
        return self.keys_of(self.lines, self.offsets)


class Group(NamedTuple):
    """The lines of a run that are of one form and one author, and their offsets."""

    known: KnownLine
    author: str
    lines: list[bytes]
    offsets: list[int]


class RepeatRun(NamedTuple):
    """Lines of known forms, one after the other."""

    groups: list[Group]  # by where they end
    stop: int  # where the next line begins


def find_run(
    data: bytes, start: int, end: int, known: Mapping[bytes, KnownLine], begins_record: Callable[[int], bool]
) -> RepeatRun | None:
    """The run that begins at `start`; None if it is short.

    Its last line is followed by one that begins a record, as `begins_record` says of a position.
    """
    block = b""
    found: list[KnownLine] = []
    for size in _WINDOWS:
        block = data[start : min(start + size, end)]
        each = list(map(known.get, shape(block).split(b"\n")[:-1]))
        count = each.index(None) if None in each else len(each)
        found = [one for one in each[:count] if one is not None]
        if count < len(each) or start + len(block) >= end:
            break
    if len(found) < LEAST:
        return None
    lines = block.split(b"\n", len(found))[: len(found)]
    if not all(one.goes_before(other) for one, other in set(pairwise(found))):
        breaks = (number for number, (one, other) in enumerate(pairwise(found)) if not one.goes_before(other))
        del found[next(breaks) :]
    stop = start + sum(map(len, lines[: len(found)])) + len(found)
    if found and (found[-1].report is not None or stop >= end or not begins_record(stop)):
        stop -= len(lines[len(found) - 1]) + 1
        del found[-1]
    return RepeatRun(_groups(found, lines, start), stop) if len(found) >= LEAST else None


def _groups(found: Sequence[KnownLine], lines: Sequence[bytes], start: int) -> list[Group]:
    groups: dict[tuple[KnownLine, bytes], Group] = {}
    for known, line in zip(found, lines, strict=False):
        named = [line[first:stop] for first, stop in known.places.author]
        author = b"".join(named) if named else b""
        group = groups.get((known, author))
        if group is None:
            group = groups[known, author] = Group(known, author.decode("utf-8", "replace"), [], [])
        group.lines.append(line)
        group.offsets.append(start)
        start += len(line) + 1
    return sorted(groups.values(), key=lambda group: group.offsets[-1])
