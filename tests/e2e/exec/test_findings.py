"""What `tpuwatch exec` sees of a command beside it: in its output and in libtpu's logs, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.daemon_process import ROOT, SECONDS
from tests.e2e.exec.running import EXEC, PYTHON, Place, read_until, wait_for
from tpuwatch.launches.exec_records import make_drop_box
from tpuwatch.model.tune import SIZE, SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.tune.plan import write_plan

REAL = ROOT.parent / "shared/libtpu-logs"
PREMAPPED = (
    "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate 5.00G. "
    "That was not possible. There are 3.00G free."
)
# A job by its logs: libtpu's own words, with its own number and the present time; then the end that is asked for.
JOB = """
import os, sys, time
now = time.localtime()
name = f"tpu_driver.host.user.log.INFO.{time.strftime('%Y%m%d-%H%M%S', now)}.{os.getpid()}"
directory = os.environ["TPU_LOG_DIR"]
os.makedirs(directory, exist_ok=True)
with open(f"{directory}/{name}", "w") as log:
    log.write(f"Log file created at: {time.strftime('%Y/%m/%d %H:%M:%S', now)}\\n")
    def print_message(letter, text):
        log.write(f"{letter}{time.strftime('%m%d %H:%M:%S', now)}.000001 {os.getpid():>7} tpu.cc:7] {text}\\n")
    size = os.environ.get("TPU_PREMAPPED_BUFFER_SIZE", "4294967296")
    print_message("I", f"Process id {os.getpid()}")
    print_message("I", f"TPU premapped buffer enabled. Size: {size} Threshold: {size} Partitions: 1")
    print_message("I", "CreateTpuSystemState: TPU initialization is successful and it took 7.25s")
    for line in sys.argv[2:]:
        print_message("E", line)
