"""From recognised records to findings: what to act on, in which order, and what to do.

A pure fold: the same records give the same findings, wherever they were read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.parser import StreamKind
from tpuwatch.model import Cause, Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.logs.catalogue import Rule
    from tpuwatch.logs.parser import Match
    from tpuwatch.model import Event

_ORDER = {cause: place for place, cause in enumerate(Cause)}
_STEPS_OF_A_GOOD_RUN = 2  # this many different steps after a fault show that the run went on
_MAX_RECORDS = 1000  # of one cause that are kept
_MAX_KEYS = 1_000_000  # of one cause by which copies are told
_PROGRESS, _OTHER_ACCELERATOR = "progress", "other_accelerator"
# What only a TPU's text says: these marks, or such words in a record that a rule recognised.
_OUR_MARKS = frozenset({"tpu_named", "banner", "chips", "premapped", "init_started", "init_done"})
_OUR_WORDS = re.compile(
    r"(?i)(?<!edge)tpu|\b(?:hbm|[vs]mem|sflag|mosaic|pjrt|megascale)\b|jax_worker|/dev/(?:accel|vfio)"
)

# A line of a program that would say it: a statement or call with the words in quotes, or a string or comment alone.
_SOURCE_CODE = re.compile(
    r"""
      \s*(?:raise|throw|return|assert|if|elif|IF|case|const|let|var)\b[^"'`\n]*[=(<>][^"'`\n]*["'`]
    | \s*(?![\w.]*(?:Error|Exception|Warning)\()@?[\w.!:]+\([^"'`\n)]*["'`]
    | \s{2,}[\w.]+\ =\ \(?[frbu]{0,2}["']
    | \s*(?:except\b[^\n]*:$|def\ \w+\(|class\ \w+|import\ \w)
    | \s{2,}[frbu]{0,2}(?:"[^"\n]*"|'[^'\n]*')[,)\s]*$
    | \s{2,}(?:\#|//)\s
    """,
    re.VERBOSE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A record and the rule that recognised it. `event` is None for a mark, which is a fact and no fault."""

    rule: Rule
    event: Event | None
    details: Mapping[str, Any]
    line: int | None = None


def seen(match: Match, file: str, observed: float) -> Seen:
    """What the parser recognised, as the fold takes it."""
    event = match.event(file, match.details.get("pid"), observed)
    return Seen(match.rule, event, match.details, match.line or None)


def fold(records: Iterable[Seen]) -> list[Finding]:
    """The findings of one text, in the order in which to act: a cause before what it brings about.

    Copies of a record (the same key) count once. A fault after which training plainly went on is none, nor is one that
    a mark elsewhere in the text explains, nor what is said in a text of another accelerator's, nor what a line of
    source code would say.
    """
    groups: dict[Cause, _Group] = {}
    marks: set[str] = set()
    for record in records:
        if record.event is not None:
            if not record.event.severity and _SOURCE_CODE.match(record.event.text):
                continue
            groups.setdefault(record.event.cause, _Group()).add(record, record.event)
            continue
        if record.rule.mark is not None:
            marks.add(record.rule.mark)
        if record.rule.mark == _PROGRESS:
            for group in groups.values():
                group.steps.add(record.details.get("step_count"))
    if _is_foreign(groups.values(), marks):
        return []
    findings = [group.finding() for group in groups.values() if not group.explained(marks)]
    return [finding for _, finding in sorted(findings, key=lambda pair: pair[0])]


def kind_of(name: str, head: bytes) -> StreamKind:
    """Whether a text is a log file of libtpu's own or any other text."""
    libtpu = PurePath(name).name.startswith("tpu_driver.") or head.startswith(b"Log file created at: ")
    return StreamKind.LIBTPU if libtpu else StreamKind.TEXT


def _is_foreign(groups: Iterable[_Group], marks: set[str]) -> bool:
    """Whether the text names another accelerator and nowhere a TPU."""
    if _OTHER_ACCELERATOR not in marks or not _OUR_MARKS.isdisjoint(marks):
        return False
    return not any(_OUR_WORDS.search(event.text) for group in groups for _, event in group.records)


@dataclass(slots=True)
class _Group:
    """All events of one cause: the first ones as they are, of a storm's rest only the number and the last."""

    records: list[tuple[Seen, Event]] = field(default_factory=list)
    rules: set[Rule] = field(default_factory=set)
    keys: set[bytes] = field(default_factory=set)
    steps: set[Any] = field(default_factory=set)  # of training since the last event
    count: int = 0
    last: Event | None = None

    def add(self, record: Seen, event: Event) -> None:
        self.steps.clear()
        if event.key in self.keys:
            return
        if len(self.keys) < _MAX_KEYS:
            self.keys.add(event.key)
        self.count += 1
        self.last = event
        if len(self.records) < _MAX_RECORDS or record.rule not in self.rules:
            self.records.append((record, event))
            self.rules.add(record.rule)

    def explained(self, marks: set[str]) -> bool:
        """Whether this was no fault after all."""
        went_on = len(self.steps) >= _STEPS_OF_A_GOOD_RUN
        return all((rule.recovers and went_on) or rule.cleared_by in marks for rule in self.rules)

    def finding(self) -> tuple[tuple[int, int, int], Finding]:
        """The finding, with what it is ordered by."""
        record, event = min(self.records, key=lambda pair: pair[0].rule.rank)
        details = dict(event.details)
        for _, other in self.records:
            if all(details[name] == value for name, value in other.details.items() if name in details):
                details |= other.details
        finding = Finding(
            cause=event.cause,
            count=self.count,
            first=self.records[0][1],
            last=self.last or event,
            line=self.records[0][0].line,
            details=details,
            summary=record.rule.describe(details),
            remedy=record.rule.remedy_for(details),
        )
        return (record.rule.rank, _ORDER[event.cause], finding.first.offset), finding
