"""`tpuwatch events`: from the journal, whether or not a daemon runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.daemon_process import ROOT, SECONDS, wait_for
from tests.journal.make import NOW, event
from tpuwatch.cli.main import main
from tpuwatch.clock import ManualClock
from tpuwatch.journal import Journal
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}/state"\n')
    monkeypatch.setenv("TPUWATCH_CONFIG", str(tmp_path / "c.toml"))
    journal = Journal.open(tmp_path / "state", ManualClock())
    yield journal
    journal.close()


def ids(capsys: pytest.CaptureFixture[str]) -> list[int]:
    return [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()]


def test_lines_for_people(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    journal.commit([event("a", text="first line\nsecond", rule="gone"), event("b", pid=None, history=True)], [])
    assert main(["events"]) == 0
    when, words, place = capsys.readouterr().out.splitlines()
    assert when.endswith("  vmem_oom")
    assert words == "    first line"
    assert place == "    pid 42, /logs/tpu_driver.host.user.log.INFO.20261120-134414.42"
    assert main(["events", "--history"]) == 0
    assert "    history, /logs" in capsys.readouterr().out  # no word on a process that is not known


def test_a_change_of_the_next_launch_is_told_as_it_is(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    text = "Advice for the next launch of train: it goes up."
    told = event(
        "t", cause=Cause.TUNE_CHANGE, rule="tune-change", severity="I", pid=None, text=text, file="/plans/t.json"
    )
    journal.commit([event("a"), told], [])
    assert main(["events", "--cause", "tune_change"]) == 0
    when, words, place = capsys.readouterr().out.splitlines()
    assert (when.split()[-1], words, place) == ("tune_change", f"    {text}", "    /plans/t.json")
    assert main(["events", "--json", "--cause", "tune_change"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["cause"], document["severity"], document["text"]) == ("tune_change", "I", text)


def test_what_is_asked_for(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    events = [event(str(number), time=NOW + number, cause=list(Cause)[number % 3]) for number in range(9)]
    journal.commit([*events, event("old", history=True)], [])
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


def test_nothing_to_tell(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    journal.commit([], [])
    assert main(["events"]) == 0
    assert capsys.readouterr().out == "No events.\n"
    assert main(["events", "--json"]) == 0
    assert capsys.readouterr().out == ""


def test_no_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}/state"\n')
    assert main(["events", "--config", str(tmp_path / "c.toml")]) == 3
    assert f"there is no journal in {tmp_path}/state: start `tpuwatch run`" in capsys.readouterr().err


def test_names_of_others_cannot_steer_the_terminal(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    journal.commit([event("a", file="/logs/a\x1b[2J\u202e", text="b\x1b]0;owned\x07\u202e\x9b", rule="gone")], [])
    assert main(["events"]) == 0
    assert not set(capsys.readouterr().out) & set("\x1b\x07\x9b\u202e")


def test_following_goes_on_until_control_c(journal: Journal, tmp_path: Path) -> None:
    journal.commit([event("a"), event("b")], [])
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tpuwatch", "events", "--follow", "--json", "--config", str(tmp_path / "c.toml")],
            stdout=out,
            stderr=subprocess.PIPE,
            env={"PYTHONPATH": str(ROOT)},
        )

    def told() -> list[int]:
        return [json.loads(line)["id"] for line in (tmp_path / "out").read_text().splitlines()]

    with process:
        wait_for(lambda: told() == [1, 2], "what is there")
        journal.commit([event("c"), event("d", history=True), event("e")], [])
        wait_for(lambda: told() == [1, 2, 3, 5], "what has come")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=SECONDS)[1] == b""
    assert process.returncode == 130
