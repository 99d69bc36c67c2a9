"""What each command prints, on a terminal of 80 columns and in a pipe, as it stands in sessions/.

`make sessions` writes the files again; read what has changed before it is committed.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import golden
from tests.standins.http_daemon import answering
from tests.unit.cli.programs import ADVISE, LARGEST, PREFLIGHT, PROBE, PROFILE, programs
from tests.unit.cli.restarting import Site, site
from tests.unit.cli.tuning import GROWS, SETTLED, Machine, machine
from tests.unit.store.make import event
from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.cli.main import COMMANDS, main
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import StoreDeniedError
from tpuwatch.model.causes import Cause
from tpuwatch.model.restart import Attempt, Phase
from tpuwatch.model.verdict import Action, Verdict
from tpuwatch.store import EventStore, StoreReader

__all__ = ["machine", "programs", "site"]  # fixtures

SESSIONS = Path(__file__).with_name("sessions")
WIDTHS = ("80", "pipe")
# Longer than a terminal is wide may be what is to be copied or cut by a program: commands, addresses, tables, files.
WHOLE = re.compile(
    r" *(\d\. |Do: )?(sudo|gcloud|tpuwatch|kill|export|https?://|/|[A-Z_]+=)|.*(https?://|/)\S+$|(NODE|WORKLOAD|train|#)"
)


class Screen:
    """A terminal of 80 columns, or a pipe."""

    def __init__(self, width: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.width = width
        self._root = root
        self._capsys = capsys

    def shows(self, name: str, *words: str, code: int = 0) -> None:
        """The command ends with that code, and shows what is in the file of that name."""
        self._capsys.readouterr()
        try:
            ended = main(words)
        except SystemExit as end:
            ended = int(end.code or 0)
        captured = self._capsys.readouterr()
        self.holds(name, f"$ tpuwatch {' '.join(words)}\n{captured.out}{captured.err}")
        assert ended == code

    def holds(self, name: str, text: str) -> None:
        """That is what is in the file of that name."""
        text = "\n".join(line.rpartition("\r\x1b[K")[2] for line in text.split("\n"))
        text = re.sub(r"SUMS=[^;\s]+", "SUMS=…", re.sub(r"decided it at \S+ \S+ UTC", "decided it at … UTC", text))
        text = re.sub(r"\d+ rules loaded", "150 rules loaded", text)
        text = re.sub(r"\d+ MiB are free", "77865 MiB are free", text)
        text = text.replace(sys.executable, "python3")
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9478", text.replace(str(self._root), "/home/alice"))
        golden.holds(SESSIONS / f"{name}.{self.width}.txt", text)
        if self.width != "pipe":
            wide = [line for line in text.splitlines()[1:] if len(line) > int(self.width) and not WHOLE.match(line)]
            assert wide == []


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory whose name has always the same length: where lines are wrapped depends on it."""
    with tempfile.TemporaryDirectory(prefix="tpuwatch-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(params=WIDTHS)
def screen(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Screen]:
    width = str(request.param)
    with monkeypatch.context() as patched:
        patched.setenv("NO_COLOR", "1")
        patched.setenv("TERM", "xterm")
        patched.setenv("TZ", "UTC")
        time.tzset()
        if width == "pipe":
            patched.delenv("COLUMNS", raising=False)
        else:
            patched.setattr(type(sys.stdout), "isatty", lambda _: True)
        patched.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((80, 24)))
        yield Screen(width, tmp_path, capsys)
    time.tzset()


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SampleView]:
    """A daemon that watches a healthy node, its own, and one that is stuck, after a launch that failed."""
    failed = samples.launch(
        premapped_failures=1,
        premapped_need_bytes=17 << 28,
        premapped_asked_bytes=544 << 20,
        premapped_bytes=4 << 30,
        faults={"premapped_exhausted": 40.0},
        exit_status=1,
    )
    found = SampleView(
        samples.watching(Verdict.HEALTHY),
        wrong=[samples.finding(samples.event(Cause.PREMAPPED_EXHAUSTED))],
        started=[failed],
        watched=[samples.node("train-1", own=True), samples.node("train-2", Verdict.NODE_STUCK)],
    )
    with answering(found, tmp_path, monkeypatch):
        yield found


@pytest.mark.usefixtures("view")
def test_status(screen: Screen) -> None:
    screen.shows("status", "status", code=1)
    screen.shows("status-verbose", "status", "--verbose", code=1)


