"""The loop that decides next launches, where something is wrong: disks, damage, and what lies in the drop box."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.tune.recorded import NOW, launch, record
from tests.unit.tune.tune_side import GIB, Side
from tpuwatch.core.errors import StoreError
from tpuwatch.launches.exec_records import write_record
from tpuwatch.model.tune import SIZE
from tpuwatch.tune import planner
from tpuwatch.tune.plan import write_plan
from tpuwatch.tune.service import AGAIN_SECONDS, EVERY_SECONDS, NAME, RETRY_SECONDS

# -- what cannot be


def test_what_cannot_be_written_is_reported_once_counted_and_tried_again(
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
    assert applying.metric("tpuwatch_tune_write_failed") == 1
    assert "train.json" in applying.watch.status.workloads[0].problem
    (applying.tune / "plans" / "train.json").rmdir()
    applying.settle()
    assert applying.metric("tpuwatch_tune_write_failed") == 0
    assert applying.files(".json") == ["train.json"]


@pytest.mark.parametrize("written", [False, True], ids=["before the plan is written", "after it"])
def test_a_crash_between_a_change_and_its_plan_neither_loses_nor_doubles_its_event(
    advising: Side, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    class Crash(BaseException):
        pass

    def crash(*given: Any) -> None:
        if written:
            write_plan(*given)
        raise Crash

    advising.launched(launch())
    with monkeypatch.context() as patch:
        patch.setattr(planner, "write_plan", crash)
        with pytest.raises(Crash):
            advising.settle()
    stored = advising.store.events()
    assert SIZE in {one.details["variable"] for one in stored}
    advising.watch = advising.made()
    advising.settle()
    assert advising.size() is not None
    assert advising.store.events() == stored


def test_changes_that_the_store_does_not_take_are_offered_again(
    advising: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise StoreError("no room")

    advising.launched(launch())
    monkeypatch.setattr(advising.store, "add_events", full)
    advising.settle()
    assert SIZE in {one.details["variable"] for one in advising.events}
    assert advising.size() is not None  # the next launch does not wait for it
    assert advising.metric("tpuwatch_store_errors_total") == 1


def test_a_plan_that_is_damaged_is_decided_again(advising: Side, caplog: pytest.LogCaptureFixture) -> None:
    advising.watch.turn()
    (advising.tune / "plans" / "train.json").write_text("{")
    advising.launched(launch())
    advising.settle()
    assert (advising.size() or 0) >= 6 * GIB
    assert "It is decided again" in caplog.text


def test_a_directory_that_cannot_be_made_is_a_problem_and_no_end(
    advising: Side, caplog: pytest.LogCaptureFixture
) -> None:
    advising.tune.write_text("in the way")
    advising.launched(launch())
    advising.settle()
    advising.settle()
    assert "cannot be made a place for plans" in advising.watch.status.problems[0]
    assert sum("cannot be made a place" in line for line in caplog.messages) == 1
    assert (advising.watch.status.workloads[0].plan.decision.size_bytes or 0) >= 6 * GIB
    advising.tune.unlink()
    advising.clock.advance(RETRY_SECONDS)
    advising.settle()
    assert advising.watch.status.problems == ()
    assert advising.files(".json") == ["train.json"]


def test_an_environment_file_that_cannot_be_looked_at_is_none(advising: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "environment_path", lambda directory, _: directory / ("x" * 300))  # stat raises
    advising.launched(launch())
    advising.settle()
    assert advising.watch.status.workloads[0].file == ""


def test_nobody_pushes_out_plans_by_thinking_up_names(advising: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.tune.service.MAX_PLANS", 3)
    advising.launched(*(launch(pid=number, workload=f"w{number}", started=NOW + number) for number in range(1, 4)))
    advising.settle()
    advising.launched(
        *(launch(pid=number, workload=f"x{number}", started=NOW + number) for number in range(10, 50)),
        launch(pid=99, workload="", started=NOW + 99),
    )
    advising.settle()
    assert advising.files(".json") == ["default.json", "w1.json", "w2.json", "w3.json"]
    assert "There are 3 plans" in advising.watch.status.problems[0]


def test_plans_of_workloads_unseen_for_long_go_and_their_environment_files_stay(applying: Side) -> None:
    applying.launched(launch(), launch(pid=2, workload="other"))
    applying.settle()
    for path in (applying.tune / "plans").iterdir():
        os.utime(path, (NOW, NOW))
    applying.clock.advance(planner.UNSEEN_SECONDS + 10)
    applying.launched(launch(started=applying.clock.time()))
    applying.settle()
    applying.clock.advance(3600)
    applying.watch.turn()
    assert applying.files(".json") == ["train.json"]
    assert applying.files(".env") == ["other.env", "train.env"]


# -- the drop box


def test_a_record_is_passed_on_and_its_file_is_removed_once_it_is_stored(advising: Side) -> None:
    advising.watch.turn()
    path = write_record(advising.tune, record(launch()))
    advising.clock.advance(EVERY_SECONDS)
    advising.watch.turn()
    advising.clock.advance(EVERY_SECONDS)
    advising.watch.turn()
    assert [one.id for one in advising.records] == ["a1b2c3"]
    assert path.exists()
    advising.launched(launch(), records=(advising.records[0],))
    advising.watch.turn()
    assert not path.exists()
    assert advising.metric('tpuwatch_tune_records_total{result="taken"}') == 1


def test_a_record_that_was_not_stored_is_taken_again_by_the_next_run(advising: Side) -> None:
    advising.watch.turn()
    write_record(advising.tune, record())
    advising.watch = advising.made()
    advising.watch.turn()
    advising.watch = advising.made()
    advising.watch.turn()
    assert len(advising.records) == 2


def test_what_is_no_record_is_reported_once_an_hour(advising: Side, caplog: pytest.LogCaptureFixture) -> None:
    advising.watch.turn()
    for number in range(5):
        (advising.tune / "launches" / f"junk{number}").touch()
    write_record(advising.tune, record())
    advising.clock.advance(EVERY_SECONDS)
    advising.watch.turn()
    (advising.tune / "launches" / "more").touch()
    advising.clock.advance(EVERY_SECONDS)
    advising.watch.turn()
    assert len(advising.records) == 1
    found = [line for line in caplog.messages if "is no record of a launch" in line]
    assert len(found) == 1
    assert found[0].endswith("So it is with 4 more.")
    assert advising.metric('tpuwatch_tune_records_total{result="refused"}') == 6


# -- wrong values


def test_a_wrong_value_of_a_running_job_becomes_one_event(advising: Side) -> None:
    wrong = launch(environment={SIZE: "4GB"})
    advising.launched(wrong)
    advising.watch.turn()
    advising.launched(replace(wrong, last_heard=NOW))
    advising.watch.turn()
    assert [event.details["fix"] for event in advising.events] == [f"`export {SIZE}=4294967296`"]


# -- the loop


def test_the_loop_is_fresh_while_it_turns(advising: Side) -> None:
    (loop,) = advising.watch.loops()
    assert (loop.name, loop.last_success, loop.fresh) == (NAME, None, True)
    advising.clock.advance(1000)
    assert not advising.watch.loops()[0].fresh


def test_a_store_that_cannot_be_read_is_a_problem_until_it_can(advising: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise StoreError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(advising.store, "launches", broken)
        assert advising.watch.turn() == AGAIN_SECONDS
    advising.launched(launch())
    advising.settle()
    assert advising.watch.status.problems == ()
    assert advising.size() is not None


def test_more_than_its_queue_holds_is_read_from_the_store(advising: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.tune.service._MAX_CHANGED", 3)
    advising.watch.turn()
    advising.launched(*(launch(pid=number, started=NOW + number) for number in range(1, 10)))
    advising.settle()
    assert advising.watch.status.workloads[0].launches == 9
