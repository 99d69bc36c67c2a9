"""What a user who is not root may see beside the real daemon, whose files are for it alone."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon_process import DaemonProcess, libtpu_name, record, wait_for
from tests.e2e.ordinary_user import NOBODY, Ended, run_as
from tests.unit.restart import records
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.restart import Phase
from tpuwatch.restart.ledger.sqlite import FILE_NAME, SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to become another user")

TARGET = "projects/lab/locations/us-east5-a/nodes/train-1"
SHOWS = (
    ["events"],
    ["events", "--json"],
    ["events", "--json", "--cause", "hang", "--since", "2h"],
    ["restarts"],
    ["restarts", "show", "--json", TARGET],
    ["restarts", "history"],
    ["restarts", "history", "--json"],
    ["nodes", "-o", "name"],
    ["env", "--workload", "bert"],
)
CHANGES = (["restarts", "cancel", TARGET], ["restarts", "reset-breaker"], ["tune", "--workload", "bert", "--apply"])


@pytest.fixture(params=["the unit's mode", "a closed directory"])
def daemon(request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """With an event, a restart in progress and one that has ended; a temporary directory of pytest's is for root."""
    root = Path(tempfile.mkdtemp(prefix="tpuwatch-"))
    root.chmod(0o755)
    is_open = request.param == "the unit's mode"
    try:
        with DaemonProcess(root) as daemon:
            daemon.state.mkdir(mode=0o711 if is_open else 0o700)
            daemon.configure(listen="127.0.0.1:0" if is_open else f"127.0.0.1:{_free_port()}")
            ledger, now = SqliteLedger(daemon.state, SystemClock()), time.time()
            running = records.record("train-1", phase=Phase.STARTING, requested=now - 60, entered=now - 30)
            ended = records.record(
                "train-2", phase=Phase.DONE, requested=now - 900, began=now - 890, entered=now - 600, stops=1
            )
            ledger.write(running, 0)
            ledger.write(ended, 0)
            daemon.start()
            (daemon.logs / libtpu_name()).write_text("".join(record(number) for number in range(3)))
            wait_for(lambda: len(daemon.api("events")["events"]) == 3, "the events")
            wait_for(lambda: daemon.api("restarts")["restarts"], "the restarts")
            wait_for(lambda: daemon.api("status")["judged"], "the first verdict")
            yield daemon
    finally:
        shutil.rmtree(root)


def test_the_answers_are_those_of_root(daemon: DaemonProcess) -> None:
    assert {entry.stat().st_mode & 0o777 for entry in daemon.state.glob("*.db")} == {0o600}
    all_theirs, all_ours = _run(daemon, NOBODY, *SHOWS), _run(daemon, 0, *SHOWS)
    shown = dict(zip(map(tuple, SHOWS), all_theirs, strict=True))
    for words, theirs, ours in zip(SHOWS, all_theirs, all_ours, strict=True):
        assert (words, theirs.code) == (words, ours.code), theirs.err
        if words == ["restarts"]:
            assert _lines(ours.out) - _lines(theirs.out) == {f"The ledger is in {daemon.state}."}
            assert _lines(theirs.out) <= _lines(ours.out)
        elif words[0] != "restarts" and words[0] != "env":  # the log directory is one that the user may write to
            assert _steady(theirs.out) == _steady(ours.out), words
            assert theirs.err == ours.err == "", words
    (past,) = map(json.loads, shown["restarts", "history", "--json"].out.splitlines())
    assert (past["node"], past["phase"], past["stops"]) == ("train-2", "done", 1)
    (mine,) = json.loads(shown["restarts", "show", "--json", TARGET].out)["restarts"]
    assert (mine["node"], mine["phase"], mine["alone"]) == ("train-1", "starting", True)
    (note,) = shown[("restarts",)].err.splitlines()
    assert f"the ledger {daemon.state / FILE_NAME} cannot be read: uid 65534 may not" in note
    assert "This is what the daemon last read in the ledger, at 20" in note


def test_what_would_change_something_is_refused_and_nothing_untrue_is_said(daemon: DaemonProcess) -> None:
    for words, ended in zip(CHANGES, _run(daemon, NOBODY, *CHANGES), strict=True):
        assert (ended.code, ended.out) == (3, ""), words
        assert "sudo" in ended.err, words
        assert "nothing is restarted" not in ended.err


def test_without_a_daemon_it_is_said_that_the_file_may_not_be_read(daemon: DaemonProcess) -> None:
    daemon.stop()
    events, restarts = _run(daemon, NOBODY, ["events"], ["restarts"])
    assert (events.code, events.out, restarts.code, restarts.out) == (3, "", 3, "")
    assert f"this user may not read the store {daemon.state / 'store.db'}, and no daemon answers at" in events.err
    assert f"the ledger {daemon.state / FILE_NAME} cannot be read: uid 65534 may not" in restarts.err
    assert "no daemon answers at" in restarts.err


def _run(daemon: DaemonProcess, uid: int, *commands: list[str]) -> list[Ended]:
    return run_as(uid, commands, daemon.root, {**daemon.environ, "TPUWATCH_CONFIG": str(daemon.config)})


def _lines(text: str) -> set[str]:
    return {line for line in text.splitlines() if " ago" not in line and " for " not in line}


def _steady(text: str) -> str:
    """Without what the time alone changes."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    return json.dumps({name: value for name, value in document.items() if not name.startswith("now")})


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
