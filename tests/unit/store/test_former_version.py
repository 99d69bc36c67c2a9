"""The state directory of the version that kept its store in journal.db: taken over, with its words translated."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW
from tpuwatch.core.errors import StoreBusyError, StoreError
from tpuwatch.model.answers import Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import CloudNode
from tpuwatch.model.verdict import Action, Confidence, Judgement, Reason, Verdict
from tpuwatch.store import EventStore, StoreReader

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock

# A dump of a database that the former version wrote (schema 3), with the launch's facts shortened.
FORMER = r"""
CREATE TABLE cloud_nodes (
            project TEXT, zone TEXT, name TEXT, stored REAL, facts TEXT,
            PRIMARY KEY (project, zone, name)) WITHOUT ROWID;
INSERT INTO "cloud_nodes" VALUES('p','z','train-1',1790000000.0,'{"state":"READY","health":"HEALTHY","hosts":4}');
CREATE TABLE cursors (
            device INTEGER, inode INTEGER, head BLOB, path TEXT, offset INTEGER, state TEXT, history_until INTEGER,
            seen REAL, PRIMARY KEY (device, inode, head)) WITHOUT ROWID;
INSERT INTO "cursors" VALUES(1,2,X'4C6F672066696C65','/logs/a',200,'{"done":200}',0,1790000000.0);
CREATE TABLE events (
            id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, rule TEXT, cause TEXT, observed REAL, time REAL, at REAL,
            severity TEXT, pid INTEGER, file TEXT, offset INTEGER, text TEXT, details TEXT, history INTEGER);
INSERT INTO "events" VALUES(1,X'30313233','vmem-oom','vmem_oom',1790000000.0,1790000000.0,1790000000.0,'E',42,
    '/logs/a',100,'Ran out of memory','{"used_bytes":1}',0);
CREATE TABLE launches (id INTEGER PRIMARY KEY, started REAL, pid INTEGER, facts TEXT, UNIQUE (started, pid));
INSERT INTO "launches" VALUES(1,1789999940.0,42,
    '{"pid":42,"started":1789999940.0,"outcome":"failed","cause":"vmem_oom","environment":{},"faults":{}}');
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
INSERT INTO "meta" VALUES('clean_stop','1790000000.0');
INSERT INTO "meta" VALUES('first_run_time','1790000000.0');
CREATE TABLE verdicts (
            id INTEGER PRIMARY KEY, node TEXT NOT NULL, verdict TEXT, at REAL, since REAL, boot_id TEXT, facts TEXT);
INSERT INTO "verdicts" VALUES(1,'train-1','runtime_stuck',1790000000.0,1789999910.0,'boot-1',
    '{"sureness":"likely","rung":"restart_runtime","summary":"The runtime does not answer.",
    "reasons":[["agent","It has fallen silent.",1789999940.0],["cloud","It says READY.",null]],
    "contradictions":["The API says READY, the runtime is dead."]}');
INSERT INTO "verdicts" VALUES(2,'train-2','healthy',1790000000.0,NULL,'boot-1',
    '{"sureness":"certain","rung":"nothing","summary":"All is well.","reasons":[],"contradictions":[]}');
INSERT INTO "verdicts" VALUES(3,'train-3','misconfigured',1790000000.0,NULL,'boot-1',
    '{"sureness":"weak","rung":"ask","summary":"\udce9","reasons":[],"contradictions":[]}');
INSERT INTO "verdicts" VALUES(4,'train-4','idle',1790000000.0,NULL,'boot-1','no JSON');
CREATE INDEX events_at ON events (at, cause, history);
CREATE INDEX verdicts_node ON verdicts (node, id);
PRAGMA application_id = 1953527159;
PRAGMA user_version = 3;
"""
WITHOUT_STOP = "DELETE FROM meta WHERE name = 'clean_stop'"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory of the former version, whose daemon was killed: its last commit is in the -wal."""
    directory = tmp_path / "state"
    directory.mkdir()
    source = tmp_path / "source.db"
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(FORMER)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute(WITHOUT_STOP)
        for suffix in ("", "-wal", "-shm"):
            (directory / f"journal.db{suffix}").write_bytes((tmp_path / f"source.db{suffix}").read_bytes())
    (directory / "journal.lock").write_text("123\n")
    return directory


