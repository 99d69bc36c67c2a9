"""What commands print with `--json` stays what it is, byte by byte: golden files in documents/.

The daemon's own documents are in tests/unit/web/test_frozen.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import golden
from tests.standins.http_daemon import answering
from tests.unit.cli.programs import ADVISE, PREFLIGHT, PROBE, PROFILE, programs
from tests.unit.web import samples
from tests.unit.web.test_frozen import DARK, VIEW
from tpuwatch.cli.main import main
from tpuwatch.exec.found import NOTHING
from tpuwatch.exec.preparation import PreparedRun
from tpuwatch.exec.report import write_report
from tpuwatch.exec.run_result import RunResult
from tpuwatch.host.oom import OomKill, OomLimit
from tpuwatch.model.documents.logs import FindingDocument, LaunchDocument
from tpuwatch.model.tune import SIZE, SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.tune.environment import KeptVariable, LaunchEnvironment

__all__ = ["programs"]  # a fixture

GOLDEN = Path(__file__).with_name("documents")
Show = Callable[..., str]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """Runs a command, which ends with `code`, and returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, code: int) -> str:
        assert main([*words, "--json"]) == code
        return capsys.readouterr().out

    return run


def holds(name: str, text: str, tmp_path: Path) -> None:
    """That is what is in the file of that name, but for what differs from one run to the next."""
    text = text.replace(sys.executable, "python3").replace(str(tmp_path), "/home/alice")
    text = re.sub(r'"((?:began|ended)_epoch)": [\d.]+', r'"\1": 0.5', text) if name.startswith("probe") else text
    text = re.sub(r'(?m)^      "seconds": [\d.]+', '      "seconds": 0.5', text) if name == "preflight" else text
    golden.holds(GOLDEN / (name if "." in name else f"{name}.json"), text)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("profile", PROFILE, 1),
        ("preflight", PREFLIGHT, 1),
        ("advise", ADVISE, 1),
        ("advise-shapes", ("advise", "--shape", "bf16[20,30,5]", "--tpu", "v6e-4"), 0),
        ("doctor", ("doctor",), 1),
    ],
)
def test_commands_about_programs(show: Show, tmp_path: Path, name: str, words: Sequence[str], code: int) -> None:
    holds(name, show(*words, code=code), tmp_path)


@pytest.mark.usefixtures("programs")
def test_the_page_of_advise(show: Show, tmp_path: Path) -> None:
    show(*ADVISE, "--html", "page.html", code=1)
    holds("advise.html", (tmp_path / "page.html").read_text(), tmp_path)


@pytest.mark.usefixtures("programs")
def test_probe(show: Show, tmp_path: Path) -> None:
    holds("probe", show(*PROBE, code=3), tmp_path)
    holds("probe-step", show(*PROBE, "--step", "model:step", code=1), tmp_path)


def test_top(show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(VIEW, tmp_path, monkeypatch) as first, answering(DARK, tmp_path, monkeypatch) as second:
        text = show("top", first, second, "127.0.0.1:9", code=3)
    holds("top", text.replace(first, "10.0.0.1:9478").replace(second, "10.0.0.2:9478"), tmp_path)


def test_report_of_exec(tmp_path: Path) -> None:
    settings = (VariableSetting(SIZE, "4096", "It was too small."),)
    plan = TunePlan("job", 0.0, settings, SizeDecision(SizeStep.GROW, None, None, ("It was too small.",)))
    given = LaunchEnvironment({"TPU_X": "1"}, kept=[KeptVariable("TPU_Y", "2", "3")])
    prepared = PreparedRun("a1b2", "job", {"TPU_X": "1", "TPU_Y": "2"}, given, plan, tmp_path, True, ())
    findings = (FindingDocument.of(samples.finding()),)
    found = replace(NOTHING, findings=findings, launches=(LaunchDocument.of(samples.launch()),), unread_bytes=5)
    kill = OomKill(OomLimit.CGROUP, "/sys/fs/cgroup/train/memory.events", 1, "/train", "/train", 1 << 30)
    for name, end, decided in (
        ("exec", RunResult(1, 100.5, 200.25, 137, kill, found), plan),
        ("exec-unread", RunResult(1, 100.0, 200.0, 0, None, None), None),
    ):
        write_report(tmp_path / "report.json", prepared, end, decided)
        holds(name, (tmp_path / "report.json").read_text(), tmp_path)
