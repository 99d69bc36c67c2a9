"""What a rule recognised in a stream: its place, text, details and key, and the records that repeat it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tpuwatch.logs.rules.catalogue import Rule

TEXT_KEPT: Final = 2000  # bytes of the matched lines that a match holds
_TEXT_SAVED: Final = 500  # bytes of the matched lines that are saved with the parser's state


@dataclass(frozen=True, slots=True)
class Match:
    """A record, or in unframed text some lines, that a rule recognised."""

    rule: Rule
    offset: int  # of the first byte in the stream
    line: int  # from 1; 0 if lines are not counted
    time: float | None
    severity: str
    thread: int | None
    text: str  # the lines that the rule's pattern matched and no others: who may see the match may not read the file
    details: dict[str, Any]
    key: bytes  # equal for each copy of the record
    author: str = ""  # in a job's output: the process that wrote it, as its launchers' prefixes name it
    again: bool = False  # an exception that was printed before in this stream: the key is that one's
    repeats: Repeats | None = None  # records before it that differ in digits alone, and are no matches of their own
    header: bytes = b""  # of the record, if it has one: what is equal in every copy of it

    def event(self, file: str, pid: int | None, observed: float, *, history: bool = False) -> Event | None:
        """The event of this match, written by process `pid` to `file` and read at `observed`; None for a mark."""
        if self.rule.cause is None:
            return None
        return Event(
            key=self.key,
            rule=self.rule.id,
            cause=self.rule.cause,
            observed=observed,
            time=self.time,
            severity=self.severity,
            pid=pid,
            file=file,
            offset=self.offset,
            text=self.text,
            details=self.details,
            history=history,
        )


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


def match_to_state(match: Match) -> dict[str, Any]:
    """A match that the parser holds back, in JSON types."""
    return {
        "rule": match.rule.id,
        "offset": match.offset,
        "line": match.line,
        "time": match.time,
        "severity": match.severity,
        "thread": match.thread,
        "text": match.text[:_TEXT_SAVED],
        "details": match.details,
        "key": match.key.hex(),
    }


def match_from_state(saved: Mapping[str, Any], rule: Rule) -> Match:
    """The match that `match_to_state` saved."""
    facts = {name: saved[name] for name in ("offset", "line", "time", "severity", "thread", "text", "details")}
    return Match(rule=rule, key=bytes.fromhex(saved["key"]), **facts)


def matched_lines(text: bytes, begin: int, end: int) -> str:
    """The lines of `text` that hold a match, cut."""
    found = text[begin:end]
    first = text.rfind(b"\n", 0, end - len(found.lstrip())) + 1
    last = text.find(b"\n", begin + len(found.rstrip()))
    last = len(text) if last < 0 else last
    return text[first : min(last, first + TEXT_KEPT)].decode("utf-8", "replace").rstrip()
