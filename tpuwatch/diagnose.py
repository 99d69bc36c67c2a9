"""Folds recognised records into findings: what to act on, in which order, and what to do.

Pure: the same records give the same findings, in whichever file they are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from tpuwatch.logs import StreamKind, any_near, context_of, kind_of
from tpuwatch.model import HEARTBEATS, Cause, Finding, filled_in, values_together

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from tpuwatch.logs import Match, Repeats, Rule
    from tpuwatch.model import Event, Remedy

    _Key: TypeAlias = tuple[Cause, str]

_STEPS_OF_A_GOOD_RUN = 2  # this many different steps after a fault show that training continued
_MAX_RECORDS = 200  # kept of one cause
_MAX_KEYS = 1_000_000  # kept of one cause, to recognise copies,
_MAX_UNKEYED = 64 << 20  # and bytes of lines that have no key yet
_PROGRESS, _OTHER_ACCELERATOR, _OTHER_VENDOR = "progress", "other_accelerator", "other_vendor"
_OTHER_SERVICE = "other_service"
_WORKLOAD = ("unit", "pod", "container", "cgroup")  # details that name what a killed process belongs to, the first one
_UNKNOWN: _Key = (Cause.UNKNOWN_FAILURE, "")
# What only texts about a TPU contain: these marks, or these words in a recognised record.
_CHIP_MARKS = frozenset({"banner", "chips", "premapped", "premapped_in_use", "init_started", "init_done"})
_TPU_MARKS = _CHIP_MARKS | {"tpu_named"}
_TPU_HINTED = "tpu_hinted"  # and this one where no other accelerator is named
_TPU_WORDS = re.compile(
    r"(?i)(?<!edge)(?<!ou)(?<!coral )(?<!gpu/)tpu|\b(?:hbm[0-9]?|[vs]mem|sflag|megascale)\b|/dev/(?:accel|vfio)"
)


@dataclass(frozen=True, slots=True)
class RecognisedRecord:
    """A record and the rule that recognised it. `event` is None for a mark, which is a fact and no fault."""

    rule: Rule
    event: Event | None
    details: Mapping[str, Any]
    line: int | None = None
    again: bool = False  # of an exception that was printed before
    repeats: Repeats | None = None  # records before it that differ in digits alone
    header: bytes = b""  # of the record, if it is known

    @classmethod
    def from_match(cls, match: Match, file: str, observed: float) -> RecognisedRecord:
        """The record of a parser's match in `file`, read at `observed`."""
        event = match.event(file, match.details.get("pid"), observed)
        line = match.line or None
        return cls(match.rule, event, match.details, line, match.again, match.repeats, match.header)


def fold(
    records: Iterable[RecognisedRecord],
    known: Mapping[str, str] | None = None,
    pids: Collection[int] = (),
    *,
    of_job: bool = False,
) -> list[Finding]:
    """The findings of one text, in the order in which to act: a cause before its consequences.

    `known`: words for their remedies (tpuwatch.model.filled_in). `pids`: processes that the host itself has seen to
    hold the TPU. `of_job`: the text is what a TPU job printed, whether it names a TPU or not.

    Copies of a record (the same key) count once. Left out are faults after which training continued or that a mark in
    the text explains, what another accelerator or service says, and lines that report no failure (LineKind).
    """
    groups: dict[_Key, _Group] = {}
    kills: dict[bytes, _Key] = {}  # of each what it is folded into, as not all lines on a kill name the same
    marks: set[str] = set()
    spoken_of = set[tuple[str, int]]()  # lines with a program's words that say nothing of a failure of their own
    hints: dict[Remedy, None] = {}  # what marks advise, beside a finding that they may explain
    for record in _each(records, groups):
        if record.event is not None:
            if not _is_report(record.rule, record.event, spoken_of, of_job=of_job):
                continue
            key = kills.get(record.event.key) or _key(record.event)
            if key[1]:
                kills[record.event.key] = key
            groups.setdefault(key, _Group()).add(record, record.event)
            continue
        if record.rule.mark is not None:
            marks.add(record.rule.mark)
            hints.update(dict.fromkeys(record.rule.remedy))
        if record.rule.mark == _PROGRESS:
            for group in groups.values():
                group.steps.add(record.details.get("step_count"))
    _join_consequences(groups)
    found = [group.finding(marks) for group in _counting(groups, marks, of_job=of_job)]
    ordered = [finding for _, finding in sorted(found, key=lambda pair: pair[0])]
    for finding in ordered:
        if finding.cause.row.may_lack_metadata:
            finding.remedy += tuple(hints)
        finding.remedy = filled_in(finding.remedy, {**(known or {}), "PID": _pid(finding, pids)})
    return ordered


