"""What the log service answers to the judge, and when."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.standins.fake_processes import OUTSIDE, FakeProcesses
from tests.unit.logs.sites import RULE
from tests.unit.store.make import NOW, event
from tests.unit.tune.recorded import launch
from tpuwatch.config import Config
from tpuwatch.config.schema import LogsConfig as LogsSection
from tpuwatch.core import printable
from tpuwatch.core.clock import ManualClock
from tpuwatch.daemon.view import findings_of
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.ingest import bad_values, service
from tpuwatch.ingest.service import ANSWER_SECONDS, LogService
from tpuwatch.launches.tracker import Origin
from tpuwatch.logs.tail import follow
from tpuwatch.logs.tail.files import Refusal
from tpuwatch.logs.tail.follow import Loss
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.signals import Host, Logs
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Iterator

PID = 42
OURS = Origin(PID, "alice", "vm")


class Scene:
    """A log service with processes made up by the test."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.processes = FakeProcesses((PID, NOW - 2))
        monkeypatch.setattr(service, "ProcFs", lambda _: self.processes)
        self.logs = root / "logs"
        self.logs.mkdir()
        self.store = EventStore.open(root / "state", self.clock)
        self.service = self.made()

    def made(self, *rules: Path) -> LogService:
        """The log service of a run, with directories of own rules."""
        return LogService(
            Config(logs=LogsSection(paths=(self.logs,), rules=rules)),
            store=self.store,
            metrics=Metrics(loops=[], refusals=[reason.value for reason in Refusal]),
            clock=self.clock,
            wake=lambda: None,
        )

    def launch(self, origin: Origin = OURS) -> None:
        self.service.ingest.tracker.mark("init_started", {}, origin, self.clock.time())
        self.turn()

    def turn(self) -> None:
        self.service.ingest.turn()

    def new_logs(self) -> Logs:
        """The value of the new answer."""
        answer = self.service.new_answer()
        assert answer is not None
        assert answer.value is not None
        return answer.value


def test_of_very_many_files_only_some_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    monkeypatch.setattr(service, "_COMPARED_FILES", 20)
    monkeypatch.setattr(follow, "MAX_OPENINGS", 5)
    status = follow.FileStatus
    monkeypatch.setattr(follow, "FileStatus", lambda path, *rest: described.append(path) or status(path, *rest))
    scene = Scene(tmp_path, monkeypatch)
    for number in range(100):
        (scene.logs / f"tpu_driver.{number}").write_text("words\n")
    scene.turn()
    files = scene.service.files(10)
    assert len(described) == 20
    assert [file.lag_bytes for file in files] == [6] * 10  # those that wait, before those that are read
    assert scene.service.file_count == 100
    assert scene.service.reads()
    assert len(described) == 20
    scene.service.close()
    scene.store.close()


def test_files_are_described_again_once_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, monkeypatch)
    first, second = (scene.logs / f"tpu_driver.{number}" for number in range(2))
    for path in (first, second):
        path.write_text("words\n")

    def sizes() -> dict[str, int]:
        scene.clock.advance(2 * follow.ACTIVE_SECONDS)
        scene.turn()
        return {Path(file.path).name: file.size_bytes for file in scene.service.files(10)}

    assert sizes() == sizes() == {"tpu_driver.0": 6, "tpu_driver.1": 6}
    monkeypatch.setattr(follow, "FileStatus", None)
    assert len(sizes()) == 2
    monkeypatch.undo()
    first.write_text("more words\n")
    assert sizes() == {"tpu_driver.0": 11, "tpu_driver.1": 6}
    second.unlink()
    sizes()
    assert sizes() == {"tpu_driver.0": 11}
    third = first.rename(scene.logs / "tpu_driver.2")
    assert sizes() == {third.name: 11}
    scene.service.close()
    scene.store.close()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(tmp_path, monkeypatch)
    scene.turn()
    yield scene
    scene.service.close()
    scene.store.close()


def test_an_unchanged_answer_is_repeated_at_intervals(scene: Scene) -> None:
    scene.launch()
    scene.new_logs()
    for _ in range(int(ANSWER_SECONDS) - 1):
        scene.clock.advance(1)
        scene.turn()
        assert scene.service.new_answer() is None
    scene.clock.advance(1)
    assert scene.new_logs().alive == {OUTSIDE + PID}


