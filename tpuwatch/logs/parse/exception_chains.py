"""Recognises an exception that is printed more than once: for each of its causes, and by each that passes it on.

Python prints the causes of an exception before it, each with a traceback. A program that logs an exception and raises
it again, a child process that ends with it and a launcher that reports it print the same line under another traceback.
An attempt that fails again does so under the same one.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.logs.rules.marks import CHAIN, PROCESS_ENDED, TRACEBACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpuwatch.logs.parse.match import Match

_GAP: Final = 256 * 1024  # bytes of others between two reports of one exception
_MAX_AUTHORS, _MAX_REPORTS = 64, 8
_MAX_FRAMES: Final = 8


@dataclass(slots=True)
class _Report:
    """An exception that a rule recognised."""

    name: str  # the cause
    key: str
    line: str  # a digest of what was printed first
    details: dict[str, Any]
    chain: int  # the author's, when it was printed last
    link: int
    frames: list[str]  # the first frames of the tracebacks that it was printed under


@dataclass(slots=True)
class _Author:
    """A process, as far as launchers' prefixes distinguish it, and the tracebacks that it prints."""

    offset: int = 0  # in the stream, of the last one
    frame: str = ""  # the first of the last traceback; empty if it is unknown
    chain: int = 0  # how many chains began
    link: int = 0  # how many exceptions followed from another one
    linked: bool = False  # what is printed now follows from what was printed before
    awaited: str = ""  # the mark that was printed last, if the traceback that it is about is still to come
    reports: list[_Report] = field(default_factory=list)


class ExceptionChains:
    """The tracebacks of one stream and what was recognised under them."""

    def __init__(self, state: Mapping[str, Sequence[Any]]) -> None:
        """`state`: what `state` returned."""
        self._authors = {name: _from_state(*saved) for name, saved in state.items()}

    def may_know(self, offset: int) -> bool:
        """Whether `first_key` has something to look at: there were tracebacks, or the text began within one."""
        return bool(self._authors) or offset <= _GAP

    def mark(self, mark: str, author: str, offset: int, frame: str) -> None:
        """The author printed one of CHAIN_MARKS at `offset`; `frame` is the first of a traceback."""
        self._forget(offset)
        one = self._authors.setdefault(author, _Author())
        one.offset = offset
        if mark != TRACEBACK:
            one.awaited = mark
            one.linked = mark == CHAIN
            one.link += one.linked
            return
        one.linked = one.awaited == CHAIN
        one.chain += not one.linked
        one.frame = f"{PROCESS_ENDED} {frame}" if one.awaited == PROCESS_ENDED else frame
        one.awaited = ""

    def first_key(self, match: Match, author: str) -> bytes | None:
        """The key of the match that reported the same exception before; None if this is the first one."""
        self._forget(match.offset)
        if match.rule.cause is None:
            return None
        one = self._authors.get(author)
        if one is None:
            if match.offset > _GAP:
                return None
            one = self._authors[author] = _Author()  # a text may begin within a traceback
        name, line = match.rule.cause.value, _digest(match.text)
        for report, own in self._known(author, name):
            own = own or report in one.reports
            if _follows(report, one, match) if own and one.linked else _is_passed_on(report, one, line, own=own):
                report.chain, report.link = one.chain, one.link
                report.frames = [*report.frames, one.frame][-_MAX_FRAMES:]
                if not own:
                    one.reports = [*one.reports, report][-_MAX_REPORTS:]
                return bytes.fromhex(report.key)
        new = _Report(name, match.key.hex(), line, match.details, one.chain, one.link, [one.frame])
        one.reports = [*one.reports, new][-_MAX_REPORTS:]
        return None

    def add(self, matches: Iterable[Match]) -> None:
        """Take matches that are no exceptions of before, in any order; of each that has repeats, the last."""
        last = [
            each
            for match in matches
            if match.time is None
            for each in (*(() if match.repeats is None else match.repeats.matches(_MAX_REPORTS)), match)
        ]
        for match in sorted(last, key=lambda match: match.offset):
            if self.may_know(match.offset):
                self.first_key(match, match.author)

    def state(self, offset: int) -> dict[str, list[Any]]:
        """What must be known to go on at `offset`, in JSON types."""
        self._forget(offset)
        return {name: list(astuple(one)) for name, one in self._authors.items()}

    def _known(self, author: str, name: str) -> Iterator[tuple[_Report, bool]]:
        """What this author reported, the last first, each with whether it is the author's own.

        A launcher without a prefix reports what its processes did too.
        """
        for known, one in self._authors.items():
            if known == author or not author:
                yield from ((report, known == author) for report in reversed(one.reports) if report.name == name)

    def _forget(self, offset: int) -> None:
        """Forget authors that have printed nothing of the kind for long."""
        old = [name for name, one in self._authors.items() if offset - one.offset > _GAP]
        for name in old + list(self._authors)[: max(0, len(self._authors) - _MAX_AUTHORS)]:
            self._authors.pop(name, None)


def agree(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether no detail has two values."""
    return all(others[name] == value for name, value in some.items() if name in others)


def _follows(report: _Report, author: _Author, match: Match) -> bool:
    """Whether an exception of the author's present chain is reported again by the one that follows from it."""
    return report.chain == author.chain and report.link < author.link and agree(report.details, match.details)


def _is_passed_on(report: _Report, author: _Author, line: str, *, own: bool) -> bool:
    """Whether the author prints, first of a chain, what was printed under another traceback.

    `own`: it printed that itself; then it has to be in the last chain.
    """
    if author.linked or report.line != line or author.frame in ("", *report.frames):
        return False
    return not own or report.chain == author.chain - 1


def _digest(text: str) -> str:
    line = text.lstrip().partition("\n")[0].rstrip()
    return hashlib.blake2b(line.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _from_state(*saved: Any) -> _Author:
    author = _Author(*saved[:-1])
    author.reports = [_Report(*report) for report in saved[-1]]
    return author
