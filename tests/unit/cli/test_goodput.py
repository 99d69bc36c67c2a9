"""`tpuwatch goodput`: from the store, and from the daemon where the user may not read that."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.standins.http_daemon import answering
from tests.unit.goodput.simulated import Plan, simulate
from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.cli.main import main
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import StoreDeniedError
from tpuwatch.model.goodput import TrainingState
from tpuwatch.store import EventStore, StoreReader


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}/state"\n[http]\nlisten = "127.0.0.1:9"\n')
    monkeypatch.setenv("TPUWATCH_CONFIG", str(tmp_path / "c.toml"))
    return tmp_path / "state"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["goodput", "--json", *words]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_training_from_the_store(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = simulate(Plan())
    store = EventStore.open(directory, ManualClock(given.now))
    store.commit([], [], given.launches)
    store.save_steps(given.runs, given.spans)
    store.close()
    monkeypatch.setattr(time, "time", lambda: given.now + 500.0)
    document = shown(capsys)
    states = {one["state"]: one for one in document["states"]}  # type: ignore[attr-defined] # a list
    assert document["total_seconds"] == pytest.approx(given.total, abs=0.001)
    assert sum(round(10_000 * one["share"]) for one in states.values()) == 10_000
    for state in TrainingState:
        assert states[state.value]["seconds"] == pytest.approx(given.truth[state], abs=0.005 * given.total)
    assert document["until_epoch"] == pytest.approx(given.now)
    assert shown(capsys, "--workload", "other")["trainings"] == []
    assert shown(capsys, "--since", "1h")["total_seconds"] == pytest.approx(3100.0, abs=0.001)
    assert main(["goodput"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Goodput: 65.02 %")
    assert "3 interruptions: 3 failed" in text
    assert "100.00%" in text


def test_without_a_training(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    EventStore.open(directory, ManualClock()).close()
    assert main(["goodput", "--since", "2026-11-20T13:00:00Z"]) == 0
    assert capsys.readouterr().out == "No training since 2026-11-20 13:00:00 UTC.\n"
    assert shown(capsys)["goodput"] is None


def test_without_a_store_it_could_not_find_out(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["goodput"]) == 3
    assert f"there is no store in {directory}" in capsys.readouterr().err


def test_who_may_not_read_the_store_asks_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(directory: Path) -> StoreReader:
        raise StoreDeniedError(f"this user may not read the store {directory}")

    monkeypatch.setattr(StoreReader, "open", denied)
    view = SampleView(samples.watching(goodput=samples.goodput()))
    with answering(view, tmp_path, monkeypatch):
        assert shown(capsys, "--workload", "train", "--since", "1790000000")["goodput"] == pytest.approx(9000 / 12_600)
    assert view.asked == [{"since": 1_790_000_000.0, "workload": "train"}]
    assert main(["goodput"]) == 3
    assert "may not read the store" in capsys.readouterr().err
