"""Parses a job's output that grows: what is recognised by its family alone gives way to what is said exactly.

A general rule's match waits until what follows it has been read, or the stream is quiet. Until then the place to go on
from after an interruption is before it, so that it is found again.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.logs.parse.line_kind import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpuwatch.logs.parse.match import Match
    from tpuwatch.logs.parse.parser import LogParser

_BEFORE, _BEHIND = 400, 1200  # bytes around a general fault in which a specific one reports the same failure
_EXACT: Final = "exact"  # in a state: where the last specific faults are
_MOST: Final = 32  # of them that are saved


def any_near(places: Sequence[int], offset: int) -> bool:
    """Whether a specific fault at one of these places, in order, reports the failure of a general one at `offset`."""
    at = bisect_left(places, offset - _BEFORE)
    return at < len(places) and places[at] <= offset + _BEHIND


@dataclass(slots=True)
class _Waiting:
    """A general match, and the offset and state from which it is found again."""

    match: Match
    start: tuple[int, dict[str, Any]]


class JobOutputParser:
    """A parser of one job's output; as LogParser is used."""

    def __init__(self, parser: LogParser, state: Mapping[str, Any]) -> None:
        """`state`: as `parser` was given it."""
        self._parser = parser
        self._waiting: list[_Waiting] = []
        self._exact: list[int] = list(state.get(_EXACT, ()))  # where specific faults are that may still matter

    @property
    def open(self) -> bool:
        """The last record may hold a match, or a match waits: call settle() when the stream is quiet."""
        return self._parser.open or bool(self._waiting)

    @property
    def offset(self) -> int:
        """All bytes below are processed: with state(), a new parser may start here."""
        return self._waiting[0].start[0] if self._waiting else self._parser.offset

    def feed(self, data: bytes) -> list[Match]:
        """Take the next bytes; returns the matches that are final now."""
        start = self._here()
        return self._take(self._parser.feed(data), start)

    def settle(self) -> list[Match]:
        """The stream is quiet: return the matches of the last record too, as far as its lines are complete."""
        start = self._here()
        return self._take(self._parser.settle(), start, quiet=True)

    def finish(self) -> list[Match]:
        """The stream has ended: return all matches, including those of a last line without a newline."""
        start = self._here()
        return self._take(self._parser.finish(), start, quiet=True)

    def state(self) -> dict[str, Any]:
        """What a parser started at `offset` must know; small, in JSON types."""
        return dict(self._waiting[0].start[1]) if self._waiting else self._state()

    def take_records(self) -> dict[str, int]:
        """Records of the file's own severity since the last call."""
        return self._parser.take_records()

    def _here(self) -> tuple[int, dict[str, Any]]:
        return self._parser.offset, self._state()

    def _state(self) -> dict[str, Any]:
        state = self._parser.state()
        return {**state, _EXACT: self._exact[-_MOST:]} if self._exact else state

    def _take(self, matches: Iterable[Match], start: tuple[int, dict[str, Any]], *, quiet: bool = False) -> list[Match]:
        given: list[Match] = []
        for match in matches:
            if not match.rule.general:
                given.append(match)
                if match.rule.cause is not None:
                    self._exact += _places(match)
            elif match.time is not None or kind_of(match.text, match.rule).reports(of_job=True):
                self._waiting.append(_Waiting(match, start))
        self._exact.sort()
        read = self._parser.done
        while self._waiting and (quiet or self._waiting[0].match.offset + _BEHIND < read):
            match = self._waiting.pop(0).match
            if not (self._exact and all(any_near(self._exact, place) for place in _places(match))):
                given.append(match)
        first = min([read, *(place for one in self._waiting for place in _places(one.match)[:1])])
        del self._exact[: bisect_left(self._exact, first - _BEFORE)]
        return given


def _places(match: Match) -> list[int]:
    """Where a match is, and where its repeats are."""
    return [match.offset] if match.repeats is None else [*match.repeats.offsets, match.offset]
