"""The soak test in small, and that it fails when it should: on lies, on what comes back late, on what grows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.proof.soak import __main__ as command
from tests.proof.soak.run import Account, Soak
from tests.proof.soak.troubles import Trouble, all_troubles, quick_troubles
from tpuwatch.core.backoff import Pacing
from tpuwatch.health import service
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Answer
from tpuwatch.model.signals import Evidence, Host
from tpuwatch.model.verdict import Judgement, Verdict
from tpuwatch.signals.host import HostSignal

Patch = pytest.MonkeyPatch


def named(name: str) -> Trouble:
    """The one trouble that is called so."""
    (found,) = [trouble for trouble in all_troubles() if trouble.name == name]
    return found


def soaked(scratch: Path, *names: str, **more: Any) -> Account:
    """What comes of these troubles."""
    return Soak(scratch, [named(name) for name in names], **{"rounds": 1, **more}).run()


def say_instead(patch: Patch, verdict: Verdict, when: Callable[[Evidence], bool]) -> None:
    """Let the judge lie."""

    def lying(evidence: Evidence, limits: JudgeLimits) -> Judgement:
        truth = honest(evidence, limits)
        return replace(truth, verdict=verdict) if when(evidence) else truth

    honest = judge_node
    patch.setattr(service, "judge_node", lying)


def at_each_look(patch: Patch, also: Callable[[], None]) -> None:
    """Let the signal of the host do something else, too."""

    def look(self: HostSignal) -> Answer[Host]:
        also()
        return honest(self)

    honest = HostSignal.ask
    patch.setattr(HostSignal, "ask", look)


@pytest.fixture
def leaks() -> Iterator[list[Callable[[], object]]]:
    """How what was leaked is given back."""
    given_back: list[Callable[[], object]] = []
    yield given_back
    for give_back in given_back:
        give_back()


@pytest.mark.long
def test_troubles_of_every_kind_bring_no_false_verdict_and_pass(tmp_path: Path) -> None:
    troubles = quick_troubles()
    lines: list[str] = []
    account = Soak(tmp_path, troubles, rounds=1, print_line=lines.append).run()
    assert account.faults == []
    assert [row.trouble for row in account.rows] == [trouble.name for trouble in troubles]
    assert len(lines) == 1 + len(account.rows)  # under a heading
    assert account.judgements > 4 * 600 / 10 * len(account.rows)  # of four nodes, at each look of the host at least


def test_a_judge_that_takes_a_silent_api_for_a_dead_node_is_found_out(tmp_path: Path, monkeypatch: Patch) -> None:
    say_instead(monkeypatch, Verdict.NODE_STUCK, lambda evidence: evidence.cloud.problem is not None)
    faults = soaked(tmp_path, "API: UNAVAILABLE", seconds=180.0).faults
    assert any(fault.startswith("API: UNAVAILABLE: train-2 was called node_stuck: ") for fault in faults)


@pytest.mark.parametrize(
    ("pause", "fault"), [(300.0, "30 s after it was over the nodes were {"), (1.0, "the API was asked ")]
)
def test_a_signal_that_asks_too_late_or_over_and_over_is_found_out(
    tmp_path: Path, monkeypatch: Patch, pause: float, fault: str
) -> None:
    monkeypatch.setattr(Pacing, "_back_off", lambda _: pause)
    (found,) = soaked(tmp_path, "API: UNAVAILABLE", seconds=200.0).faults
    assert found.startswith(f"API: UNAVAILABLE: {fault}")


def open_a_file(leaks: list[Callable[[], object]]) -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    leaks.append(lambda: os.close(descriptor))


def start_a_thread(leaks: list[Callable[[], object]]) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, daemon=True)
    thread.start()
    leaks.extend([ended.set, thread.join])


def keep_a_mebibyte(leaks: list[Callable[[], object]]) -> None:
    leaks.append(bytearray(b"x" * (1 << 20)).clear)


@pytest.mark.parametrize(
    ("leak", "what"), [(open_a_file, "descriptors"), (start_a_thread, "threads"), (keep_a_mebibyte, "MiB")]
)
def test_a_leak_is_found_out(
    tmp_path: Path,
    monkeypatch: Patch,
    leaks: list[Callable[[], object]],
    leak: Callable[[list[Callable[[], object]]], None],
    what: str,
) -> None:
    at_each_look(monkeypatch, lambda: leak(leaks))
    (fault,) = soaked(tmp_path, "API: UNAVAILABLE", seconds=180.0, rounds=2, patience=0).faults
    assert f" {what} in the last round, " in fault


def test_the_command_fails_with_an_account_of_what_is_wrong(
    monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["soak", "--only", "api: unavailable", "--rounds", "2", "--seconds", "180"]
    monkeypatch.setattr("sys.argv", words)
    assert command.main() == 0
    assert "no false verdict, all came back, nothing grew." in capsys.readouterr().out
    monkeypatch.setattr(Pacing, "_back_off", lambda _: 300.0)
    assert command.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert ": 1 things are wrong." in lines[-2]
    assert lines[-1].startswith("  API: UNAVAILABLE: 30 s after it was over")
