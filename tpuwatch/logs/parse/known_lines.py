"""Lines of which it is known what comes, by their shape: they are passed over, or counted. The parser reads the others.

Positions are those in the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.logs.parse.repeats import CountedLines
from tpuwatch.logs.parse.shapes import OFTEN, Shape, Shapes
from tpuwatch.logs.rules.shape import ALIKE, shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.logs.parse.enough import Enough
    from tpuwatch.logs.parse.match import Match
    from tpuwatch.logs.parse.records import LogRecord, RecordBuffer
    from tpuwatch.logs.parse.repeats import LineMatches
    from tpuwatch.logs.parse.reports import Reports
    from tpuwatch.logs.parse.scan import Hit, Scanner
    from tpuwatch.logs.parse.tentative import TentativeMatches
    from tpuwatch.logs.rules.catalogue import Rule


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What to do with lines of a shape that need not be read, until the next one is."""

    shape: Shape
    counted: CountedLines | None = None  # these are counted so; None: passed over
    reports: tuple[str, ...] = ()  # of these causes they begin reports


_MAX_TOLD = 1024  # lines
# A line that was looked at before its time: where it is, and what `_planned` says of it.
_NOT_AHEAD: tuple[int, tuple[int, bytes, _Plan | None]] = (-1, (-1, b"", None))


class HitLine:
    """A line with hits, from number `at` on."""

    __slots__ = ("hits", "start", "stop")

    def __init__(self, hits: list[Hit], at: int, start: int, stop: int) -> None:
        self.start, self.stop = start, stop  # stop: where the next line begins
        after = at + 1
        while after < len(hits) and hits[after][0] < stop:
            after += 1
        self.hits = hits[at:after]


