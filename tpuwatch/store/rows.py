"""Converts events, cursors, launches, verdicts, nodes of the cloud and steps to rows of the store, and back.

Strings from logs may contain lone surrogates, which SQLite's TEXT cannot: those, and only those, are stored as bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from tpuwatch.core import is_possible
from tpuwatch.model import (
    MAX_PLACES,
    Action,
    Cause,
    CloudNode,
    Confidence,
    Cursor,
    Event,
    Judgement,
    Launch,
    NodeSpan,
    NodeSpanKind,
    Outcome,
    PacePoint,
    PaceRecord,
    Place,
    ProgressSource,
    Reason,
    Signal,
    Source,
    StepPause,
    StepRun,
    StepSpan,
    Verdict,
    values_together,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = tuple[Any, ...]

SELECT_EVENTS = """SELECT id, key, rule, cause, observed, time, severity, pid, file, offset, text, details, history,
    places, repeats, since, spread FROM events"""
COUNT_EVENTS = "SELECT cause, count(*) FROM events"
INSERT_EVENT = """INSERT INTO events
    (id, key, rule, cause, observed, time, at, severity, pid, file, offset, text, details, history)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14
    WHERE NOT EXISTS (SELECT 1 FROM repeats WHERE key = ?2) ON CONFLICT (key) DO NOTHING"""
INSERT_REPEAT = """INSERT INTO repeats (key, event)
    SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM events WHERE key = ?1) ON CONFLICT (key) DO NOTHING"""
# All of an event in one statement, which takes a third of the time of as many: their keys, joined, their number and the
# length of each.
INSERT_REPEATS = """WITH RECURSIVE
    places (place) AS (SELECT 0 UNION ALL SELECT place + 1 FROM places WHERE place < ?3 - 1),
    found (key) AS (SELECT substr(?1, place * ?4 + 1, ?4) FROM places)
    INSERT INTO repeats (key, event)
    SELECT key, ?2 FROM found WHERE NOT EXISTS (SELECT 1 FROM events WHERE events.key = found.key)
    ON CONFLICT (key) DO NOTHING"""
# The event of a key: its own, or the one that it is stored with.
SELECT_HOLDER = """SELECT id FROM events WHERE key = ?1
    UNION ALL SELECT event FROM repeats WHERE key = ?1"""
SELECT_STATED = "SELECT details, spread FROM events WHERE id = ?"
ADD_REPEATS = """UPDATE events SET repeats = repeats + ?2, since = min(coalesce(since, at), ?3), spread = ?4
    WHERE id = ?1"""
# The same place may be offered again.
ADD_PLACE = """UPDATE events SET places = coalesce(places || char(10), '') || ?1
    WHERE key = ?2 AND instr(coalesce(places, ''), ?1) = 0
        AND length(places) - length(replace(places, char(10), '')) + 1 IS NOT ?3"""
SELECT_TOTALS = "SELECT series, label, number FROM totals"
ADD_TOTAL = """INSERT INTO totals (series, label, number) VALUES (?, ?, ?)
    ON CONFLICT (series, label) DO UPDATE SET number = number + excluded.number"""
SELECT_CURSORS = "SELECT device, inode, head, path, offset, state, history_until FROM cursors"
REPLACE_CURSOR = """INSERT OR REPLACE INTO cursors (device, inode, head, path, offset, state, history_until, seen)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
# An inode is one file at a time: one with other first bytes was truncated, or deleted and its inode reused.
DROP_OTHER_HEADS = "DELETE FROM cursors WHERE device = ? AND inode = ? AND head <> ?"
SELECT_LAUNCHES = "SELECT id, facts FROM launches"
UPSERT_LAUNCH = """INSERT INTO launches (started, pid, facts) VALUES (?, ?, ?)
    ON CONFLICT (started, pid) DO UPDATE SET facts = excluded.facts"""
