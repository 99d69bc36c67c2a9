"""`tpuwatch events`: from the store, whether or not a daemon runs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon_process import ROOT, SECONDS, wait_for
from tests.unit.store.make import NOW, event
from tpuwatch.cli.main import main
from tpuwatch.core import format_time
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Place, Repetition
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventStore]:
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}/state"\n')
    monkeypatch.setenv("TPUWATCH_CONFIG", str(tmp_path / "c.toml"))
    store = EventStore.open(tmp_path / "state", ManualClock())
    yield store
    store.close()


def ids(capsys: pytest.CaptureFixture[str]) -> list[int]:
    return [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]


def test_lines_for_people(store: EventStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.commit([event("a", text="first line\nsecond", rule="gone"), event("b", pid=None, history=True)], [])
    assert main(["events"]) == 0
    when, words, place = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  vmem_oom", when)
    assert words == "    first line"
    assert place == "    pid 42, /logs/tpu_driver.host.user.log.INFO.20261120-134414.42"
    assert main(["events", "--history"]) == 0
    assert "    history, /logs" in capsys.readouterr().out  # no word on a process that is not known


def test_an_event_with_repeats(store: EventStore, capsys: pytest.CaptureFixture[str]) -> None:
    last = event("z")
    keys = [b"%05d" % number for number in range(12_430)]
    stated = {"used_bytes": [20 << 20, 30 << 20]}
    store.commit([last], [], repetitions=[Repetition(last, keys, NOW - 3600.0, lambda _: stated)])
    assert main(["events"]) == 0
    since = format_time(NOW - 3600.0)
    assert f"    12,431 times, since {since}; this is the last" in capsys.readouterr().out.splitlines()
    assert main(["events", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["repeats"], shown["since_epoch"], shown["spread"]) == (12_430, NOW - 3600.0, stated)


def test_other_places_of_a_failure(store: EventStore, capsys: pytest.CaptureFixture[str]) -> None:
    places = [Place(b"b", f"/jobs/{name}.log", 7, None, "") for name in ("a", "a", "b")]
    store.commit([event("a")], [], places=[(b"a", place) for place in places])
    assert main(["events"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "    reported again in /jobs/a.log, /jobs/b.log"
    assert main(["events", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["places"]
    assert [(place["file"], place["offset"], place["time"], place["severity"]) for place in shown] == [
        ("/jobs/a.log", 7, None, ""),
        ("/jobs/b.log", 7, None, ""),
    ]


def test_what_is_asked_for(store: EventStore, capsys: pytest.CaptureFixture[str]) -> None:
    events = [event(str(number), time=NOW + number, cause=list(Cause)[number % 3]) for number in range(9)]
    store.commit([*events, event("old", history=True)], [])
    assert main(["events", "--json"]) == 0
    assert ids(capsys) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert main(["events", "--json", "--limit", "2"]) == 0
    assert ids(capsys) == [8, 9]
    assert main(["events", "--json", "--since", str(NOW + 7)]) == 0
    assert ids(capsys) == [8, 9]
    assert main(["events", "--json", "--cause", list(Cause)[1].value]) == 0
    assert ids(capsys) == [2, 5, 8]
    assert main(["events", "--json", "--history"]) == 0
    assert 10 in ids(capsys)


def test_nothing_to_report(store: EventStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.commit([], [])
    assert main(["events"]) == 0
    assert capsys.readouterr().out == "No events.\n"
    assert main(["events", "--json"]) == 0
    assert capsys.readouterr().out == ""


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}/state"\n')
    assert main(["events", "--config", str(tmp_path / "c.toml")]) == 3
    assert f"there is no store in {tmp_path}/state: start `tpuwatch run`" in capsys.readouterr().err


def test_names_of_others_cannot_steer_the_terminal(store: EventStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.commit([event("a", file="/logs/a\x1b[2J\u202e", text="b\x1b]0;owned\x07\u202e\x9b", rule="gone")], [])
    assert main(["events"]) == 0
    assert not set(capsys.readouterr().out) & set("\x1b\x07\x9b\u202e")


@pytest.mark.slow
def test_following_goes_on_until_control_c(store: EventStore, tmp_path: Path) -> None:
    store.commit([event("a"), event("b")], [])
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tpuwatch", "events", "--follow", "--json", "--config", str(tmp_path / "c.toml")],
            stdout=out,
            stderr=subprocess.PIPE,
            env={"PYTHONPATH": str(ROOT)},
        )

    def printed() -> list[int]:
        return [json.loads(line)["id"] for line in (tmp_path / "out").read_text().splitlines()]

    with process:
        wait_for(lambda: printed() == [1, 2], "what is there")
        store.commit([event("c"), event("d", history=True), event("e")], [])
        wait_for(lambda: printed() == [1, 2, 3, 5], "what has come")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=SECONDS)[1] == b""
    assert process.returncode == 130
