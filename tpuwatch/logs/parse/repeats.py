"""Lines of a storm, taken together: records of known shapes in a row, and what comes of all without looking at each.

All lines of a shape have the same length, and the same fields in the same places. So a block of them is split and
sorted by shape at once. Of a shape that is a fault the last line is a match; those before it are its repeats, of which
only the keys are made. They give the matches that they stand for when these are asked for. Between them there may be
lines of which nothing comes, and marks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate, compress, count, pairwise, repeat
from operator import add, is_, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.logs.parse.records import AHEAD_BYTES, AHEAD_LINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from tpuwatch.logs.parse.known_lines import KnownLine, KnownLines
    from tpuwatch.logs.parse.match import Match
    from tpuwatch.logs.parse.records import RecordBuffer

LEAST: Final = 8  # faults in a run, and of a shape in it: fewer are matches of their own
_WINDOWS: Final = (16 << 10, 128 << 10, 1 << 20)  # bytes that are split at once: the next if all lines are known
_SPARSE: Final = 32 << 10  # bytes: a run has a fault in so many at least, or a plain scan is faster


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """The records before a match that differ from it in digits alone: its cause, remedy and author are theirs."""

    lines: Sequence[bytes]  # without newlines
    offsets: Sequence[int]  # of the lines in the stream
    match_of: Callable[[bytes, int], Match]  # the match of a line and its offset
    keys_of: Callable[[Sequence[bytes], Sequence[int]], list[bytes]]  # of these matches
    values_of: Callable[[Sequence[bytes]], dict[str, list[Any]]]  # of each detail in these lines, as `Event.spread` has
    header: slice | None  # where it is in each line, if they have one

    def __len__(self) -> int:
        return len(self.lines)

    def matches(self, last: int | None = None) -> Iterator[Match]:
        """The matches that these stand for, or the last so many of them, in order."""
        first = 0 if last is None else max(0, len(self) - last)
        return map(self.match_of, self.lines[first:], self.offsets[first:])

    def after(self, number: int) -> Repeats:
        """These without the first so many."""
        return replace(self, lines=self.lines[number:], offsets=self.offsets[number:])

    def keys(self) -> list[bytes]:
        """The keys of these matches, in order."""
        return self.keys_of(self.lines, self.offsets)

    def headers(self) -> list[bytes]:
        """The headers of these matches, in order; none if they have none."""
        return [] if self.header is None else list(map(itemgetter(self.header), self.lines))


class Group(NamedTuple):
    """The lines of a run that are faults, of one shape and one author, and their offsets."""

    known: KnownLine
    author: str
    lines: Sequence[bytes]
    offsets: Sequence[int]


class MarkedLine(NamedTuple):
    """A line of a run that has marks."""

    offset: int
    known: KnownLine
    line: bytes


class RepeatRun(NamedTuple):
    """Lines of known shapes, one after the other, `start` and `stop` as positions, others as offsets in the stream."""

    start: int
    stop: int  # where the next line begins
    groups: list[Group]  # by where they end
    marks: list[MarkedLine]


def find_run(buffer: RecordBuffer, known: KnownLines, start: int, end: int) -> RepeatRun | None:
    """The run that begins at the position `start`; None if there are few faults in it.

    Nothing that follows changes what comes of its last line.
    """
    found: list[KnownLine] = []
    lines: list[bytes] = []
    for size in _WINDOWS:
        block = buffer.data[start : min(start + size, end)]
        found, lines = known.each(block)
        if len(found) < block.count(b"\n") or start + len(block) >= end:
            break
        if _SPARSE * _faults(found) < len(block):
            return None
    _cut(found, lines, known)
    if found and not found[0].begins and not _follows_known(buffer, known, start):
        return None
    stop = start + sum(map(len, lines)) + len(lines)
    if found and not (stop < end and known.ends(found[-1], lines[-1], buffer.line_at(stop))):
        _cut_open(found, lines)
        stop = start + sum(map(len, lines)) + len(lines)
    if _faults(found) < LEAST:
        return None
    offsets = list(map(add, accumulate(map(len, lines), initial=buffer.offset + start), count()))
    shapes = dict.fromkeys(found)
    groups = [group for one in shapes if one.faults for group in _groups(one, found, lines, offsets)]
    marked = {one for one in shapes if one.marks}
    marks = list(compress(map(MarkedLine, offsets, found, lines), map(marked.__contains__, found))) if marked else []
    return RepeatRun(start, stop, sorted(groups, key=lambda group: group.offsets[-1]), marks)


def _faults(found: Iterable[KnownLine]) -> int:
    return sum(number for one, number in Counter(found).items() if one.faults)


def _cut(found: list[KnownLine], lines: list[bytes], known: KnownLines) -> None:
    """Leave out all from the first line on that may go on in the next one."""
    shapes = dict.fromkeys(found)
    if not all(one.begins for one in shapes):
        dependent = {one for one in shapes if not one.is_framed and not known.is_independent(one)}
        if dependent:
            first = next(number for number, one in enumerate(found) if one in dependent)
            del found[first:], lines[first:]
    doubtful = {pair for pair in set(pairwise(found)) if not pair[0].goes_before(pair[1])}
    if not doubtful:
        return
    for number, pair in enumerate(pairwise(found)):
        if pair in doubtful and not known.ends(pair[0], lines[number], lines[number + 1]):
            del found[number:], lines[number:]
            break


def _cut_open(found: list[KnownLine], lines: list[bytes]) -> None:
    """Leave out the last lines: a record that may hold them may also hold what follows."""
    end, following = len(found), 0
    while end:
        if not found[end - 1].is_framed and (len(found) - end > AHEAD_LINES or following > AHEAD_BYTES):
            break
        end -= 1
        following += len(lines[end]) + 1
        if found[end].begins:
            break
    del found[end:], lines[end:]


def _follows_known(buffer: RecordBuffer, known: KnownLines, start: int) -> bool:
    """Whether what comes of a line at `start`, which begins no record, does not depend on what is before."""
    before = buffer.lines_before(start)
    if before is None:
        return False
    shapes = map(known.get, before)
    return all(one is not None and known.is_independent(one) for one in shapes)


def _groups(
    known: KnownLine, found: Sequence[KnownLine], lines: Sequence[bytes], offsets: Sequence[int]
) -> Iterator[Group]:
    """The lines of one shape, by their authors. No line is looked at in Python where they have the same one."""
    wanted = list(map(is_, found, repeat(known)))
    lines, offsets = list(compress(lines, wanted)), list(compress(offsets, wanted))
    names = [list(map(itemgetter(slice(*place)), lines)) for place in known.places.author]
    authors = list(map(b"".join, zip(*names, strict=True))) if len(names) > 1 else names[0] if names else []
    if len(distinct := dict.fromkeys(authors)) < 2:
        yield Group(known, b"".join(distinct).decode("utf-8", "replace"), lines, offsets)
        return
    places: dict[bytes, list[int]] = {author: [] for author in distinct}
    for place, author in enumerate(authors):
        places[author].append(place)
    for author, of_it in places.items():
        name = author.decode("utf-8", "replace")
        yield Group(known, name, [lines[place] for place in of_it], [offsets[place] for place in of_it])
