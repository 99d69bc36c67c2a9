"""A journal whose disk is full or cannot be written."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.journal.make import NOW, cursor, event
from tpuwatch.errors import JournalBusyError, JournalError
from tpuwatch.journal import Journal, schema, store
from tpuwatch.model import Launch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.clock import ManualClock

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="no permission stops root")


def large(count: int, name: str = "") -> list[object]:
    return [event(f"{name}{number}", text="x" * 5000) for number in range(count)]


def test_a_full_journal_changes_nothing_and_goes_on_when_there_is_room(journal: Journal) -> None:
    journal.commit([event("a")], [cursor(10)], [Launch(pid=1, started=NOW)])
    connection = journal._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(JournalError, match=r"database or disk is full; nothing is lost.* make room"):
        journal.commit(large(100), [cursor(20)], [Launch(pid=1, started=NOW, user="me")])  # type: ignore[arg-type]
    assert [one.key for one in journal.events()] == [b"a"]
    assert journal.cursors() == [cursor(10)]
    assert journal.launches()[0].user == ""
    connection.execute("PRAGMA max_page_count = 100000")
    assert len(journal.commit(large(100), [cursor(20)])) == 100  # type: ignore[arg-type]
    assert journal.cursors() == [cursor(20)]


UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
from tests.journal.make import cursor, event
from tpuwatch.clock import ManualClock
from tpuwatch.errors import JournalError
from tpuwatch.journal import Journal

journal = Journal.open(Path(sys.argv[1]), ManualClock())
journal.commit([event("a")], [cursor(10)])
free = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, free[1]))
batch = [event(str(number), text="x" * 5000) for number in range(200)]
try:
    journal.commit(batch, [cursor(20)])
except JournalError as error:
    print(error)
print([one.key for one in journal.events()], journal.cursors()[0].offset)
print(len(journal.commit([event("b")], [cursor(11)])))
resource.setrlimit(resource.RLIMIT_FSIZE, free)
print(len(journal.commit(batch, [cursor(20)])), len(journal.events()), journal.cursors()[0].offset)
journal.close()
"""


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    trouble, before, little, after = done.stdout.splitlines()
    assert trouble.startswith(f"cannot write the journal {tmp_path}/journal.db: ")
    assert before == "[b'a'] 10"
    assert little == "1"
    assert after == "200 202 20"


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)  # noqa: S607 (found on PATH)


@needs_root
def test_a_disk_that_fills_and_is_cleared(tmp_path: Path, clock: ManualClock) -> None:
    with small_disk(tmp_path / "disk", "2m"):
        ballast = tmp_path / "disk" / "ballast"
        journal = Journal.open(tmp_path / "disk" / "state", clock)
        journal.commit([event("a")], [cursor(10)])
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        with pytest.raises(JournalError, match="make room"):
            journal.commit(large(50), [cursor(20)])  # type: ignore[arg-type]
        assert journal.cursors() == [cursor(10)]
        ballast.unlink()
        assert len(journal.commit(large(50), [cursor(20)])) == 50  # type: ignore[arg-type]
        journal.close()


@needs_root
def test_a_full_disk_at_the_start(tmp_path: Path, clock: ManualClock) -> None:
    with small_disk(tmp_path / "disk", "64k"):
        with contextlib.suppress(OSError), open(tmp_path / "disk" / "ballast", "wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        journal = Journal.open(tmp_path / "disk", clock)
        assert not journal.durable
        assert "it is in memory, and lost when tpuwatch ends" in journal.notices[0]
        assert len(journal.commit([event("a")], [])) == 1
        journal.close()


@needs_root
def test_a_disk_that_is_mounted_read_only(tmp_path: Path, clock: ManualClock) -> None:
    with small_disk(tmp_path / "disk", "4m"):
        journal = Journal.open(tmp_path / "disk" / "state", clock)
        journal.commit([event("a")], [cursor(10)])
        journal.close()
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "disk"], check=True)  # noqa: S607 (found on PATH)
        check_memory(tmp_path / "disk" / "state", clock)


@not_root
@pytest.mark.parametrize("locked", ["directory", "file"])
def test_a_directory_or_file_that_may_not_be_written(tmp_path: Path, clock: ManualClock, locked: str) -> None:
    directory = tmp_path / "state"
    journal = Journal.open(directory, clock)
    journal.commit([event("a")], [cursor(10)])
    journal.close()
    target, mode = (directory, 0o555) if locked == "directory" else (directory / schema.FILE_NAME, 0o444)
    target.chmod(mode)
    try:
        check_memory(directory, clock)
    finally:
        target.chmod(0o755)


def check_memory(directory: Path, clock: ManualClock) -> None:
    """The journal goes on in memory with what the file holds, and the file stays as it is."""
    before = (directory / schema.FILE_NAME).read_bytes()
    journal = Journal.open(directory, clock)
    assert not journal.durable
    assert not journal.first_run
    (notice,) = journal.notices
    assert f"the journal cannot be kept in {directory} (" in notice
    assert "make the directory writable" in notice
    assert [one.key for one in journal.commit([event("a"), event("b")], [cursor(20)])] == [b"b"]
    assert journal.cursors() == [cursor(20)]
    with pytest.raises(JournalBusyError):
        Journal.open(directory, clock)
    journal.close()
    assert (directory / schema.FILE_NAME).read_bytes() == before


def test_a_place_that_is_no_directory(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "state").write_text("a file")
    journal = Journal.open(tmp_path / "state", clock)
    assert not journal.durable
    assert journal.first_run
    assert len(journal.commit([event("a")], [])) == 1
    journal.close()


@pytest.fixture
def in_memory(tmp_path: Path, clock: ManualClock) -> Iterator[Journal]:
    (tmp_path / "state").write_text("a file")
    journal = Journal.open(tmp_path / "state", clock)
    yield journal
    journal.close()


def test_a_journal_in_memory_is_read_by_any_thread(in_memory: Journal) -> None:
    in_memory.commit([event("a")], [])
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(len(in_memory.events())))
    reader.start()
    reader.join(timeout=60)
    assert found == [1]


def test_a_journal_in_memory_stays_small(in_memory: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MEMORY_BYTES", 1 << 20)
    for batch in range(20):
        in_memory.commit(large(50, f"{batch}."), [])  # type: ignore[arg-type]
    while in_memory.prune(max_age_seconds=1e9, max_bytes=1 << 40):
        pass
    assert in_memory.size_bytes() <= 1 << 20
