"""Tests of the ledger on one machine: a file that several processes share, and what may become of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT
from tests.unit.restart.ledger_contract import LedgerContract, Open
from tests.unit.restart.records import TARGET, full_record, record, written
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import Phase
from tpuwatch.restart.ledger.sqlite import SqliteLedger

WRITER = """
import sys
from pathlib import Path
from tests.unit.restart.records import NOW, record
from tpuwatch.core.clock import SystemClock
from tpuwatch.restart.ledger.sqlite import SqliteLedger
ledger = SqliteLedger(Path(sys.argv[1]), SystemClock())
version = ledger.write(record(tries=0), 0).version
for tries in range(1, 10_000):
    print(tries - 1, flush=True)
    version = ledger.write(record(tries=tries), version).version
"""


ANOTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("BEGIN EXCLUSIVE")
except sqlite3.OperationalError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> Open:
    return lambda: SqliteLedger(tmp_path, clock, busy_seconds=60.0)  # many write at once, and a disk may be slow


def execute(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path / "ledger.db")
    with connection:
        connection.execute(statement, values)
    connection.close()


class TestContract(LedgerContract):
    """SQLite as any other ledger."""


def test_its_stamp_differs_after_a_write_by_another_and_not_after_a_reading(opened: Open) -> None:
    ledger, another = opened(), opened()
    stamps = [ledger.stamp()]
    version = 0
    for tries in range(3):
        version = another.write(record(tries=tries), version).version
        stamps.append(ledger.stamp())
        assert ledger.read(TARGET)
        assert ledger.stamp() == another.stamp() == stamps[-1]
    assert len(set(stamps)) == 4


def test_reading_makes_nothing(tmp_path: Path, clock: ManualClock) -> None:
    ledger = SqliteLedger(tmp_path / "state", clock)
    assert ledger.read(TARGET) is None
    assert ledger.records() == []
    assert ledger.fleet().version == 0
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_for_its_owner_alone(tmp_path: Path, clock: ManualClock) -> None:
    old = os.umask(0)
    try:
        SqliteLedger(tmp_path / "state", clock).write(record(), 0)
    finally:
        os.umask(old)
    assert (tmp_path / "state" / "ledger.db").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["ledger.db"]


def test_a_link_is_not_followed(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "ledger.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match="cannot be written"):
        opened().write(record(), 0)
    assert not (tmp_path / "elsewhere").exists()


def test_what_a_killed_writer_was_given_is_there(tmp_path: Path, opened: Open) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        reported = [next(writer.stdout) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        reported += writer.stdout.readlines()
    found = written(opened())
    assert found.record.tries in (
        int(reported[-1]),
        int(reported[-1]) + 1,
    )  # the last one may not have been reported any more
    opened().write(record(phase=Phase.DONE), found.version)


def test_an_empty_file_of_one_that_was_killed_is_a_new_ledger(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "ledger.db").touch(0o600)
    assert opened().read(TARGET) is None
    assert opened().fleet().version == 0
    assert opened().write(record(), 0).version


def test_who_holds_the_file_is_waited_for_up_to_the_deadline(tmp_path: Path, opened: Open, clock: ManualClock) -> None:
    opened().write(record(), 0)
    hasty = SqliteLedger(tmp_path, clock, busy_seconds=0.05)
    holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LedgerError, match=f"it is being written by process {os.getpid()} "):
        hasty.write(record("train-2"), 0)
    assert hasty.read(TARGET) is not None
    assert len(hasty.records()) == 1
    holder.execute("ROLLBACK")
    holder.close()
    assert hasty.read(TARGET) is not None


def test_rubbish_and_other_databases_are_refused(tmp_path: Path, opened: Open) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("What is this? " * 100)
    with pytest.raises(LedgerError, match="damaged"):
        opened().read(TARGET)
    path.unlink()
    execute(tmp_path, "CREATE TABLE shopping (item TEXT)")
    with pytest.raises(LedgerError, match="some other program"):
        opened().write(record(), 0)


def test_a_newer_file_is_refused(tmp_path: Path, opened: Open) -> None:
    opened().write(record(), 0)
    execute(tmp_path, "PRAGMA user_version = 2")
    with pytest.raises(LedgerError, match="newer tpuwatch"):
        opened().read(TARGET)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("phase", "asleep"),
        ("action", None),
        ("tries", 1.5),
        ("tries", True),
        ("stops", "1"),
        ("requested", "now"),
        ("requested", float("inf")),
        ("evidence", "all of it"),
        ("evidence", [1]),
        ("history", [{"action": "restart_node"}]),
        ("target", {"project": "lab"}),
        ("lease", []),
        ("surprise", 1),
        ("schema", "1"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(tmp_path: Path, opened: Open, field: str, value: object) -> None:
    opened().write(full_record(), 0)
    connection = sqlite3.connect(tmp_path / "ledger.db")
    document = json.loads(connection.execute("SELECT value FROM entries").fetchone()[0])
    connection.close()
    execute(tmp_path, "UPDATE entries SET value = ?", json.dumps({**document, field: value}))
    with pytest.raises(LedgerError, match="damaged"):
        opened().read(TARGET)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schema":1}', "[" * 100_000])
def test_what_is_no_record_is_refused(tmp_path: Path, opened: Open, text: str) -> None:
    opened().write(full_record(), 0)
    execute(tmp_path, "UPDATE entries SET value = ?", text)
    with pytest.raises(LedgerError, match="damaged"):
        opened().records()


def test_a_record_of_before_a_field_was_added_has_its_default(tmp_path: Path, opened: Open) -> None:
    opened().write(full_record(), 0)
    execute(tmp_path, "UPDATE entries SET value = json_remove(value, '$.note', '$.history', '$.lease')")
    found = written(opened())
    assert (found.record.note, found.record.history, found.record.lease.owner) == ("", (), "")
    assert found.record.operations == full_record().operations


def test_what_cannot_be_read_back_is_not_written(opened: Open) -> None:
    for wrong in (record(requested=float("nan")), record(reason="x" * 300_000)):
        with pytest.raises(LedgerError, match="stored"):
            opened().write(wrong, 0)
    assert opened().records() == []


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match=r"cannot be written.*check its directory's owner"):
        SqliteLedger(tmp_path / "file", clock).write(record(), 0)


def test_a_thread_that_has_to_wait_takes_the_lock_from_nobody(tmp_path: Path) -> None:
    """A process has its locks on a file for all of its threads, and loses them when one of these closes the file."""
    ledger = SqliteLedger(tmp_path, ManualClock(), busy_seconds=0.01)
    stored = ledger.write(record(), 0)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as writing:
        writing.execute("BEGIN EXCLUSIVE")  # as another thread of this process does, in the middle of a write
        with pytest.raises(LedgerError, match="being written by"):
            ledger.write(record(), stored.version)
        assert ledger.read(stored.record.target) == stored
        another = subprocess.run([sys.executable, "-c", ANOTHER, str(ledger.path)], capture_output=True, text=True)
    assert "locked" in another.stderr


FULL: Final = """
import os, sys
from pathlib import Path
from tests.unit.restart.records import record
from tpuwatch.core.clock import SystemClock
from tpuwatch.core.errors import LedgerError
from tpuwatch.restart.ledger.sqlite import SqliteLedger

place = Path(sys.argv[1])
stored = SqliteLedger(place, SystemClock()).write(record(), 0)
with (place / "fill").open("wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
for _ in range(2):  # what fails leaves files behind
    ledger = SqliteLedger(place, SystemClock())
    assert ledger.records() == [stored]
    try:
        ledger.write(record(), stored.version)
        print("It was written.")
    except LedgerError as error:
        print(error)
(place / "fill").unlink()
ledger.write(record(), stored.version)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system takes a mount namespace")
def test_on_a_full_disk_it_can_be_read_and_not_written(tmp_path: Path) -> None:
    """SQLite would need room for files of its own beside it, to read it."""
    mount = f"mount -t tmpfs -o size=256k none {tmp_path} && exec {sys.executable} - {tmp_path}"
    unshare = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", mount]
    ran = subprocess.run(unshare, input=FULL, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(f"the ledger {tmp_path}/ledger.db cannot be written") == 2
