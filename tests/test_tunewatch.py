"""The loop that decides next launches: when it does, what it writes and tells, and what lies in the drop box."""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.tune.recorded import NOW, launch, record
from tpuwatch import planning
from tpuwatch.clock import ManualClock
from tpuwatch.config import Config
from tpuwatch.config.schema import State
from tpuwatch.config.tune import Tune
from tpuwatch.export.metrics import Metrics
from tpuwatch.health.evidence import Answer, Logs
from tpuwatch.journal import Journal
from tpuwatch.node.board import Posted
from tpuwatch.tune.deciding import make_plan
from tpuwatch.tune.host import read_host
from tpuwatch.tune.model import SIZE, Host
from tpuwatch.tune.plan import read_plan
from tpuwatch.tune.records import write_record
from tpuwatch.tune.resets import write_reset
from tpuwatch.tunewatch import AGAIN_SECONDS, EVERY_SECONDS, NAME, RETRY_SECONDS, SETTLE_SECONDS, TuneWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.model import Event, Launch
    from tpuwatch.tune.record import Record

GIB = 1 << 30


class Side:
    """The tuning side of a daemon, with a log side that the test plays."""

    def __init__(self, root: Path, **tune: Any) -> None:
        self.root = root
        self.clock = ManualClock(NOW)
        self.journal = Journal.open(root / "state", self.clock)
        self.adopted: list[Record] = []
        self.put: list[Event] = []
        self.alive: tuple[Launch, ...] = ()
        self.metrics = Metrics(loops=[NAME], refusals=[])
        self.watch = self.made(**tune)

    def made(self, **tune: Any) -> TuneWatch:
        given = {"log_dir": self.root, **tune}
        return TuneWatch(
            Config(tune=Tune(**given), state=State(dir=self.root / "state")),
            journal=self.journal,
            metrics=self.metrics,
            clock=self.clock,
            posted=self.posted,
            adopt=self.adopted.append,
            put=self.put.append,
            progress=lambda *_: None,
        )

    def posted(self) -> Posted:
        logs = Logs(self.alive, (), frozenset(one.pid for one in self.alive))
        return Posted(logs=Answer(logs, self.clock.time()))

    def launched(self, *launches: Launch, records: tuple[Record, ...] = ()) -> None:
        """The log side has stored these."""
        self.journal.commit([], [], launches)
        self.watch.heard(launches, records)

    def settle(self) -> None:
        """Turn until what has changed is decided."""
        self.watch.turn()
        self.clock.advance(AGAIN_SECONDS + SETTLE_SECONDS)
        self.watch.turn()

    @property
    def tune(self) -> Path:
        return self.root / "state" / "tune"

    def size(self, workload: str = "train") -> int | None:
        plan = read_plan(self.tune, workload)
        assert plan is not None
        found = [int(one.value) for one in plan.settings if one.name == SIZE]
        return found[0] if found else None

    def metric(self, series: str) -> float:
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics.exposition()[0].decode(), re.MULTILINE)
        assert found is not None, series
        return float(found[1])

    def audited(self) -> list[Any]:
        try:
            return [json.loads(line) for line in (self.root / "state" / planning.AUDIT_NAME).read_text().splitlines()]
        except FileNotFoundError:
            return []

    def files(self, suffix: str) -> list[str]:
        return sorted(path.name for path in (self.tune / "plans").glob(f"*{suffix}"))


