"""`tpuwatch restart` as a process: its confirmation, interruption, and a terminal that goes away."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.daemon_process import ROOT, wait_for
from tests.e2e.restart_elsewhere import FastClock
from tests.standins.tpu_api import TpuApi
from tests.standins.tpu_nodes import Durations, State
from tests.unit.cli.restarting import target, toml
from tests.unit.sim.cloud.servers import PROJECT, ZONE
from tpuwatch.core.clock import Clock
from tpuwatch.model.restart import Phase, RestartRecord
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import Timing, World

SPEED = 40.0
SECONDS = 120.0


class SimulatedCloud:
    """A simulated cloud with one bad node."""

    def __init__(self, clock: Clock) -> None:
        self._world = World(clock)
        self._world.timing = Timing(stop=5, start=10)
        self._server = CloudServer(self._world)
        self._node = self._world.add(SimNode(project=PROJECT, zone=ZONE, name="train-1", health="TIMEOUT"))
        self.address = self._server.address

    @property
    def state(self) -> str:
        return self._node.state

    def heal(self) -> None:
        self._node.health = "HEALTHY"

    def stop_takes(self, seconds: float) -> None:
        self._world.timing.stop = seconds

    def count(self, what: str) -> int:
        return [one.what for one in self._world.history].count(what)

    def close(self) -> None:
        self._server.stop()


class SecondCloud:
    """The same by the other stand-in for the Cloud TPU API."""

    def __init__(self, clock: Clock) -> None:
        self._stack = ExitStack()
        self._api = self._stack.enter_context(
            TpuApi(clock.time, speed=SPEED, durations=Durations(stop=5, start=10)).running()
        )
        self._node = self._api.nodes.add(target().path)
        self._api.nodes.hang(self._node)
        self.address = self._api.address

    @property
    def state(self) -> str:
        return State(self._api.nodes.get(self._node).state).name

    def heal(self) -> None:
        self._api.nodes.heal(self._node)

    def stop_takes(self, seconds: float) -> None:
        self._api.nodes.durations = replace(self._api.nodes.durations, stop=seconds)

    def count(self, what: str) -> int:
        return [one.what for one in self._api.nodes.events].count(what)

    def close(self) -> None:
        self._stack.close()


class Site:
    """A cloud with one bad node, whose clock runs SPEED times as fast."""

    def __init__(self, root: Path, make_cloud: Callable[[Clock], SimulatedCloud | SecondCloud]) -> None:
        self.root = root
        self.epoch = time.time()
        self.clock = FastClock(SPEED, self.epoch)
        self.cloud = make_cloud(self.clock)
        self.config = root / "c.toml"
        text = toml(self.cloud.address, root / "state")
        self.config.write_text(f"{text}poll_seconds = 1.0\n[ledger]\nlease_seconds = 3600.0\n")
        self.ledger = SqliteLedger(root / "state", self.clock)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str, terminal: int | None = None) -> subprocess.Popen[bytes]:
        """The command; on a terminal, or with pipes."""
        command = ["tests.e2e.restart_elsewhere", str(SPEED), str(self.epoch), *words]
        piped = subprocess.PIPE if terminal is None else terminal
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=piped,
            stderr=piped,
            cwd=ROOT,
            env={
                "PATH": os.defpath,
                "PYTHONPATH": str(ROOT),
                "TERM": "xterm",
                "COLUMNS": "80",
                "HOME": str(self.root),
                "GCE_METADATA_HOST": "127.0.0.1:9",
                "TPUWATCH_CONFIG": str(self.config),
            },
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def record(self) -> RestartRecord:
        stored = self.ledger.read(target())
        assert stored is not None
        return stored.record

    def is_stopping(self) -> bool:
        stored = self.ledger.read(target())
        return stored is not None and stored.record.phase is Phase.STOPPING

    def stops(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process has begun to stop the node, or has ended."""
        wait_for(lambda: self.is_stopping() or process.poll() is not None, "the stop", SECONDS)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        self.cloud.close()


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(tmp_path, getattr(request, "param", SimulatedCloud))
    yield made
    made.close()


by_either_cloud = pytest.mark.parametrize(
    "site", [SimulatedCloud, SecondCloud], ids=["simulated", "second"], indirect=True
)


