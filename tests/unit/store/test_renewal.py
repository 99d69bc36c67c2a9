"""A store whose files are deleted under it, or that could not be written at the start, is made durable again."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW, cursor, event, stored_verdicts
from tests.unit.store.test_no_room import fill, needs_root, small_disk
from tpuwatch.core.errors import StoreBusyError, StoreError
from tpuwatch.model.events import Place
from tpuwatch.model.launches import Launch
from tpuwatch.model.signals import CloudNode
from tpuwatch.model.verdict import Action, Confidence, Judgement, Verdict
from tpuwatch.store import EventStore, StoreReader, opening, schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock

TOTAL = ("events", "vmem_oom")
NODE = CloudNode("p", "z", "train-1", "READY", "HEALTHY")


def judgement(verdict: Verdict, at: float = NOW) -> Judgement:
    return Judgement("train-1", verdict, at, Confidence.HIGH, Action.NONE, "As it is.")


PLACE = Place(b"c", "/jobs/a.log", 7, None, "")


def fill_store(store: EventStore) -> None:
    launches = [Launch(pid=1, started=NOW)]
    events = [event("a"), event("b")]
    store.commit(events, [cursor(10)], launches, lambda new, _: {TOTAL: len(new)}, [(b"b", PLACE)])
    store.add_verdicts([judgement(Verdict.HEALTHY)], "boot-1")
    store.save_cloud_nodes([NODE])


def check_contents(store: EventStore) -> None:
    assert [(one.id, one.key, one.places) for one in store.events()] == [(1, b"a", ()), (2, b"b", (PLACE,))]
    assert store.cursors() == [cursor(10)]
    assert [one.pid for one in store.launches()] == [1]
    assert [one.verdict for one in stored_verdicts(store)] == [Verdict.HEALTHY]
    assert store.cloud_nodes() == [NODE]
    assert store.totals() == {TOTAL: 2}
    assert not store.first_run


def delete(*suffixes: str) -> Callable[[Path], None]:
    return lambda directory: [(directory / f"store.db{suffix}").unlink() for suffix in suffixes] and None


def replace(directory: Path) -> None:
    """As who restores an older copy."""
    delete("", "-wal", "-shm")(directory)
    with closing(schema.connect(directory / schema.FILE_NAME)) as copy:
        schema.migrate(copy)


def put_rubbish(directory: Path) -> None:
    delete("", "-wal", "-shm")(directory)
    (directory / schema.FILE_NAME).write_bytes(b"rubbish " * 4096)


@pytest.mark.parametrize(
    "deleted",
    [
        delete("", "-wal", "-shm"),
        delete(""),
        delete("-wal"),
        delete("-shm"),
        delete("-wal", "-shm"),
        shutil.rmtree,
        replace,
        put_rubbish,
    ],
    ids=["all", "file", "wal", "shm", "wal and shm", "directory", "replaced", "rubbish"],
)
def test_a_store_that_is_deleted_is_made_again(
    tmp_path: Path, clock: ManualClock, deleted: Callable[[Path], None]
) -> None:
    directory = tmp_path / "state"
    with closing(EventStore.open(directory, clock)) as store:
        fill_store(store)
        assert store.durable
        assert store.problem == ""
        deleted(directory)
        assert not store.durable
        assert store.problem == f"The files of the store {directory}/store.db were deleted or replaced."
        check_contents(store)
        store.renew()
        assert store.durable
        check_contents(store)
        assert store.commit([event("a")], [cursor(20)]) == []
        assert [one.id for one in store.commit([event("c")], [])] == [4]
        assert [one.key for one in StoreReader.open(directory).events()] == [b"a", b"b", b"c"]
        with pytest.raises(StoreBusyError):
            EventStore.open(directory, clock)
    with closing(EventStore.open(directory, clock)) as store:
        assert (store.durable, store.first_run, store.last_clean_stop) == (True, False, NOW)
        assert store.cursors() == [cursor(20)]
        assert len(store.events()) == 3


def test_a_store_that_is_deleted_while_it_is_opened_is_not_durable(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    identify = opening.file_ids
    with monkeypatch.context() as patch:
        patch.setattr(opening, "file_ids", lambda path: delete("", "-wal", "-shm")(tmp_path) or identify(path))
        store = EventStore.open(tmp_path, clock)
    assert not store.durable
    store.renew()
    assert store.durable
    store.close()


def test_what_is_stored_between_deletion_and_renewal_is_kept(store: EventStore, tmp_path: Path) -> None:
    fill_store(store)
    delete("", "-wal", "-shm")(tmp_path)
    assert len(store.commit([event("c")], [cursor(30)])) == 1
    store.add_verdicts([judgement(Verdict.IDLE, NOW + 1)], "boot-1")
    store.renew()
    assert [one.key for one in StoreReader.open(tmp_path).events()] == [b"a", b"b", b"c"]
    assert store.cursors() == [cursor(30)]
    assert store.last_verdicts("boot-1")["train-1"].verdict is Verdict.IDLE


def test_a_durable_store_is_not_touched(store: EventStore, tmp_path: Path) -> None:
    fill_store(store)
    before = (tmp_path / "store.db-wal").stat().st_mtime_ns
    store.renew()
    assert (tmp_path / "store.db-wal").stat().st_mtime_ns == before


def test_a_store_in_memory_is_kept_as_soon_as_it_can_be(tmp_path: Path, clock: ManualClock) -> None:
    directory = tmp_path / "state"
    directory.write_text("a file")
    with closing(EventStore.open(directory, clock)) as store:
        fill_store(store)
        assert not store.durable
        with pytest.raises(StoreError, match=r"cannot be kept in .*File exists.* it is in memory"):
            store.renew()
        assert "File exists" in store.problem
        directory.unlink()
        store.renew()
        assert (store.durable, store.problem) == (True, "")
        check_contents(store)
    with closing(EventStore.open(directory, clock)) as store:
        check_contents(store)


@needs_root
def test_a_full_disk_at_the_start_that_is_cleared(tmp_path: Path, clock: ManualClock) -> None:
    with small_disk(tmp_path / "disk", "4m"):
        ballast, directory = tmp_path / "disk" / "ballast", tmp_path / "disk" / "state"
        with closing(EventStore.open(directory, clock)) as store:
            fill_store(store)
        fill(ballast)
        store = EventStore.open(directory, clock)
        assert not store.durable
        assert [one.key for one in store.commit([event("b"), event("c")], [cursor(20)])] == [b"c"]
        with pytest.raises(StoreError, match="cannot be kept"):
            store.renew()
        assert not store.durable
        ballast.unlink()
        store.renew()
        assert store.durable
        assert [one.key for one in store.commit([event("c"), event("d")], [])] == [b"d"]
        store.close()
        store = EventStore.open(directory, clock)
        assert [one.key for one in store.events()] == [b"a", b"b", b"c", b"d"]
        assert store.cursors() == [cursor(20)]
        assert [one.verdict for one in stored_verdicts(store)] == [Verdict.HEALTHY]
        store.close()


def test_events_get_new_ids_in_a_store_that_could_not_be_read(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(EventStore.open(tmp_path, clock)) as store:
        fill_store(store)

    def unusable(_path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "connect", unusable)
        patch.setattr(schema, "connect_read_only", unusable)
        store = EventStore.open(tmp_path, clock)
        assert store.notices == (f"nothing could be read from {tmp_path}/store.db (disk I/O error)",)
        assert "disk I/O error" in store.problem
        store.commit([event("x"), event("b")], [cursor(30, head=b"others")])
    store.renew()
    assert [one.key for one in store.events(after_id=0)] == [b"a", b"b", b"x"]
    assert len({one.id for one in store.events()}) == 3
    assert store.cursors() == [cursor(30, head=b"others")]
    assert store.commit([event("y")], [])[0].id == max(one.id or 0 for one in store.events())
    store.close()


def test_a_directory_that_another_daemon_has_taken_is_left_to_it(tmp_path: Path, clock: ManualClock) -> None:
    directory = tmp_path / "state"
    first = EventStore.open(directory, clock)
    fill_store(first)
    shutil.rmtree(directory)
    second = EventStore.open(directory, clock)
    with pytest.raises(StoreBusyError):
        first.renew()
    assert "another tpuwatch" in first.problem
    check_contents(first)
    second.close()
    first.renew()
    assert first.durable
    check_contents(first)
    first.close()


def test_a_deleted_log_after_a_kill_leaves_the_next_start_durable(tmp_path: Path, clock: ManualClock) -> None:
    code = (
        "import sys, pathlib; from tests.unit.store.make import event; from tpuwatch.core.clock import ManualClock; "
        "from tpuwatch.store import EventStore; store = EventStore.open(pathlib.Path(sys.argv[1]), ManualClock()); "
        "store.commit([event(str(number)) for number in range(1000)], []); print(1, flush=True); sys.stdin.read()"
    )
    look = (
        "import sqlite3, sys; reader = sqlite3.connect(f'file:{sys.argv[1]}/store.db?mode=ro', uri=True); "
        "reader.execute('BEGIN'); print(reader.execute('SELECT count(*) FROM events').fetchone()[0], flush=True); "
        "sys.stdin.read()"
    )
    with python(code, tmp_path) as writer:
        assert line(writer) == b"1\n"
        with python(look, tmp_path) as reader:  # it keeps the index of the log that is deleted
            assert line(reader) == b"1000\n"
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            (tmp_path / "store.db-wal").unlink()
            with closing(EventStore.open(tmp_path, clock)) as store:
                assert (store.durable, store.notices) == (True, ())
                assert len(store.commit([event("a")], [])) == 1
            reader.kill()


def python(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()