def _counting(groups: dict[_Key, _Group], marks: set[str], *, of_job: bool) -> list[_Group]:
    """Return the groups that are findings; where there are none, the failure that no rule explains."""
    names_tpu = _names_tpu(groups.values(), marks)
    unknown = groups.pop(_UNKNOWN, None) or _Group()
    for key in _of_others(groups, marks, names_tpu=names_tpu, of_job=of_job):
        unknown.take_as_unknown(groups.pop(key))
    places = _places(groups.values())
    counting = [group for group in groups.values() if not group.explained(marks)]
    left = _where_prose_counts([group for group in counting if not group.gives_way(places)], marks)
    if not left and len(counting) == len(groups) and unknown.records and not unknown.explained(marks):
        left = [unknown.decisive(_of_what(marks, names_tpu=names_tpu or of_job))]
    return left


def _is_report(rule: Rule, event: Event, spoken_of: set[tuple[str, int]], *, of_job: bool) -> bool:
    """Return whether a line says that it failed. `spoken_of`: lines with a program's words that do not; added to."""
    if event.time is not None:
        return True
    place, reports = (event.file, event.offset), kind_of(event.text, rule).reports(of_job=of_job)
    if not reports:
        spoken_of.add(place)
    return reports and not (rule.prose and place in spoken_of)


def _pid(finding: Finding, pids: Collection[int]) -> str:
    """The process of the finding, if not only a text names it: anybody can write that."""
    for event in (finding.last, *finding.latest):
        if event.pid is not None and (event.pid in pids or event.file == HEARTBEATS):
            return str(event.pid)
    return ""


def _key(event: Event) -> _Key:
    """What is folded into one finding: the events of a cause, and of the kernel's kills those of one program."""
    process = event.details.get("process") if event.cause is Cause.HOST_OOM else None
    if process is None:
        return event.cause, ""
    workload = next((event.details[name] for name in _WORKLOAD if name in event.details), "")
    return event.cause, f"{process} {workload}"


def _join_consequences(groups: dict[_Key, _Group]) -> None:
    """Where the kernel killed one program, what else the same text says of a kill is of that one."""
    kills = [group for (cause, program), group in groups.items() if cause is Cause.HOST_OOM and program]
    others = groups.get((Cause.HOST_OOM, ""))
    if len(kills) == 1 and others is not None and others.files <= kills[0].files:
        kills[0].absorb(groups.pop((Cause.HOST_OOM, "")))


def _each(records: Iterable[RecognisedRecord], groups: Mapping[_Key, _Group]) -> Iterator[RecognisedRecord]:
    """The records, and their repeats while what each states may matter."""
    for record in records:
        if record.repeats is None or record.event is None:
            yield record
            continue
        given = 0
        for match in record.repeats.matches():
            group = groups.get(_key(record.event))
            if group is not None and group.is_full:
                break
            yield RecognisedRecord.from_match(match, record.event.file, record.event.observed)
            given += 1
        yield replace(record, repeats=record.repeats.after(given) if given < len(record.repeats) else None)


def _where_prose_counts(groups: list[_Group], marks: set[str]) -> list[_Group]:
    """What people write gives way to any program's words, and beside another accelerator must itself name a TPU."""
    spoken = [group for group in groups if not group.only_prose]
    return spoken or [group for group in groups if _OTHER_ACCELERATOR not in marks or group.names_tpu]


def stream_kind(name: str, head: bytes) -> StreamKind:
    """Whether a text is a log file of libtpu or any other text."""
    libtpu = PurePath(name).name.startswith("tpu_driver.") or head.startswith(b"Log file created at: ")
    return StreamKind.LIBTPU if libtpu else StreamKind.TEXT


def _names_tpu(groups: Iterable[_Group], marks: set[str]) -> bool:
    """Whether the text names a TPU."""
    if _OTHER_VENDOR in marks:
        return not _CHIP_MARKS.isdisjoint(marks)
    if not _TPU_MARKS.isdisjoint(marks) or (_TPU_HINTED in marks and _OTHER_ACCELERATOR not in marks):
        return True
    return any(group.names_tpu for group in groups)


