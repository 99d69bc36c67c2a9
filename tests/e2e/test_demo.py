from __future__ import annotations

import http.client
import io
import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tpuwatch.core.errors import TpuwatchError
from tpuwatch.sim import demo
from tpuwatch.sim.host.machine import SimulatedMachine
from tpuwatch.terminal.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE = 300.0
COMMAND = (sys.executable, "-m", "tpuwatch", "demo", "--fast")

# A daemon that serves and recognises nothing.
BLIND = """
import http.server, pathlib, sys, tomli
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"events": [], "launches": [], "findings": [], "nodes": []}')
state = pathlib.Path(tomli.loads(pathlib.Path(sys.argv[-1]).read_text())["state"]["dir"])
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
(state / "http.address").write_text("127.0.0.1:%d" % server.server_port)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a whole fast demo prints."""
    directory = tmp_path_factory.mktemp("demo")
    environment = {**os.environ, "TMPDIR": str(directory)}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    assert not list(directory.iterdir())
    return done.stdout


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo that has just said where it serves: the process, and its daemon's address."""
    with subprocess.Popen(
        (*COMMAND, "--stay"), env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.match(r"metrics +http://(\S+)/metrics", line):
                yield process, found[1]
                break
        process.kill()


def test_its_chapters_come_in_order(story: str) -> None:
    assert re.findall(r"^(\d of 4)  ", story, re.MULTILINE) == ["1 of 4", "2 of 4", "3 of 4", "4 of 4"]


def test_each_cause_is_shown_in_its_own_chapter_with_numbers_and_a_remedy(story: str) -> None:
    chapters = re.split(r"^\d of 4", story, flags=re.MULTILINE)
    _, healthy, premapped, hbm, node = (" ".join(chapter.split()) for chapter in chapters)
    assert "What to do" not in healthy
    assert "TPU up after 2.4 s" in healthy
    assert "nothing is wrong" in healthy
    assert "premapped_exhausted" in premapped
    assert "512 MiB" in premapped
    assert "premapped buffer 256 MiB" in premapped
    assert "hbm_oom_compile" in hbm
    assert "20 GiB" in hbm
    assert "15.75 GiB" in hbm
    assert "f32[33554432,14]" in hbm
    assert re.search(r"train-1: job_stuck \((high|medium|low)\)", node)
    assert "The chips have run nothing for 3 h under a live program" in node
    assert "The API says READY and HEALTHY, the chips have run nothing" in node
    for chapter in (premapped, hbm, node):
        assert re.search(r"What to do: 1\. .*https://", chapter)


def test_every_event_is_counted_once(story: str) -> None:
    assert re.search(r'tpuwatch_launches_total\{outcome="ok"\} 3\.0', story)
    assert re.search(r'tpuwatch_events_total\{cause="hbm_oom_compile"\} [12]\.0', story)
    assert re.search(r'tpuwatch_events_total\{cause="premapped_exhausted"\} [12]\.0', story)
    assert len(re.findall(r"tpuwatch_events_total", story)) == 2
    assert re.search(r'tpuwatch_verdict\{node="train-1",verdict="job_stuck",zone="[^"]+"\} 1\.0', story)


def test_is_plain_where_there_is_no_terminal(story: str) -> None:
    assert "\x1b" not in story


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_daemon_and_removes_the_files(
    running: tuple[subprocess.Popen[str], str], number: signal.Signals, tmp_path: Path
) -> None:
    process, address = running
    process.send_signal(number)
    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert "Interrupted" in output
    assert "Traceback" not in output
    assert not list(tmp_path.iterdir())
    host, _, port = address.partition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=DEADLINE)


def test_staying_serves_until_it_is_ended(running: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    process, address = running
    assert process.stdout is not None
    assert any("goes on at" in line for line in process.stdout)
    connection = http.client.HTTPConnection(address, timeout=DEADLINE)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == http.client.OK
    connection.close()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("chapters", "fault"),
    [
        (slice(None), r"did not report within .* the outcome of process \d+"),
        (slice(-1, None), r"did not report within .* that its node is job_stuck; .*last output"),
    ],
    ids=["recognises", "judges"],
)
def test_a_daemon_that_sees_nothing_is_no_success(monkeypatch: pytest.MonkeyPatch, chapters: slice, fault: str) -> None:
    monkeypatch.setattr(demo, "DETECTION_SECONDS", 0.1)
    monkeypatch.setattr(demo, "VERDICT_SECONDS", 0.1)
    monkeypatch.setattr(demo, "CHAPTERS", demo.CHAPTERS[chapters])
    with SimulatedMachine(pace=0, command=(sys.executable, "-c", BLIND)) as machine:
        machine.steps = machine.steps[chapters]
        with pytest.raises(TpuwatchError, match=fault):
            demo.Demo(machine, Console(io.StringIO()), pause_seconds=0).run()
