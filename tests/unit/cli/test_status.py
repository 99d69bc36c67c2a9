"""`tpuwatch status`."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_process import DaemonProcess, libtpu_name, wait_for
from tests.standins.http_daemon import answering
from tests.standins.runtime_server import listening
from tests.unit.web import samples, test_tunes
from tests.unit.web.samples import SampleView
from tpuwatch.cli.main import main
from tpuwatch.core import format_time
from tpuwatch.model.status import SignalStatus
from tpuwatch.model.verdict import Verdict

Show = Callable[..., tuple[int, str]]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """Runs the command against a daemon with this view; its exit code and what it prints on a terminal."""

    def run(view: SampleView, *words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("NO_COLOR", "1")
        with answering(view, tmp_path, monkeypatch):
            return main(["status", *words]), capsys.readouterr().out

    return run


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as daemon:
        monkeypatch.setenv("TPUWATCH_CONFIG", str(daemon.config))
        yield daemon


def test_before_the_first_verdict_it_is_not_known_how_all_is(show: Show) -> None:
    started = samples.status(signals=(SignalStatus("runtime", None, None, None, ""),))
    code, text = show(SampleView(started))
    assert code == 3
    assert text.startswith("No node is judged yet\n")


@pytest.mark.slow
def test_all_is_well_and_then_it_is_not(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.start()
    wait_for(lambda: daemon.api("status")["judged"], "the first verdict")
    assert main(["status", "-v"]) == 0
    text = capsys.readouterr().out
    assert f"at http://{daemon.address}/, up since " in text
    assert text.startswith("Nothing is ")

    now = time.strftime("%m%d %H:%M:%S")
    oom = f"E{now}.000001  4242 tpu.cc:7] Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.\n"
    start = f"I{now}.000000  4242 tpu.cc:7] Starting premapped memory manager initialization...\n"
    (daemon.logs / libtpu_name()).write_text(start + oom)
    (daemon.logs / "tpu_driver.steer\x1b[2J\u202e").symlink_to("/dev/zero")
    wait_for(lambda: daemon.api("findings")["findings"] and daemon.api("status")["problems"], "the finding")
    assert main(["status", "--verbose"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("1 problem: hbm_oom_compile\n")
    assert "1. hbm_oom_compile" in text
    assert "last at " in text
    assert f"process {2**30}: starting" in text
    assert "Not read" in text
    assert not set(text) & set("\x1b\u202e")

    assert main(["status", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [(one["cause"], one["over"]) for one in document["findings"]] == [("hbm_oom_compile", False)]
    assert document["problem_counts"] == {"node": 0, "finding": 1, "signal": 0, "daemon": 0, "queued_resource": 0}
    assert daemon.metric('tpuwatch_problems{kind="finding"}') == 1
    assert daemon.metric('tpuwatch_problems{kind="node"}') == 0
    assert document["ready"]
    assert document["launches"][0]["pid"] == 2**30


def test_no_daemon(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
    daemon.configure(listen=address)
    assert main(["status"]) == 3
    printed = capsys.readouterr().err
    assert f"no daemon answers at {address} " in printed
    assert "start it with `tpuwatch run`" in printed


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"SSH-2.0-\x1b[2JOpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (1 << 20),
    ],
    ids=["text", "ssh", "list", "deep", "large"],
)
def test_something_else_answers(
    daemon: DaemonProcess, answer: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tpuwatch.web.client.MAX_BYTES", 1 << 20)

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with listening(serve) as port:
        daemon.configure(listen=f"127.0.0.1:{port}")
        assert main(["status"]) == 3
    assert " (some other program does); start it with" in capsys.readouterr().err


def test_a_daemon_that_hangs(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tpuwatch.web.client.SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # it takes connections, and nobody reads them
        address = f"127.0.0.1:{hangs.getsockname()[1]}"
        daemon.configure(listen=address)
        assert main(["status"]) == 3
    printed = capsys.readouterr().err
    assert f"nobody at {address} has answered for 0 s: the daemon hangs" in printed


@pytest.mark.parametrize("command", [["status"], ["nodes"], ["nodes", "trainer"]], ids=" ".join)
@pytest.mark.parametrize("answer", ["nothing", "null", "new"])
def test_a_daemon_of_another_version(
    command: list[str], answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new = {"node": "trainer", "own": False, "verdict": "asleep"}  # a verdict that we do not know
    documents = {
        "nothing": {"version": "9.0", "findings": [], "launches": [], "nodes": [{}]},
        "null": {"version": "9.0", "findings": [], "launches": None, "nodes": None},
        "new": {"version": "9.0", "findings": [], "launches": [], "nodes": [new]},
    }
    monkeypatch.setattr("tpuwatch.web.client.ask_document", lambda *_: documents[answer])
    config = tmp_path / "c.toml"
    config.write_text(f'[state]\ndir = "{tmp_path}"\n')
    assert main([*command, "--config", str(config)]) == 3
    assert "it may be of another version; `systemctl restart tpuwatch`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(Verdict.HEALTHY, 0), (Verdict.UNKNOWN, 0), (Verdict.COMPILING, 0), (Verdict.JOB_STUCK, 1), (Verdict.GONE, 1)],
)
def test_the_verdict_decides_with(show: Show, verdict: Verdict, status: int) -> None:
    view = SampleView(samples.watching(verdict))
    code, printed = show(view)
    assert (code, show(view, "--json")[0]) == (status, status)
    assert f"train-1: {verdict.value} since" in printed


def lines_of(printed: str) -> list[str]:
    """The lines, of which there are ten at most, of 80 columns."""
    lines = printed.splitlines()
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 80
    return lines


def test_of_a_finding_no_word_is_left_out(show: Show) -> None:
    summary = "The program needs 28 GiB of HBM and 15.75 GiB is there, by the report of the compiler."
    finding = samples.finding(count=12, summary=summary)
    code, printed = show(SampleView(samples.watching(), wrong=[finding]))
    assert code == 1
    lines = lines_of(printed)
    assert lines[0] == "1 problem: hbm_oom_compile"
    assert lines[3:5] == [
        "hbm_oom_compile (12 times, last 1m ago): The program needs 28 GiB of HBM and",
        "   15.75 GiB is there, by the report of the compiler.",
    ]


def test_the_three_worst_of_many_nodes_and_how_many_more(show: Show) -> None:
    watched = [samples.node(), samples.node("gone", Verdict.GONE)]
    watched += [samples.node(f"stuck-{number}", Verdict.NODE_STUCK) for number in range(9)]
    watched += [samples.node(f"well-{number}") for number in range(289)]
    view = SampleView(samples.watching(), watched=watched)
    code, printed = show(view)
    assert code == 1
    assert printed.startswith("10 problems: 10 of 300 nodes are bad\n")
    assert printed.count("Other node us-central2-b/stuck-") == 3
    assert "\nand 7 more: tpuwatch nodes --problems\n" in printed
    assert "Nothing" not in printed
    assert json.loads(show(view, "--json")[1])["problem_counts"]["node"] == 10


def test_a_past_finding_is_shown_apart(show: Show) -> None:
    event = samples.event(age=3600)
    failed = samples.launch(started=event.when - 30, ended=event.when, exit_status=1, workload="train")
    later = samples.launch(pid=5000, started=samples.NOW - 600, workload="train")
    view = SampleView(samples.watching(), wrong=[samples.finding(event)], started=[later, failed])
    code, printed = show(view)
    assert code == 0
    assert printed.startswith("Nothing is wrong\n")
    assert "hbm_oom_compile" not in printed
    assert lines_of(printed)[-1] == "--verbose: all reasons, machine, signals, launches, 1 past finding"
    _, printed = show(view, "--verbose")
    past = " ".join(printed[printed.index("Past, last 24 h") :].split())
    assert "hbm_oom_compile (1h ago): The program needs 28 GiB" in past
    assert "A later launch of train (process 5000) does well." in past
    assert "process 4242 of train: ok, then failed (exit status 1)" in past
    document = json.loads(show(view, "--json")[1])
    assert [(one["over"], one["over_because"]) for one in document["findings"]] == [
        (True, "A later launch of train (process 5000) does well.")
    ]


def test_all_of_it_in_its_order(show: Show) -> None:
    stuck = samples.watching(Verdict.RUNTIME_STUCK)
    code, printed = show(SampleView(stuck, wrong=[samples.finding()], started=[samples.launch()]), "-v")
    assert code == 1
    parts = (
        "2 problems: train-1 is runtime_stuck, hbm_oom_compile",
        "train-1: runtime_stuck since",
        "   Why:",
        "   But:",
    )
    parts += ("What to do (restart_runtime):", "Machine:", "1. hbm_oom_compile", "Launches, the newest first")
    places = [printed.index(words) for words in parts]
    assert places == sorted(places)


def test_when_a_record_without_a_time_was_seen(show: Show) -> None:
    first = samples.event(time=None)
    code, printed = show(SampleView(samples.watching(), wrong=[samples.finding(first)]), "-v")
    assert code == 1
    assert f"last at {format_time(first.observed)}\n" in printed


def test_the_next_launch_is_printed(show: Show) -> None:
    _, printed = show(SampleView(samples.status(tune=test_tunes.status(test_tunes.tuned()))), "-v")
    assert "Next launch" in printed
    assert "train: grow, on trial, premapped buffer 8 GiB. It was too small." in " ".join(printed.split())
