"""A ledger that cannot be used is down, and every view says so in the same words. Real daemon and commands."""

from __future__ import annotations

import html
import json
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.daemon_process import NO_CLOUD, DaemonProcess, wait_for
from tests.unit.restart.records import record
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.restart import Fleet
from tpuwatch.restart.ledger.sqlite import SqliteLedger

NODE = "projects/lab/locations/us-east5-a/nodes/train-1"
UP, PROBLEMS = "tpuwatch_ledger_up", 'tpuwatch_problems{kind="daemon"}'


def full(path: Path) -> None:
    """SQLite can read it, and says of each write that there is no room."""
    with closing(sqlite3.connect(path)) as connection:
        why = "database or disk is full"
        connection.execute(f"CREATE TRIGGER no BEFORE INSERT ON entries BEGIN SELECT RAISE(FAIL, '{why}'); END")
        connection.commit()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FILES = {
    "full": (full, "cannot be written (database or disk is full)"),
    "a directory": (a_directory, "cannot be read: it is a directory; look at your nodes"),
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as daemon:
        yield daemon


def command(daemon: DaemonProcess, *words: str) -> tuple[int, str]:
    """Exit status and output of a command, in one line."""
    ran = subprocess.run(
        [sys.executable, "-m", "tpuwatch", *words, "--config", str(daemon.config)],
        capture_output=True,
        text=True,
        check=False,
        env=daemon.environ,
        cwd=daemon.root,
        timeout=120,
    )
    assert "Traceback" not in ran.stderr
    return ran.returncode, plain(ran.stdout + ran.stderr)


def plain(text: str) -> str:
    """In one line, without the marks around commands, for which a terminal has lines of their own.

    How much time a try was left differs from one to the next.
    """
    return re.sub(r"within [\d.]+ s", "in time", " ".join(re.sub(r"[`(),]", "", text).split()))


def says_the_same_everywhere(daemon: DaemonProcess, part: str) -> None:
    status = wait_for(lambda: one if (one := daemon.api("status"))["ledger_problem"] else None, "the ledger to be down")
    words = plain(status["ledger_problem"])
    assert words.startswith("The ledger of restarts is DOWN: ")
    assert words.endswith(" Nothing new is restarted.")
    assert plain(part) in words
    # The daemon does all else: it is ready.
    assert (daemon.ask("/readyz")[0], status["ready"], status["not_ready"]) == (200, True, [])
    assert (status["headline"], plain(status["restarts"][0])) == ("1 problem: the ledger of restarts is down", words)
    assert plain(daemon.api("restarts")["ledger_problem"]) == words
    assert (daemon.metric(UP), daemon.metric(PROBLEMS)) == (0, 1)
    page = plain(html.unescape(daemon.ask("/")[1]))
    assert words in page
    assert status["headline"] in page
    assert words in plain(daemon.said())
    for code, *asked in (
        (1, "status"),
        (1, "doctor", "--only", "ledger"),
        (1 if "written" in part else 3, "restarts"),
        (3, "restarts", "cancel", NODE),
    ):
        found = command(daemon, *asked)
        assert found[0] == code
        assert words in found[1]
    assert "1 wrong" in command(daemon, "doctor", "--only", "ledger")[1]
    daemon.stop()
    assert words in command(daemon, "doctor", "--only", "ledger")[1]


@pytest.mark.parametrize(("spoil", "part"), FILES.values(), ids=FILES)
def test_a_file_that_cannot_be_used(
    daemon: DaemonProcess, tmp_path: Path, spoil: Callable[[Path], None], part: str
) -> None:
    place = tmp_path / "ledger"
    place.mkdir()
    ledger = SqliteLedger(place, SystemClock())
    now = SystemClock().time()
    ledger.write_fleet(Fleet(), 0)
    ledger.write(record(requested=now, entered=now), 0)
    daemon.configure(more=f"{NO_CLOUD}\n[ledger]\ndir = {json.dumps(str(place))}")
    spoil(ledger.path)
    daemon.start()
    says_the_same_everywhere(daemon, part)


def test_a_bucket_that_does_not_answer(daemon: DaemonProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bucket = (
            f'kind = "gcs"\nbucket = "lab-ledger"\nendpoint = "127.0.0.1:{silent.getsockname()[1]}"\ninsecure = true'
        )
        daemon.configure(more=f"{NO_CLOUD}\n[ledger]\n{bucket}\ntimeout_seconds = 1.0")
        daemon.start()
        says_the_same_everywhere(daemon, "bucket lab-ledger cannot be read")
