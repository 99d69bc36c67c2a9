"""Lines of a storm, taken together: records of known shapes in a row, and what comes of all without looking at each.

All lines of a shape have the same length, and the same fields in the same places. So a block of them is split and
sorted by shape at once. The last line of a shape is a match; those before it are its repeats, of which only the keys
are made. They give the matches that they stand for when these are asked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.logs.parse.frame import author_of
from tpuwatch.logs.parse.match import KEYED_TEXT
from tpuwatch.logs.rules.digits import shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpuwatch.logs.parse.frame import HeaderPlaces
    from tpuwatch.logs.parse.known_lines import KnownLine
    from tpuwatch.logs.parse.match import Match

LEAST: Final = 8  # lines in a run, and of a shape in it: fewer are matches of their own
_WINDOWS: Final = (4 << 10, 32 << 10, 256 << 10)  # bytes that are split at once: the next if all lines are known
_MICROSECONDS: Final = 6  # digits of a second; with more, a float near the next second is rounded up


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A shape of lines that are records, and what comes of each."""

    known: KnownLine
    places: HeaderPlaces
    message: int  # where it begins

    @classmethod
    def of(cls, known: KnownLine, places: HeaderPlaces | None, message: int) -> Form | None:
        """The form of lines of which that is known; None if each has to be looked at."""
        if places is None or places.digits > _MICROSECONDS or not known.may_repeat:
            return None
        return cls(known, places, message)

    def goes_before(self, following: Form) -> bool:
        """Whether a record of this form ends where one of the other begins: a report, where its literal is repeated."""
        return self.known.report is None or self.known.report in following.known.literals


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """The records before a match that differ from it in digits alone: its cause, remedy and author are theirs."""

    name: str  # the rule's
    places: HeaderPlaces
    message: int  # where it begins in a line
    lines: Sequence[bytes]  # without newlines
    offsets: Sequence[int]  # of the lines in the stream
    match_of: Callable[[bytes, int], Match]  # the match of a line and its offset

    def __len__(self) -> int:
        return len(self.lines)

    def matches(self, last: int | None = None) -> Iterator[Match]:
        """The matches that these stand for, or the last so many of them, in order."""
        first = 0 if last is None else max(0, len(self) - last)
        return map(self.match_of, self.lines[first:], self.offsets[first:])

    def keys(self) -> list[bytes]:
        """The keys of these matches, in order."""
        start, stop, message = self.places.start, self.places.stop, self.message
        first, last, end = self.places.date, self.places.fraction, self.message + KEYED_TEXT
        tail = b"\0" + self.name.encode()
        blake2b, keys = hashlib.blake2b, list[bytes]()
        seconds: dict[bytes, bytes] = {}
        for line in self.lines:
            second = seconds.get(line[first:last])
            if second is None:
                second = seconds[line[first:last]] = self.places.second(line).to_bytes(4, "big")
            record = line[start:stop] + b"\0" + line[message:end] + tail
            keys.append(second + blake2b(record, digest_size=12).digest())
        return keys


class Group(NamedTuple):
    """The lines of a run that are of one form and one author, and their offsets."""

    form: Form
    lines: list[bytes]
    offsets: list[int]


class RepeatRun(NamedTuple):
    """Lines of known forms, one after the other."""

    groups: list[Group]  # by where they end
    stop: int  # where the next line begins


def find_run(
    data: bytes, start: int, end: int, forms: Mapping[bytes, Form], begins_record: Callable[[int], bool]
) -> RepeatRun | None:
    """The run that begins at `start`; None if it is short.

    Its last line is followed by one that begins a record, as `begins_record` says of a position.
    """
    known, block = list[Form](), b""
    for size in _WINDOWS:
        block = data[start : min(start + size, end)]
        found = list(map(forms.get, shape(block).split(b"\n")[:-1]))
        count = found.index(None) if None in found else len(found)
        known = [form for form in found[:count] if form is not None]
        if count < len(found) or start + len(block) >= end:
            break
    if len(known) < LEAST:
        return None
    lines = block.split(b"\n", len(known))[: len(known)]
    if not all(one.goes_before(other) for one, other in set(pairwise(known))):
        breaks = (number for number, (one, other) in enumerate(pairwise(known)) if not one.goes_before(other))
        del known[next(breaks) :]
    stop = start + sum(map(len, lines[: len(known)])) + len(known)
    if known and (known[-1].known.report is not None or stop >= end or not begins_record(stop)):
        stop -= len(lines[len(known) - 1]) + 1
        del known[-1]
    return RepeatRun(_groups(known, lines, start), stop) if len(known) >= LEAST else None


def _groups(known: Sequence[Form], lines: Sequence[bytes], start: int) -> list[Group]:
    groups: dict[tuple[Form, str], Group] = {}
    authors: dict[bytes, str] = {}  # by what is before a header
    for form, line in zip(known, lines, strict=False):
        author = ""
        if before := line[: form.places.start]:
            known_author = authors.get(before)
            author = authors[before] = author_of(line, 0) if known_author is None else known_author
        group = groups.get((form, author))
        if group is None:
            group = groups[form, author] = Group(form, [], [])
        group.lines.append(line)
        group.offsets.append(start)
        start += len(line) + 1
    return sorted(groups.values(), key=lambda group: group.offsets[-1])
