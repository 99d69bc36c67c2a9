"""`tpuwatch sim` as people use it: one that runs, and commands that talk to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_process import ROOT
from tests.standins.runtime_server import is_open
from tpuwatch.cli.main import main

DEADLINE = 60.0


class Running:
    """A simulator in the foreground of another process."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tpuwatch", "sim", "--dir", str(directory), *arguments],
            env={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def __enter__(self) -> Running:  # noqa: PYI034 - Self is in typing from 3.11 on
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        """End it; its exit status and what it has printed since."""
        self.process.send_signal(number)
        output, error = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, output, error


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Running, dict[str, Any]]]:
    """One that plays a scenario without steps, and the note that it has printed."""
    with Running(tmp_path / "sim", "--json") as one:
        yield one, json.loads(one.line())


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of one that is told only what it refuses."""
    directory = tmp_path_factory.mktemp("refusing")
    with Running(directory, "--json") as one:
        assert one.line()
        yield directory


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    code = main(["sim", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_all_that_it_serves(
    running: tuple[Running, dict[str, Any]], number: signal.Signals
) -> None:
    one, note = running
    addresses = [note["control"], note["tpu"], note["metadata"], f"127.0.0.1:{note['runtime_ports'][0]}"]
    assert all(map(is_open, addresses))
    assert one.end(number) == (0, "", "")
    assert not any(map(is_open, addresses))
    assert not (one.directory / "sim.json").exists()


def test_it_can_be_broken_and_mended(
    running: tuple[Running, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--dir", str(running[0].directory))
    assert run(capsys, *at, "node", "train-1", "lie")[:2] == (
        0,
        "train-1: hangs, and the API still reports READY and HEALTHY\n",
    )
    assert run(capsys, *at, "node", "train-*", "phase=stuck", "for_seconds=90")[1].endswith(
        "is stuck, for 90 s already\n"
    )
    assert run(capsys, *at, "node", "train-2", "state=42", "health=")[1] == "train-2: state 42, health unset\n"
    assert run(capsys, *at, "node", "train-3", "maintain", "in_seconds=1.5")[1] == "train-3: maintenance in 1.5 s\n"
    code, output, _ = run(capsys, *at, "fault", "--method", "ListNodes", "--code", "UNAVAILABLE", "--share", "0.5")
    assert (code, output) == (0, "ListNodes: UNAVAILABLE, 50% of the calls\n")
    run(capsys, *at, "fault", "--black-hole", "--drop", "health", "state")
    _, output, _ = run(capsys, *at, "state")
    assert "0 of 0 steps done" in output
    assert "fault: method ListNodes, code UNAVAILABLE, share 0.5" in output
    assert "train-1 (us-central2-b, v5litepod-4): READY HEALTHY, 1 stuck, hangs, lies" in output
    assert run(capsys, *at, "clear", "ListNodes")[1] == "no more faults of ListNodes\n"
    state = json.loads(run(capsys, *at, "state", "--json")[1])
    assert [(fault["black_hole"], fault["drop"]) for fault in state["faults"]] == [(True, ["health", "state"])]
    assert json.loads(run(capsys, *at, "--json", "clear")[1]) == {"done": "no more faults"}
    assert run(capsys, *at, "fault", "--half-open")[:2] == (0, "*: half-open connections to the cloud\n")
    assert "fault: method *, share 1.0, resource *, half_open True" in run(capsys, *at, "state")[1]
    assert run(capsys, *at, "launch", "busy")[1].startswith("launch busy, process ")


@pytest.mark.parametrize(
    ("arguments", "code", "answer"),
    [
        (["node", "train-9", "hang"], 3, "there is no node train-9; did you mean train-"),
        (["node", "train-1", "hagn"], 2, "do must be one of hang, lie"),
        (["node", "train-1", "phase=stuk"], 2, 'phase cannot be "stuk"; give one of'),
        (["fault", "--code", "NO"], 2, 'code cannot be "NO"; give one of'),
        (["fault", "--method", "ListNodes", "--times", "3"], 2, "the fault has no effect; give one of code, latency_s"),
        (["fault", "--half-open", "--method", "ListNodes"], 2, "half_open strikes all connections to the cloud, no"),
        (["launch", "nothing"], 2, 'launch cannot be "nothing"; give one of'),
    ],
)
def test_what_it_refuses_is_reported(
    refusing: Path, arguments: list[str], code: int, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, "--dir", str(refusing), *arguments)
    assert done[:2] == (code, "")
    assert answer in done[2]


@pytest.mark.parametrize(
    ("arguments", "code", "answer"),
    [
        (["quite"], 2, "there is no scenario 'quite'; did you mean quiet?"),
        (["quiet", "lie"], 2, "'lie' is too much"),
        (["state", "--speed", "2"], 2, "--speed does not go with state"),
        (["quiet", "--code", "ABORTED"], 2, "--code does not go with a scenario"),
        (["fault", "--nodes", "2"], 2, "--nodes does not go with fault"),
        (["--speed", "0"], 2, "--speed cannot be 0; give a number from 0.001 to 10000"),
        (["--listen", "here"], 2, "--listen cannot be 'here'; give HOST:PORT"),
        (["--rest", "here"], 2, "--rest cannot be 'here'; give HOST:PORT"),
        (["quiet", "--nodes", "0"], 2, "nodes[0].count cannot be 0; give a whole number"),
        (["node"], 2, "say which node"),
        (["node", "a"], 2, "say what a shall do"),
        (["node", "a", "hang", "lie"], 2, "'lie' is too much; do one thing at a time"),
        (["clear", "a", "b"], 2, "'b' is too much"),
        (["list", "all"], 2, "'all' is too much"),
        (["state"], 3, "no simulator runs in"),
    ],
)
def test_wrong_words_are_answered(
    arguments: list[str], code: int, answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(capsys, "--dir", str(tmp_path), *arguments)
    assert done[:2] == (code, "")
    assert answer in done[2]


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = run(capsys, "list")
    assert code == 0
    assert "\nquiet             Three nodes that train, and nothing goes wrong\n" in output
    listed = json.loads(run(capsys, "list", "--json")[1])
    assert {"demo", "fleet", "outage"} <= {each["name"] for each in listed}


def test_it_says_where_it_listens_and_what_happens(tmp_path: Path) -> None:
    (tmp_path / "story.toml").write_text(
        'title = "A story"\n[[nodes]]\nname = "a-{number}"\n'
        '[[steps]]\nat = 30.0\ndo = "hang"\nnode = "a-*"\n[[steps]]\nat = 90.0\ndo = "tell"\nsay = "That was it."\n'
    )
    with Running(tmp_path / "sim", str(tmp_path / "story.toml"), "--speed", "1000", "--nodes", "2") as one:
        lines = []
        while not (lines and "That was it" in lines[-1]):
            lines.append(one.line())
            assert lines[-1], one.process.communicate()
        text = "".join(lines)
        assert text.startswith("tpuwatch sim: A story, 1000 times real time\n")
        note = json.loads((tmp_path / "sim" / "sim.json").read_text())
        for address in (note["tpu"], note["control"], note["metadata"], f"127.0.0.1:{note['runtime_ports'][0]}"):
            assert address in text
        assert f"tpuwatch run --config {tmp_path / 'sim' / 'tpuwatch.toml'}" in text
        assert lines[-2] == "    30.0 s  2 nodes a-*: hangs\n"
        assert lines[-1] == "    90.0 s  That was it.\n"
        assert one.end() == (0, "", "")


def test_a_reader_who_leaves_does_not_hurt(tmp_path: Path) -> None:
    with Running(tmp_path / "sim", "--json") as one:
        assert one.line()
        assert one.process.stdout is not None
        one.process.stdout.close()
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(DEADLINE) == 0
        assert one.process.stderr is not None
        assert one.process.stderr.read() == ""


def test_two_do_not_share_a_directory(
    running: tuple[Running, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run(capsys, "--dir", str(running[0].directory))
    assert code == 3
    assert "another simulator runs in" in error