@pytest.fixture(autouse=True)
def large_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with memory for what is decided here, whatever it is that the test runs on."""

    def read(**given: Any) -> Host:
        return replace(read_host(**given), total_bytes=400 * GIB, available_bytes=300 * GIB)

    monkeypatch.setattr(planning, "read_host", read)


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    made = Side(tmp_path)
    yield made
    made.journal.close()


@pytest.fixture
def applying(tmp_path: Path) -> Iterator[Side]:
    made = Side(tmp_path, mode="apply")
    yield made
    made.journal.close()


# -- deciding


def test_a_launch_that_failed_for_want_of_room_has_the_next_one_get_more(side: Side) -> None:
    side.launched(launch())
    assert side.watch.turn() <= SETTLE_SECONDS
    assert side.files(".json") == []  # it may be about to change again
    side.settle()
    assert (side.size() or 0) >= 6 * GIB
    assert side.files(".env") == []
    assert side.metric(f'tpuwatch_tune_changes_total{{direction="up",variable="{SIZE}"}}') == 1
    assert side.metric("tpuwatch_tune_workloads") == 1
    (status,) = side.watch.status.workloads
    assert (status.plan.workload, status.launches, status.file, status.problem) == ("train", 1, "", "")


def test_apply_writes_the_environment_file_too(applying: Side) -> None:
    applying.launched(launch())
    applying.settle()
    text = (applying.tune / "plans" / "train.env").read_text()
    assert f'{SIZE}="{applying.size()}"' in text
    assert applying.watch.status.workloads[0].file == str(applying.tune / "plans" / "train.env")


def test_a_change_is_logged_and_audited_once(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    side.launched(launch())
    side.settle()
    told = [line for line in caplog.messages if SIZE in line]
    assert len(told) == 1
    assert told[0].startswith(f"Advice for the next launch of train: {SIZE} goes up from 4 GiB to ")
    (line,) = [one for one in side.audited() if one["variable"] == SIZE]
    assert (line["workload"], line["mode"], line["direction"]) == ("train", "observe", "up")
    assert (line["before"], line["after"]) == (str(4 * GIB), str(side.size()))
    assert line["reasons"]
    before = side.audited()
    side.launched(launch())  # the same again
    side.settle()
    assert side.audited() == before


def test_a_fault_after_the_start_is_decided_upon_too(side: Side) -> None:
    fine = launch(faults={}, premapped_failures=0, premapped_need_bytes=None, premapped_asked_bytes=None, ended=None)
    side.launched(fine)
    side.settle()
    assert side.size() is None
    side.launched(launch(ended=None))
    side.settle()
    assert (side.size() or 0) >= 6 * GIB


def test_a_storm_of_changes_is_not_decided_upon_each_time(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = make_plan

    def counted(*given: Any) -> Any:
        calls.append(given[3])
        return real(*given)

    monkeypatch.setattr(planning, "make_plan", counted)
    for number in range(100):
        side.launched(launch(premapped_failures=number + 1))
        side.clock.advance(side.watch.turn() / 10)
    assert 1 <= len(calls) <= 10


def test_workloads_are_decided_apart(side: Side) -> None:
    side.launched(launch(), launch(pid=1, workload="", faults={}, premapped_failures=0, premapped_need_bytes=None))
    side.settle()
    assert side.files(".json") == ["default.json", "train.json"]
    assert side.size("default") is None


def test_a_launch_that_gets_its_name_later_leaves_the_workload_that_it_was_counted_to(side: Side) -> None:
    side.launched(launch(workload=""))
    side.settle()
    assert (side.size("default") or 0) >= 6 * GIB
    side.launched(launch())
    side.settle()
    assert [one.plan.workload for one in side.watch.status.workloads] == ["train"]


def test_what_earlier_runs_stored_is_decided_anew_by_each_configuration(side: Side) -> None:
    side.launched(launch())
    side.settle()
    side.watch = side.made(pins={SIZE: "8589934592"})
    side.settle()
    assert side.size() == 8 * GIB
    side.watch = side.made(mode="apply")
    side.settle()
    assert side.files(".env") == ["train.env"]


def test_going_back_to_observe_leaves_the_files_and_says_so(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    side.watch = side.made(mode="apply", pins={SIZE: "8589934592"})
    side.launched(launch())
    side.settle()
    before = (side.tune / "plans" / "train.env").read_bytes()
    side.watch = side.made()
    side.settle()
    assert (side.tune / "plans" / "train.env").read_bytes() == before
    assert "mode is observe: the environment files of train stay" in caplog.text
    assert any("mode is observe" in problem for problem in side.watch.status.problems)


def test_a_reset_is_heeded_at_once(side: Side) -> None:
    side.launched(launch(), launch(pid=1, started=NOW, faults={}, premapped_failures=0, premapped_need_bytes=None))
    side.settle()
    assert side.watch.status.workloads[0].launches == 2
    write_reset(side.tune, "train", NOW)
    side.watch.turn()
    assert side.watch.status.workloads[0].launches == 1


def test_a_running_launch_of_another_workload_is_beside_it(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def read(**given: Any) -> Host:
        seen.append(given)
        return Host("v5e", 100 * GIB, 90 * GIB)

    monkeypatch.setattr(planning, "read_host", read)
    side.alive = (launch(ended=None), launch(pid=5, workload="other", ended=None))
    side.launched(launch())
    side.settle()
    assert [one.pid for one in seen[-1]["own"]] == seen[-1]["pids"] == [4711]
    assert [one.pid for one in seen[-1]["others"]] == [5]


def test_the_limit_of_a_workloads_cgroup_holds_after_its_process_has_gone(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[Host] = []
    real = make_plan

    def read(**given: Any) -> Host:
        return Host("v5e", 32 * GIB, 30 * GIB) if given["own"] else Host("v5e", 400 * GIB, 300 * GIB)

    def made(*given: Any) -> Any:
        hosts.append(given[2])
        return real(*given)

    monkeypatch.setattr(planning, "read_host", read)
    monkeypatch.setattr(planning, "make_plan", made)
    side.alive = (launch(ended=None),)
    side.launched(launch(ended=None))
    side.settle()
    side.alive = ()
    side.launched(launch())
    side.settle()
    assert [(one.total_bytes, one.available_bytes) for one in hosts] == [(32 * GIB, 30 * GIB), (32 * GIB, 32 * GIB)]


# -- what cannot be


def test_what_cannot_be_written_is_told_once_counted_and_tried_again(
    applying: Side, caplog: pytest.LogCaptureFixture
) -> None:
    applying.watch.turn()
    (applying.tune / "plans" / "train.json").mkdir()
    applying.launched(launch())
    for _ in range(3):
        applying.settle()
        applying.clock.advance(RETRY_SECONDS)
    assert sum("train.json" in line for line in caplog.messages if "is decided, but" in line) == 1
    assert applying.metric("tpuwatch_tune_write_errors_total") >= 2
    assert applying.metric("tpuwatch_tune_unwritten") == 1
    assert "train.json" in applying.watch.status.workloads[0].problem
    (applying.tune / "plans" / "train.json").rmdir()
    applying.settle()
    assert applying.metric("tpuwatch_tune_unwritten") == 0
    assert applying.files(".json") == ["train.json"]


def test_a_plan_that_is_damaged_is_decided_anew(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    side.watch.turn()
    (side.tune / "plans" / "train.json").write_text("{")
    side.launched(launch())
    side.settle()
    assert (side.size() or 0) >= 6 * GIB
    assert "It is decided anew" in caplog.text


def test_a_directory_that_cannot_be_made_is_a_problem_and_no_end(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    side.tune.write_text("in the way")
    side.launched(launch())
    side.settle()
    side.settle()
    assert "cannot be made a place for plans" in side.watch.status.problems[0]
    assert sum("cannot be made a place" in line for line in caplog.messages) == 1
    assert (side.watch.status.workloads[0].plan.decision.size_bytes or 0) >= 6 * GIB
    side.tune.unlink()
    side.clock.advance(RETRY_SECONDS)
    side.settle()
    assert side.watch.status.problems == ()
    assert side.files(".json") == ["train.json"]


def test_nobody_pushes_out_plans_by_thinking_up_names(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.tunewatch.MOST_PLANS", 3)
    side.launched(*(launch(pid=number, workload=f"w{number}", started=NOW + number) for number in range(1, 4)))
    side.settle()
    side.launched(
        *(launch(pid=number, workload=f"x{number}", started=NOW + number) for number in range(10, 50)),
        launch(pid=99, workload="", started=NOW + 99),
    )
    side.settle()
    assert side.files(".json") == ["default.json", "w1.json", "w2.json", "w3.json"]
    assert "There are 3 plans" in side.watch.status.problems[0]


def test_plans_of_workloads_unseen_for_long_go_and_their_environment_files_stay(applying: Side) -> None:
    applying.launched(launch(), launch(pid=2, workload="other"))
    applying.settle()
    for path in (applying.tune / "plans").iterdir():
        os.utime(path, (NOW, NOW))
    applying.clock.advance(planning.UNSEEN_SECONDS + 10)
    applying.launched(launch(started=applying.clock.time()))
    applying.settle()
    applying.clock.advance(3600)
    applying.watch.turn()
    assert applying.files(".json") == ["train.json"]
    assert applying.files(".env") == ["other.env", "train.env"]


# -- the drop box


def test_a_record_is_adopted_and_its_file_goes_once_it_is_stored(side: Side) -> None:
    side.watch.turn()
    path = write_record(side.tune, record(launch()))
    side.clock.advance(EVERY_SECONDS)
    side.watch.turn()
    side.clock.advance(EVERY_SECONDS)
    side.watch.turn()
    assert [one.id for one in side.adopted] == ["a1b2c3"]
    assert path.exists()
    side.launched(launch(), records=(side.adopted[0],))
    side.watch.turn()
    assert not path.exists()
    assert side.metric('tpuwatch_tune_records_total{result="taken"}') == 1


def test_a_record_that_was_not_stored_is_taken_again_by_the_next_run(side: Side) -> None:
    side.watch.turn()
    write_record(side.tune, record())
    side.watch = side.made()
    side.watch.turn()
    side.watch = side.made()
    side.watch.turn()
    assert len(side.adopted) == 2


def test_what_is_no_record_is_told_once_an_hour(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    side.watch.turn()
    for number in range(5):
        (side.tune / "launches" / f"junk{number}").touch()
    write_record(side.tune, record())
    side.clock.advance(EVERY_SECONDS)
    side.watch.turn()
    (side.tune / "launches" / "more").touch()
    side.clock.advance(EVERY_SECONDS)
    side.watch.turn()
    assert len(side.adopted) == 1
    told = [line for line in caplog.messages if "is no record of a launch" in line]
    assert len(told) == 1
    assert told[0].endswith("So it is with 4 more.")
    assert side.metric('tpuwatch_tune_records_total{result="refused"}') == 6


# -- wrong values


def test_a_wrong_value_of_a_running_job_becomes_one_event(side: Side) -> None:
    wrong = launch(environment={SIZE: "4GB"})
    side.launched(wrong)
    side.watch.turn()
    side.launched(replace(wrong, last_heard=NOW))
    side.watch.turn()
    assert [event.details["fix"] for event in side.put] == [f"export {SIZE}=4294967296"]


# -- the loop


def test_the_loop_is_fresh_while_it_turns(side: Side) -> None:
    (loop,) = side.watch.loops()
    assert (loop.name, loop.last_success, loop.fresh) == (NAME, None, True)
    side.clock.advance(1000)
    assert not side.watch.loops()[0].fresh


def test_a_journal_that_cannot_be_read_is_a_problem_until_it_can(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpuwatch.errors import JournalError

    def broken(_: int) -> None:
        raise JournalError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(side.journal, "launches", broken)
        assert side.watch.turn() == AGAIN_SECONDS
    side.launched(launch())
    side.settle()
    assert side.watch.status.problems == ()
    assert side.size() is not None


def test_more_than_it_can_hear_is_read_from_the_journal(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.tunewatch._HEARD", 3)
    side.watch.turn()
    side.launched(*(launch(pid=number, started=NOW + number) for number in range(1, 10)))
    side.settle()
    assert side.watch.status.workloads[0].launches == 9
