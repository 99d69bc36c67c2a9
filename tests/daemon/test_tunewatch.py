"""The loop that decides next launches: when it does, what it writes and what it tells."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from tests.tune.recorded import NOW, launch
from tests.tune_side import GIB, Side, large_host
from tpuwatch.daemon import planning
from tpuwatch.daemon.tunewatch import SETTLE_SECONDS
from tpuwatch.tune.deciding import make_plan
from tpuwatch.tune.model import SIZE, Host
from tpuwatch.tune.resets import write_reset

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
    assert side.size("default") is None


def test_what_a_launch_of_another_name_led_to_is_in_no_environment_file(applying: Side) -> None:
    applying.launched(launch(workload=""))
    applying.settle()
    file = applying.tune / "plans" / "default.env"
    assert SIZE in file.read_text()
    applying.launched(launch())
    applying.settle()
    assert "\nTPU_LOG_DIR=" in file.read_text()
    assert f"\n{SIZE}=" not in file.read_text()


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
    side.launched(launch(pid=6, started=NOW + 5))
    side.settle()
    assert [one["standing"] for one in seen] == ["", "v5e"]


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
