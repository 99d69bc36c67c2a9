"""`tpuwatch tune`: what it decides and shows, and where it takes the launches from."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_process import ROOT
from tests.standins.http_daemon import answering
from tests.unit.cli.tuning import GIB, GROWS, SETTLED, Machine, exhausted, flat, launch, machine
from tests.unit.store.make import NOW
from tests.unit.web.samples import SampleView
from tpuwatch.exec import prepare_run
from tpuwatch.launches.exec_records import ExecRecord, write_record
from tpuwatch.model.causes import Cause
from tpuwatch.model.tune import SIZE, SizeDecision, SizeStep, TuneHost, TunePlan
from tpuwatch.store import FILE_NAME
from tpuwatch.tune import outlook
from tpuwatch.tune.plan import write_plan

__all__ = ["machine"]  # a fixture


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 (is first)
    """What is printed goes to a terminal."""
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_machine_without_launches_starts_from_its_default(machine: Machine) -> None:
    code, out, _ = machine.run("--explain")
    assert code == 0
    assert out.startswith("default: start with libtpu's own 4 GiB\n")
    assert "   None yet.\n" in out
    assert "seconds" not in out.splitlines()  # nothing to draw
    assert f"Launches are from the records of `tpuwatch exec` in {machine.own}." in flat(out)
    assert f"{SIZE}=" not in out


def test_workloads_are_shown_apart_and_one_can_be_named(machine: Machine) -> None:
    machine.store(*GROWS, launch(5, 4 * GIB, 9.0, "eval"))
    _, both, _ = machine.run()
    assert "train: grow from 4 GiB to 5.75 GiB" in both
    assert "\n\neval: keep" in both  # what was launched last comes last, where it is read
    _, one, _ = machine.run("--workload", "eval")
    assert "eval: keep" in one
    assert "train" not in one


def test_a_name_that_no_launch_had_is_reported(machine: Machine) -> None:
    machine.store(*GROWS)
    code, out, _ = machine.run("--workload", "trian")
    assert code == 0
    assert out.startswith("trian: start with libtpu's own 4 GiB\n")
    assert "No launch of trian is known; there are launches of train." in out


def test_what_cannot_be_met_is_exit_code_1(machine: Machine) -> None:
    machine.configure("max_mib = 5120\nmemory_percent = 90")
    machine.store(exhausted(0, 5 * GIB, 11.0, 9 * GIB), exhausted(1, 5 * GIB, 11.0, 9 * GIB))
    code, out, _ = machine.run("--explain")
    assert code == 1
    assert "9 GiB" in out
    assert "Conflict: " in out or "no size would do" in out


def test_what_is_set_here_stays_and_is_reported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.store(*GROWS)
    monkeypatch.setenv(SIZE, "8589934592")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_a='b c'")
    _, out, _ = machine.run()
    assert f"   {SIZE}=8589934592\n" in out
    assert f"It is set here already, and stays; else it would be {23 * GIB // 4}." in flat(out)
    assert "   LIBTPU_INIT_ARGS=--logbuflevel=-1 --xla_a='b c'\n" in out  # merged, as it is quoted
    (workload,) = machine.json()["workloads"]
    assert [kept["name"] for kept in workload["environment"]["kept"]] == [SIZE]


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("columns", [40, 63, 64, 200])
def test_narrow_and_wide_terminals(machine: Machine, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    machine.store(*SETTLED)
    monkeypatch.setattr("tpuwatch.terminal.console._width_of", lambda _: columns)
    _, out, _ = machine.run("--explain")
    long = [line for line in out.splitlines() if len(line) > min(columns, 100)]
    assert [line for line in long if not ("=" in line or "/" in line)] == []  # what is to be copied is not broken
    assert ("started (UTC)" in out) == (columns >= 64)
    assert "came up" in out


def test_a_stream_without_the_signs_gets_letters(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.store(*SETTLED)
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    machine.run("--explain")
    plain.flush()
    out = plain.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "o launch   x no room in the buffer" in out
    assert "\\u" not in out


def test_colour_is_for_terminals_that_want_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.store(*SETTLED)
    assert "\x1b" not in machine.run("--explain")[1]
    monkeypatch.setattr("tpuwatch.terminal.console.wants_colour", lambda _: True)
    coloured = machine.run("--explain")[1]
    assert coloured.startswith("\x1b[1mtrain: keep 6 GiB\x1b[0m\n")


def test_what_others_wrote_cannot_steer_the_terminal(machine: Machine) -> None:
    evil = launch(3, 6 * GIB, 13.0, "tr\x1b[2Jain", chip_kind="v5\x1b[31m", faults={"metadata_unreachable": 1.0})
    machine.store(*SETTLED, evil)
    out = machine.run("--explain")[1]
    assert "\x1b" not in out
    assert "default: " in out  # a name that is none


def test_the_daemon_is_asked_where_its_store_cannot_be_read(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.state / FILE_NAME).mkdir(parents=True)  # which nobody can read as a store
    view = SampleView()
    monkeypatch.setattr(view, "launches", lambda limit: SETTLED[::-1][:limit])
    with answering(view, tmp_path, monkeypatch) as address:
        machine.configure(listen=address)
        monkeypatch.setenv("TPUWATCH_CONFIG", str(machine.config))
        document = machine.json()
    assert document["source"]["kind"] == "daemon"
    (workload,) = document["workloads"]
    assert (workload["workload"], workload["size_bytes"]) == ("train", 6 * GIB)


def test_a_daemon_with_another_state_directory_does_not_count_as_exec_does_not_know_of_it(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(machine.own, ExecRecord("run-1", "train", NOW, NOW + 60, 0, (launch(0, 6 * GIB, 9.0),)))
    view = SampleView()
    monkeypatch.setattr(view, "launches", lambda limit: [launch(1, 8 * GIB, 9.0, "theirs")][:limit])
    with answering(view, tmp_path, monkeypatch) as address:
        machine.configure(listen=address)
        monkeypatch.setenv("TPUWATCH_CONFIG", str(machine.config))
        document = machine.json()
        assert prepare_run("train", os.environ, NOW, config=None).directory == machine.own
    assert document["directory"] == str(machine.own)
    assert document["source"] == {
        "kind": "records",
        "where": f"the records of `tpuwatch exec` in {machine.own}; the daemon at {address} has another state "
        f"directory than {machine.state}, and does not count",
    }
    assert [one["workload"] for one in document["workloads"]] == ["train"]


def test_without_a_daemon_the_records_of_exec_are_the_history(machine: Machine) -> None:
    for number, one in enumerate(SETTLED):
        one.workload = ""  # the record has the name
        write_record(machine.own, ExecRecord(f"run-{number}", "train", one.started, one.started + 60, 0, (one,)))
    document = machine.json()
    for one in SETTLED:
        one.workload = "train"
    assert document["source"]["kind"] == "records"
    (workload,) = document["workloads"]
    assert (workload["workload"], workload["size_bytes"]) == ("train", 6 * GIB)
    assert workload["launches"][0]["started_epoch"] == NOW


def test_buffers_of_launches_that_live_are_taken_into_account(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(outlook, "read_host", lambda **facts: asked.append(facts) or TuneHost())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        lives = launch(0, 4 * GIB, 9.0, "eval", host="", ended=None)
        lives.pid, lives.started = process.pid, time.time()
        machine.store(*SETTLED, lives)
        machine.run("--workload", "train")
        machine.run("--workload", "eval")
        process.communicate(b"\n")
    machine.run("--workload", "train")
    assert [[one.pid for one in facts["others"]] for facts in asked] == [[process.pid], [], []]
    assert process.pid in asked[1]["pids"]  # whose cgroup the next launch will be in


@pytest.mark.parametrize("stands", [False, True], ids=["by its log", "by the generation in the plan that stands"])
def test_a_launch_without_a_buffer_had_none(machine: Machine, stands: bool) -> None:
    if stands:
        decision = SizeDecision(SizeStep.START, None, None, ("It starts.",))
        write_plan(machine.own, TunePlan("train", 0.0, (), decision, "", "v4"))
    seconds = None if stands else 9.0  # one that did not come up shows no generation
    machine.store(launch(0, 0, seconds, chip_kind="", premapped_bytes=None, environment={"TPU_LOG_DIR": "/logs"}))
    _, out, _ = machine.run()
    assert out.startswith("train: keep no buffer, as libtpu has it\n")


def test_the_example_of_the_documentation(machine: Machine) -> None:
    """4 GiB, of which 512 MiB were free when 1 GiB was asked for."""
    machine.store(exhausted(0, 4 * GIB, 10.8, GIB * 9 // 2, premapped_asked_bytes=GIB))
    (workload,) = machine.json()["workloads"]
    assert (workload["size_bytes"], workload["need_bytes"], workload["trial"]) == (6174015488, GIB * 9 // 2, True)
    assert "TPU_PREMAPPED_BUFFER_SIZE=6174015488" in (ROOT / "docs" / "tune.md").read_text()


def test_causes_are_reported_in_their_order_and_no_more_than_three() -> None:
    from tpuwatch.terminal.tune import how_it_went

    faults = {"host_oom": 9.0, "premapped_exhausted": 1.0, "hang": 3.0, "tpu_in_use": 2.0, "quota": 5.0}
    failed = launch(0, GIB, None, cause=Cause.INIT_FAILED, faults=faults, premapped_failures=1, exit_status=137)
    assert how_it_went(failed) == "failed (init_failed), no room in the buffer once, tpu_in_use, hang, quota, exit 137"
