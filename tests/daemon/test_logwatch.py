"""What the log side tells the judge, and when."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.fake_processes import OUTSIDE, FakeProcesses
from tests.journal.make import NOW, event
from tests.tune.recorded import launch
from tpuwatch.clock import ManualClock
from tpuwatch.config import Config
from tpuwatch.config.schema import Logs as LogsSection
from tpuwatch.daemon import badvalues, logwatch
from tpuwatch.daemon.logwatch import TESTIMONY_SECONDS, LogWatch
from tpuwatch.export.metrics import Metrics
from tpuwatch.health.evidence import Answer, Host, Logs, Problem
from tpuwatch.health.limits import Limits
from tpuwatch.journal import Journal
from tpuwatch.launches.tracker import Origin
from tpuwatch.logs.files import Refusal
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PID = 42
OURS = Origin(PID, "alice", "vm")


class Scene:
    """A log side whose processes the test makes up."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.processes = FakeProcesses((PID, NOW - 2))
        monkeypatch.setattr(logwatch, "ProcFs", lambda: self.processes)
        self.logs = root / "logs"
        self.logs.mkdir()
        self.journal = Journal.open(root / "state", self.clock)
        self.watch = self.made()

    def made(self) -> LogWatch:
        """The log side of a run."""
        return LogWatch(
            Config(logs=LogsSection(paths=(self.logs,))),
            journal=self.journal,
            metrics=Metrics(loops=[], refusals=[reason.value for reason in Refusal]),
            clock=self.clock,
            wake=lambda: None,
        )

    def launch(self, origin: Origin = OURS) -> None:
        self.watch.ingest.tracker.mark("init_started", {}, origin, self.clock.time())
        self.turn()

    def turn(self) -> None:
        self.watch.ingest.turn()

    def told(self) -> Logs:
        """What is news now."""
        answer = self.watch.news()
        assert answer is not None
        assert answer.value is not None
        return answer.value


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(tmp_path, monkeypatch)
    scene.turn()
    yield scene
    scene.watch.close()
    scene.journal.close()


def test_what_has_not_changed_is_said_again_only_now_and_then(scene: Scene) -> None:
    scene.launch()
    scene.told()
    for _ in range(int(TESTIMONY_SECONDS) - 1):
        scene.clock.advance(1)
        scene.turn()
        assert scene.watch.news() is None
    scene.clock.advance(1)
    assert scene.told().alive == {OUTSIDE + PID}


def test_it_is_said_again_long_before_it_is_too_old_to_count() -> None:
    assert Limits().logs_seconds / 3 > TESTIMONY_SECONDS


def test_each_change_is_news_at_once(scene: Scene) -> None:
    scene.told()
    scene.launch()
    assert len(scene.told().launches) == 1
    scene.watch.ingest.put(event("a"))
    scene.turn()
    assert len(scene.told().events) == 1
    scene.watch.ingest.tracker.mark("init_done", {"init_seconds": 1.0}, OURS, NOW + 1)
    scene.turn()
    assert scene.told().launches[0].init_seconds == 1.0
    assert scene.watch.news() is None


def test_a_process_that_ends_without_a_word_is_news_at_once_and_once(scene: Scene) -> None:
    scene.launch()
    scene.watch.ingest.tracker.mark("init_done", {"init_seconds": 1.0}, OURS, NOW + 1)
    scene.turn()
    assert scene.told().alive == {OUTSIDE + PID}
    scene.processes.alive.clear()
    scene.clock.advance(1)
    scene.turn()
    told = scene.told()
    assert (told.alive, len(told.launches)) == (frozenset(), 1)
    assert scene.watch.news() is None


def test_the_judge_is_told_the_numbers_that_the_host_calls_processes_by(scene: Scene) -> None:
    scene.watch.ingest.put(event("before", pid=PID, time=NOW - 3600))  # of another process, which had the number
    scene.launch()
    scene.watch.ingest.put(event("of the program", pid=PID))
    scene.watch.ingest.put(event("of nobody", pid=None))
    scene.turn()
    told = scene.told()
    assert [launch.pid for launch in told.launches] == [OUTSIDE + PID]
    assert [(one.key, one.pid) for one in told.events] == [
        (b"of nobody", None),
        (b"of the program", OUTSIDE + PID),
        (b"before", PID),
    ]
    assert scene.journal.launches()[0].pid == PID  # as its log calls it
    assert scene.watch.last_launch().pid == PID  # type: ignore[union-attr]


@pytest.mark.parametrize("host", ["vm", "another-vm"])
def test_a_launch_whose_process_cannot_be_told_is_not_told_to_have_ended(scene: Scene, host: str) -> None:
    if host == "vm":
        scene.processes.alive = [(PID, NOW - 5000)]
    scene.launch(Origin(PID, "alice", host))
    assert scene.told() == Logs()


def test_logs_that_cannot_be_read_are_said_to_be(scene: Scene) -> None:
    os.mkfifo(scene.logs / "tpu_driver.vm.alice.log.INFO.20260901-000000.42")
    scene.clock.advance(60)
    scene.turn()
    answer = scene.watch.testimony()
    assert (answer.value, answer.problem) == (None, Problem.DENIED)
    (scene.logs / "tpu_driver.vm.alice.log.INFO.20260901-000000.43").write_text("")
    scene.clock.advance(60)
    scene.turn()
    assert scene.watch.testimony().problem is None


def test_a_kill_that_the_host_tells_of_is_blamed_on_the_launch_that_vanished(scene: Scene) -> None:
    scene.launch()
    scene.processes.alive.clear()
    scene.clock.advance(1)
    scene.turn()
    scene.watch.hear(Answer())
    scene.watch.hear(Answer(Host("b", None)))
    scene.turn()
    assert scene.journal.launches()[0].faults == {}
    scene.watch.hear(Answer(Host("b", None, last_oom_kill=NOW + 3)))
    scene.turn()
    assert scene.journal.launches()[0].faults == {"host_oom": 1.0}


def test_a_wrong_value_of_a_job_is_no_evidence_of_how_the_node_is(scene: Scene) -> None:
    wrong = badvalues.found(launch(environment={"TPU_PREMAPPED_BUFFER_SIZE": "4GB"}), NOW)
    scene.watch.ingest.put(wrong[0])
    scene.watch.ingest.put(event("a"))
    scene.turn()
    assert [one.key for one in scene.told().events] == [b"a"]
    assert len(scene.journal.events()) == 2


def test_what_is_decided_for_the_next_launch_is_no_evidence_and_no_warning(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.watch.ingest.put(replace(event("t"), cause=Cause.TUNE_CHANGE, text="Advice for the next launch"))
    scene.watch.ingest.put(event("a"))
    scene.turn()
    assert [one.key for one in scene.told().events] == [b"a"]
    assert "tune_change" not in caplog.text
    assert len(scene.journal.events()) == 2
    assert scene.watch.stored == 2
    scene.watch.close()
    scene.watch = scene.made()  # as after a restart
    assert [one.key for one in scene.told().events] == [b"a"]


def test_failures_that_an_earlier_run_counted_are_not_counted_again(scene: Scene) -> None:
    failure = replace(event("f"), cause=Cause.PREMAPPED_EXHAUSTED)
    scene.journal.commit([failure], [])
    assert scene.watch._counted() == [failure.key]
