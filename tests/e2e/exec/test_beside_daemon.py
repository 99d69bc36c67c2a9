"""What `tpuwatch exec` finds in a job is an event of the daemon beside it, once, whatever else the daemon reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_process import SECONDS, DaemonProcess, wait_for

CAUSE = "hbm_oom_compile"
NO_ROOM = (
    "Ran out of memory in memory space hbm. Used 20.00G of 15.48G hbm. Exceeded hbm capacity by 4.52G. "
    "Total hbm usage >= 20.52G:"
)
PRINTS = f"import sys; sys.exit('jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: {NO_ROOM}')"
# It prints as the other does; before that libtpu logs the same.
LOGS = """
import os, sys, time
now = time.localtime()
started = time.strftime("%Y%m%d-%H%M%S", now)
with open(f"{os.environ['TPU_LOG_DIR']}/tpu_driver.host.user.log.INFO.{started}.{os.getpid()}", "w") as log:
    log.write(f"Log file created at: {time.strftime('%Y/%m/%d %H:%M:%S', now)}\\n")
    log.write(time.strftime("E%m%d %H:%M:%S.000001  4242 tpu.cc:7] ", now) + sys.argv[1] + "\\n")
sys.exit(f"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: {sys.argv[1]}")
"""
EVENTS = f'tpuwatch_events_total{{cause="{CAUSE}"}}'
TAKEN = 'tpuwatch_tune_records_total{result="taken"}'


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as daemon:
        yield daemon


def run(daemon: DaemonProcess, *words: str, output: Path | None = None, config: Path | None = None) -> Any:
    """Run a job under `tpuwatch exec` to its end; what `exec` reports. `output`: a file for what it prints."""
    report = daemon.root / "report.json"
    report.unlink(missing_ok=True)
    words = (
        "exec",
        "--config",
        str(config or daemon.config),
        "--workload",
        "train",
        "--json",
        str(report),
        "--",
        *words,
    )
    with (output or Path(os.devnull)).open("ab") as file:
        subprocess.run(
            [sys.executable, "-m", "tpuwatch", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={**daemon.environ, "HOME": str(daemon.root), "TPU_LOG_DIR": str(daemon.logs)},
            timeout=SECONDS,
            check=False,
        )
    return json.loads(report.read_text())


def job(program: str, *words: str) -> Sequence[str]:
    return (sys.executable, "-S", "-c", program, *words)


def records(daemon: DaemonProcess) -> list[Path]:
    return list((daemon.state / "tune" / "launches").glob("*.json"))


def are_taken(daemon: DaemonProcess) -> None:
    """Wait until the daemon has taken all records."""
    wait_for(lambda: not records(daemon), "the records to be taken")


def events(daemon: DaemonProcess) -> list[Any]:
    found: list[Any] = daemon.api("events?limit=1000")["events"]
    return [one for one in found if one["cause"] == CAUSE]


def finding(daemon: DaemonProcess) -> Any:
    return next((one for one in daemon.api("findings")["findings"] if one["cause"] == CAUSE), None)


def test_each_view_of_the_daemon_shows_what_exec_reported(daemon: DaemonProcess) -> None:
    daemon.start()
    began = time.time()
    (reported,) = run(daemon, *job(PRINTS))["findings"]
    assert reported["cause"] == CAUSE
    shown = wait_for(lambda: finding(daemon), "the finding")
    for name in ("cause", "count", "summary", "details", "remedy"):
        assert shown[name] == reported[name], name
    assert shown["first"]["text"] == reported["first"]["text"]
    (event,) = events(daemon)
    assert event["file"].startswith("exec of train (")
    assert began <= event["time_epoch"] <= event["observed_epoch"]
    daemon.counts(EVENTS, 1)
    are_taken(daemon)
    status = wait_for(lambda: (one := daemon.api("status"))["problem_counts"]["finding"] and one, "the status")
    assert CAUSE in status["headline"]
    assert CAUSE in daemon.ask("/")[1]
    daemon.kill()  # and what is stored stays so
    daemon.start()
    daemon.counts(EVENTS, 1)
    assert finding(daemon)["summary"] == reported["summary"]


@pytest.mark.parametrize("runs", [True, False], ids=["beside a daemon", "while it is down"])
@pytest.mark.parametrize("program", [PRINTS, LOGS], ids=["printed", "logged and printed"])
def test_a_failure_that_the_daemon_reads_itself_is_one_event(
    daemon: DaemonProcess, program: str, *, runs: bool
) -> None:
    daemon.start()
    output = daemon.jobs / "train.log"
    for number in (1, 2):
        if not runs:
            daemon.kill()
        assert run(daemon, *job(program, NO_ROOM), output=output)["findings"]
        if not runs:
            assert records(daemon)
            daemon.start()
        wait_for(lambda: len(events(daemon)) >= number, "the event")  # noqa: B023 (it is called at once)
        are_taken(daemon)
        assert len(events(daemon)) == number
        daemon.counts(EVENTS, number)
    assert all(not one["file"].startswith("exec of ") for one in events(daemon))


def test_a_record_that_waits_is_taken_once_however_often_the_daemon_dies(daemon: DaemonProcess) -> None:
    daemon.start()
    daemon.kill()
    assert run(daemon, *job(PRINTS))["findings"]
    (left,) = records(daemon)
    kept = left.read_bytes()
    for _ in range(2):
        daemon.start()
        wait_for(lambda: events(daemon), "the event")
        are_taken(daemon)
        daemon.kill()
        left.write_bytes(kept)  # as after a crash between the transaction and the removal of the file
    daemon.start()
    are_taken(daemon)
    daemon.counts(EVENTS, 1)
    assert len(events(daemon)) == 1


def test_a_finding_by_a_rule_that_the_daemon_does_not_have_is_shown_by_its_cause(daemon: DaemonProcess) -> None:
    daemon.start()
    theirs = daemon.root / "theirs.toml"
    theirs.write_text(daemon.config.read_text())
    more = daemon.root / "more"
    more.mkdir()
    (more / "more.toml").write_text(
        "[[rule]]\nid = 'their-own'\ncause = 'hbm_oom_compile'\nsummary = 'Theirs.'\nmatch = ['MY OWN FAILURE']\n"
    )
    theirs.write_text(theirs.read_text().replace(json.dumps(str(daemon.rules)), json.dumps(str(more))))
    (reported,) = run(daemon, *job("raise SystemExit('MY OWN FAILURE')"), config=theirs)["findings"]
    assert reported["summary"] == "Theirs."
    shown = wait_for(lambda: finding(daemon), "the finding")
    assert ("their-own" in shown["summary"], shown["first"]["rule"]) == (True, "their-own")
    daemon.counts(EVENTS, 1)
