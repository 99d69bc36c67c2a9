"""A training of two real launches, seen by the real daemon: each second has its state, and the store keeps it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.daemon_process import DaemonProcess, wait_for
from tests.paths import ROOT
from tpuwatch import workload

INIT, PREPARE, STEP, DYING = 1.0, 2.0, 0.05, 1.5  # seconds
# Writes libtpu's log of itself as libtpu does, makes steps, and dies a moment after the last one.
JOB = f"""
import datetime, getpass, os, sys, time
from tpuwatch.workload import heartbeat
logs, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
now = datetime.datetime.now(datetime.timezone.utc)
host = os.uname().nodename
name = f"tpu_driver.{{host}}.{{getpass.getuser()}}.log.INFO.{{now:%Y%m%d-%H%M%S}}.{{os.getpid()}}"
log = open(os.path.join(logs, name), "w", buffering=1)
log.write(f"Log file created at: {{now:%Y/%m/%d %H:%M:%S}}\\nRunning on machine: {{host}}\\n")

def record(text):
    now = datetime.datetime.now(datetime.timezone.utc)
    log.write(f"I{{now:%m%d %H:%M:%S.%f}} {{os.getpid():7d}} tpu.cc:1] {{text}}\\n")

record("Starting premapped memory manager initialization...")
time.sleep({INIT})
record("CreateTpuSystemState: TPU initialization is successful and it took {INIT}s")
time.sleep({PREPARE})
for step in range(first, last + 1):
    time.sleep({STEP})
    heartbeat(step, loss=2.5)
time.sleep({DYING})
os._exit(1)
"""


def run_launch(daemon: DaemonProcess, first: int, last: int) -> None:
    """A launch of the training that makes these steps and ends."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TPUWATCH_WORKLOAD": "train",
        workload.SOCKET_VARIABLE: str(daemon.state / "heartbeats.socket"),
    }
    subprocess.run([sys.executable, "-c", JOB, str(daemon.logs), str(first), str(last)], env=environ, check=False)


def known_ends(daemon: DaemonProcess) -> int:
    return sum(one["ended"] is not None for one in daemon.api("launches")["launches"])


def test_a_training_of_two_launches(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path) as daemon:
        daemon.start()
        for number, (first, last) in enumerate([(1, 100), (61, 160)], 1):
            run_launch(daemon, first, last)
            wait_for(lambda wanted=number: known_ends(daemon) == wanted, "the end of the launch")  # type: ignore[misc]
        assert daemon.stop() == 0
    command = [sys.executable, "-m", "tpuwatch", "goodput", "--json", "--config", str(daemon.config)]
    done = subprocess.run(command, env=daemon.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    [training] = document["trainings"]
    assert (training["workload"], training["user"], training["launches"]) == ("train", "", 2)
    assert 130 <= training["step"] <= 160  # a process that crashes takes a second of steps with it
    seconds = {one["state"]: one["seconds"] for one in document["states"]}
    assert sum(round(10_000 * one["share"]) for one in document["states"]) == 10_000
    assert sum(seconds.values()) == pytest.approx(document["total_seconds"], abs=0.01)
    # A heartbeat tells of about a second of steps, and a loaded machine is slow.
    assert seconds["initialisation"] == pytest.approx(2 * INIT, abs=0.1)
    assert seconds["repeated"] == pytest.approx(40 * STEP, abs=1.5)
    assert seconds["productive"] + seconds["slow"] == pytest.approx(160 * STEP, abs=3.0)
    assert seconds["startup"] >= 2 * PREPARE - 1.5
    assert seconds["ending"] >= 2 * DYING - 1.0
    assert seconds["unknown"] == pytest.approx(0.0, abs=0.5)
    assert [one["reason"] for one in document["interruptions"]] == ["unknown"]  # nothing saw its exit status
    assert document["interruptions"][0]["recovery_seconds"] > PREPARE
