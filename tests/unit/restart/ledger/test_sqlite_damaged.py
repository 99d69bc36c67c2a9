"""A ledger whose file is damaged is kept under another name, and starts over with what can be read of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.restart.ledger_contract import at_once
from tests.unit.restart.policy_scenes import ALL_ON
from tests.unit.restart.records import NOW, TARGET, full_fleet, record
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import Phase
from tpuwatch.model.verdict import Action
from tpuwatch.restart.ledger.codec import DamagedError
from tpuwatch.restart.ledger.reading import read_ledger
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.restart.policy import budgets

NODES = 60


@pytest.fixture
def ledger(tmp_path: Path, clock: ManualClock) -> SqliteLedger:
    """With many records, so that it has several pages."""
    made = SqliteLedger(tmp_path, clock)
    for number in range(NODES):
        made.write(record(f"train-{number:02}", phase=Phase.DONE, reason="x" * 300), 0)
    made.write_fleet(full_fleet(), 0)
    return made


def spoil(path: Path, where: int, count: int = 64) -> bytes:
    content = bytearray(path.read_bytes())
    content[where : where + count] = b"\xff" * count
    path.write_bytes(content)
    return bytes(content)


def kept(path: Path) -> list[Path]:
    return sorted(path.parent.glob("ledger.db.damaged-*"))


@pytest.mark.parametrize("where", [0, 20, 4096, 3 * 4096], ids=["magic", "header", "root", "leaf"])
def test_reading_changes_nothing_and_the_next_write_sets_the_file_aside(
    ledger: SqliteLedger, clock: ManualClock, where: int
) -> None:
    content = spoil(ledger.path, where)
    fresh = SqliteLedger(ledger.path.parent, clock)
    for action in (lambda: fresh.read(TARGET), fresh.records, fresh.fleet):
        with pytest.raises(DamagedError, match="damaged"):
            action()
    assert ledger.path.read_bytes() == content
    stored = fresh.write(record("new"), 0)
    (aside,) = kept(ledger.path)
    assert aside.name == "ledger.db.damaged-20260921T141320Z"
    assert aside.read_bytes() == content
    assert fresh.read(stored.record.target) == stored
    assert stored.version > NOW  # higher than all of before
    breaker = fresh.fleet().fleet.breaker
    assert breaker.opened == NOW
    assert aside.name in breaker.reason
    assert (ledger.path.stat().st_mode & 0o777) == 0o600
    if where == 3 * 4096:
        assert NODES / 2 < len(fresh.records()) <= NODES


def test_with_the_breaker_open_nothing_new_is_restarted_until_an_operator_says_so(
    ledger: SqliteLedger, clock: ManualClock
) -> None:
    spoil(ledger.path, 0)
    fresh = SqliteLedger(ledger.path.parent, clock)
    assert fresh.set_aside()
    view = read_ledger(fresh).view
    hold = budgets.hold(view, TARGET, Action.RESTART_NODE, "node_stuck", 100, ALL_ON, NOW + 90 * 86_400)
    assert hold is not None
    assert hold.blocked.value == "breaker"
    assert "what was used of the budgets is not known" in hold.sentence
    closed = replace(view, fleet=budgets.closed(view, "someone", NOW + 1))
    assert budgets.hold(closed, TARGET, Action.RESTART_NODE, "node_stuck", 100, ALL_ON, NOW + 2) is None


def test_one_record_that_makes_no_sense_is_left_out(ledger: SqliteLedger) -> None:
    connection = sqlite3.connect(ledger.path)
    with connection:
        connection.execute("UPDATE entries SET value = '{}' WHERE name LIKE '%/train-07'")
    connection.close()
    with pytest.raises(DamagedError):
        ledger.records()
    assert ledger.set_aside()
    assert len(ledger.records()) == NODES - 1
    assert not ledger.set_aside()  # it is whole
    assert len(kept(ledger.path)) == 1


def test_what_is_not_damaged_or_not_ours_is_left_alone(tmp_path: Path, clock: ManualClock) -> None:
    ledger = SqliteLedger(tmp_path, clock)
    ledger.write(record(), 0)
    assert not ledger.set_aside()
    connection = sqlite3.connect(ledger.path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(LedgerError, match="newer tpuwatch"):
        SqliteLedger(tmp_path, clock).write(record("new"), 0)
    assert kept(ledger.path) == []


def test_of_many_who_find_the_damage_at_once_one_starts_over(ledger: SqliteLedger, clock: ManualClock) -> None:
    spoil(ledger.path, 0)
    done: list[int] = []

    def write(number: int) -> None:
        mine = SqliteLedger(ledger.path.parent, clock, busy_seconds=30.0)
        mine.write(record(f"new-{number}"), 0)
        done.append(number)

    at_once(6, write)
    assert len(done) == 6
    assert len(kept(ledger.path)) == 1
    assert len(SqliteLedger(ledger.path.parent, clock).records()) == 6


def test_the_log_of_a_damaged_file_goes_with_it(tmp_path: Path, clock: ManualClock) -> None:
    """It would be taken up with the new file."""
    ledger = SqliteLedger(tmp_path, clock)
    ledger.write(record(), 0)
    left = sqlite3.connect(ledger.path, isolation_level=None)
    left.execute("UPDATE entries SET value = 'nonsense'")  # in the log, as long as this is open
    assert ledger.set_aside()
    assert ledger.records() == []
    left.close()
    again = SqliteLedger(tmp_path, clock)
    assert again.records() == []
    assert again.fleet().fleet.breaker.opened
    assert again.write(record(), 0) == ledger.read(TARGET)


READER = """
import sys
from pathlib import Path
from tpuwatch.core.clock import SystemClock
from tpuwatch.restart.ledger.sqlite import SqliteLedger
ledger = SqliteLedger(Path(sys.argv[1]), SystemClock())
print(len(ledger.records()))
try:
    ledger.write(ledger.records()[0].record, ledger.records()[0].version)
except Exception as error:
    print(error)
"""


def test_a_disk_that_has_become_read_only_can_be_read(ledger: SqliteLedger) -> None:
    state = ledger.path.parent
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$3" -c "$2" "$1"'
    run = subprocess.run(
        ["/usr/bin/unshare", "--mount", "sh", "-c", script, "sh", str(state), READER, sys.executable],
        capture_output=True,
        text=True,
    )
    if "Operation not permitted" in run.stderr or "must be superuser" in run.stderr:
        pytest.skip("no mount may be made here")
    count, error = run.stdout.splitlines()
    assert count == str(NODES)
    assert "cannot be written" in error
