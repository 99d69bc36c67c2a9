"""A process holds its locks on a file for all of its threads, and loses them when any of these closes the file."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.restart.records import record
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import LedgerError
from tpuwatch.restart.ledger.sqlite import SqliteLedger

ANOTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("BEGIN EXCLUSIVE")
except sqlite3.OperationalError as error:
    sys.exit(str(error))
"""


def test_a_thread_that_has_to_wait_takes_the_lock_from_nobody(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path, ManualClock(), busy_seconds=0.01)
    stored = ledger.write(record(), 0)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as writing:
        writing.execute("BEGIN EXCLUSIVE")  # as another thread of this process does, in the middle of a write
        with pytest.raises(LedgerError, match="locked"):
            ledger.write(record(), stored.version)
        with pytest.raises(LedgerError, match="locked"):
            ledger.read(stored.record.target)
        another = subprocess.run([sys.executable, "-c", ANOTHER, str(ledger.path)], capture_output=True, text=True)
    assert "locked" in another.stderr


def test_a_new_ledger_leaves_no_other_file(tmp_path: Path) -> None:
    SqliteLedger(tmp_path, ManualClock()).write(record(), 0)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o600
