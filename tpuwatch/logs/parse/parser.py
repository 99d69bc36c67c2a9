"""Parses bytes into matches: one parser per followed stream.

A parser is fed bytes, split anywhere, and returns the records that rules recognise. It holds back only what a later
byte could change: the last record and, in unframed text, a few lines of context. Everything below `offset` is
processed; `state()` is what a parser started there must know, so that a stream can be resumed after any interruption
without a match lost or doubled.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.parse import exception_chains
from tpuwatch.logs.parse.exception_chains import ExceptionChains
from tpuwatch.logs.parse.frame import Times, author_of
from tpuwatch.logs.parse.known_lines import KnownLines
from tpuwatch.logs.parse.line_counter import LineCounter, RecordCounter
from tpuwatch.logs.parse.match import TEXT_KEPT, Match, framed_key, matched_lines, unframed_key
from tpuwatch.logs.parse.oom_kills import OomKills
from tpuwatch.logs.parse.records import MAX_RECORD, RecordBuffer
from tpuwatch.logs.parse.scan import StreamScan
from tpuwatch.logs.parse.storm import Storm
from tpuwatch.logs.parse.tentative import TentativeMatches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tpuwatch.logs.parse.frame import Header
    from tpuwatch.logs.parse.records import CleanText, LogRecord
    from tpuwatch.logs.parse.repeats import RepeatRun
    from tpuwatch.logs.parse.scan import Hit, Scanner
    from tpuwatch.logs.rules.catalogue import Rule

_CACHED = 64  # records whose matches are cached
_MISSING: tuple[str, dict[str, Any]] = ("", {})
_REPORT_GAP = 64 * 1024  # bytes that other streams may put between the parts of one report
_FIRST = 32 * 1024  # bytes of a stream that show whether it begins with a storm: more is not searched before
_PIECE = 64 * 1024  # bytes that are searched before it is tried again to take known lines together
_TRIES = 8  # known lines, after which it is tried to take those that follow together


class StreamKind(Enum):
    """The kind of a stream: a tpu_driver.* file of libtpu, or any other text (a job's output, a paste)."""

    LIBTPU = "libtpu"
    TEXT = "text"


@dataclass(slots=True)
class _Walk:
    """The way through the complete lines of a buffer: what is left to look at. Positions are those in the buffer."""

    end: int
    matches: list[Match]  # so far
    upto: int  # all below is processed
    limit: int = 0  # up to where literals have been searched
    base: int = 0  # from where on: a record begins there
    hits: list[Hit] = field(default_factory=list)
    at: int = 0  # the next of them
    ignored: frozenset[Rule] = frozenset()  # rules whose literals may lack among them
    patterns: object = None  # the scanner's at that time
    known: int = 0  # lines
    tried: int = _TRIES  # at so many of them it is tried to take those that follow together


class LogParser:
    """Parses the bytes of one stream into matches; see the module's docstring."""

    def __init__(
        self,
        scanner: Scanner,
        kind: StreamKind,
        *,
        now: float,
        severity: str = "",
        offset: int = 0,
        state: Mapping[str, Any] | None = None,
        count_lines: bool = False,
        fold: bool = False,
    ) -> None:
        """`severity` (I, W, E, F): of the file, whose records are counted. `now`: to guess missing years.

        `fold`: of many records in a row that differ in digits alone only the last is a match, with its `repeats`.
        """
        state = state or {}
        self.open = False  # the last record may hold a match: call settle() when the stream is quiet
        self._scanner = scanner
        self._scan = StreamScan(scanner)
        self._kind = kind
        self._buffer = RecordBuffer(offset, text=kind is StreamKind.TEXT)
        self._done = max(offset, int(state.get("done", offset)))  # the literals below are processed
        self._salt = str(
            state.get("salt") or os.urandom(8).hex()
        )  # a rewritten file may have the same text at the same place
        created = state.get("created")
        self._times = Times(now, tuple(created) if created else None)
        self._tentative = TentativeMatches(state.get("pending", ()), scanner.catalogue.rules)
        self._fold = fold
        self._in_storm = False  # the last block had a run of known lines
        self._known = KnownLines(scanner, self._buffer, self._matches_in)
        self._cache: dict[tuple[Rule, bytes], tuple[str, dict[str, Any]] | None] = {}
        self._matched: Counter[Rule] = Counter()  # since the last fault, of rules of which some matches are enough
        # Those that have so many. What the parser itself needs of a job's output, libtpu does not write.
        self._enough: set[Rule] = {*scanner.chain_marks} if kind is StreamKind.LIBTPU else set()
        self._reported: dict[str, int] = {}  # by cause: the offset up to which unframed text is reported
        self._under: dict[str, int] = dict(state.get("under", {}))  # by cause: the header that it was last found under
        self._ended: dict[str, int] = dict(state.get("ended", {}))  # by cause: where its last report ended
        # Rules that the line has matched of which so far pieces were processed; None where the last line has ended.
        self._in_overlong = set[str](state["overlong"]) if "overlong" in state else None
        self._chains = ExceptionChains(state.get("chains", {}))
        self._oom_kills = OomKills(state.get("oom_kills", {}), scanner.catalogue.rules)
        self._records = RecordCounter(severity, self._done) if severity else None
        self._lines = LineCounter(4 * MAX_RECORD) if count_lines else None
        self._storm = Storm(self._known, self._buffer, self._times, self._lines, self._chains, self._salt)

    @property
    def offset(self) -> int:
        """All bytes below are processed: with state(), a new parser may start here."""
        return self._buffer.offset

    @property
    def done(self) -> int:
        """The matches that begin below are given, but for those that wait for what confirms them."""
        return self._done

    def feed(self, data: bytes) -> list[Match]:
        """Take the next bytes; returns the matches that are final now."""
        if not self._buffer.offset and len(data) > _FIRST:
            return [*self.feed(data[:_FIRST]), *self.feed(data[_FIRST:])]
        if self._lines is not None:
            self._lines.append(data)
        self._buffer.append(data)
        return self._advance(self._buffer.complete())

    def settle(self) -> list[Match]:
        """The stream is quiet: return the matches of the last record too, as far as its lines are complete."""
        matches = self._advance(self._buffer.complete(), quiet=True)
        self.open = False
        return matches + self._oom_kills.settle(ended=False)

    def finish(self) -> list[Match]:
        """The stream has ended: return all matches, including those of a last line without a newline."""
        end = len(self._buffer.data)
        matches = self._advance(end, quiet=True)
        self._buffer.drop(len(self._buffer.data))
        return matches + self._oom_kills.settle(ended=True)

    def state(self) -> dict[str, Any]:
        """What a parser started at `offset` must know; small, in JSON types."""
        state: dict[str, Any] = {"done": self._done, "salt": self._salt}
        if self._times.created:
            state["created"] = list(self._times.created)
        if ended := {name: stop for name, stop in self._ended.items() if stop > self.offset}:
            state["ended"] = ended
        if under := {name: place for name, place in self._under.items() if place >= self.offset}:
            state["under"] = under
        if chains := self._chains.state(self.offset):
            state["chains"] = chains
        if oom_kills := self._oom_kills.state():
            state["oom_kills"] = oom_kills
        if self._tentative:
            state["pending"] = self._tentative.state()
        if self._in_overlong is not None:
            state["overlong"] = sorted(self._in_overlong)
        return state

    def take_records(self) -> dict[str, int]:
        """Records of the file's own severity since the last call."""
        taken = self._records.take() if self._records is not None else 0
        return {self._records.severity: taken} if self._records is not None and taken else {}

    # -- the walk over the buffer

    def _advance(self, end: int, *, quiet: bool = False) -> list[Match]:
        buffer, matches = self._buffer, list[Match]()
        if buffer.offset == 0 and self._kind is StreamKind.LIBTPU:
            self._times.learn(buffer.data)
        done, keep = end, -1
        walk = _Walk(end, matches, self._first(end))
        self._begin(walk)
        self.open = False
        while self._is_left(walk):
            position, _, called = walk.hits[walk.at]
            if self._is_nothing(called, position, end):
                walk.at += 1
                continue
            found = self._take_known(walk, position)
            if found is None:
                record, rules, _, upto = self._gather(walk.hits, walk.at, end)
                if walk.limit < record.stop and any(rule.report for rule in rules):  # what follows may end it
                    self._scan_on(walk, end, position)
                    continue
                walk.upto = upto
                if not (record.closed or quiet):
                    done, keep, self.open = position, record.above[0] if record.above else record.start, True
                    break
                matches += self._tentative.resolve(buffer.data, buffer.offset, position)
                found = self._learn(walk, record, position, rules)
                matches += found
                if record.header is None and self._known.is_repeating(self._line_around(record, position)):
                    self._try_run(walk)
            if not found:
                self._scanner.note_fruitless()
            self._go_on(walk)
        matches += self._tentative.resolve(buffer.data, buffer.offset, done)
        self.open |= self._oom_kills.open
        if self._records is not None:
            self._records.count(buffer.data, buffer.offset, end)
        matches = self._once_a_line(matches, end)
        self._done = max(self._done, buffer.offset + done)
        buffer.drop(buffer.context(end) if keep < 0 else keep)
        return matches

    def _once_a_line(self, matches: list[Match], end: int) -> list[Match]:
        """The matches, without those of a rule that an earlier piece of the same overlong line has matched."""
        data, offset = self._buffer.data, self._buffer.offset
        if (known := self._in_overlong) is not None:
            newline = data.find(b"\n", max(0, self._done - offset), end)
            stop = offset + (newline if newline >= 0 else end)
            again = [match for match in matches if match.offset < stop and match.rule.id in known]
            known.update(match.rule.id for match in matches if match.offset < stop)
            matches = [match for match in matches if match not in again]
            if newline < 0:
                return matches
            self._in_overlong = None
        if end and not data.endswith(b"\n", 0, end):
            start = offset + data.rfind(b"\n", 0, end) + 1
            self._in_overlong = {match.rule.id for match in matches if match.offset >= start}
        return matches

    def _begin(self, walk: _Walk) -> None:
        """Find what is to be looked at. In a storm a block begins with known lines."""
        storm, self._in_storm = self._in_storm, False
        if not (storm and self._take_run(walk)):
            self._scan_on(walk, walk.end, 0)

    def _is_left(self, walk: _Walk) -> bool:
        """Whether there is a literal to look at; those up to the next run of known lines are found at once."""
        while walk.at >= len(walk.hits):
            if walk.limit >= walk.end:
                return False
            walk.upto = walk.base = max(walk.upto, walk.limit)
            if not self._take_run(walk):
                after = self._buffer.line_end(walk.upto + _PIECE, walk.end)
                self._scan_on(walk, self._storm.next(after, walk.end), walk.upto)
        return True

    def _scan_on(self, walk: _Walk, limit: int, start: int) -> None:
        """Find the literals from `start` up to `limit`. Records of known lines end there: nothing goes on from them."""
        walk.ignored, walk.patterns = frozenset(self._enough), self._scanner.patterns
        walk.limit, walk.at, base = limit, 0, walk.base
        first = max(start, self._done - self._buffer.offset)
        if first >= limit:
            walk.hits = []
            return
        data = self._buffer.data
        walk.hits = self._scan.scan(data[base:limit] if base else data, first - base, limit - base, walk.ignored)
        if base:
            walk.hits = [hit._replace(position=hit.position + base) for hit in walk.hits]

    def _go_on(self, walk: _Walk) -> None:
        """Go on to the next literal, after what has been taken."""
        # After a fault they count again; and where patterns are ready now, most of these hits are none.
        if not walk.ignored <= self._enough or walk.patterns is not self._scanner.patterns:
            self._scan_on(walk, walk.limit, walk.upto)
        else:
            walk.at = bisect_left(walk.hits, (walk.upto,), walk.at)

    def _take_known(self, walk: _Walk, position: int) -> list[Match] | None:
        """Take the line at `position` if it is known what comes of it, and those after it if many are; its matches."""
        known = self._look_up(position, walk.end)
        if known is None:
            return None
        found, walk.upto = known
        walk.matches += found
        self._try_run(walk)
        return found

    def _try_run(self, walk: _Walk) -> None:
        """A known line has been taken: after some of them it is tried to take those together that follow."""
        walk.known += 1
        if self._fold and walk.known >= walk.tried:
            walk.tried = walk.known + _TRIES
            if (run := self._next_run(walk.upto, walk.end)) is not None:
                walk.upto = self._together(run, walk.matches)

    def _is_nothing(self, rules: Iterable[Rule], position: int, end: int) -> bool:
        """Whether a hit of `rules` need not be looked at."""
        if self._enough and self._enough.issuperset(rules):
            return True
        return self._continue(rules, position) or self._is_cleared(rules, position, end)

    def _is_cleared(self, rules: Iterable[Rule], position: int, end: int) -> bool:
        """True if later text shows that no match of `rules` at `position` counts."""
        waiting = [rule.tentative for rule in rules]
        if None in waiting:
            return False
        start = self._buffer.line_end(position, end)
        return all(one is not None and one.is_cleared(self._buffer.data, start, end) for one in waiting)

    def _continue(self, rules: Iterable[Rule], position: int) -> bool:
        """Whether a hit of `rules` only continues a report."""
        place = self._buffer.offset + position
        for rule in rules:
            if not (rule.continues and place <= self._ended.get(rule.name, -1)):
                return False
        for rule in rules:
            self._ended[rule.name] = place + _REPORT_GAP
        return True

    def _gather(self, hits: list[Hit], at: int, end: int) -> tuple[LogRecord, list[Rule], int, int]:
        """The record of hit `at`, the rules of the hits in it, the next hit, and where the hits in it may be up to.

        In a job's output hits on the same line are taken to be in it.
        """
        position = hits[at].position
        record = self._buffer.record(position, end)
        upto = self._reach(record, position, end)
        rules, after = self._called(hits, at, upto)
        if reports := {rule for rule in rules if rule.report}:
            report = next(hit.literal for hit in hits[at:after] if not reports.isdisjoint(hit.rules))
            again = next((hits[i].position for i in range(after, len(hits)) if hits[i].literal == report), end)
            before = max(self._under.get(rule.name, -1) for rule in reports) - self._buffer.offset
            record = self._buffer.extend(record, end, again, before)
            upto = self._reach(record, position, end)
            rules, after = self._called(hits, at, upto)
        return record, rules, after, upto

    def _reach(self, record: LogRecord, position: int, end: int) -> int:
        framed = record.header is not None and self._kind is StreamKind.LIBTPU
        return record.stop if framed else self._buffer.line_end(position, end)

    def _called(self, hits: list[Hit], at: int, upto: int) -> tuple[list[Rule], int]:
        """The rules of the hits from `at` up to `upto`, in the catalogue's order, and the hit after these.

        Hits that only continue a report call none.
        """
        called = set(hits[at].rules)
        after = at + 1
        while after < len(hits) and hits[after].position < upto:
            if not self._continue(hits[after].rules, hits[after].position):
                called.update(hits[after].rules)
            after += 1
        return sorted(called, key=self._scanner.order.__getitem__), after

    # -- lines of a known shape

    def _first(self, end: int) -> int:
        """Where the first line begins that is not processed."""
        first = max(0, self._done - self._buffer.offset)
        return self._buffer.line_around(first, end)[0] if first < end else first

    def _take_run(self, walk: _Walk) -> bool:
        """Take the known lines in a row where the walk is, and find what is between them and the next ones."""
        run = self._next_run(walk.upto, walk.end)
        if run is None:
            return False
        walk.upto = walk.base = self._together(run, walk.matches)
        self._scan_on(walk, self._storm.next(walk.upto, walk.end), walk.upto)
        return True

    def _next_run(self, start: int, end: int) -> RepeatRun | None:
        if not self._fold or self._tentative or not self._known:
            return None
        if max(self._reported.values(), default=0) > self._buffer.offset + start:
            return None
        return self._storm.run(start, end)

    def _together(self, run: RepeatRun, matches: list[Match]) -> int:
        """Add the matches of known lines in a row; where they end.

        Of the marks between faults those at the beginning and after the last fault of each group are enough.
        """
        self._in_storm = True
        first, upto = len(matches), self._buffer.offset + run.start
        for group in run.groups:
            last = group.offsets[-1]
            matches += self._marks_of(run, upto, last)
            matches += self._counted(list(self._storm.matches(group)), last + len(group.lines[-1]) + 1)
            upto = last
        matches += self._marks_of(run, upto, self._buffer.offset + run.stop)
        self._chains.add(matches[first:])
        return run.stop

    def _marks_of(self, run: RepeatRun, start: int, stop: int) -> Iterator[Match]:
        for mark in self._storm.marks(run, start, stop, self._enough):
            yield from self._counted([mark], stop)

    def _counted(self, found: list[Match], stop: int) -> list[Match]:
        self._under.update({match.rule.name: match.offset for match in found if match.severity})
        self._count(found, stop)
        return found

    def _look_up(self, position: int, end: int) -> tuple[list[Match], int] | None:
        """The matches of the line at `position` and its end, if it is known what comes of it and it is a record."""
        if self._tentative:
            return None
        data, start, stop = self._buffer.data, *self._buffer.line_around(position, end)
        line = data[start : stop - 1]
        known = self._known.get(line) if stop < end else None
        if known is None or not known.begins or not self._known.ends(known, line, self._buffer.line_at(stop)):
            return None
        offset = self._buffer.offset + start
        found = [
            self._storm.match_of(known, rule, places, line, offset)
            for rule, places in known.found
            if rule not in self._enough
        ]
        framed = known.places.header is not None
        if any((match.time is None) is framed or self._reported.get(match.rule.name, 0) > offset for match in found):
            return None
        for match in found:
            if framed:
                self._is_first_under(start, match.rule)
            else:
                self._reported[match.rule.name] = offset + 1
        self._count(found, self._buffer.offset + stop)
        return found if framed else [self._in_chain(match) for match in found], stop

    def _remember(self, record: LogRecord, position: int, found: list[Match], *, unbiased: bool) -> None:
        """Remember what came of a record if it is one line; else what comes of the line at `position` by itself.

        `unbiased`: nothing was known before that could matter.
        """
        if not self._buffer.is_line(record):
            if self._fold and self._kind is StreamKind.TEXT and record.header is None and record.above is None:
                self._known.add_beside(self._line_around(record, position))
        elif unbiased and not (record.header is not None and any(match.time is None for match in found)):
            self._known.add(self._buffer.data[record.start : record.stop - 1], [match.rule for match in found])

    # -- matches

    def _learn(self, walk: _Walk, record: LogRecord, position: int, rules: Iterable[Rule]) -> list[Match]:
        """The matches of `rules` in a record; they are remembered where no more than the record decides."""
        unbiased = not (self._tentative or walk.ignored.union(self._enough).difference(self._scanner.settled))
        if record.header is None and max(self._reported.values(), default=0) > self._buffer.offset + record.start:
            unbiased = False
        found = self._evaluate(record, position, rules)
        if record.closed and not self._tentative:
            self._remember(record, position, found, unbiased=unbiased)
        return found

    def _line_around(self, record: LogRecord, position: int) -> bytes:
        """The line of a record that holds `position`."""
        start, stop = self._buffer.line_around(position, record.stop)
        return self._buffer.data[start:stop].removesuffix(b"\n")

    def _matches_in(self, text: bytes) -> list[Match]:
        """The matches in a text by itself, of the same kind."""
        parser = LogParser(self._scanner, self._kind, now=0.0)
        return parser.feed(text) + parser.finish()

    def _evaluate(self, record: LogRecord, position: int, rules: Iterable[Rule]) -> list[Match]:
        """The matches of `rules` in a record: for each cause the one whose rule ranks first."""
        matches: dict[str, Match] = {}
        clean = self._buffer.clean(record)
        for rule in rules:
            if rule in self._enough:
                continue
            if record.header is not None:
                match = self._match_framed(rule, record.start, record.header, clean.text)
            else:
                match = self._match_unframed(rule, record, position, clean)
            if match is None:
                continue
            if rule.tentative is not None:
                self._tentative.add(match, self._buffer.offset + record.stop)
                continue
            name = rule.name
            if name not in matches or rule.rank < matches[name].rule.rank:
                matches[name] = match
        if self._tentative and matches:
            self._tentative.give_way(matches)
        self._count(matches.values(), self._buffer.offset + record.stop)
        if self._kind is StreamKind.LIBTPU:
            return list(matches.values())
        return [one for match in matches.values() for one in self._told(match)]

    def _told(self, match: Match) -> list[Match]:
        """What is certain with a match in a job's output, or in the kernel's log."""
        if match.rule.kill:
            return self._oom_kills.take(replace(match, author=self._author(match)))
        return [self._in_chain(match)]

    def _author(self, match: Match) -> str:
        return author_of(self._buffer.data, match.offset - self._buffer.offset)

    def _in_chain(self, match: Match) -> Match:
        """The match with its author, and the key of the first one if it is of an exception that was printed before."""
        author = self._author(match)
        first = None
        if match.rule.mark in exception_chains.MARKS:
            self._chains.mark(match.rule.mark, author, match.offset, str(match.details.get("frame", "")))
        elif match.time is None and self._chains.may_know(match.offset):
            first = self._chains.first_key(match, author)
        if first is not None:
            return replace(match, author=author, key=first, again=True)
        return replace(match, author=author) if author else match

    def _count(self, matches: Iterable[Match], stop: int) -> None:
        """Note where reports ended, and how many matches there were of rules of which some are enough."""
        for match in matches:
            if match.rule.report:
                self._ended[match.rule.name] = stop + _REPORT_GAP
            if match.rule.cause is not None:
                self._matched.clear()
                self._enough &= self._scanner.settled
            elif enough := self._enough_of(match.rule):
                self._matched[match.rule] += 1
                if self._matched[match.rule] >= enough:
                    self._enough.add(match.rule)
                    self._enough |= self._scanner.clears.get(match.rule, frozenset())

    def _enough_of(self, rule: Rule) -> int:
        """The number of matches of a mark that this stream looks for; 0: all."""
        return 1 if self._kind is StreamKind.LIBTPU and rule in self._scanner.of_process else rule.enough

    def _match_framed(self, rule: Rule, start: int, header: Header, text: bytes) -> Match | None:
        if rule.severities and header.severity not in rule.severities:
            return None
        read = self._read(rule, text)
        if read is None:
            return None
        return self._framed_match(rule, start, header, self._times.of(header), text, *read)

    def _framed_match(
        self,
        rule: Rule,
        start: int,
        header: Header,
        time: float | None,
        text: bytes,
        lines: str,
        details: dict[str, Any],
    ) -> Match:
        """The match of a record at `start`: `lines` of its text, which is without its header."""
        self._is_first_under(start, rule)
        offset = self._buffer.offset + start
        return Match(
            rule,
            offset,
            self._lines.line(offset) if self._lines is not None else 0,
            time,
            header.severity,
            header.thread,
            lines,
            details,
            framed_key(header, text, rule.name),
            header=header.raw,
        )

    def _read(self, rule: Rule, text: bytes) -> tuple[str, dict[str, Any]] | None:
        """The matched lines of a record and its details, None if the rule does not match.

        Cached: in a storm most records are alike.
        """
        cached = self._cache.get((rule, text), _MISSING)
        if cached is not _MISSING:
            return cached
        span = rule.search(text)
        # In a job's output another author may go on after the first line: that is looked at by itself.
        begin = len(text) if self._kind is StreamKind.LIBTPU else text.find(b"\n") + 1 or len(text)
        read = (matched_lines(text, *span), rule.details(text)) if span is not None and span[0] < begin else None
        if len(text) <= TEXT_KEPT:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[rule, text] = read
        return read

    def _match_unframed(self, rule: Rule, record: LogRecord, position: int, clean: CleanText) -> Match | None:
        """A match that touches the line at `position`, unless a match of the same cause covers it already."""
        if rule.severities and record.above is not None and record.above[1].severity not in rule.severities:
            return None
        here = bisect_right(clean.offsets, position) - 1
        first = clean.starts[here]
        last = clean.starts[here + 1] if here + 1 < len(clean.starts) else len(clean.text)
        span = rule.search(clean.text, first, last)
        if span is None:
            return None
        line = bisect_right(clean.starts, span[0]) - 1
        if rule.cause is not None and clean.is_quoted(line, span[0]):
            return None  # the exception's own line follows
        offset, name = self._buffer.offset + clean.offsets[line], rule.name
        if offset < self._reported.get(name, 0):
            return None
        if rule.tentative is None:
            self._reported[name] = self._buffer.offset + record.stop if rule.report else offset + 1
        text = clean.text[clean.starts[line] :]
        above = self._under_header(record.above, rule)
        severity, key, header = above or ("", unframed_key(self._salt, offset, text, name), b"")
        return Match(
            rule,
            offset,
            self._lines.line(offset) if self._lines is not None else 0,
            None,
            severity,
            None,
            matched_lines(clean.text, *span),
            rule.details(text),
            key,
            header=header,
        )

    def _under_header(self, above: tuple[int, Header] | None, rule: Rule) -> tuple[str, bytes, bytes] | None:
        """Of a cause's first match under a header severity, key and header: the record may be in libtpu's log too."""
        if above is None or not self._is_first_under(above[0], rule):
            return None
        start, header = above
        return header.severity, framed_key(header, self._buffer.clean_line(start), rule.name), header.raw

    def _is_first_under(self, start: int, rule: Rule) -> bool:
        """Whether a cause has not been found under the header at `start` before; it has now, if that is certain."""
        place = self._buffer.offset + start
        before = self._under.get(rule.name)
        if rule.tentative is None:
            self._under[rule.name] = place
        return before != place