class Terminal:
    """A pseudo-terminal with an operator."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.output = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end within a character

    def shows(self, words: str) -> bool:
        """Whether these words have been printed."""
        os.set_blocking(self.ours, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.output += self._decoder.decode(os.read(self.ours, 65536))
        return words in " ".join(re.sub(r"\x1b\[[0-9;]*[mK]", "", self.output).split())

    def asks(self, question: str, process: subprocess.Popen[bytes]) -> None:
        """Wait until the process has printed that, or has ended."""
        wait_for(lambda: self.shows(question) or process.poll() is not None, "the question", SECONDS)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def close(self) -> None:
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


@by_either_cloud
def test_the_operator_confirms_and_sees_the_progress(site: Site, terminal: Terminal) -> None:
    process = site.start("train-1", terminal=terminal.theirs)
    terminal.asks("Restart train-1? [y/N]", process)
    assert site.cloud.count("stop") == 0
    terminal.type("y\n")
    wait_for(lambda: terminal.shows("…") and process.poll() is not None, "its end", SECONDS)
    assert process.returncode == 3
    assert terminal.shows("not verified Node train-1 was restarted in")
    assert "\r\x1b[K" in terminal.output
    assert terminal.shows("Ctrl-C leaves it as it is")
    assert (site.cloud.count("stop"), site.cloud.state) == (1, "READY")


@pytest.mark.parametrize("answer", ["\n", "\x04", "train-1\n"])
def test_any_answer_but_yes_declines(site: Site, terminal: Terminal, answer: str) -> None:
    process = site.start("train-1", terminal=terminal.theirs)
    terminal.asks("[y/N]", process)
    terminal.type(answer)
    assert process.wait(SECONDS) == 1
    assert terminal.shows("Nothing was done.")
    assert site.cloud.count("stop") == 0


def test_control_c_at_the_question_does_nothing(site: Site, terminal: Terminal) -> None:
    process = site.start("train-1", terminal=terminal.theirs)
    terminal.asks("[y/N]", process)
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 130
    assert terminal.shows("Interrupted: nothing was done.")
    assert not terminal.shows("Traceback")
    assert site.cloud.count("stop") == 0


@pytest.mark.parametrize(("answer", "code", "stops"), [("yes\n", 1, 0), ("train-1\n", 3, 1)])
def test_a_healthy_node_is_confirmed_by_its_name(
    site: Site, terminal: Terminal, answer: str, code: int, stops: int
) -> None:
    site.cloud.heal()
    process = site.start("train-1", "--reason", "To try it.", terminal=terminal.theirs)
    terminal.asks("type its name", process)
    terminal.type(answer)
    wait_for(lambda: (terminal.shows(""), process.poll() is not None)[1], "its end", SECONDS)
    assert (process.returncode, site.cloud.count("stop")) == (code, stops)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_restart_is_continued_by_the_same_command(site: Site, number: signal.Signals) -> None:
    site.cloud.stop_takes(1e6)
    process = site.start("train-1", "--yes", "--json")
    site.stops(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    document = json.loads(out)
    assert (process.returncode, document["outcome"], document["phase"]) == (130, "interrupted", "stopping")
    assert f"tpuwatch restart {target().path}" in document["note"]
    assert b"Traceback" not in err
    assert site.record().lease.owner == ""  # the next command need not wait
    site.clock.skipped = 2e6  # the stop is over
    again = site.start("train-1", "--json")
    out, _ = again.communicate(timeout=SECONDS)
    assert (again.returncode, json.loads(out)["outcome"]) == (3, "not_verified")
    assert (site.cloud.count("stop"), site.cloud.count("start"), site.cloud.state) == (1, 1, "READY")


@by_either_cloud
def test_a_killed_restart_is_continued_at_once(site: Site) -> None:
    site.cloud.stop_takes(1e6)
    process = site.start("train-1", "--yes")
    site.stops(process)
    process.kill()
    process.wait()
    assert site.record().lease.owner
    site.clock.skipped = 2e6
    again = site.start("train-1")
    out, _ = again.communicate(timeout=SECONDS)
    assert again.returncode == 3
    assert b"A restart of it is in progress" in out
    assert (site.cloud.count("stop"), site.cloud.state) == (1, "READY")


def test_a_terminal_that_goes_away_leaves_no_node_stopped(site: Site) -> None:
    terminal = Terminal()
    process = site.start("train-1", "--yes", terminal=terminal.theirs)
    site.stops(process)
    terminal.close()
    process.send_signal(signal.SIGHUP)
    process.wait(SECONDS)
    assert site.record().phase is Phase.NOT_VERIFIED
    assert site.cloud.state == "READY"


def test_a_closed_pipe_leaves_no_node_stopped(site: Site) -> None:
    process = site.start("train-1", "--yes")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(SECONDS) == 3
    assert site.record().phase is Phase.NOT_VERIFIED