SELECT_LAST_VERDICTS = (
    "SELECT node, verdict, at, since, facts FROM verdicts"
    " WHERE id IN (SELECT max(id) FROM verdicts GROUP BY node) AND boot_id = ?"
)
INSERT_VERDICT = "INSERT INTO verdicts (node, verdict, at, since, boot_id, facts) VALUES (?, ?, ?, ?, ?, ?)"
SELECT_CLOUD_NODES = "SELECT project, zone, name, facts FROM cloud_nodes WHERE stored >= ?"
REPLACE_CLOUD_NODE = "INSERT OR REPLACE INTO cloud_nodes (project, zone, name, stored, facts) VALUES (?, ?, ?, ?, ?)"
SELECT_BASELINES = "SELECT launch, workload, run, step, at, facts FROM baselines"
REPLACE_BASELINE = "INSERT OR REPLACE INTO baselines (launch, workload, run, step, at, facts) VALUES (?, ?, ?, ?, ?, ?)"
SELECT_PACE = "SELECT step, at, seconds FROM pace WHERE launch = ? ORDER BY step"
SELECT_STEPS = "SELECT step FROM pace WHERE launch = ?"
DROP_STEP = "DELETE FROM pace WHERE launch = ? AND step = ?"
ADD_STEP = "INSERT OR REPLACE INTO pace (launch, step, at, seconds) VALUES (?, ?, ?, ?)"
SELECT_STEP_RUNS = "SELECT began, source, name, pid, user, facts FROM step_runs"
REPLACE_STEP_RUN = """INSERT OR REPLACE INTO step_runs (began, source, name, pid, user, until, facts)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
SELECT_NODE_SPANS = "SELECT kind, since, until, boot_id FROM node_spans"
REPLACE_NODE_SPAN = "INSERT OR REPLACE INTO node_spans (kind, since, until, boot_id) VALUES (?, ?, ?, ?)"

_INT64 = 1 << 63
_CAUSES = {cause.value: cause for cause in Cause}
_LAUNCH_FIELDS = frozenset(field.name for field in fields(Launch)) - {"id"}
_LAUNCH_NUMBERS = frozenset(  # read from logs
    {
        "chips",
        "init_seconds",
        "premapped_bytes",
        "premapped_threshold_bytes",
        "premapped_partitions",
        "premapped_need_bytes",
        "premapped_asked_bytes",
    }
)
_CLOUD_FIELDS = ("state", "health", "hosts", "created", "changed", "changed_unseen")
_STEP_RUN_FIELDS = (
    "watched_since",
    "first_step",
    "stride",
    "step_seconds",
    "looks",
    "spans",
    "pauses",
    "continues",
    "done",
    "stalled",
)
_SPAN_KINDS = frozenset(kind.value for kind in NodeSpanKind)
_json = json.JSONEncoder(separators=(",", ":")).encode  # ASCII only: surrogates travel as escapes


def event_rows(events: Sequence[Event], first_id: int) -> list[Row]:
    """Rows for INSERT_EVENT, numbered from `first_id`.

    This runs for every event of a flood. sqlite3 binds str, int, float and bytearray directly but searches for an
    adapter for None, bool, bytes and enums: hence the conversions.
    """
    return [
        (
            number,
            bytearray(event.key),
            event.rule,
            event.cause._value_,
            event.observed,
            event.time,
            event.observed if event.time is None else event.time,
            event.severity,
            event.pid if event.pid is None or -_INT64 <= event.pid < _INT64 else None,  # a file's name has any number
            event.file if event.file.isascii() else storable(event.file),
            event.offset,
            event.text if event.text.isascii() else storable(event.text),
            _json(event.details) if event.details else "",
            1 if event.history else 0,
        )
        for number, event in enumerate(events, first_id)
    ]


def repeats_row(keys: Sequence[bytes], event: int) -> Row:
    """The values of INSERT_REPEATS for records that are stored with the event of this id: keys of the same length."""
    return b"".join(keys), event, len(keys), len(keys[0])


def event_of(row: Row) -> Event | None:
    """The event of a row of SELECT_EVENTS; None if its cause is not known to this version of tpuwatch."""
    number, key, rule, cause_value, observed, time, severity, pid, file, offset, text, details, history, *rest = row
    places, repeats, since, spread = rest
    cause = cause_of(cause_value)
    if cause is None:
        return None
    return Event(
        key=key,
        rule=rule,
        cause=cause,
        observed=observed,
        time=time,
        severity=severity,
        pid=pid,
        file=_text(file),
        offset=offset,
        text=_text(text),
        details=json.loads(details) if details else {},
        history=bool(history),
        id=number,
        places=tuple(map(_place_of, places.split("\n"))) if places else (),
        repeats=repeats,
        since=since,
        spread=json.loads(spread) if spread else {},
    )


def spread_of(row: Row | None, stated: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """What an event and its repeats state, of a row of SELECT_STATED, with what more repeats state."""
    details, stored = (json.loads(text) if text else {} for text in row or ("", ""))
    spread: dict[str, Sequence[Any]] = dict(stored)
    for name, values in stated.items():
        known = stored.get(name) or ([details[name]] if name in details else ())
        found = values_together(known, values)
        if len(found) > 1:
            spread[name] = found
    return spread


def spread_row(spread: Mapping[str, Sequence[Any]]) -> str | None:
    """A spread for ADD_REPEATS."""
    return _json(spread) if spread else None


def place_row(key: bytes, place: Place) -> Row:
    """A row for ADD_PLACE, for the event with that key."""
    return _json([place.key.hex(), place.file, place.offset, place.time, place.severity]), key, MAX_PLACES


def _place_of(stored: str) -> Place:
    key, *facts = json.loads(stored)
    return Place(bytes.fromhex(key), *facts)


def cursor_row(cursor: Cursor, seen: float) -> Row:
    """A row for REPLACE_CURSOR; `seen` is when the file was last known to exist, in seconds since the epoch."""
    return (
        signed(cursor.device),
        signed(cursor.inode),
        cursor.head,
        storable(cursor.path),
        cursor.offset,
        _json(cursor.state),
        cursor.history_until,
        seen,
    )


def cursor_of(row: Row) -> Cursor:
    """The cursor of a row of SELECT_CURSORS."""
    device, inode, head, path, offset, state, history_until = row
    return Cursor(
        path=_text(path),
        device=device % (2 * _INT64),
        inode=inode % (2 * _INT64),
        head=head,
        offset=offset,
        state=json.loads(state),
        history_until=history_until,
    )


def launch_row(launch: Launch) -> Row:
    """A row for UPSERT_LAUNCH."""
    facts = asdict(launch)
    del facts["id"]
    return launch.started, launch.pid, _json(facts)


def launch_of(row: Row) -> Launch:
    """The launch of a row of SELECT_LAUNCHES.

    Facts that this version of tpuwatch does not know are left out, and so are impossible numbers, which earlier
    versions stored as logged.
    """
    number, stored = row
    facts = {name: value for name, value in json.loads(stored).items() if name in _LAUNCH_FIELDS}
    for name in _LAUNCH_NUMBERS & facts.keys():
        if facts[name] is not None and not is_possible(facts[name]):
            facts[name] = None
    facts["outcome"] = Outcome(facts["outcome"])
    facts["cause"] = _CAUSES.get(facts["cause"])
    return Launch(**facts, id=number)


def verdict_row(judgement: Judgement, boot_id: str) -> Row:
    """A row for INSERT_VERDICT. The remedy is not stored: it follows from the rest."""
    facts = {
        "confidence": judgement.confidence,
        "action": judgement.action,
        "summary": judgement.summary,
        "reasons": [
            (reason.signal, reason.text, reason.at, sorted(reason.sources), reason.idle) for reason in judgement.reasons
        ],
        "contradictions": judgement.contradictions,
    }
    return storable(judgement.node), judgement.verdict.value, judgement.at, judgement.since, boot_id, _json(facts)


def verdict_of(row: Row) -> Judgement | None:
    """The judgement of a row of SELECT_LAST_VERDICTS; None if this version of tpuwatch cannot read it."""
    node, verdict, at, since, stored = row
    try:
        facts = json.loads(stored)
        return Judgement(
            node=_text(node),
            verdict=Verdict(verdict),
            at=at,
            confidence=Confidence(facts["confidence"]),
            action=Action(facts["action"]),
            summary=facts["summary"],
            reasons=tuple(_reason(*stored) for stored in facts["reasons"]),
            contradictions=tuple(facts["contradictions"]),
            since=since,
        )
    except (KeyError, ValueError, TypeError):
        return None


def _reason(signal: str, text: str, at: float | None, sources: Iterable[str] = (), idle: bool = False) -> Reason:
    """A stored reason; former versions stored no sources."""
    return Reason(Signal(signal), text, at, frozenset(map(Source, sources)), idle)


def cloud_row(node: CloudNode, stored: float) -> Row:
    """A row for REPLACE_CLOUD_NODE: only the facts that change seldom and that a later run needs."""
    return node.project, node.zone, node.name, stored, _json({name: getattr(node, name) for name in _CLOUD_FIELDS})


def cloud_of(row: Row) -> CloudNode:
    """The node of a row of SELECT_CLOUD_NODES, with the stored facts only."""
    project, zone, name, stored = row
    facts = {name: value for name, value in json.loads(stored).items() if name in _CLOUD_FIELDS}
    return CloudNode(project, zone, name, **facts)


def step_run_row(run: StepRun) -> Row:
    """A row for REPLACE_STEP_RUN. A process that is not known is 0: a primary key has no null."""
    facts = {name: getattr(run, name) for name in _STEP_RUN_FIELDS}
    name, user = storable(run.name), storable(run.user)
    return run.began, run.source.value, name, run.pid or 0, user, run.until, _json(facts)


def step_run_of(row: Row) -> StepRun | None:
    """The run of a row of SELECT_STEP_RUNS; None if this version of tpuwatch cannot read it."""
    began, source, name, pid, user, stored = row
    try:
        facts = {name: value for name, value in json.loads(stored).items() if name in _STEP_RUN_FIELDS}
        facts["spans"] = tuple(StepSpan(*span) for span in facts["spans"])
        facts["pauses"] = tuple(StepPause(*pause) for pause in facts["pauses"])
        return StepRun(ProgressSource(source), _text(name), pid or None, _text(user), began=began, **facts)
    except (KeyError, ValueError, TypeError):
        return None


def node_span_row(span: NodeSpan) -> Row:
    """A row for REPLACE_NODE_SPAN."""
    return span.kind.value, span.since, span.until, span.boot_id


def node_span_of(row: Row) -> NodeSpan | None:
    """The span of a row of SELECT_NODE_SPANS; None if this version of tpuwatch does not know its kind."""
    kind, since, until, boot_id = row
    return NodeSpan(NodeSpanKind(kind), since, until, boot_id) if kind in _SPAN_KINDS else None


def cause_of(value: str) -> Cause | None:
    """The cause of that name; None if it is not known to this version of tpuwatch."""
    return _CAUSES.get(value)


def signed(number: int) -> int:
    """An unsigned 64-bit device or inode number as SQLite's signed one."""
    return number - 2 * _INT64 if number >= _INT64 else number


def baseline_row(record: PaceRecord) -> Row:
    """A row for REPLACE_BASELINE."""
    workload, run = storable(record.workload), storable(record.run)
    return (record.launch, workload, run, record.step, record.at, _json(record.facts))


def step_row(launch: int, point: PacePoint) -> Row:
    """A row for ADD_STEP. Its time is a whole second, which takes half of the room."""
    return launch, point.step, round(point.at), point.seconds


def pace_of(row: Row, points: Iterable[Row]) -> PaceRecord | None:
    """The pace of a row of SELECT_BASELINES and of those of SELECT_PACE; None if it is unreadable."""
    launch, workload, run, step, at, stored = row
    try:
        facts = json.loads(stored)
    except (ValueError, TypeError):
        return None
    if not isinstance(facts, dict):
        return None
    return PaceRecord(launch, _text(workload), _text(run), step, at, facts, tuple(PacePoint(*one) for one in points))


def storable(text: str) -> str | bytes:
    """`text` in a form that SQLite can store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def _text(stored: str | bytes) -> str:
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")
