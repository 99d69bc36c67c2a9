"""The loop that decides next launches: when it does, what it writes and what it reports."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.unit.tune.recorded import NOW, launch
from tests.unit.tune.tune_side import GIB, Side
from tpuwatch.model.causes import Cause
from tpuwatch.model.tune import SIZE, TuneHost
from tpuwatch.tune import planner
from tpuwatch.tune.plan import write_reset
from tpuwatch.tune.planner import make_plan
from tpuwatch.tune.service import SETTLE_SECONDS

# -- deciding


def test_a_launch_that_failed_for_want_of_room_has_the_next_one_get_more(advising: Side) -> None:
    advising.launched(launch())
    assert advising.watch.turn() <= SETTLE_SECONDS
    assert advising.files(".json") == []  # it may be about to change again
    advising.settle()
    assert (advising.size() or 0) >= 6 * GIB
    assert advising.files(".env") == []
    assert advising.metric(f'tpuwatch_tune_changes_total{{direction="up",variable="{SIZE}"}}') == 1
    assert advising.metric("tpuwatch_tune_workloads") == 1
    (status,) = advising.watch.status.workloads
    assert (status.plan.workload, status.launches, status.file, status.problem) == ("train", 1, "", "")


def test_a_change_is_logged_and_audited_once(advising: Side, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    advising.launched(launch())
    advising.settle()
    found = [line for line in caplog.messages if SIZE in line]
    assert len(found) == 1
    assert found[0].startswith(f"Advice for the next launch of train: {SIZE} goes up from 4 GiB to ")
    (line,) = [one for one in advising.audited() if one["variable"] == SIZE]
    assert (line["workload"], line["mode"], line["direction"]) == ("train", "observe", "up")
    assert (line["before"], line["after"]) == (str(4 * GIB), str(advising.size()))
    assert line["reasons"]
    before = advising.audited()
    advising.launched(launch())  # the same again
    advising.settle()
    assert advising.audited() == before


def test_each_change_is_one_event_as_it_is_one_line_of_the_audit(advising: Side) -> None:
    advising.launched(launch())
    advising.settle()
    stored = advising.store.events()
    assert {one.cause for one in stored} == {Cause.TUNE_CHANGE}
    found = [(one.details["variable"], one.details["direction"], one.details["after"]) for one in stored]
    assert sorted(found) == sorted((line["variable"], line["direction"], line["after"]) for line in advising.audited())
    (size,) = [one for one in stored if one.details["variable"] == SIZE]
    assert size.text.startswith(f"Advice for the next launch of train: {SIZE} goes up from 4 GiB to ")
    assert size.file == str(advising.tune / "plans" / "train.json")
    for _ in range(2):
        advising.watch = advising.made()  # as after a restart
        advising.settle()
    assert advising.store.events() == stored


def test_act_writes_the_environment_file_too_and_the_event_names_it(applying: Side) -> None:
    applying.launched(launch())
    applying.settle()
    assert applying.watch.status.workloads[0].file == str(applying.tune / "plans" / "train.env")
    (size,) = [one for one in applying.store.events() if one.details["variable"] == SIZE]
    assert size.text.startswith(f"The next launch of train: {SIZE} goes up")
    assert size.details["mode"] == "act"
    assert size.file == str(applying.tune / "plans" / "train.env")
    assert size.details["after"] == str(applying.size())
    assert f'{SIZE}="{applying.size()}"' in (applying.tune / "plans" / "train.env").read_text()


def test_a_change_back_and_forth_is_an_event_each_time(advising: Side) -> None:
    for overrides in ({SIZE: "8589934592"}, {SIZE: "4294967296"}, {SIZE: "8589934592"}):
        advising.watch = advising.made(overrides=overrides)
        advising.launched(launch())
        advising.settle()
    found = [one.details["after"] for one in advising.store.events() if one.details["variable"] == SIZE]
    assert found == ["8589934592", "4294967296", "8589934592"]


def test_a_fault_after_the_start_is_decided_upon_too(advising: Side) -> None:
    fine = launch(faults={}, premapped_failures=0, premapped_need_bytes=None, premapped_asked_bytes=None, ended=None)
    advising.launched(fine)
    advising.settle()
    assert advising.size() is None
    advising.launched(launch(ended=None))
    advising.settle()
    assert (advising.size() or 0) >= 6 * GIB


def test_the_first_failure_is_decided_upon_although_another_decision_was_just_made(advising: Side) -> None:
    """`tpuwatch exec` waits for it, and no longer than a few seconds."""
    fine = launch(faults={}, premapped_failures=0, premapped_need_bytes=None, premapped_asked_bytes=None, ended=None)
    advising.launched(fine)
    advising.settle()
    advising.launched(launch())
    advising.watch.turn()
    advising.clock.advance(SETTLE_SECONDS)
    advising.watch.turn()
    assert (advising.size() or 0) >= 6 * GIB


def test_a_flood_of_changes_is_not_decided_upon_each_time(advising: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = make_plan

    def counted(*given: Any) -> Any:
        calls.append(given[3])
        return real(*given)

    monkeypatch.setattr(planner, "make_plan", counted)
    for number in range(100):
        advising.launched(launch(premapped_failures=number + 1))
        advising.clock.advance(advising.watch.turn() / 10)
    assert 1 <= len(calls) <= 10


def test_a_launch_that_gets_its_name_later_leaves_the_workload_that_it_was_counted_to(applying: Side) -> None:
    applying.launched(launch(workload=""))
    applying.settle()
    assert (applying.size("default") or 0) >= 6 * GIB
    file = applying.tune / "plans" / "default.env"
    assert SIZE in file.read_text()
    applying.launched(launch())
    applying.settle()
    assert [one.plan.workload for one in applying.watch.status.workloads] == ["train"]
    assert applying.files(".json") == ["default.json", "train.json"]
    assert applying.size("default") is None
    assert "\nTPU_LOG_DIR=" in file.read_text()
    assert f"\n{SIZE}=" not in file.read_text()


def test_what_earlier_runs_stored_is_decided_again_by_each_configuration(advising: Side) -> None:
    advising.launched(launch())
    advising.settle()
    advising.watch = advising.made(overrides={SIZE: "8589934592"})
    advising.settle()
    assert advising.size() == 8 * GIB
    advising.watch = advising.made(mode="act")
    advising.settle()
    assert advising.files(".env") == ["train.env"]


def test_going_back_to_observe_leaves_the_files_and_says_so(advising: Side, caplog: pytest.LogCaptureFixture) -> None:
    advising.watch = advising.made(mode="act", overrides={SIZE: "8589934592"})
    advising.launched(launch())
    advising.settle()
    before = (advising.tune / "plans" / "train.env").read_bytes()
    advising.watch = advising.made()
    advising.settle()
    assert (advising.tune / "plans" / "train.env").read_bytes() == before
    assert "mode is observe: the environment files of train stay" in caplog.text
    assert any("mode is observe" in problem for problem in advising.watch.status.problems)


def test_a_reset_is_heeded_at_once(advising: Side) -> None:
    advising.launched(launch(), launch(pid=1, started=NOW, faults={}, premapped_failures=0, premapped_need_bytes=None))
    advising.settle()
    assert advising.watch.status.workloads[0].launches == 2
    write_reset(advising.tune, "train", NOW)
    advising.watch.turn()
    assert advising.watch.status.workloads[0].launches == 1


def test_a_running_launch_of_another_workload_is_beside_it(advising: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def read(**given: Any) -> TuneHost:
        seen.append(given)
        return TuneHost("v5e", 90 * GIB)

    monkeypatch.setattr(planner, "read_host", read)
    advising.alive = (launch(ended=None), launch(pid=5, workload="other", ended=None))
    advising.launched(launch())
    advising.settle()
    assert seen[-1]["pids"] == [4711]
    assert [one.pid for one in seen[-1]["others"]] == [5]
    advising.launched(launch(pid=6, started=NOW + 5))
    advising.settle()
    assert [one["stored"] for one in seen] == ["", "v5e"]


def test_the_limit_of_a_workloads_cgroup_holds_after_its_process_has_gone(
    advising: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[TuneHost] = []
    real = make_plan

    def read(**given: Any) -> TuneHost:
        return TuneHost("v5e", 32 * GIB) if given["pids"] else TuneHost("v5e", 300 * GIB)

    def made(*given: Any) -> Any:
        hosts.append(given[2])
        return real(*given)

    monkeypatch.setattr(planner, "read_host", read)
    monkeypatch.setattr(planner, "make_plan", made)
    advising.alive = (launch(ended=None),)
    advising.launched(launch(ended=None))
    advising.settle()
    advising.alive = ()
    advising.launched(launch())
    advising.settle()
    assert [one.total_bytes for one in hosts] == [32 * GIB, 32 * GIB]
