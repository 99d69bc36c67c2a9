"""Logs that are slow to parse: each turn of the daemon is short, and stores how far it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.daemon.test_daemon_reload import Site, site
from tests.unit.ingest.test_ingest import Machine, machine
from tests.unit.logs.sites import SLOW, dull, line, name, parse_slowly
from tpuwatch.daemon.daemon import LOGS
from tpuwatch.ingest.ingest import SAVE_SECONDS
from tpuwatch.logs.tail.follow import MAX_POLL_SECONDS
from tpuwatch.logs.tail.followed_file import MIN_CHUNK_BYTES

if TYPE_CHECKING:
    from tpuwatch.store import EventStore

__all__ = ["machine", "site"]  # fixtures

TURN_SECONDS = MAX_POLL_SECONDS + MIN_CHUNK_BYTES / SLOW + 0.001


def stored(store: EventStore) -> int:
    """Bytes up to which files are read, as a new daemon would find it."""
    return sum(cursor.offset for cursor in store.cursors())


@pytest.mark.slow
def test_each_turn_stores_how_far_it_came(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.turns()
    parse_slowly(machine.clock, monkeypatch)
    assert TURN_SECONDS < SAVE_SECONDS  # or it would be stored for another reason
    size = 0
    for pid in range(2):
        size += machine.write("".join(line(100 * pid + n) + dull(100) for n in range(40)), name(pid=pid)).stat().st_size
    machine.clock.advance(1.0)
    turns = before = 0
    machine.ingest.turn()
    while machine.ingest.due_in == 0.0:
        turns += 1
        assert stored(machine.store) > before
        before = stored(machine.store)
        if turns % 2 == 0:
            machine.restart()  # killed, as by systemd's watchdog: what was done is not done again
        machine.ingest.turn()
    assert 3 < turns <= size / SLOW / MAX_POLL_SECONDS
    machine.turns()
    assert sorted(machine.numbers()) == sorted(100 * pid + n for pid in range(2) for n in range(40))


@pytest.mark.slow
def test_the_watchdog_sees_progress_while_slow_logs_are_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = site.daemon
    daemon.turn()
    parse_slowly(site.clock, monkeypatch)
    for pid in range(4):
        (site.root / "logs" / name(pid=pid)).write_text(dull(50_000))  # two minutes of work
    site.clock.advance(1.0)
    begun, before = site.clock.monotonic(), -1
    while site.clock.monotonic() - begun < 90:
        turn = site.clock.monotonic()
        daemon.turn()
        assert site.clock.monotonic() - turn <= TURN_SECONDS
        assert LOGS not in daemon._watchdog.stalled()
        assert before < (before := stored(daemon._store))
    daemon.stop()
    turn = site.clock.monotonic()
    daemon.turn()  # the last one
    assert site.clock.monotonic() - turn <= TURN_SECONDS
    assert stored(daemon._store) > before
