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
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.parse.exception_chains import ExceptionChains
from tpuwatch.logs.parse.frame import Times, author_of, without_colours
from tpuwatch.logs.parse.keys import framed_key, unframed_key
from tpuwatch.logs.parse.line_counter import LineCounter, RecordCounter
from tpuwatch.logs.parse.match import Match, matched_lines
from tpuwatch.logs.parse.oom_kills import OomKills
from tpuwatch.logs.parse.records import MAX_RECORD, LogRecord, RecordBuffer
from tpuwatch.logs.parse.repeats import CountedLines, LineMatches
from tpuwatch.logs.parse.shapes import OFTEN, Plan, Shapes
from tpuwatch.logs.parse.tentative import TentativeMatches
from tpuwatch.logs.rules.marks import CHAIN_MARKS
from tpuwatch.logs.rules.shape import ALIKE, shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.logs.parse.frame import Header
    from tpuwatch.logs.parse.records import CleanText
    from tpuwatch.logs.parse.scan import Hit, Scanner
    from tpuwatch.logs.parse.shapes import Shape
    from tpuwatch.logs.rules.catalogue import Rule

_MAX_TOLD = 1024  # lines
# A line that was looked at before its time: where it is, and what `_planned` says of it.
_NOT_AHEAD: tuple[int, tuple[int, bytes, Plan | None]] = (-1, (-1, b"", None))
_REPORT_GAP = 64 * 1024  # bytes that other streams may put between the parts of one report


class StreamKind(Enum):
    """The kind of a stream: a tpu_driver.* file of libtpu, or any other text (a job's output, a paste)."""

    LIBTPU = "libtpu"
    TEXT = "text"


