"""The service with a real socket: what it hears becomes loops, events and metrics."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.metrics.test_registry import new, samples
from tpuwatch.config import Config
from tpuwatch.core.clock import ManualClock
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.logs import load_catalogue
from tpuwatch.model import Cause, Event, Holder, StepReport, TrainingLoop, WorkloadKind
from tpuwatch.progress.events import RULES
from tpuwatch.progress.service import AGAIN_SECONDS, ProgressService
from tpuwatch.store import EventStore


class Scene:
    """A service and what it reports."""

    def __init__(self, directory: Path, **workload: Any) -> None:
        self.clock, self.metrics = ManualClock(1_790_000_000.0), new()
        self.events: list[Event] = []
        self.posts: list[tuple[TrainingLoop, ...]] = []
        self.holders: list[Holder] = []
        self.hbm = 60 << 30
        self.directory = directory
        self.service = self.new(None, **workload)

    def new(self, store: EventStore | None, **workload: Any) -> ProgressService:
        return ProgressService(
            self.config(**workload),
            store=store,
            hbm_used=lambda: self.hbm,
            metrics=self.metrics,
            clock=self.clock,
            boot_id="boot",
            add_event=self.events.append,
            post=self.posts.append,
            holders=lambda: self.holders,
            progress=lambda _name, _seconds: None,
        )

    def config(self, **workload: Any) -> Config:
        return Config.model_validate({"state": {"dir": self.directory}, "workload": workload})

    def restart(self, store: EventStore) -> None:
        self.service.stop()
        self.service = self.new(store)
        self.service._open()

    def steps(self, first: int, last: int, seconds: float) -> None:
        for step in range(first, last + 1):
            self.clock.advance(seconds)
            self.say(step=step, steps=1, seconds=seconds)

    def say(self, **message: Any) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(json.dumps(message).encode(), str(self.directory / "heartbeats.socket"))
        self.service.turn()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr("tpuwatch.progress.service.WAIT_SECONDS", 0.0)  # what is to be taken is there
    scene = Scene(tmp_path)
    scene.service._open()
    yield scene
    scene.service.stop()


def test_a_heartbeat_becomes_a_loop_of_the_process_that_sent_it(scene: Scene) -> None:
    scene.say(step=7, name="main", numbers={"loss": 2.5})
    (loop,) = scene.service.training
    assert (loop.pid, loop.name, loop.step, loop.loss, loop.alive) == (os.getpid(), "main", 7, 2.5, True)
    assert scene.posts[-1] == (loop,)
    shown = samples(scene.metrics)
    assert shown["tpuwatch_workload_step",] == 7
    assert shown["tpuwatch_heartbeats_total", "taken"] == 1


def test_each_fault_is_an_event_that_its_rule_recognises(scene: Scene) -> None:
    step = 0
    for seconds, number in ((10.0, 200), (15.0, 200)):
        for _ in range(number):
            step += 1
            scene.clock.advance(seconds)
            scene.say(step=step, steps=1, seconds=seconds, input_seconds=seconds / 2, nan=["loss"] if step == 5 else [])
    scene.clock.advance(700)
    scene.say(step=step)
    assert [event.cause for event in scene.events] == [
        Cause.NUMERIC_FAULT,
        Cause.INPUT_BOUND,
        Cause.SLOW_STEPS,
        Cause.STEPS_STALLED,
    ]
    rules = {rule.id: rule for rule in load_catalogue(()).rules}
    for event in scene.events:
        rule = rules[RULES[event.cause]]
        assert event.rule == rule.id
        assert any(re.search(pattern, event.text) for pattern in rule.match), event.text
        (finding,) = fold([RecognisedRecord(rule, event, event.details)])
        assert "{" not in finding.summary
        assert "unknown" not in finding.summary
        assert finding.remedy


def test_a_slow_down_is_shown_by_the_metrics_and_outlives_the_daemon(scene: Scene, tmp_path: Path) -> None:
    with closing(EventStore.open(tmp_path / "state", scene.clock)) as store:
        scene.restart(store)
        scene.steps(1, 200, 10.0)
        shown = samples(scene.metrics)
        assert shown["tpuwatch_workload_baseline_step_seconds",] == pytest.approx(10.0)
        assert shown["tpuwatch_workload_slowdown_ratio",] == 0
        assert shown["tpuwatch_workload_slow_since_timestamp_seconds",] == 0
        since = scene.clock.time()
        scene.steps(201, 400, 12.0)
        assert [event.cause for event in scene.events] == [Cause.SLOW_STEPS]
        assert "takes 12 s a step instead of 10 s, 20 % slower since step 200 (" in scene.events[0].text
        scene.restart(store)
        scene.steps(405, 407, 12.0)
        (loop,) = scene.service.training
        assert "12 s a step, 20 % slower since step 200 (" in loop.sentence(scene.clock.time())
        shown = samples(scene.metrics)
        assert shown["tpuwatch_workload_slowdown_ratio",] == pytest.approx(0.2, abs=0.001)
        assert shown["tpuwatch_workload_slow_since_timestamp_seconds",] == pytest.approx(since, abs=60)
        assert shown["tpuwatch_workload_loop_faults", "slow_steps"] == 1
        assert len(scene.events) == 1


def test_what_the_program_does_itself_is_logged_and_no_fault(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tpuwatch.progress.service")
    scene.steps(1, 200, 10.0)
    scene.hbm = 62 << 30
    scene.steps(201, 400, 12.0)
    assert scene.events == []
    assert "takes 20 % longer for a step since step 200. That is its program's doing: it uses another" in caplog.text
    assert scene.service.training[0].usual_step_seconds == pytest.approx(12.0)


def test_another_limit_is_used_from_the_next_turn_on(scene: Scene) -> None:
    scene.steps(1, 200, 10.0)
    config = scene.config()
    scene.service.reload(config.model_copy(update={"health": config.health.model_copy(update={"slower": 0.3})}))
    scene.steps(201, 400, 12.0)
    assert scene.events == []


def test_output_of_a_job_is_a_loop_too(scene: Scene) -> None:
    scene.service.take_output("/jobs/train.log", StepReport(5, loss=1.5), None, scene.clock.time())
    scene.say(step=7)
    assert [(loop.name, loop.step) for loop in scene.service.training] == [("", 7), ("train.log", 5)]


def holder(scene: Scene, *, started: float = -3600.0, kind: WorkloadKind | None = None) -> Holder:
    """This process, which holds the TPU."""
    return Holder(os.getpid(), "alice", "train.py", scene.clock.time() + started, ("/dev/vfio/0",), kind=kind)


@pytest.mark.parametrize(
    ("started", "kind", "late", "holders", "stalled"),
    [
        (-3600.0, None, 0.0, 1, True),
        (-3600.0, None, 600.0, 1, True),  # the daemon has just started
        (-3600.0, None, 600.0, 2, False),  # another one may have ended meanwhile
        (-3600.0, None, 0.0, 0, False),
        (5.0, None, 0.0, 1, False),  # it came when the loop had made its steps
        (-3600.0, WorkloadKind.INTERACTIVE, 0.0, 1, False),  # a notebook, which waits for its user
    ],
)
def test_output_stands_still_while_the_program_that_held_the_tpu_lives(
    scene: Scene, started: float, kind: WorkloadKind | None, late: float, holders: int, *, stalled: bool
) -> None:
    scene.holders = [holder(scene, started=started, kind=kind)] * holders
    begun = scene.clock.time()
    scene.clock.advance(3.0 + late)
    for step in range(1, 4):
        scene.service.take_output("/jobs/train.log", StepReport(step, 1000), None, begun + step)
    scene.service.turn()
    scene.clock.advance(601.0)
    scene.service.turn()
    assert [event.cause for event in scene.events] == [Cause.STEPS_STALLED] * stalled
    assert [loop.faults for loop in scene.service.training] == [(Cause.STEPS_STALLED,) * stalled]


def test_the_socket_is_open_to_all_and_goes_and_comes_with_the_configuration(scene: Scene) -> None:
    path = scene.directory / "heartbeats.socket"
    assert path.stat().st_mode & 0o777 == 0o666
    scene.service.reload(scene.config(heartbeats=False))
    scene.service.turn()
    assert not path.exists()
    scene.service.reload(scene.config(socket=str(scene.directory / "other")))
    scene.service._open()
    assert (scene.directory / "other").is_socket()


def test_a_socket_that_somebody_removed_is_made_again(scene: Scene) -> None:
    (scene.directory / "heartbeats.socket").unlink()
    scene.clock.advance(AGAIN_SECONDS)
    scene.service._open()
    assert (scene.directory / "heartbeats.socket").is_socket()


@pytest.mark.parametrize(("name", "words"), [("x" * 120, "longer than 107 bytes"), ("file", "something else")])
def test_a_socket_that_cannot_be_made_is_a_problem_that_says_what_to_do(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("kept")
    scene = Scene(tmp_path, socket=str(tmp_path / name))
    assert scene.service._open() is None
    assert words in scene.service.problem
    assert "`socket` under [workload]" in scene.service.problem
    assert (tmp_path / "file").read_text() == "kept"


def test_the_socket_is_there_once_the_service_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may send at once, and a busy machine may let the loop's first turn wait."""
    monkeypatch.setattr("tpuwatch.core.loop.LoopGroup.start", lambda _: None)
    scene = Scene(tmp_path)
    scene.service.start()
    scene.say(step=7)
    assert [loop.step for loop in scene.service.training] == [7]
    scene.service.stop()