def test_an_answer_is_repeated_long_before_it_is_stale() -> None:
    assert JudgeLimits().logs_seconds / 3 > ANSWER_SECONDS


def test_each_change_gives_a_new_answer_at_once(scene: Scene) -> None:
    scene.new_logs()
    scene.launch()
    assert len(scene.new_logs().launches) == 1
    scene.service.ingest.add_event(event("a"))
    scene.turn()
    assert len(scene.new_logs().events) == 1
    scene.service.ingest.tracker.mark("init_done", {"init_seconds": 1.0}, OURS, NOW + 1)
    scene.turn()
    assert scene.new_logs().launches[0].init_seconds == 1.0
    assert scene.service.new_answer() is None


def test_the_subscriber_is_given_the_stored_launches(scene: Scene) -> None:
    started: list[float] = []
    scene.service.subscribe(lambda launches, _records: started.extend(one.started for one in launches))
    scene.launch()
    assert started == [one.started for one in scene.store.launches()] != []


def test_a_process_that_ends_without_a_record_gives_one_new_answer_at_once(scene: Scene) -> None:
    scene.launch()
    scene.service.ingest.tracker.mark("init_done", {"init_seconds": 1.0}, OURS, NOW + 1)
    scene.turn()
    assert scene.new_logs().alive == {OUTSIDE + PID}
    scene.processes.alive.clear()
    scene.clock.advance(1)
    scene.turn()
    logs = scene.new_logs()
    assert (logs.alive, len(logs.launches)) == (frozenset(), 1)
    assert scene.service.new_answer() is None


def test_launches_and_events_have_the_pids_of_the_host(scene: Scene) -> None:
    scene.service.ingest.add_event(event("before", pid=PID, time=NOW - 3600))  # of an earlier process
    scene.launch()
    scene.service.ingest.add_event(event("of the program", pid=PID))
    scene.service.ingest.add_event(event("of nobody", pid=None))
    scene.turn()
    logs = scene.new_logs()
    assert [launch.pid for launch in logs.launches] == [OUTSIDE + PID]
    assert [(one.key, one.pid) for one in logs.events] == [
        (b"of nobody", None),
        (b"of the program", OUTSIDE + PID),
        (b"before", PID),
    ]
    assert scene.store.launches()[0].pid == PID  # as its log calls it
    assert scene.service.last_launch().pid == PID  # type: ignore[union-attr]


@pytest.mark.parametrize("host", ["vm", "another-vm"])
def test_a_launch_whose_process_is_unknown_is_not_reported_as_ended(scene: Scene, host: str) -> None:
    if host == "vm":
        scene.processes.alive = [(PID, NOW - 5000)]
    scene.launch(Origin(PID, "alice", host))
    assert scene.new_logs() == Logs()


def test_logs_that_cannot_be_read_are_a_problem_of_the_answer(scene: Scene) -> None:
    os.mkfifo(scene.logs / "tpu_driver.vm.alice.log.INFO.20260901-000000.42")
    scene.clock.advance(60)
    scene.turn()
    answer = scene.service.answer()
    assert (answer.value, answer.problem) == (None, Problem.DENIED)
    (scene.logs / "tpu_driver.vm.alice.log.INFO.20260901-000000.43").write_text("")
    scene.clock.advance(60)
    scene.turn()
    assert scene.service.answer().problem is None


def test_what_the_logs_showed_last_is_kept_while_they_cannot_be_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.launch(Origin(PID, "alice", "vm"))
    good = scene.service.answer()
    monkeypatch.setattr(scene.service, "reads", lambda: False)
    scene.clock.advance(600)
    lost = scene.service.answer()
    assert (lost.value, lost.at, lost.problem) == (good.value, good.at, Problem.DENIED)


def test_an_oom_kill_of_the_host_is_assigned_to_the_launch_that_vanished(scene: Scene) -> None:
    scene.launch()
    scene.processes.alive.clear()
    scene.clock.advance(1)
    scene.turn()
    scene.service.on_host(Answer())
    scene.service.on_host(Answer(Host("b", None)))
    scene.turn()
    assert scene.store.launches()[0].faults == {}
    scene.service.on_host(Answer(Host("b", None, last_oom_kill=NOW + 3)))
    scene.turn()
    assert scene.store.launches()[0].faults == {"host_oom": 1.0}


