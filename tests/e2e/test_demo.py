from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.standins.decoy import MARK, decoy
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.sim import demo
from tpuwatch.sim.machine import SimulatedMachine
from tpuwatch.terminal.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE = 300.0
COMMAND = (sys.executable, "-m", "tpuwatch", "demo", "--fast")

# A daemon that serves and recognises nothing.
BLIND = """
import http.server, pathlib, sys, tomli
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"events": [], "launches": [], "findings": [], "nodes": [], "workloads": []}')
state = pathlib.Path(tomli.loads(pathlib.Path(sys.argv[-1]).read_text())["state"]["dir"])
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
(state / "http.address").write_text("127.0.0.1:%d" % server.server_port)
server.serve_forever()
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo whose daemon serves."""
    with subprocess.Popen(
        (*COMMAND, "--stay"), env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("$ tpuwatch exec") for line in process.stdout)
        yield process
        process.kill()


def address_of(directory: Path) -> tuple[str, int]:
    """Where the daemon of the demo in this directory serves."""
    (file,) = directory.glob("*/state/http.address")
    host, _, port = file.read_text().strip().partition(":")
    return host, int(port)


def scenes(story: str) -> list[str]:
    """What each scene shows, with its command."""
    return re.split(r"^\d of 6  ", story, flags=re.MULTILINE)[1:]


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_whole_demo(tmp_path: Path) -> None:
    """Beside another program on the machine, which looks like a TPU job. It takes long: so it is run once."""
    with decoy() as other:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.iterdir())
    story = done.stdout
    assert [re.findall(r"^\$ (.*)", scene, re.MULTILINE) for scene in scenes(story)] == [
        ["tpuwatch exec -- python3 train.py"],
        ["tpuwatch tune"],
        ["tpuwatch exec -- python3 train.py"],
        ["tpuwatch status"],
        ["tpuwatch restart train-1 --yes --reason 'its runtime is dead'"],
        ["tpuwatch nodes"],
    ]
    shows_a_launch_that_fails_and_the_next_one_that_is_tuned(*map(flat, scenes(story)[:3]))
    shows_a_node_that_lies_is_found_out_and_restarted(*map(flat, scenes(story)[3:]))
    assert 'tpuwatch_events_total{cause="premapped_exhausted"} 1.0' in story
    assert "tpuwatch_premapped_buffer_bytes 5.100273664e+09" in story
    assert re.search(r'tpuwatch_verdict\{.*node="train-1".*verdict="idle".*\} 1\.0', story)
    assert "\x1b" not in story  # there is no terminal
    assert MARK not in story
    assert other is None or not re.search(rf"\b{other}\b", story)


def shows_a_launch_that_fails_and_the_next_one_that_is_tuned(failed: str, tuned: str, worked: str) -> None:
    assert "ended with status 1. tpuwatch: 1. premapped_exhausted tpuwatch:" in failed
    assert "Raise TPU_PREMAPPED_BUFFER_SIZE to 5100273664 (4.75 GiB)" in failed
    assert "default: grow from 4 GiB to 4.75 GiB, on trial" in tuned
    assert "TPU_PREMAPPED_BUFFER_SIZE=5100273664" in tuned
    assert "TPU_PREMAPPED_BUFFER_SIZE is not set" in failed
    assert "TPU_PREMAPPED_BUFFER_SIZE is 5100273664" in worked
    assert "step 600" in worked
    assert "tpuwatch:" not in worked


def shows_a_node_that_lies_is_found_out_and_restarted(status: str, restart: str, nodes: str) -> None:
    assert "1 problem: train-1 is runtime_stuck" in status
    assert re.search(r"train-1: runtime_stuck since .* UTC, .* \(high\)", status)
    assert "But: The API says READY and HEALTHY, the runtime has not answered for" in restart
    phases = ["intent", "stopping", "stopped", "starting", "verifying", "not verified"]
    assert re.findall(rf"\d:\d\d ({'|'.join(phases)}) ", restart) == phases
    assert re.search(r"train-1 us-central2-b v5litepod-4 READY/HEALTHY idle \S+ none", nodes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_daemon_and_removes_the_files(
    running: subprocess.Popen[str], number: signal.Signals, tmp_path: Path
) -> None:
    address = address_of(tmp_path)
    running.send_signal(number)
    output, _ = running.communicate(timeout=DEADLINE)
    assert running.returncode == 130
    assert "Interrupted" in output
    assert "KeyboardInterrupt" not in output
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=DEADLINE)


def test_staying_says_what_to_type_in_another_terminal(running: subprocess.Popen[str], tmp_path: Path) -> None:
    assert running.stdout is not None
    lines = iter(running.stdout)
    assert any(line.startswith("To look around, in another terminal:") for line in lines)
    typed = [line.strip() for line in itertools.takewhile(lambda line: line.startswith("  "), lines)]
    assert any("press Ctrl-C here" in line for line in lines)
    needed, shown = [one for one in typed if not one.startswith("tpuwatch")], "tpuwatch restarts history"
    assert shown in typed
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = "\n".join([*needed, shown])
    done = subprocess.run(
        ["/bin/sh", "-ec", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert "train-1 (us-central2-b): not verified" in done.stdout
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=DEADLINE)
    assert running.returncode == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("scenes", "fault"),
    [(demo.TUNING[1:2], "not ready within .* for `tpuwatch tune`"), (demo.RESTARTING[:1], "for `tpuwatch status`")],
    ids=["decides", "judges"],
)
def test_a_daemon_that_sees_nothing_is_no_success(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scenes: tuple[demo.Scene, ...], fault: str
) -> None:
    monkeypatch.setattr(demo, "READY_SECONDS", 0.1)
    monkeypatch.setattr(demo, "TUNING", ())
    monkeypatch.setattr(demo, "RESTARTING", scenes)
    with (
        SimulatedMachine(pace=0, command=(sys.executable, "-c", BLIND)) as machine,
        (tmp_path / "out").open("w") as output,
        pytest.raises(TpuwatchError, match=fault),
    ):
        demo.Demo(machine, Console(output), pause_seconds=0).run()
