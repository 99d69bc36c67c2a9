"""A whole text at once, through the parser and the fold: a libtpu log, a job's output, a pasted traceback."""

from __future__ import annotations

from tpuwatch.diagnose import RecognisedRecord, fold, stream_kind
from tpuwatch.logs.line_breaks import over_lines
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.parse.text_kind import WholeText
from tpuwatch.model.events import Finding


def findings_in(data: bytes, scanner: Scanner, name: str, now: float = 0.0) -> list[Finding]:
    """Its findings, in the order in which to act. Years that it lacks are guessed by `now`."""
    return fold(RecognisedRecord.from_match(match, name, now) for match in matches_in(data, scanner, name, now))


def matches_in(data: bytes, scanner: Scanner, name: str, now: float = 0.0) -> list[Match]:
    """All that the rules recognise in it, marks among it."""

    def parsed(text: bytes) -> list[Match]:
        parser = LogParser(scanner, stream_kind(name, text), now=now, count_lines=True)
        return [*parser.feed(text), *parser.finish()]

    matches, hidden = over_lines(data, parsed(data), parsed)
    return list(filter(WholeText(data).tells, matches + hidden))
