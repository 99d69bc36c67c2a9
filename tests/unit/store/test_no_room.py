"""A store whose disk is full or cannot be written."""

from __future__ import annotations

import contextlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW, cursor, event
from tpuwatch.core.errors import StoreBusyError, StoreError
from tpuwatch.model.events import Event
from tpuwatch.model.launches import Launch
from tpuwatch.store import EventStore, schema
from tpuwatch.store.opening import open_memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="no permission stops root")


def large(count: int, name: str = "") -> list[Event]:
    return [event(f"{name}{number}", text="x" * 5000) for number in range(count)]


def test_a_full_store_changes_nothing_and_continues_when_there_is_room(store: EventStore) -> None:
    store.commit([event("a")], [cursor(10)], [Launch(pid=1, started=NOW)])
    connection = store._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(StoreError, match=r"database or disk is full; nothing is lost.* make room"):
        store.commit(large(100), [cursor(20)], [Launch(pid=1, started=NOW, user="me")])
    assert [one.key for one in store.events()] == [b"a"]
    assert store.cursors() == [cursor(10)]
    assert store.launches()[0].user == ""
    connection.execute("PRAGMA max_page_count = 100000")
    assert len(store.commit(large(100), [cursor(20)])) == 100
    assert store.cursors() == [cursor(20)]


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


def fill(ballast: Path) -> None:
    """Write to the file until its disk is full."""
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


@needs_root
def test_a_disk_that_fills_and_is_cleared(tmp_path: Path, clock: ManualClock) -> None:
    with small_disk(tmp_path / "disk", "2m"):
        ballast = tmp_path / "disk" / "ballast"
        store = EventStore.open(tmp_path / "disk" / "state", clock)
        store.commit([event("a")], [cursor(10)])
        fill(ballast)
        with pytest.raises(StoreError, match="make room"):
            store.commit(large(50), [cursor(20)])
        assert store.cursors() == [cursor(10)]
        ballast.unlink()
        assert len(store.commit(large(50), [cursor(20)])) == 50
        store.close()


@needs_root
def test_a_full_disk_at_the_start(tmp_path: Path, clock: ManualClock) -> None:
    with small_disk(tmp_path / "disk", "64k"):
        fill(tmp_path / "disk" / "ballast")
        store = EventStore.open(tmp_path / "disk", clock)
        assert not store.durable
        assert "it is in memory, and lost when tpuwatch ends" in store.problem
        assert len(store.commit([event("a")], [])) == 1
        store.close()


@needs_root
def test_a_disk_that_is_mounted_read_only(tmp_path: Path, clock: ManualClock) -> None:
    with small_disk(tmp_path / "disk", "4m"):
        store = EventStore.open(tmp_path / "disk" / "state", clock)
        store.commit([event("a")], [cursor(10)])
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "disk"], check=True)  # noqa: S607 (found on PATH)
        check_memory(tmp_path / "disk" / "state", clock)


@not_root
@pytest.mark.parametrize("locked", ["directory", "file"])
def test_a_directory_or_file_that_may_not_be_written(tmp_path: Path, clock: ManualClock, locked: str) -> None:
    directory = tmp_path / "state"
    store = EventStore.open(directory, clock)
    store.commit([event("a")], [cursor(10)])
    store.close()
    target, mode = (directory, 0o555) if locked == "directory" else (directory / schema.FILE_NAME, 0o444)
    target.chmod(mode)
    try:
        check_memory(directory, clock)
    finally:
        target.chmod(0o755)


def check_memory(directory: Path, clock: ManualClock) -> None:
    """The store goes on in memory with what the file holds, and the file stays as it is."""
    before = (directory / schema.FILE_NAME).read_bytes()
    store = EventStore.open(directory, clock)
    assert not store.durable
    assert not store.first_run
    assert store.notices == ()
    assert store.problem.startswith(f"The store cannot be kept in {directory} (")
    assert "Make the directory writable" in store.problem
    assert [one.key for one in store.commit([event("a"), event("b")], [cursor(20)])] == [b"b"]
    assert store.cursors() == [cursor(20)]
    with pytest.raises(StoreBusyError):
        EventStore.open(directory, clock)
    store.close()
    assert (directory / schema.FILE_NAME).read_bytes() == before


def test_a_file_that_could_not_be_begun_is_of_no_other_version(tmp_path: Path) -> None:
    (tmp_path / schema.FILE_NAME).touch()
    notices: list[str] = []
    with closing(open_memory(tmp_path / schema.FILE_NAME, notices)):
        assert notices == []


@pytest.fixture
def in_memory(tmp_path: Path, clock: ManualClock) -> Iterator[EventStore]:
    """The store of a state directory that is a file."""
    (tmp_path / "state").write_text("a file")
    with closing(EventStore.open(tmp_path / "state", clock)) as store:
        yield store


def test_a_store_in_memory_is_read_by_any_thread(in_memory: EventStore) -> None:
    assert not in_memory.durable
    assert in_memory.first_run
    assert len(in_memory.commit([event("a")], [])) == 1
    with ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(in_memory.events).result(timeout=60)) == 1


def test_a_store_in_memory_stays_small(in_memory: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.MEMORY_BYTES", 1 << 20)
    for batch in range(20):
        in_memory.commit(large(50, f"{batch}."), [])
    while in_memory.prune(max_age_seconds=1e9, max_bytes=1 << 40):
        pass
    assert in_memory.size_bytes() <= 1 << 20