@pytest.mark.parametrize(("name", "verdict"), [("well", Verdict.HEALTHY), ("stuck", Verdict.RUNTIME_STUCK)])
def test_status_in_ten_lines(
    screen: Screen, name: str, verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(SampleView(samples.watching(verdict), started=[samples.launch()]), tmp_path, monkeypatch):
        screen.shows(f"status-{name}", "status", code=int(name == "stuck"))


def test_a_slice(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = samples.node(cloud=samples.cloud_node(hosts=4), slice=samples.slice_of_four())
    with answering(SampleView(samples.watching(node=node), watched=[node]), tmp_path, monkeypatch):
        screen.shows("status-slice", "status")
        screen.shows("nodes-slice", "nodes", "train-1")


@pytest.mark.usefixtures("view")
def test_nodes(screen: Screen) -> None:
    screen.shows("nodes", "nodes", code=1)
    screen.shows("nodes-wide", "nodes", "-o", "wide", code=1)
    screen.shows("nodes-problems", "nodes", "--problems", "--verbose", code=1)
    screen.shows("nodes-name", "nodes", "-o", "name", code=1)


def test_events(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}/state"\n')
    monkeypatch.setenv("TPUWATCH_CONFIG", str(tmp_path / "c.toml"))
    store = EventStore.open(tmp_path / "state", ManualClock())
    details = {"requested_bytes": 544 << 20, "free_bytes": 288 << 20}
    store.commit(
        [event("a"), event("b", cause=Cause.PREMAPPED_EXHAUSTED, rule="premapped-exhausted", details=details)], []
    )
    store.close()
    screen.shows("events", "events")


def test_goodput(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(directory: Path) -> StoreReader:
        raise StoreDeniedError(f"this user may not read the store {directory}")

    monkeypatch.setattr(StoreReader, "open", denied)
    view = SampleView(samples.watching(Verdict.HEALTHY, goodput=samples.goodput()), started=[samples.launch()])
    with answering(view, tmp_path, monkeypatch):
        screen.shows("goodput", "goodput")
        screen.shows("status-goodput", "status")


def test_diagnose(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.log").write_text(
        "step 100: loss: 2.0\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Allocating buffer from premapped region "
        "failed with: RESOURCE_EXHAUSTED: Attempting to allocate 544.00M. That was not possible. There are 288.00M "
        "free.\n"
    )
    screen.shows("diagnose", "diagnose", "job.log")
    held = "I1120 00:00:01.000001 1234 tpu.cc:1] The TPU is already in use by process with pid 77.\n"
    (tmp_path / "held.log").write_text(held)
    screen.shows("diagnose-held", "diagnose", "held.log")


def test_tune(screen: Screen, machine: Machine) -> None:
    machine.store(*GROWS)
    screen.shows("tune", "tune")
    machine.store(*SETTLED)
    screen.shows("tune-explain", "tune", "--explain")


def test_env_and_config(screen: Screen, machine: Machine) -> None:
    machine.store(*SETTLED)
    screen.shows("tune-apply", "tune", "--apply")
    screen.shows("env", "env", "--workload", "train")
    screen.shows("env-systemd", "env", "--workload", "train", "--format", "systemd")
    screen.shows("config-check", "config", "check", code=0)


def test_restart(screen: Screen, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    system, _, *more = os.uname()
    monkeypatch.setattr("os.uname", lambda: os.uname_result((system, "vm", *more)))
    site.add()
    site.clock.advance(1)
    code, out, err = site.run("train-1", "--yes", "--reason", "It hangs.")
    screen.holds("restart", f"$ tpuwatch restart train-1 --yes --reason 'It hangs.'\n{plain(out + err)}")
    assert code == 0
    ended = Attempt(
        Action.RESTART_NODE, "node_stuck", site.clock.time() - 840, site.clock.time() - 600, Phase.DONE, 1, "joe@vm"
    )
    site.put("train-2", phase=Phase.NEEDS_OPERATOR, note="Create it again.", history=(ended,))
    for name, words in (("restarts", ()), ("restarts-history", ("history",))):
        _, out, err = site.restarts(*words)
        screen.holds(name, f"$ tpuwatch {' '.join(('restarts', *words))}\n{plain(out + err)}")


@pytest.mark.usefixtures("programs")
def test_programs(screen: Screen) -> None:
    screen.shows("doctor", "doctor", code=1)
    screen.shows("preflight", *PREFLIGHT, code=1)
    screen.shows("preflight-largest", *LARGEST, "--max-batch", "32", code=0)
    screen.shows("preflight-limit", *LARGEST, "--max-batch", "8", code=0)
    screen.shows("advise", *ADVISE, code=1)
    screen.shows("profile", *PROFILE, code=1)
    screen.shows("probe", *PROBE, code=3)
    screen.shows("probe-step", *PROBE, "--step", "model:step", code=1)


def plain(text: str) -> str:
    """The text without what differs from one run to the next."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-11-20 13:44:14", text)
    return re.sub(
        r"\w+@\S+ requested", "alice@vm requested", re.sub(r"requested by \S+@\S+,", "requested by alice@vm,", text)
    )


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(screen: Screen, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("argparse of another version of Python lays it out in its own way")
    screen.shows(f"help-{command or 'tpuwatch'}", *filter(None, [command, "--help"]))
