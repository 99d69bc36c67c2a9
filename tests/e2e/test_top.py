"""`tpuwatch top` on a real pseudo-terminal, before the real web server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standins.certificates import Authority
from tests.standins.http_daemon import answering
from tests.standins.terminal import Terminal
from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tests.unit.web.test_access import TOKEN, serving
from tpuwatch.core.clock import SystemClock
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.verdict import Verdict
from tpuwatch.web.server import HttpServer

TOP = (sys.executable, "-m", "tpuwatch", "top", "--interval", "0.5")
DOWN, ALTERNATE_SCREEN, LEFT_IT = "\x1bOB", b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def view() -> SampleView:
    bad = samples.node("train-2", Verdict.NODE_STUCK)
    return SampleView(
        samples.watching(Verdict.RUNTIME_STUCK),
        wrong=[samples.finding()],
        started=[samples.launch(workload="llama")],
        watched=[samples.node(verdict=Verdict.RUNTIME_STUCK, own=True), bad],
    )


@pytest.fixture
def address(view: SampleView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with answering(view, tmp_path, monkeypatch) as address:
        yield address


def left_as_it_was(terminal: Terminal) -> bool:
    """The settings of the terminal, its screen and its cursor."""
    output = terminal.output
    return (
        terminal.settings[:4] == terminal.settings_before[:4]
        and output.rfind(LEFT_IT) > output.rfind(ALTERNATE_SCREEN) >= 0
        and max(output.rfind(b"\x1b[?25h"), output.rfind(b"\x1b[34h")) > output.rfind(b"\x1b[?25l")
    )


@pytest.mark.usefixtures("address")  # the configuration's
def test_it_shows_the_node_obeys_keys_and_follows_the_size(view: SampleView) -> None:
    with Terminal(TOP, os.environ) as terminal:
        terminal.wait_for("2 of 2 nodes")
        terminal.wait_for("train-2  node_stuck")
        terminal.press(DOWN)
        terminal.wait_for("train-1: libtpu's runtime has not answered")
        terminal.press("\r")
        for shown in (
            "Do: End process 4242",
            "kill 4242",
            "Chip HBM",
            "3 GiB of 16 GiB",
            "Findings: 1",
            "hbm_oom_compile",
        ):
            terminal.wait_for(shown)
        terminal.resize(140, 40)
        for shown in ("llama", "Restarts: mode observe", "Next launch: nothing is decided"):
            terminal.wait_for(shown)
        terminal.wait_for(lambda: any(len(line) > 120 for line in terminal.text.splitlines()), "a wide line")
        view.shown = samples.watching()
        terminal.wait_for("train-1: healthy since")
        terminal.resize(60, 10)
        terminal.wait_for(lambda: len(terminal.text.splitlines()) == 10 and "q leave" in terminal.text.splitlines()[-1])
        terminal.press("\x1b")
        terminal.wait_for("order: worst")
        terminal.press("/zzz")
        terminal.wait_for("0 of 2 nodes")
        terminal.press("\x1b")
        terminal.wait_for("2 of 2 nodes")
        terminal.press("?")
        terminal.wait_for("the order reversed")
        terminal.press("xq")
        assert terminal.ended() == 0
        assert left_as_it_was(terminal)


@pytest.mark.parametrize(("how", "code"), [("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_terminal_is_left_as_it_was(address: str, how: str | signal.Signals, code: int) -> None:
    with Terminal((*TOP, f"http://{address}/"), os.environ) as terminal:
        terminal.wait_for("2 of 2 nodes")
        assert terminal.settings[:4] != terminal.settings_before[:4]
        if isinstance(how, str):
            terminal.press(how)
        else:
            terminal.process.send_signal(how)
        assert terminal.ended() == code
        assert left_as_it_was(terminal)


def test_an_exception_is_seen_on_a_terminal_that_is_as_it_was(address: str) -> None:
    broken = "from tpuwatch.top.view import TopView; from tpuwatch.cli.main import main; "
    broken += f"TopView.press = lambda *_: 1 / 0; main(['top', '{address}'])"
    with Terminal((sys.executable, "-c", broken), os.environ) as terminal:
        terminal.wait_for("2 of 2 nodes")
        terminal.press("x")
        assert terminal.ended() == 1
        assert left_as_it_was(terminal)
        assert "ZeroDivisionError" in terminal.text


def test_ctrl_z_gives_the_terminal_back_and_it_goes_on_later(address: str) -> None:
    with Terminal(("bash", "--norc", "-i"), {**os.environ, "PS1": "$ "}) as terminal:
        terminal.wait_for("$")
        terminal.press(f"{' '.join((*TOP, address))}\n")
        terminal.wait_for("2 of 2 nodes")
        assert terminal.settings[6][termios.VSUSP] == b"\0"  # as a signal curses would lose it while it draws
        terminal.press("\x1a")
        terminal.wait_for("Stopped")
        terminal.press("echo back in the sh''ell\n")
        terminal.wait_for("back in the shell")
        terminal.press("fg\n")
        terminal.wait_for("2 of 2 nodes")
        terminal.press("?")
        terminal.wait_for("the order reversed")
        assert terminal.settings[6][termios.VSUSP] == b"\0"
        terminal.press("qq")
        terminal.wait_for(lambda: terminal.output.count(LEFT_IT) == 2, "end")


def test_a_daemon_that_goes_away_and_comes_back(view: SampleView) -> None:
    view.watched = view.watched[:1]
    metrics = Metrics(loops=(), refusals=())
    server = HttpServer("127.0.0.1", 0, view=view, metrics=metrics, clock=SystemClock())
    server.start()
    try:
        port = server.address[1]
        with Terminal((*TOP, f"127.0.0.1:{port}"), os.environ) as terminal:
            terminal.wait_for("train-1: runtime_stuck")
            server.close()
            terminal.wait_for("no daemon answers")
            terminal.wait_for("What follows was so")
            server = HttpServer("127.0.0.1", port, view=view, metrics=metrics, clock=SystemClock())
            server.start()
            terminal.wait_for(lambda: "no answer" not in terminal.text, "answer")
            terminal.wait_for(lambda: "What follows" not in terminal.text, "answer")
    finally:
        server.close()


def test_without_a_terminal_it_prints_once(address: str) -> None:
    done = subprocess.run((*TOP, address), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "3 GiB of 16 GiB" in done.stdout
    assert "\x1b" not in done.stdout
    done = subprocess.run(
        (*TOP, "--json", address, "127.0.0.1:1"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    one, other = json.loads(done.stdout)["daemons"]
    assert (one["address"], one["error"], one["status"]["node"]["verdict"]) == (address, None, "runtime_stuck")
    assert "no daemon answers" in other["error"]
    assert "status" not in other


def test_daemons_are_asked_over_tls_with_a_token(view: SampleView, tmp_path: Path) -> None:
    with serving(tmp_path, view=view) as site:
        url = "https://{}:{}".format(*site.server.address)
        files = ("--certificate", str(site.files.certificate), "--token-file", str(site.token_file))
        with Terminal((*TOP, *files, url), os.environ) as terminal:
            terminal.wait_for("2 of 2 nodes")
            terminal.press("q")
            assert terminal.ended() == 0
        stranger = Authority(tmp_path / "stranger").issue("localhost", "127.0.0.1")
        for words, code, said in (
            ((url, *files), 1, "runtime_stuck"),
            ((url,), 2, "needs --certificate FILE"),
            ((url, *files[:2]), 3, "token"),
            ((url, "--certificate", str(stranger.certificate), *files[2:]), 3, "certificate"),
        ):
            done = subprocess.run((*TOP, *words), capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, said in done.stdout + done.stderr) == (code, True), (words, done)
            assert TOKEN not in done.stdout + done.stderr


def test_an_unknown_terminal_and_one_of_an_old_character_set(address: str) -> None:
    with Terminal((*TOP, address), {**os.environ, "COLUMNS": "20"}, term="xterm-of-next-year") as terminal:
        terminal.wait_for("2 of 2 nodes")
        terminal.press("q")
        assert terminal.ended() == 0
    with Terminal((*TOP, address), {**os.environ, "LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"}) as terminal:
        terminal.wait_for("2 of 2 nodes")
        terminal.press("q")
        assert terminal.ended() == 0
    for url in ("ftp://127.0.0.1:1", "http://u:p@h:1", "http://h:x", "http://h:1/path"):
        done = subprocess.run((*TOP, url), capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, "URL such as http://" in done.stderr) == (2, True)