def test_a_bad_value_is_no_evidence_about_the_node(scene: Scene) -> None:
    wrong = bad_values.bad_value_events(launch(environment={"TPU_PREMAPPED_BUFFER_SIZE": "4GB"}), NOW)
    scene.service.ingest.add_event(wrong[0])
    scene.service.ingest.add_event(event("a"))
    scene.turn()
    assert [one.key for one in scene.new_logs().events] == [b"a"]
    assert len(scene.store.events()) == 2


def test_a_tuning_decision_is_no_evidence_and_no_warning(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.service.ingest.add_event(replace(event("t"), cause=Cause.TUNE_CHANGE, text="Advice for the next launch"))
    scene.service.ingest.add_event(event("a"))
    scene.turn()
    assert [one.key for one in scene.new_logs().events] == [b"a"]
    assert "tune_change" not in caplog.text
    assert len(scene.store.events()) == 2
    assert scene.service.stored_events == 2
    scene.service.close()
    scene.service = scene.made()  # as after a restart
    assert [one.key for one in scene.new_logs().events] == [b"a"]


def test_own_rules_that_are_slow_are_named(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        RULE.partition("match =")[0] + "match = ['checkpoint .*']\nexamples = ['checkpoint 7']\n"
    )
    scene.service.close()
    scene.service = scene.made(tmp_path)
    [notice] = scene.service.notices()
    assert notice.startswith(f"Slow: {tmp_path}/own.toml: rule test-event: it is looked for by 'checkpoint '")


def test_what_was_lost_is_shown_for_a_day(scene: Scene) -> None:
    loss = Loss("/jobs/train\x1b.log", 2048, NOW, 0.0)
    counters = scene.service.ingest.follower.counters
    assert scene.service.notices() == []
    counters.lost_bytes, counters.last_loss = 3 * 1024, loss
    scene.clock.wall = NOW + 60
    [notice] = scene.service.notices()
    assert notice.startswith(f"3 KiB of logs were gone before they were read, last of {printable(loss.path)} at 20")
    scene.clock.wall = NOW + 90_000
    assert scene.service.notices() == []


def test_failures_counted_by_an_earlier_run_are_known(scene: Scene) -> None:
    failure = replace(event("f"), cause=Cause.PREMAPPED_EXHAUSTED)
    scene.store.commit([failure], [])
    assert scene.service._counted() == [failure.key]


JOBS = {
    "OSError: [Errno 28] No space left on device: '/data/ckpt'": [Cause.DISK_FULL],
    "docker: write /var/lib/docker/tmp/a: no space left on device.": [Cause.DISK_FULL],
    "RuntimeError: TPU initialization failed: Socket closed": [Cause.INIT_FAILED],
    "NotFoundError: From /job:worker/replica:0/task:0:": [Cause.TENSOR_HANDLE],
    "OOMKilled pods of the cluster: 3": [],
    "WARNING retrying: UNAVAILABLE: try again later": [],
    "W local_rendezvous.cc:404] Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence": [],
}


@pytest.mark.parametrize(("line", "causes"), JOBS.items())
def test_followed_output_is_a_tpu_jobs_and_needs_not_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, causes: list[Cause]
) -> None:
    scene = Scene(tmp_path, monkeypatch)
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    scene.service.restart(Config(logs=LogsSection(paths=(scene.logs,), job_paths=(jobs / "*.log",))))
    scene.turn()
    (jobs / "train.log").write_text(f"step 1\n{line}\n")
    for _ in range(3):
        scene.clock.advance(2.0)
        scene.turn()
    stored = scene.store.events()
    assert [event.cause for event in stored] == causes
    assert [one.cause for one in findings_of(stored, scene.service.catalogue)] == causes
    scene.service.close()
    scene.store.close()


def test_the_output_of_all_pods_of_a_node_is_not_taken_for_that_of_tpu_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = tmp_path / "pods"
    pods.mkdir()
    monkeypatch.setattr(follow, "_OF_ALL_PODS", (f"{pods}/",))
    scene = Scene(tmp_path, monkeypatch)
    scene.service.restart(Config(logs=LogsSection(paths=(scene.logs,), job_paths=(pods / "*.log",))))
    scene.turn()
    (pods / "system.log").write_text("exit code: 139\nwrite /var/log/a: no space left on device\n")
    for _ in range(3):
        scene.clock.advance(2.0)
        scene.turn()
    assert [event.cause for event in scene.store.events()] == [Cause.DISK_FULL]
    scene.service.close()
    scene.store.close()
