"""Finding the processes that use a TPU, and who has which settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.standins.doctor_machine import Place
from tpuwatch.doctor.jobs import find_jobs, job_users, tpu_variables, variable_sets
from tpuwatch.program.child import Child, ChildLimits


def test_processes_with_tpu_variables_are_jobs(place: Place) -> None:
    place.process(10, environ={"PATH": "/bin", "TPU_NAME": "node-1", "TPU_ZONE": "z"})  # only told of one
    place.process(11, environ={"PJRT_DEVICE": "TPU"})
    place.process(12, environ={"LIBTPU_INIT_ARGS": "--x"}, uid=1000)
    place.write("/proc/13/environ", "TPU_LOG_DIR=/x\0")  # ended before its status was read
    jobs = find_jobs(place.environment())
    assert [job.pid for job in jobs.seen] == [11, 12]
    assert {user.uid for user in job_users(place.environment())} == {job.user.uid for job in jobs.seen}


def test_what_tpuwatch_itself_compiles_or_probes_with_is_no_job(tmp_path: Path, place: Place) -> None:
    output = tmp_path / "output"
    command = [sys.executable, "-c", "import pathlib; print(pathlib.Path('/proc/self/environ').read_text())"]
    own = {"TPU_LOG_DIR": str(tmp_path), "TPU_SKIP_MDS_QUERY": "1"}
    child = Child(command, {}, environ=own, output=output, limits=ChildLimits(60.0, 1 << 30))
    for _ in child.reports():
        pass
    child.close()
    environ = dict(word.split("=", 1) for word in output.read_text().strip("\0\n").split("\0"))
    assert environ.items() >= own.items()
    place.process(10, environ=environ)
    assert find_jobs(place.environment()).seen == ()
    assert [job.pid for job in find_jobs(place.environment(pids=(10,))).seen] == [10]  # who names it means it


def test_processes_with_the_same_variables_are_grouped(place: Place) -> None:
    for pid in (20, 21, 22, 23):
        place.process(pid, environ={"TPU_MIN_LOG_LEVEL": "3", "OTHER": str(pid)})
    environment = place.environment(environ={"TPU_MIN_LOG_LEVEL": "3"})
    (setting,) = variable_sets(environment)
    assert setting.where == "this shell, process 20 (python3 train.py), process 21 (python3 train.py) and 2 more"
    assert setting.variables == {"TPU_MIN_LOG_LEVEL": "3"}


def test_only_the_processes_that_were_asked_for(place: Place) -> None:
    place.process(20)
    place.process(21, environ={"PATH": "/bin"})
    environment = place.environment(environ={"TPU_MIN_LOG_LEVEL": "3"}, pids=(21,))
    assert [setting.where for setting in variable_sets(environment)] == ["process 21 (python3 train.py)"]
    with pytest.raises(FileNotFoundError):
        find_jobs(place.environment(pids=(99,)))


def test_a_command_line_is_shown_without_secrets_and_short(place: Place) -> None:
    place.process(20, command=("python3", "--token=hunter2", "\x1b[2J" + "x" * 500))
    (job,) = find_jobs(place.environment()).seen
    assert "hunter2" not in job.name
    assert "\x1b" not in job.name
    assert len(job.name) < 80


def test_misspelt_names_count_as_tpu_variables() -> None:
    environ = {"LIB_TPU_INIT_ARGS": "", "tpu_min_log_level": "", "TPULOGDIR": "", "PATH": "", "OUTPUT": ""}
    assert set(tpu_variables(environ)) == {"LIB_TPU_INIT_ARGS", "tpu_min_log_level", "TPULOGDIR"}
