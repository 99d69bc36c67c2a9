"""The environment of TPU processes and of the shell."""

from __future__ import annotations

import pytest

from tests.doctor.place import STRANGER, Place, results, statuses, told
from tpuwatch.doctor.check import Status
from tpuwatch.doctor.people import Person


def test_the_misspelt_name_of_the_guide(place: Place) -> None:
    place.process(11, environ={"TPU_PRE_MAPPED_BUFFER_SIZE": "4GB", "TPU_LOG_DIR": "/tmp/tpu_logs"})  # noqa: S108
    environment = place.environment()
    (name,) = results("variable_names", environment)
    assert name.status is Status.WRONG
    assert name.text.startswith("TPU_PRE_MAPPED_BUFFER_SIZE in process 11 (python3 train.py): nobody reads that name")
    assert name.fix == "unset TPU_PRE_MAPPED_BUFFER_SIZE; export TPU_PREMAPPED_BUFFER_SIZE=4294967296"
    (value,) = results("variable_values", environment)
    assert (value.status, value.fix) == (Status.WRONG, "export TPU_PREMAPPED_BUFFER_SIZE=4294967296")


def test_a_name_that_only_resembles_one_is_a_warning(place: Place) -> None:
    environment = place.environment(environ={"TPU_PREMAPED_BUFFER_SIZE": "8192"})
    assert told("variable_names", environment) == [
        "warn: TPU_PREMAPED_BUFFER_SIZE in this shell: nobody reads that name; TPU_PREMAPPED_BUFFER_SIZE is probably "
        "meant. | unset TPU_PREMAPED_BUFFER_SIZE; export TPU_PREMAPPED_BUFFER_SIZE=8192"
    ]


def test_without_tpu_variables_there_is_nothing_to_check(place: Place) -> None:
    assert statuses("variable_names", place.environment()) == [Status.SKIPPED]
    assert statuses("variable_values", place.environment()) == [Status.OK]
    assert statuses("variable_conflicts", place.environment()) == [Status.OK]


@pytest.mark.parametrize(
    ("variables", "status", "said"),
    [
        ({"TPU_VISIBLE_DEVICES": "0", "TPU_VISIBLE_CHIPS": "1"}, "warn", "two names of one thing"),
        (
            {"TPU_PREMAPPED_BUFFER_SIZE": "0", "TPU_PREMAPPED_BUFFER_TRANSFER_THRESHOLD_BYTES": "4096"},
            "warn",
            "has no effect",
        ),
        (
            {"TPU_PREMAPPED_BUFFER_SIZE": "4096", "TPU_PREMAPPED_BUFFER_TRANSFER_THRESHOLD_BYTES": "8192"},
            "warn",
            "(8 KiB) is above the buffer's size (4 KiB)",
        ),
        ({"TPU_VISIBLE_CHIPS": "0,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1"}, "wrong", "2 visible chips (0,1)"),
        ({"TPU_PROCESS_ADDRESSES": "a:1,b:2", "TPU_PROCESS_BOUNDS": "1,1,1"}, "wrong", "names 2 processes"),
        ({"TPU_WORKER_ID": "2", "TPU_WORKER_HOSTNAMES": "a,b"}, "wrong", "names 2 hosts, which count from 0"),
        ({"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_ID": "0"}, "warn", "TPU_ACCELERATOR_TYPE, TPU_PROCESS_BOUNDS"),
        ({"LIBTPU_INIT_ARGS": "--a=1 garbage --b=2"}, "warn", "holds garbage"),
        ({"LIBTPU_INIT_ARGS": "--a=1 --a=2"}, "warn", "gives --a twice"),
        ({"TPU_RUNTIME_METRICS_PORTS": "9000"}, "warn", "tpuwatch asks on 8431"),
    ],
)
def test_contradictions(place: Place, variables: dict[str, str], status: str, said: str) -> None:
    config = {"cloud": {"enabled": False}, "runtime": {"ports": [8431]}}
    (line,) = told("variable_conflicts", place.environment(environ=variables, config=config))
    assert line.startswith(f"{status}: ")
    assert said in line


@pytest.mark.parametrize(
    "variables",
    [
        {"TPU_VISIBLE_DEVICES": "0", "TPU_VISIBLE_CHIPS": "0"},
        {"TPU_PREMAPPED_BUFFER_SIZE": "8192", "TPU_PREMAPPED_BUFFER_TRANSFER_THRESHOLD_BYTES": "8192"},
        {"TPU_VISIBLE_CHIPS": "0,1,2,3", "TPU_CHIPS_PER_PROCESS_BOUNDS": "2,2,1"},
        {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"},
        {"TPU_SKIP_MDS_QUERY": "0"},
        {"LIBTPU_INIT_ARGS": "--a=1 --a=1 --b"},
        {"TPU_RUNTIME_METRICS_PORTS": "8431,8432"},
    ],
)
def test_what_fits_together_is_ok(place: Place, variables: dict[str, str]) -> None:
    config = {"cloud": {"enabled": False}, "runtime": {"ports": [8431]}}
    assert statuses("variable_conflicts", place.environment(environ=variables, config=config)) == [Status.OK]


def test_processes_that_cannot_be_looked_into_are_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.process(11)
    place.process(12)
    denied = str(place.root / "proc/12/environ")

    def deny(file: object, *args: object, **kwargs: object) -> object:
        if str(file) == denied:
            raise PermissionError(13, "Permission denied", denied)
        return open(file, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr("tpuwatch.doctor.jobs.open", deny, raising=False)
    assert told("processes", place.environment(me=STRANGER)) == [
        "unknown: Processes that could not be looked into: 1. A TPU job may be among them. | sudo tpuwatch doctor"
    ]
    assert told("processes", place.environment(me=Person(0)))[0].endswith(
        "among them. | "
    )  # nobody sees more than root


def test_text_of_others_is_cleaned_and_cut(place: Place) -> None:
    environment = place.environment(environ={"TPU_MIN_LOG_LEVEL": "\x1b[2J" + "9" * 5000})
    (line,) = told("variable_values", environment)
    assert "\x1b" not in line
    assert len(line) < 500