def check_contents(directory: Path, clock: ManualClock) -> tuple[str, ...]:
    """Everything that the former version stored is there; returns the notices."""
    with closing(EventStore.open(directory, clock)) as store:
        assert store.durable
        assert not store.first_run
        assert store.last_clean_stop is None  # the commit in the -wal
        assert [(one.key, one.cause) for one in store.events()] == [(b"0123", Cause.VMEM_OOM)]
        assert [one.offset for one in store.cursors()] == [200]
        assert [one.outcome for one in store.launches()] == [Outcome.FAILED]
        assert store.totals() == {}  # a metric that leaps would look like failures of this moment
        assert store.cloud_nodes() == [CloudNode("p", "z", "train-1", "READY", "HEALTHY", hosts=4)]
        stuck = Judgement(
            node="train-1",
            verdict=Verdict.RUNTIME_STUCK,
            at=NOW,
            confidence=Confidence.MEDIUM,
            action=Action.RESTART_RUNTIME,
            summary="The runtime does not answer.",
            reasons=(Reason(Signal.PEER, "It has fallen silent.", NOW - 60), Reason(Signal.CLOUD, "It says READY.")),
            contradictions=("The API says READY, the runtime is dead.",),
            since=NOW - 90,
        )
        last = store.last_verdicts("boot-1")
        assert last["train-1"] == stuck
        assert {name: (one.confidence, one.action) for name, one in last.items()} == {
            "train-1": (Confidence.MEDIUM, Action.RESTART_RUNTIME),
            "train-2": (Confidence.HIGH, Action.NONE),
            "train-3": (Confidence.LOW, Action.MANUAL),
        }
        assert last["train-3"].summary == "\udce9"
        return store.notices


def test_it_is_taken_over_with_a_notice_and_nothing_is_lost(state: Path, clock: ManualClock) -> None:
    (notice,) = check_contents(state, clock)
    assert notice == f"{state}/journal.db, the store of an earlier tpuwatch, was renamed to store.db and is used"
    assert sorted(path.name for path in state.iterdir()) == ["store.db", "store.lock"]
    with closing(EventStore.open(state, clock)) as store:
        assert store.notices == ()
        assert len(store.last_verdicts("boot-1")) == 3


@pytest.mark.parametrize("suffixes", [("-wal",), ("-wal", "-shm"), ("-wal", "-shm", "")])
def test_an_interrupted_rename_is_completed(state: Path, clock: ManualClock, suffixes: tuple[str, ...]) -> None:
    for suffix in suffixes:
        (state / f"journal.db{suffix}").rename(state / f"store.db{suffix}")
    check_contents(state, clock)
    assert not list(state.glob("journal.db*"))


def test_a_running_daemon_of_that_version_keeps_its_store(state: Path, clock: ManualClock) -> None:
    held = os.open(state / "journal.lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(StoreBusyError, match="pid 123"):
            EventStore.open(state, clock)
        assert (state / "journal.db").exists()
        assert not (state / "store.db").exists()
    finally:
        os.close(held)
    check_contents(state, clock)


def test_one_beside_a_store_of_this_version_is_left_alone(tmp_path: Path, clock: ManualClock) -> None:
    EventStore.open(tmp_path, clock).close()
    (tmp_path / "journal.db").write_bytes(b"of a version that was run in between")
    with closing(EventStore.open(tmp_path, clock)) as store:
        assert store.notices == ()
    assert (tmp_path / "journal.db").read_bytes() == b"of a version that was run in between"


def test_a_damaged_one_is_set_aside_like_any_other(state: Path, clock: ManualClock) -> None:
    (state / "journal.db").write_bytes(b"rubbish " * 4096)
    with closing(EventStore.open(state, clock)) as store:
        assert store.first_run
        assert len(store.notices) == 2
    assert [path.read_bytes() for path in state.glob("store.db.corrupt-*Z")] == [b"rubbish " * 4096]


def test_a_reader_says_that_the_daemon_has_to_convert_it(state: Path) -> None:
    with pytest.raises(StoreError, match=r"journal\.db is of an older tpuwatch: restart `tpuwatch run`"):
        StoreReader.open(state)