def _of_others(groups: Mapping[_Key, _Group], marks: set[str], *, names_tpu: bool, of_job: bool) -> list[_Key]:
    """Return the keys of the groups that are another accelerator's, another service's or any program's.

    A TPU job may look for other accelerators first.
    """
    others = {_OTHER_VENDOR} if of_job else {_OTHER_ACCELERATOR, _OTHER_VENDOR}
    elsewhere = not names_tpu and not marks.isdisjoint(others)
    any_service = not names_tpu and _OTHER_SERVICE in marks
    return [
        key
        for key, group in groups.items()
        if elsewhere
        or (any_service and key[0].row.of_any_service)
        or not group.is_of_tpu(names_tpu=names_tpu, of_job=of_job)
    ]


def _of_what(marks: set[str], *, names_tpu: bool) -> dict[str, str]:
    """Return whose a failure is that no rule explains, if it is certain that it is no TPU's."""
    if not names_tpu and not marks.isdisjoint({_OTHER_ACCELERATOR, _OTHER_VENDOR}):
        return {"of": "another accelerator"}
    if not names_tpu and _OTHER_SERVICE in marks:
        return {"of": "another service"}
    return {}


def _places(groups: Iterable[_Group]) -> dict[str, list[int]]:
    """Where in each file the faults are that specific rules recognised, in order."""
    places: dict[str, list[int]] = {}
    for group in groups:
        for record, event in group.records:
            if not record.rule.general:
                places.setdefault(event.file, []).append(event.offset)
    for offsets in places.values():
        offsets.sort()
    return places


@dataclass(slots=True)
class _Seen:
    """The records of one cause, by their keys: a copy has the same one.

    Keys take long to make, and a copy has the same header too. So repeats whose headers are new get none until one may
    be a copy.
    """

    _keys: set[bytes] = field(default_factory=set)
    _headers: set[bytes] = field(default_factory=set)
    _unkeyed: list[Repeats] = field(default_factory=list)
    _unkeyed_bytes: int = 0

    def add(self, key: bytes, header: bytes) -> bool:
        """Whether this one is new."""
        if not (header and self._are_new([header])):
            self._make_keys()
        new = key not in self._keys
        self._keep({key})
        return new

    def add_repeats(self, repeats: Repeats) -> int:
        """How many of these are new."""
        headers = repeats.headers()
        if not (headers and self._are_new(headers)):
            self._make_keys()
            new = set(repeats.keys()) - self._keys
            self._keep(new)
            return len(new)
        self._unkeyed.append(repeats)
        self._unkeyed_bytes += sum(map(len, repeats.lines))
        if self._unkeyed_bytes > _MAX_UNKEYED:
            self._make_keys()
        return len(repeats)

    def _are_new(self, headers: Collection[bytes]) -> bool:
        """Whether all of these headers differ, and from all before; not known of very many."""
        if len(self._headers) >= _MAX_KEYS:
            return False
        before = len(self._headers)
        self._headers.update(headers)
        return len(self._headers) == before + len(headers)

    def _make_keys(self) -> None:
        for repeats in self._unkeyed:
            self._keep(repeats.keys())
        self._unkeyed.clear()
        self._unkeyed_bytes = 0

    def _keep(self, keys: Collection[bytes]) -> None:
        if len(self._keys) < _MAX_KEYS:
            self._keys.update(keys)