sys.exit(int(sys.argv[1]))
"""


def _job(place: Place) -> list[str]:
    program = place.root / "job.py"
    program.write_text(JOB)
    return [sys.executable, "-S", str(program)]


def test_a_launch_that_does_well_is_recorded_and_nothing_is_printed(place: Place) -> None:
    done = place.run(*_job(place), "0", options=["--workload", "good"])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (record,) = place.records()
    assert (record["workload"], record["exit_status"], record["causes"]) == ("good", 0, [])
    (launch,) = record["launches"]
    assert (launch["outcome"], launch["init_seconds"], launch["premapped_bytes"]) == ("ok", 7.25, 4 << 30)
    assert (launch["workload"], launch["exit_status"]) == ("good", 0)
    assert launch["ended"] >= launch["started"]
    assert launch["environment"]["TPUWATCH_LAUNCH"] == record["id"]
    assert "TPU_LOG_DIR" in record["given"]
    assert (place.tune / "plans/good.json").exists()


# The kernel counts a kill in the cgroup of a simulated machine, or in another one, and the command ends by SIGKILL.
KILLED = """
import os, signal, sys
with open(sys.argv[1] + "/memory.events", "w") as events:
    events.write("oom 1\\noom_kill 1\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("own", [True, False], ids=["its own cgroup", "another one"])
def test_a_kill_for_the_limit_of_its_cgroup_is_reported(place: Place, own: bool) -> None:
    machine = place.root / "machine"
    for name in ("train.service", "cron.service"):
        group = machine / "sys/fs/cgroup/system.slice" / name
        group.mkdir(parents=True)
        (group / "memory.events").write_text("oom 0\noom_kill 0\n")
        (group / "memory.max").write_text(f"{1 << 30}\n")
    (machine / "proc/self").mkdir(parents=True)
    (machine / "proc/self/cgroup").write_text("0::/system.slice/train.service\n")
    place.config.write_text(f'{place.config.read_text()}\n[host]\nroot = "{machine}"\n')
    killed = machine / "sys/fs/cgroup/system.slice" / ("train.service" if own else "cron.service")
    done = place.run(*PYTHON, KILLED, str(killed))
    assert done.returncode == -signal.SIGKILL
    (record,), document = place.records(), place.outcome()
    assert record["causes"] == [one["cause"] for one in document["findings"]] == ["host_oom"] * own
    assert document["host_oom"] is own
    for finding in document["findings"]:
        assert finding["details"] == {
            "process": Path(sys.executable).name,
            "killed_pid": finding["details"]["killed_pid"],
            "unit": "train.service",
            "cgroup": "/system.slice/train.service",
            "limit_cgroup": "/system.slice/train.service",
            "limit_bytes": 1 << 30,
        }
        assert finding["summary"] in " ".join(done.stderr.decode().replace("tpuwatch: ", "").split())


def test_a_launch_that_fails_is_reported_with_its_cause_and_what_the_next_one_gets(place: Place) -> None:
    first = place.run(*_job(place), "1", PREMAPPED)
    assert first.returncode == 1
    text = first.stderr.decode()
    assert "premapped_exhausted" in text
    assert "What to do:" in text
    assert "the next one gets" in text
    assert "\x1b" not in text  # no terminal, no colour
    (launch,) = place.records()[0]["launches"]
    assert launch["premapped_failures"] == 1
    assert launch["premapped_asked_bytes"] == 5 << 30
    second = place.run(*_job(place), "0")
    size = int(place.outcome()["given"]["TPU_PREMAPPED_BUFFER_SIZE"])
    assert size > 4 << 30
    assert place.records()[1]["launches"][0]["premapped_bytes"] == size
    assert second.returncode == 0


def test_a_failure_that_log_and_output_report_is_one(place: Place) -> None:
    script = f'"$@"; code=$?; echo "Traceback: {PREMAPPED}" >&2; exit $code'
    place.run("sh", "-c", script, "-", *_job(place), "1", PREMAPPED)
    (launch,) = place.records()[0]["launches"]
    assert launch["premapped_failures"] == 1


def test_where_the_daemon_decides_its_plan_is_printed_or_how_to_see_it(place: Place) -> None:
    directory = place.root / "daemon/tune"
    make_drop_box(directory)
    failed = place.run(*_job(place), "1", PREMAPPED, options=["--workload", "train"])
    text = failed.stderr.decode()
    assert "decided by tpuwatch's daemon, within seconds where it runs; `tpuwatch tune --workload train` shows" in text
    assert place.outcome()["next"] is None
    (record,) = [json.loads(path.read_text()) for path in (directory / "launches").iterdir()]
    assert record["causes"] == ["premapped_exhausted"]
    assert not place.tune.exists()  # the daemon decides
    well = place.run(*_job(place), "0", options=["--workload", "train"])
    assert (well.returncode, well.stderr) == (0, b"")
    # A daemon that reads the log while it is written may have decided when the command ends.
    decided = TunePlan(
        "train",
        time.time() + 60,
        (VariableSetting(SIZE, str(6 << 30), ""),),
        SizeDecision(SizeStep.GROW, 6 << 30, None, ()),
    )
    write_plan(place.root / "other", decided)
    source, target = (root / "plans/train.json" for root in (place.root / "other", directory))
    script = f'"$@"; code=$?; mkdir -p {target.parent}; cp {source} {target}; exit $code'
    done = place.run("sh", "-c", script, "-", *_job(place), "1", PREMAPPED, options=["--workload", "train"])
    assert f"the next one gets {SIZE}=6442450944 (6 GiB)." in done.stderr.decode()
    assert "decided by" not in done.stderr.decode()
    assert place.outcome()["next"] == {SIZE: str(6 << 30)}


def test_what_the_operator_set_stays_and_is_printed_before_the_start(place: Place) -> None:
    place.run(*_job(place), "1", PREMAPPED)
    own = {"TPU_PREMAPPED_BUFFER_SIZE": "1000000"}
    done = place.run("sh", "-c", "echo $TPU_PREMAPPED_BUFFER_SIZE", environ=own)
    assert done.stdout == b"1000000\n"
    lines = done.stderr.decode().splitlines()
    assert any("TPU_PREMAPPED_BUFFER_SIZE=1000000" in line and "stays" in line for line in lines)
    assert any("4096" in line for line in lines)  # no multiple of it: the right value is printed
    assert place.records()[-1]["kept"] == ["TPU_PREMAPPED_BUFFER_SIZE"]


def test_the_environment_is_left_alone_where_that_is_wanted(place: Place) -> None:
    done = place.run("env", options=["--no-tune"])
    names = {line.partition(b"=")[0].decode() for line in done.stdout.splitlines()}
    assert {name for name in names if name.startswith(("TPU_", "LIBTPU_"))} == set()
    assert "TPUWATCH_LAUNCH" in names


def test_where_no_user_waits_the_record_may_come_later(place: Place) -> None:
    """A command that did well and launched nothing: its output is read to its end behind it."""
    done = subprocess.run([*EXEC, "--", "echo", "fine"], env=place.environ, capture_output=True, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"fine\n", b"")  # to the end of both pipes
    (record,) = wait_for(place.records, "the record")
    assert record["exit_status"] == 0


def test_a_launch_is_recorded_before_it_ends(place: Place) -> None:
    done = subprocess.run([*EXEC, "--", *_job(place), "0"], env=place.environ, capture_output=True, timeout=SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert [launch["init_seconds"] for launch in place.records()[0]["launches"]] == [7.25]
    assert (place.tune / "plans/default.json").exists()


def test_others_logs_are_not_ours(place: Place) -> None:
    """A process with another mark, or without one, may write into the same directory meanwhile."""
    stranger = place.root / "stranger.py"
    stranger.write_text(JOB.replace("sys.exit(", "open(os.environ['GO'], 'w').close(); sys.stdin.read(); ("))
    script = (
        f'env -u TPUWATCH_LAUNCH GO={place.root}/written "$@" & while ! [ -e {place.root}/written ]; do :; done; exit 3'
    )
    with place.start(
        "sh",
        "-c",
        "exec 3<&0; " + script.replace("&", "<&3 &", 1),
        "-",
        sys.executable,
        str(stranger),
        "0",
        PREMAPPED,
        stdin=-1,
    ) as process:
        assert process.wait(SECONDS) == 3
        assert process.stdin is not None
        process.stdin.close()
    assert place.outcome()["launches"] == []
    assert place.outcome()["findings"] == []


def test_a_failure_in_the_middle_of_much_output_is_found(place: Place) -> None:
    code = (
        "import os, sys\nfill = b'I0101 00:00:00.000000 1 a.cc:1] nothing of interest in this line at all\\n' * 3000\n"
        f"for i in range(60):\n os.write(1, fill)\n if i == 30: os.write(1, {PREMAPPED.encode() + b'!'!r} + b'\\n')\n"
        "sys.exit(1)"
    )
    done = place.run(*PYTHON, code)
    assert len(done.stdout) > 12 << 20
    assert b"premapped_exhausted" in done.stderr
    out = place.root / "out"
    with out.open("wb") as file:
        again = place.run(*PYTHON, code, stdout=file)
    assert out.read_bytes() == done.stdout
    assert b"premapped_exhausted" in again.stderr


def test_a_failure_at_the_end_of_more_than_can_be_read_is_found(place: Place) -> None:
    code = (
        "import sys\nfor i in range(64):\n"
        " print('step 12: loss 0.25 grad_norm 1.5 checkpoint in 88 steps\\n' * (1000000 // 58), end='')\n"
        f"sys.exit({PREMAPPED!r})"
    )
    done = place.run(*PYTHON, code, stderr=subprocess.STDOUT)
    assert len(done.stdout) > 60_000_000
    words = done.stdout.partition(PREMAPPED.encode() + b"\n")[2]
    assert b"tpuwatch: the command ended with status 1.\ntpuwatch: 1. premapped_exhausted\n" in words
    unread = place.outcome()["unread_bytes"]
    assert unread < 63_800_000
    assert (b"there was no time for" in words) == (unread > 0)


@pytest.mark.skipif(not REAL.is_dir(), reason="the logs of a real libtpu are not beside the repository")
@pytest.mark.parametrize(
    ("run", "cause"), [("init-logs/acc-v5litepod-4", "no_tpu_found"), ("fake-hw/fake-f3-errno13", "permission_denied")]
)
def test_words_of_a_real_libtpu_are_understood(place: Place, run: str, cause: str) -> None:
    expected = {line.split("\t")[0]: line.split("\t")[1:] for line in (REAL / "expected.tsv").read_text().splitlines()}
    known = next((causes for name, causes in expected.items() if name.rstrip("/").endswith(run.split("/")[1])), None)
    done = place.run("sh", "-c", 'cat "$1" >&2; exit 1', "-", str(REAL / run / "stderr"))
    first = place.outcome()["findings"][0]["cause"]
    assert done.stderr.startswith((REAL / run / "stderr").read_bytes())
    assert known is None or first in known[0].split(",") or first == cause


def test_it_works_where_nothing_can_be_kept(place: Place) -> None:
    (place.root / "home").write_text("a file is in the way\n")
    done = place.run(*_job(place), "4")
    assert done.returncode == 4
    assert done.stderr.decode().count("\n") == 1
    assert "this run is not recorded" in done.stderr.decode()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_a_watcher_that_is_lost_changes_nothing_for_the_command(place: Place, number: signal.Signals) -> None:
    code = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\nprint('x' * (1 << 20))\nsys.exit(6)"
    with place.start(*PYTHON, code, stdin=-1) as process:
        read_until(process, b"ready\n")
        watcher = wait_for(lambda: _watcher(process.pid), "the watcher")
        os.kill(watcher, number)
        out, err = process.communicate(b"\n", timeout=SECONDS)
        assert process.returncode == 6
    assert len(out) == (1 << 20) + 1
    assert b"the rules did not see all of the output" in err
    assert place.outcome()["read"] is False
    assert place.records()[0]["exit_status"] == 6


def _watcher(pid: int) -> int | None:
    """The child that has the same program as its parent, which the command has not, and stands back behind it."""
    own, before = Path(f"/proc/{pid}/cmdline").read_bytes(), os.getpriority(os.PRIO_PROCESS, pid)
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with contextlib.suppress(OSError):  # it has just ended
            if Path(f"/proc/{child}/cmdline").read_bytes() == own and os.getpriority(os.PRIO_PROCESS, child) > before:
                return child
    return None