class KnownLines:
    """What is known of the lines of one stream, and those of a block that were counted."""

    def __init__(
        self,
        scanner: Scanner,
        buffer: RecordBuffer,
        matches: LineMatches,
        enough: Enough,
        reports: Reports,
        tentative: TentativeMatches,
        *,
        fold: bool,
    ) -> None:
        """`fold`: lines are counted."""
        self._scanner = scanner
        self._buffer = buffer
        self._matches = matches
        self._enough = enough
        self._reports = reports
        self._tentative = tentative
        self._fold = fold
        self._shapes = Shapes()
        self._block = 0  # so many were read
        self._plans: dict[bytes, _Plan] = {}  # by the shape of a line; none of lines that are read
        self._ahead = _NOT_AHEAD
        self._told: dict[bytes, frozenset[Rule]] = {}  # of a line the rules that tell digits apart and match it
        self._counted: dict[Shape, CountedLines] = {}
        self._headless = (0, 0)  # positions between which no record has a header

    def begin_block(self) -> None:
        """Other bytes have come, and all that was looked at may be elsewhere."""
        self._block += 1
        self._headless = (0, 0)
        self._forget_plans()

    def next_unknown(self, hits: list[Hit], at: int) -> int:
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

    def may_be_in_report(self, line: HitLine) -> bool:
        """Whether what was found before may decide what comes of a line."""
        place = self._buffer.offset + line.start
        called = self._called(line)
        if self._tentative or any(self._reports.may_continue(rule, place) for rule in called):
            return True
        return any(self._reports.is_reported(rule.name, place) for rule in called)

    def learn(self, record: LogRecord, line: HitLine, found: list[Match] | None) -> None:
        """A line was read, which is of this record; `found`: what came of it, where that was of the line by itself."""
        self._forget_plans()
        text = self._buffer.data[line.start : line.stop - 1]
        known = self._shapes.of(text) if found is not None else None
        if known is None or found is None:
            return
        literals = {literal for _, literal in line.hits}
        known.looks_around = not literals.isdisjoint(self._scanner.around)
        if known.looks_around or not literals.isdisjoint(self._scanner.digits):
            known.begin(self._block)
            known.told_by_digits = self._told_by_digits(text, line.hits)
        if found and (record.above is not None or (record.header is not None and not self._buffer.is_line(record))):
            return
        known.framed = record.header is not None and record.start == line.start
        known.add(self._came_of(line, text, found))

    def take_counted(self) -> tuple[list[Match], int] | None:
        """The matches of what was counted, for each shape that of its last line; and where the last of all stops."""
        counted = [lines for lines in self._counted.values() if lines.lines]
        self._counted.clear()
        if not counted:
            return None
        stop = max(lines.offsets[-1] + len(lines.lines[-1]) + 1 for lines in counted)
        return [match for lines in counted for match in self._matches.last(lines)], stop - self._buffer.offset

    def _planned(self, start: int) -> tuple[int, bytes, _Plan | None]:
        """Where the line at `start` stops, the line without its newline, and what to do with it; None: read it."""
        if start == self._ahead[0]:
            return self._ahead[1]
        data = self._buffer.data
        end = data.find(b"\n", start)
        if end < 0:
            return len(data), data[start:], None
        line = data[start:end]
        return end + 1, line, self._plans.get(line.translate(ALIKE)) or self._plan(line)

    def _plan(self, line: bytes) -> _Plan | None:
        """What to do with a line without its newline; None: read it."""
        form = shape(line)
        plan = self._plans.get(form)
        known = self._shapes.get(form) if plan is None else None
        if known is not None and (plan := self._new_plan(known)) is not None:
            self._plans[form] = plan
        return plan

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._told.clear()
        self._ahead = _NOT_AHEAD

    def _new_plan(self, known: Shape) -> _Plan | None:
        if known.found is None or not known.is_sure(self._block):
            return None
        rules = known.found - self._enough.rules
        if not rules:
            return None if known.looks_around else _Plan(known)
        if known.read < OFTEN or not self._fold or self._tentative or any(rule.cause is None for rule in rules):
            return None
        counted = self._counted.setdefault(known, CountedLines(rules))
        return _Plan(known, counted, tuple(rule.name for rule in rules if rule.report))

    def _may_count(self, plan: _Plan, line: bytes, stop: int) -> bool:
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
            self._reports.end(name, self._buffer.offset + stop)
        return True

    def _is_below_no_header(self, start: int) -> bool:
        """Whether no record with a header can hold the line at `start`, which has none."""
        first, stop = self._headless
        if not first <= start < stop:
            first, stop = self._headless = start, self._buffer.headless_up_to(start)
        return start < stop

    def _told_by_digits(self, line: bytes, hits: Iterable[Hit]) -> frozenset[Rule]:
        """Of the rules that tell lines of one shape apart those that match this line with its hits."""
        rules = self._told.get(line)
        if rules is None:
            called = (self._scanner.rules[literal] for _, literal in hits if literal in self._scanner.digits)
            of_digits = {rule for some in called for rule in some}
            rules = frozenset(rule for rule in of_digits if rule.search(line + b"\n") is not None)
            if len(self._told) >= _MAX_TOLD:
                self._told.clear()
            self._told[line] = rules
        return rules

    def _may_go_on(self, start: int, stop: int) -> bool:
        """Whether the line at `stop` may be of the same report as the one at `start`."""
        if not self._buffer.begins_record(stop):
            return True
        own, following = self._buffer.header(start), self._buffer.header(stop)
        return following is not None and own is not None and following.same_report(own)

    def _called(self, line: HitLine) -> set[Rule]:
        """The rules of its hits."""
        return {rule for _, literal in line.hits for rule in self._scanner.rules[literal]}

    def _came_of(self, line: HitLine, text: bytes, found: list[Match]) -> frozenset[Rule] | None:
        """The rules that match the line; None if that is not of the line alone."""
        clean = self._buffer.text_of(text)
        alone = frozenset(rule for rule in self._called(line) if rule.search(clean) is not None)
        if not found:
            return alone if alone <= self._enough.rules else None
        rules = frozenset(match.rule for match in found)
        offset = self._buffer.offset + line.start
        if any(match.offset != offset or match.again for match in found):
            return None
        may = rules <= alone and not any(rule.has_thresholds for rule in rules)
        return rules | (alone & self._enough.rules) if may else None