@dataclass(slots=True)
class _Group:
    """All events of one cause. After _MAX_RECORDS only the count and the last event are kept."""

    records: list[tuple[RecognisedRecord, Event]] = field(default_factory=list)
    rules: set[Rule] = field(default_factory=set)
    seen: _Seen = field(default_factory=_Seen)
    steps: set[Any] = field(default_factory=set)  # of training since the last event
    count: int = 0
    last: Event | None = None
    latest: dict[tuple[int | None, str], Event] = field(default_factory=dict)  # of each process and file

    def add(self, record: RecognisedRecord, event: Event) -> None:
        self.steps.clear()
        if record.repeats is not None:
            self.count += self.seen.add_repeats(record.repeats)
        if not self.seen.add(event.key, record.header):
            if record.again and len(self.records) < _MAX_RECORDS:  # it may state more
                self._keep(record, event)
            return
        self.count += 1 + event.repeats
        self.last = event
        self.latest.pop((event.pid, event.file), None)
        self.latest[event.pid, event.file] = event
        if len(self.latest) > _MAX_RECORDS:
            del self.latest[next(iter(self.latest))]
        if len(self.records) < _MAX_RECORDS or record.rule not in self.rules:
            self._keep(record, event)

    def absorb(self, other: _Group) -> None:
        """Take the events of another group, which are consequences of these."""
        self.records += other.records
        self.rules |= other.rules
        self.steps = min(self.steps, other.steps, key=len)
        self.latest |= other.latest

    @property
    def files(self) -> set[str]:
        """Where the events were read."""
        return {event.file for _, event in self.records}

    @property
    def is_full(self) -> bool:
        """Whether of further records of the same rules only the number is taken."""
        return len(self.records) >= _MAX_RECORDS

    def _keep(self, record: RecognisedRecord, event: Event) -> None:
        self.records.append((record, event))
        self.rules.add(record.rule)

    def explained(self, marks: set[str]) -> bool:
        """Whether these are no faults: training continued, or a mark explains them."""
        continued = len(self.steps) >= _STEPS_OF_A_GOOD_RUN
        return all((rule.recovers and continued) or rule.cleared_by in marks for rule in self.rules)

    def is_of_tpu(self, *, names_tpu: bool, of_job: bool) -> bool:
        """Whether a TPU's program tells of it, by its words, by the text, or since the text is of a TPU job."""
        if names_tpu or not all(rule.any_program for rule in self.rules):
            return True
        return of_job and not all(rule.whole_text for rule in self.rules)

    def gives_way(self, places: Mapping[str, list[int]]) -> bool:
        """Whether only general rules speak here, where specific rules tell of the same failure."""
        return all(rule.general for rule in self.rules) and all(
            any_near(places.get(event.file, []), event.offset) for _, event in self.records
        )

    def take_as_unknown(self, other: _Group) -> None:
        """Add the events of a group that is no TPU's, where their lines plainly show a failure."""
        for record, event in other.records:
            for rule in record.rule.otherwise:
                if rule.search(event.text.encode()):
                    details = rule.details(event.text.encode())
                    same = replace(event, rule=rule.id, cause=Cause.UNKNOWN_FAILURE, details=details)
                    self.add(replace(record, rule=rule, event=same, repeats=None), same)
                    break

    def decisive(self, shown: Mapping[str, str]) -> _Group:
        """Return the group with the line first that says most, and with these details."""
        ordered = sorted(self.records, key=lambda pair: pair[0].rule.rank)
        records = [(record, replace(event, details={**event.details, **shown})) for record, event in ordered]
        return replace(self, records=records)

    @property
    def only_prose(self) -> bool:
        """Whether there is only what a person writes."""
        return all(rule.prose for rule in self.rules)

    @property
    def names_tpu(self) -> bool:
        """Whether a line of these events names a TPU."""
        return any(_TPU_WORDS.search(event.text) for _, event in self.records)

    def finding(self, marks: set[str]) -> tuple[tuple[int, int, int], Finding]:
        """The finding and its sort key."""
        record, event = min(self.records, key=lambda pair: pair[0].rule.rank)
        details = dict(event.details)
        for _, other in self.records:
            if all(details[name] == value for name, value in other.details.items() if name in details):
                details |= other.details
        details |= context_of(marks)
        if record.rule.evidence:
            details["evidence"] = record.rule.evidence
        spread: dict[str, list[Any]] = {}
        for _, other in self.records:
            for name, values in other.spread.items():
                spread[name] = values_together(spread.get(name, ()), values)
        for name in record.rule.each:
            values = [other.details[name] for _, other in self.records if name in other.details]
            if len(set(values)) > 1:
                spread[name] = values_together(spread.get(name, ()), values)
        finding = Finding(
            cause=event.cause,
            count=self.count,
            first=self.records[0][1],
            last=self.last or event,
            line=self.records[0][0].line,
            details=details,
            summary=record.rule.describe({**details, **spread}),
            remedy=record.rule.remedy_for(details),
            latest=tuple(self.latest.values()),
            rule=record.rule.id,
            confidence=record.rule.confidence,
        )
        return (record.rule.rank, event.cause.rank, finding.first.offset), finding
