"""Repeats of a failure: each counts once, whatever files it stands in and however the reading is cut."""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING

import pytest

from tests.unit.ingest.test_ingest import Machine
from tests.unit.logs.sites import HEADER, name
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.parse.shapes import OFTEN
from tpuwatch.logs.rules.catalogue import for_programs, load_catalogue
from tpuwatch.model.causes import Cause
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBER = 200
CAUSE = Cause.HBM_OOM_RUNTIME.value
EVENTS = f'tpuwatch_events_total{{cause="{CAUSE}"}}'


def records(first: int, last: int) -> str:
    return "".join(
        f"E0921 14:13:{20 + n // 100:02d}.{n % 100 * 9999:06d} 4711 a.cc:{n % 90 + 10}] "
        f"RESOURCE_EXHAUSTED: Attempting to allocate {n % 9 + 1}.21G. That was not possible. "
        f"There are 0.{n % 8}G free.; (0x0x0_HBM0)\n"
        for n in range(first, last)
    )


def counted(machine: Machine) -> int:
    return sum(1 + event.repeats for event in machine.store.events(limit=10_000))


@pytest.fixture
def flood(tmp_path: Path) -> Iterator[Machine]:
    """A machine with the rules of programs, which has begun to read."""
    machine = Machine(tmp_path)
    machine.scanner = Scanner(for_programs(load_catalogue()))
    machine.ingest.replace_follower(machine.follower())
    machine.turns()
    yield machine
    machine.ingest.follower.close()
    machine.store.close()


def test_a_flood_is_a_few_events_with_their_number_and_times(flood: Machine) -> None:
    flood.write(HEADER + records(0, NUMBER))
    flood.turns()
    events = flood.store.events()
    assert counted(flood) == NUMBER
    assert len(events) < 2 * OFTEN
    last = max(events, key=lambda event: event.repeats)
    assert last.repeats > 80
    assert last.since is not None
    assert last.time is not None
    assert last.since < last.time
    assert flood.metric(EVENTS) == NUMBER
    assert sum(1 + event.repeats for event in flood.new_events) == NUMBER


def test_an_event_tells_what_its_repeats_state(flood: Machine) -> None:
    """Of the tasks that are lost the last is the event."""
    tasks = [number % 3 + 3 for number in range(60)]
    flood.write(
        HEADER
        + "".join(
            f"E0921 14:13:20.{number:06d} 4711 a.cc:10] /job:jax_worker/replica:0/task:{task} heartbeat timeout\n"
            for number, task in enumerate(tasks)
        )
    )
    flood.turns()
    event = max(flood.store.events(), key=lambda one: one.repeats)
    names = [f"/job:jax_worker/replica:0/task:{task}" for task in (3, 4, 5)]
    assert event.repeats > 30
    assert event.spread == {"hosts": names}
    assert next(one for one in flood.new_events if one.key == event.key).spread == event.spread
    rule = next(rule for rule in flood.scanner.catalogue.rules if rule.id == event.rule)
    shown = f"{names[0]}, {names[1]} and {names[2]}"
    assert shown in rule.describe({**event.details, **event.spread})
    (finding,) = fold([RecognisedRecord(rule, event, event.details)])
    assert shown in finding.summary


def test_what_was_counted_before_is_not_stated_again(flood: Machine) -> None:
    text = HEADER + records(0, 60)
    flood.write(text)
    flood.turns()
    before = flood.store.events()
    flood.write(text + records(60, 90), name("ERROR"))
    flood.turns()
    assert counted(flood) == 90
    assert [one.spread for one in flood.store.events()][: len(before)] == [one.spread for one in before]
    (more,) = (one for one in flood.store.events() if one.repeats and one.file.endswith(name("ERROR")))
    assert more.repeats < 30
    assert more.spread["requested_bytes"] == [int(1.21 * 2**30), int(9.21 * 2**30)]


def test_copies_in_other_files_count_once_however_they_are_cut(flood: Machine) -> None:
    rng = random.Random(3)
    text, severities = (HEADER + records(0, NUMBER)), ("INFO", "WARNING", "ERROR")
    written = dict.fromkeys(severities, 0)
    while any(at < len(text) for at in written.values()):
        severity = rng.choice(severities)
        step = rng.choice([10, 700, 5000])
        flood.write(text[written[severity] : written[severity] + step], name(severity))
        written[severity] = min(len(text), written[severity] + step)
        if rng.random() < 0.3:
            flood.turns(1)
        if rng.random() < 0.05:
            restart(flood)
    flood.turns()
    assert counted(flood) == NUMBER
    assert flood.store.totals()["events", CAUSE] == NUMBER


def test_what_could_not_be_stored_counts_once_later(flood: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = EventStore._insert_repeats

    def fail(*_: object) -> tuple[list[bytes], dict[str, list[object]]]:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(EventStore, "_insert_repeats", fail)
    flood.write(HEADER + records(0, NUMBER))
    flood.turns()
    assert counted(flood) == 0
    monkeypatch.setattr(EventStore, "_insert_repeats", insert)
    flood.turns()
    assert counted(flood) == NUMBER
    assert flood.metric(EVENTS) == NUMBER


def test_repeats_are_removed_with_their_event_and_not_before(flood: Machine) -> None:
    flood.write(HEADER + records(0, NUMBER))
    flood.turns()
    while flood.store.prune(1e9, 1 << 40):
        pass
    assert counted(flood) == NUMBER
    while flood.store.prune(-1.0, 1 << 40):
        pass
    assert counted(flood) == 0
    assert flood.store._connection.execute("SELECT count(*) FROM repeats").fetchone() == (0,)


def test_what_a_program_prints_of_a_record_in_a_flood_is_no_other_failure(flood: Machine) -> None:
    flood.write(HEADER + records(0, NUMBER))
    flood.turns(1)
    asked = (NUMBER - 5) % 9 + 1
    printed = f"RESOURCE_EXHAUSTED: Attempting to allocate {asked}.21G. That was not possible."
    (flood.jobs / "a.log").write_text(f"{printed} There are 0.{(NUMBER - 5) % 8}G free.; (0x0x0_HBM0)\n")
    flood.turns()
    assert counted(flood) == NUMBER


def restart(machine: Machine) -> None:
    scanner = machine.scanner
    machine.restart()
    machine.scanner = scanner
    machine.ingest.replace_follower(machine.follower())
