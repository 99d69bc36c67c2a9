"""From a launch's log to the next launch's environment, through the real daemon."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.daemon_process import NO_CLOUD, ROOT, DaemonProcess, wait_for
from tests.unit.tune.recorded import launch, record
from tpuwatch.core.clock import SystemClock
from tpuwatch.launches.exec_records import write_record
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.logwriter import SimulatedProcess

if TYPE_CHECKING:
    pass

MIB = 1 << 20
NOBODY = 2**30  # no process has that number

# Sizes are small, so that each machine that runs this has the memory for what is decided.
ACT = '\n[tune]\nmode = "act"\nmin_mib = 1\n'
OBSERVE = ACT.replace("act", "observe")

JOB = """
import sys, time
from pathlib import Path
from tpuwatch.core.clock import SystemClock
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.logwriter import SimulatedProcess
job = SimulatedProcess(GlogFiles(Path(sys.argv[1]), SystemClock()))
job.banner()
job.init_start()
job.init_ok(1.5)
job.flush()
sys.stdin.read()
"""


def exhausted(daemon: DaemonProcess, pid: int = NOBODY) -> None:
    """A launch comes up, and then its buffer has no room: three files report it."""
    job = SimulatedProcess(GlogFiles(daemon.logs, SystemClock(), pid=pid, user="alice"))
    job.banner(premapped_bytes=4 * MIB)
    job.init_start(premapped_bytes=4 * MIB)
    job.init_ok(2.0)
    job.premapped_exhausted(3 * MIB, MIB)
    job.close()


def size(path: Path) -> int:
    """The premapped buffer in an environment file; 0 as long as there is none."""
    text = path.read_text() if path.exists() else ""
    found = re.search(r'^TPU_PREMAPPED_BUFFER_SIZE="(\d+)"$', text, re.MULTILINE)
    return int(found[1]) if found else 0


def decided(daemon: DaemonProcess) -> Any:
    workloads = daemon.api("tune")["workloads"]
    return workloads[0] if workloads else None


def test_a_buffer_that_was_too_small_is_larger_in_the_next_launchs_environment_file(daemon: DaemonProcess) -> None:
    daemon.configure(more=NO_CLOUD + ACT)
    daemon.start()
    exhausted(daemon)
    file = daemon.state / "tune" / "plans" / "default.env"
    wait_for(lambda: size(file) >= 6 * MIB, "the environment file")
    assert size(file) % 4096 == 0
    (seen,) = daemon.api("launches")["launches"]
    assert (seen["premapped_failures"], seen["premapped_need_bytes"]) == (1, 6 * MIB)
    assert "premapped_exhausted" in seen["faults"]
    wait_for(lambda: decided(daemon), "the API to show it")
    shown = decided(daemon)
    assert (shown["decision"]["step"], shown["environment_file"]) == ("grow", str(file))
    daemon.counts('tpuwatch_tune_changes_total{direction="up",variable="TPU_PREMAPPED_BUFFER_SIZE"}', 1)
    assert "Next launch" in daemon.ask("/")[1]
    changes = [one for one in daemon.api("events")["events"] if one["cause"] == "tune_change"]
    (grown,) = [one for one in changes if one["details"]["direction"] == "up"]
    assert (grown["details"]["after"], grown["file"], grown["severity"]) == (str(size(file)), str(file), "I")
    assert grown["text"] in daemon.ask("/")[1]
    assert [one["cause"] for one in daemon.api("findings")["findings"]] == ["premapped_exhausted"]
    daemon.counts("tpuwatch_premapped_failures_total", 1)
    # What is decided is known again after a crash, and nothing is counted twice.
    daemon.kill()
    daemon.start()
    wait_for(lambda: decided(daemon), "the plan of the run before")
    assert decided(daemon)["decision"]["size_bytes"] == size(file)
    assert daemon.api("launches")["launches"][0]["premapped_failures"] == 1
    assert [one for one in daemon.api("events")["events"] if one["cause"] == "tune_change"] == changes


def test_observe_advises_and_apply_writes_at_once(daemon: DaemonProcess) -> None:
    daemon.configure(more=NO_CLOUD + OBSERVE)
    daemon.start()
    exhausted(daemon)
    plans = daemon.state / "tune" / "plans"
    wait_for(lambda: decided(daemon), "the advice")
    assert sorted(path.name for path in plans.iterdir()) == ["default.json"]
    assert daemon.api("tune")["mode"] == "observe"
    daemon.configure(more=NO_CLOUD + ACT)
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: size(plans / "default.env") >= 6 * MIB, "the environment file")
    wait_for(lambda: daemon.api("tune")["mode"] == "act", "the new mode")


def test_what_exec_left_is_taken_among_what_others_left(daemon: DaemonProcess) -> None:
    daemon.configure(more=NO_CLOUD + ACT)
    daemon.start()
    exhausted(daemon)
    wait_for(lambda: decided(daemon), "a first decision")
    box, now = daemon.state / "tune" / "launches", time.time()
    (box / "no\nrecord").touch()
    (box / "link.json").symlink_to("/etc/passwd")
    os.mkfifo(box / "1790000000-0123456789abcdef.json")
    started = daemon.api("launches")["launches"][0]["started_epoch"]
    theirs = launch(pid=NOBODY, started=started, user="alice", premapped_bytes=4 * MIB, faults={}, ended=now)
    left = record(theirs, started=started - 1, ended=now, workload="train-7")
    write_record(daemon.state / "tune", left)
    wait_for(lambda: not list(box.iterdir()), "the drop box to be empty")
    wait_for(lambda: decided(daemon)["workload"] == "train-7", "a decision about the workload")
    (seen,) = daemon.api("launches")["launches"]
    assert (seen["workload"], seen["exit_status"], seen["premapped_failures"]) == ("train-7", 137, 2)
    wait_for(lambda: size(daemon.state / "tune" / "plans" / "train-7.env"), "its environment file")
    daemon.counts('tpuwatch_tune_records_total{result="taken"}', 1)
    daemon.counts('tpuwatch_tune_records_total{result="refused"}', 3)
    assert "is no record of a launch" in daemon.said()


def test_a_wrong_value_of_a_running_job_is_a_finding_with_the_right_one(daemon: DaemonProcess) -> None:
    daemon.start()
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, str(daemon.logs)],
        stdin=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TPU_PREMAPPED_BUFFER_SIZE": "4GB",
            "TPUWATCH_WORKLOAD": "train-8",
        },
    )
    try:
        found = wait_for(lambda: daemon.api("findings")["findings"], "the finding")
        assert [one["cause"] for one in found] == ["bad_flag"]
        assert "4GB" in found[0]["summary"]
        assert "export TPU_PREMAPPED_BUFFER_SIZE=4294967296" in found[0]["remedy"][0]["do"]
        (seen,) = daemon.api("launches")["launches"]
        assert (seen["workload"], seen["pid"]) == ("train-8", job.pid)
        job.kill()
        job.communicate()
        wait_for(lambda: daemon.api("launches")["launches"][0]["ended"], "its end to be noted")
        assert [one["cause"] for one in daemon.api("events")["events"]].count("bad_flag") == 1
    finally:
        job.kill()
        job.communicate()