class _Line:
    """A line with hits, from number `at` on. Positions are those in the buffer."""

    __slots__ = ("hits", "start", "stop")

    def __init__(self, hits: list[Hit], at: int, start: int, stop: int) -> None:
        self.start, self.stop = start, stop  # stop: where the next line begins
        after = at + 1
        while after < len(hits) and hits[after][0] < stop:
            after += 1
        self.hits = hits[at:after]


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

        `fold`: of many records of one shape only the last is a match, with its `repeats`, the number of the others.
        """
        state = state or {}
        self.open = False  # the last record may hold a match: call settle() when the stream is quiet
        self._scanner = scanner
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
        self._shapes = Shapes()
        self._block = 0  # so many were read
        self._plans: dict[bytes, Plan] = {}  # by the shape of a line; none of lines that are read
        self._ahead = _NOT_AHEAD
        self._by_digits: dict[bytes, frozenset[Rule]] = {}  # of a line the rules that tell digits apart and match it
        self._read_upto = -1  # where the last fault ends that was read in this one
        self._counted: dict[Shape, CountedLines] = {}  # lines of the block that were not read, by their shapes
        self._matched: Counter[Rule] = Counter()  # since the last fault, of rules of which some matches are enough
        # Those that have so many. What the parser itself needs of a job's output, libtpu does not write.
        self._enough: set[Rule] = {*scanner.chain_marks} if kind is StreamKind.LIBTPU else set()
        self._ignored = frozenset(self._enough)  # when the last bytes came: they are not searched for these
        self._reported: dict[str, int] = {}  # by cause: the offset up to which unframed text is reported
        self._under: dict[str, int] = dict(state.get("under", {}))  # by cause: the header that it was last found under
        self._ended: dict[str, int] = dict(state.get("ended", {}))  # by cause: where its last report ended
        # Rules that the line has matched of which so far pieces were processed; None where the last line has ended.
        self._in_overlong = set[str](state["overlong"]) if "overlong" in state else None
        self._chains = ExceptionChains(state.get("chains", {}))
        self._oom_kills = OomKills(state.get("oom_kills", {}), scanner.catalogue.rules)
        self._records = RecordCounter(severity, self._done) if severity else None
        self._lines = LineCounter(4 * MAX_RECORD) if count_lines else None
        is_text = kind is StreamKind.TEXT
        self._line_matches = LineMatches(self._buffer, self._times, self._lines, self._salt, text=is_text)
        self._headless = (0, 0)  # positions in the buffer between which no record has a header

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
        if self._lines is not None:
            self._lines.append(data)
        self._ignored = frozenset(self._enough)
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
        done, keep, at = end, -1, 0
        self._block += 1
        self._forget_plans()
        self._read_upto = -1
        self._headless = (0, 0)
        hits = self._hits(self._first(), end)
        self.open = False
        while (at := self._next(hits, at)) < len(hits):
            position, called = hits[at][0], self._scanner.rules[hits[at][1]]
            if self._is_nothing(called, position, end):
                at += 1
                continue
            line = _Line(hits, at, *buffer.line_around(position, end))
            record, rules, upto = self._gather(hits, at, end)
            if not (record.closed or quiet):
                done, keep, self.open = position, record.above[0] if record.above else record.start, True
                break
            matches += self._tentative.resolve(buffer.data, buffer.offset, position)
            by_itself = record.closed and line.stop < end and not self._is_in_report(line)
            found = self._evaluate(record, position, rules)
            if by_itself:
                self._remember(record, line, found)
            self._forget_plans()
            matches += found
            if self._ignored <= self._enough:
                at = bisect_left(hits, (upto,), at)
            else:  # after a fault more is looked for
                hits, at = self._hits(upto, end), 0
        matches += self._tentative.resolve(buffer.data, buffer.offset, done)
        self._counted = {known: counted for known, counted in self._counted.items() if counted.lines}
        if self._counted:
            matches = sorted([*matches, *self._last_counted(end)], key=lambda match: match.offset)
        self.open |= self._oom_kills.open
        if self._records is not None:
            self._records.count(buffer.data, buffer.offset, end)
        matches = self._once_a_line(matches, end)
        self._done = max(self._done, buffer.offset + done)
        buffer.drop(buffer.context(end) if keep < 0 else keep)
        return matches

    def _first(self) -> int:
        """The position below which the literals are processed."""
        return max(0, self._done - self._buffer.offset)

    def _hits(self, first: int, end: int) -> list[Hit]:
        """The literals from a position on, in order, but for those that are ignored."""
        if first >= end:
            return []
        if not self._ignored <= self._enough:
            self._ignored = frozenset()
        begin = self._buffer.line_around(first, end)[0]
        text, place = without_colours(self._buffer.data[begin:end])
        hits, lengths = self._scanner.find(text, self._ignored, 0 if place else begin), self._scanner.lengths
        if place is not None:
            hits = [(begin + place(position + 1) - 1, literal) for position, literal in hits]
        while hits and hits[-1][0] + lengths[hits[-1][1]] > end:
            hits.pop()
        return hits[bisect_left(hits, (first,)) :]

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

    def _gather(self, hits: list[Hit], at: int, end: int) -> tuple[LogRecord, list[Rule], int]:
        """The record of hit `at`, the rules of the hits in it, and where the hits in it may be up to.

        In a job's output hits on the same line are taken to be in it.
        """
        position, called = hits[at][0], self._scanner.rules
        record = self._buffer.record(position, end)
        upto = self._reach(record, position, end)
        rules, after = self._called(hits, at, upto)
        if reports := {rule for rule in rules if rule.report}:
            report = next(literal for _, literal in hits[at:after] if not reports.isdisjoint(called[literal]))
            again = next((hits[i][0] for i in range(after, len(hits)) if hits[i][1] == report), end)
            before = max(self._under.get(rule.name, -1) for rule in reports) - self._buffer.offset
            record = self._buffer.extend(record, end, again, before)
            upto = self._reach(record, position, end)
            rules, _ = self._called(hits, at, upto)
        return record, rules, upto

    def _reach(self, record: LogRecord, position: int, end: int) -> int:
        framed = record.header is not None and self._kind is StreamKind.LIBTPU
        return record.stop if framed else self._buffer.line_end(position, end)

    def _called(self, hits: list[Hit], at: int, upto: int) -> tuple[list[Rule], int]:
        """The rules of the hits from `at` up to `upto`, in the catalogue's order, and the hit after these.

        Hits that only continue a report call none.
        """
        of = self._scanner.rules
        called = set(of[hits[at][1]])
        after = at + 1
        while after < len(hits) and hits[after][0] < upto:
            position, literal = hits[after]
            if not self._continue(of[literal], position):
                called.update(of[literal])
            after += 1
        return sorted(called, key=self._scanner.order.__getitem__), after

    # -- lines of a known shape

    def _next(self, hits: list[Hit], at: int) -> int:
        """The first hit from number `at` on whose line has to be read: it is not known what comes of it."""
        data, digits, offset = self._buffer.data, self._scanner.digits, self._buffer.offset
        after = at
        while after < len(hits):
            first = after
            position, literal = hits[first]
            start = data.rfind(b"\n", 0, position) + 1
            stop, line, plan = self._planned(start)
            if plan is None:
                return first
            is_told = literal in digits
            after += 1
            while after < len(hits) and hits[after][0] < stop:
                is_told |= hits[after][1] in digits
                after += 1
            if is_told or plan.shape.told_by_digits:
                told = self._told_by_digits(line, hits[first:after])
                if not plan.shape.block or told != plan.shape.told_by_digits:
                    return first
            if plan.counted is not None:
                if not self._may_count(plan, line, stop):
                    return first
                plan.counted.lines.append(line)
                plan.counted.offsets.append(offset + start)
        return after

    def _planned(self, start: int) -> tuple[int, bytes, Plan | None]:
        """Where the line at `start` stops, the line without its newline, and what to do with it; None: read it."""
        if start == self._ahead[0]:
            return self._ahead[1]
        data = self._buffer.data
        end = data.find(b"\n", start)
        if end < 0:
            return len(data), data[start:], None
        line = data[start:end]
        return end + 1, line, self._plans.get(line.translate(ALIKE)) or self._plan(line)

    def _plan(self, line: bytes) -> Plan | None:
        """What to do with a line without its newline; None: read it."""
        form = shape(line)
        plan = self._plans.get(form)
        known = self._shapes.get(form) if plan is None else None
        if known is not None and (plan := self._new_plan(known)) is not None:
            self._plans[form] = plan
        return plan

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._ahead = _NOT_AHEAD

    def _new_plan(self, known: Shape) -> Plan | None:
        if known.found is None or not known.is_sure(self._block):
            return None
        rules = known.found - self._enough
        if not rules:
            return None if known.looks_around else Plan(known)
        if known.read < OFTEN or not self._fold or self._tentative or any(rule.cause is None for rule in rules):
            return None
        counted = self._counted.setdefault(known, CountedLines(rules))
        return Plan(known, counted, tuple(rule.name for rule in rules if rule.report))

    def _may_count(self, plan: Plan, line: bytes, stop: int) -> bool:
        """Whether a line that stops at `stop` may be counted: what comes of it is of it alone."""
        start, following = stop - len(line) - 1, None
        if plan.reports or plan.shape.framed:
            self._ahead = (stop, self._planned(stop))
            following = self._ahead[1][2]
        if not plan.shape.framed:
            if not self._is_below_no_header(start):
                return False
        elif not (following is not None and following.shape.framed) and not self._buffer.begins_record(stop):
            return False
        if plan.reports and following is not plan and self._may_go_on(start, stop):
            return False
        for name in plan.reports:
            self._ended[name] = self._buffer.offset + stop + _REPORT_GAP
        return True

    def _is_below_no_header(self, start: int) -> bool:
        """Whether no record with a header can hold the line at `start`, which has none."""
        first, stop = self._headless
        if not first <= start < stop:
            first, stop = self._headless = start, self._buffer.headless_up_to(start)
        return start < stop

    def _told_by_digits(self, line: bytes, hits: Iterable[Hit]) -> frozenset[Rule]:
        """Of the rules that tell lines of one shape apart those that match this line with its hits."""
        rules = self._by_digits.get(line)
        if rules is None:
            called = (self._scanner.rules[literal] for _, literal in hits if literal in self._scanner.digits)
            of_digits = {rule for some in called for rule in some}
            rules = frozenset(rule for rule in of_digits if rule.search(line + b"\n") is not None)
            if len(self._by_digits) >= _MAX_TOLD:
                self._by_digits.clear()
            self._by_digits[line] = rules
        return rules

    def _may_go_on(self, start: int, stop: int) -> bool:
        """Whether the line at `stop` may be of the same report as the one at `start`."""
        if not self._buffer.begins_record(stop):
            return True
        own, following = self._buffer.header(start), self._buffer.header(stop)
        return following is not None and own is not None and following.same_report(own)

    def _is_in_report(self, line: _Line) -> bool:
        """Whether what was found before may decide what comes of a line."""
        place = self._buffer.offset + line.start
        called = {rule for _, literal in line.hits for rule in self._scanner.rules[literal]}
        if any(rule.continues and place <= self._ended.get(rule.name, -1) for rule in called):
            return True
        return bool(self._tentative) or any(place < self._reported.get(rule.name, 0) for rule in called)

    def _remember(self, record: LogRecord, line: _Line, found: list[Match]) -> None:
        """Remember what came of a line, which is of this record."""
        known = self._shapes.of(self._buffer.data[line.start : line.stop - 1])
        if known is None:
            return
        literals = {literal for _, literal in line.hits}
        known.looks_around = not literals.isdisjoint(self._scanner.around)
        if known.looks_around or not literals.isdisjoint(self._scanner.digits):
            known.begin(self._block)
            known.told_by_digits = self._told_by_digits(self._buffer.data[line.start : line.stop - 1], line.hits)
        if found and (record.above is not None or (record.header is not None and not self._buffer.is_line(record))):
            return
        known.framed = record.header is not None and record.start == line.start
        known.add(self._came_of(line, found))

    def _came_of(self, line: _Line, found: list[Match]) -> frozenset[Rule] | None:
        """The rules that match the line; None if that is not of the line alone."""
        text = self._buffer.text_of(self._buffer.data[line.start : line.stop - 1])
        called = {rule for _, literal in line.hits for rule in self._scanner.rules[literal]}
        alone = frozenset(rule for rule in called if rule.search(text) is not None)
        if not found:
            return alone if alone <= self._enough else None
        rules = frozenset(match.rule for match in found)
        offset = self._buffer.offset + line.start
        if any(match.offset != offset or match.again for match in found):
            return None
        may = rules <= alone and not any(rule.has_thresholds for rule in rules)
        return rules | (alone & self._enough) if may else None

    def _last_counted(self, end: int) -> list[Match]:
        """Of each shape of which lines were counted the match of the last one, and the marks that come after all."""
        last = [match for counted in self._counted.values() for match in self._line_matches.last(counted)]
        stop = max(self._line_end(counted) for counted in self._counted.values())
        self._counted.clear()
        self._chains.add(last)
        if stop <= self._read_upto:  # another fault was read since
            return last
        were = self._enough - self._scanner.settled
        self._count([match.rule for match in last], self._buffer.offset + stop)
        for position, literal in self._hits(stop, end):
            marks = [rule for rule in self._scanner.rules[literal] if rule in were and rule not in self._enough]
            if marks and position >= stop:
                record = self._buffer.record(position, end)
                last += self._evaluate(record, position, marks)
                stop = self._buffer.line_end(position, end)
        return last

    def _line_end(self, counted: CountedLines) -> int:
        """The position after the last of these lines."""
        return counted.offsets[-1] - self._buffer.offset + len(counted.lines[-1]) + 1

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
        self._count([match.rule for match in matches.values()], self._buffer.offset + record.stop)
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
        if match.rule.mark in CHAIN_MARKS:
            self._chains.mark(match.rule.mark, author, match.offset, str(match.details.get("frame", "")))
        elif match.time is None and self._chains.may_know(match.offset):
            first = self._chains.first_key(match, author)
        if first is not None:
            return replace(match, author=author, key=first, again=True)
        return replace(match, author=author) if author else match

    def _count(self, rules: Iterable[Rule], stop: int) -> None:
        """Note where reports ended, and how many matches there were of rules of which some are enough."""
        for rule in rules:
            if rule.report:
                self._ended[rule.name] = stop + _REPORT_GAP
            if rule.cause is not None:
                self._read_upto = stop - self._buffer.offset
                self._matched.clear()
                self._enough &= self._scanner.settled
            elif enough := self._enough_of(rule):
                self._matched[rule] += 1
                if self._matched[rule] >= enough:
                    self._enough.add(rule)
                    self._enough |= self._scanner.clears.get(rule, frozenset())

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
        """The matched lines of a record and its details, None if the rule does not match."""
        span = rule.search(text)
        # In a job's output another author may go on after the first line: that is looked at by itself.
        begin = len(text) if self._kind is StreamKind.LIBTPU else text.find(b"\n") + 1 or len(text)
        if span is None or span[0] >= begin:
            return None
        return matched_lines(text, *span), rule.details(text)

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
