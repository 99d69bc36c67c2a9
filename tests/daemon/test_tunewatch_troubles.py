"""The loop that decides next launches, where something is wrong: disks, damage, and what lies in the drop box."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.tune.recorded import NOW, launch, record
from tests.tune_side import GIB, Side, large_host
from tpuwatch.daemon import planning
from tpuwatch.daemon.tunewatch import AGAIN_SECONDS, EVERY_SECONDS, NAME, RETRY_SECONDS
from tpuwatch.tune.model import SIZE
from tpuwatch.tune.records import write_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    large_host(monkeypatch)


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
    monkeypatch.setattr("tpuwatch.daemon.tunewatch.MOST_PLANS", 3)
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
    monkeypatch.setattr("tpuwatch.daemon.tunewatch._HEARD", 3)
    side.watch.turn()
    side.launched(*(launch(pid=number, started=NOW + number) for number in range(1, 10)))
    side.settle()
    assert side.watch.status.workloads[0].launches == 9
