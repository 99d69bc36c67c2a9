"""Actions of the daemon on its own machine: a checkpoint, an end of the TPU's holder, a restart of the runtime.

Real processes: the daemon, the job with the one that holds the TPU, and the commands. The cloud is simulated.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_beside_job import GRACE_SECONDS, DaemonBesideJob, Job, machine
from tests.e2e.daemon_process import wait_for
from tests.e2e.restart_fleet import later
from tests.standins.simulated import Site, simulated

HASTY_SECONDS, PATIENT_SECONDS = 1.0, 60.0
LATER_SECONDS = 400.0  # until a program has said nothing for longer than a compile may take
COMMAND = 'env | grep ^TPUWATCH_ | sort >> "$0"; echo done >> "$0"'  # $0 is where to write
ACTIONS = ("checkpoint", "end_holder", "restart_runtime")


class Scene:
    """train-1 with its daemon and a job, and a file that commands write to."""

    def __init__(self, root: Path, site: Site) -> None:
        self.site = site
        self.here = machine(root / "here")
        self.daemon = DaemonBesideJob(root / "daemon", site, here=self.here)
        self.written = root / "written"

    def command(self, ending: str = "") -> list[str]:
        """A program that writes its environment, then runs `ending`."""
        return ["/bin/sh", "-c", f"{COMMAND}{ending}", str(self.written)]

    def begin(self, action: str, table: dict[str, Any]) -> None:
        """Start the daemon with such a [restart], and make the verdict name that action."""
        # On a busy machine answers come late. If they counted as none, the verdict would change for a moment, and with
        # it the decision. Where the runtime never answers, nobody waits so long for it.
        self.daemon.patience_seconds = HASTY_SECONDS if action == "restart_runtime" else PATIENT_SECONDS
        self.daemon.begin(table)
        if action == "checkpoint":
            self.site.do("maintain", in_seconds=1800.0)
            self.daemon.judged("train-1", "maintenance")
        elif action == "end_holder":
            self.site.do("workload", phase="stuck", for_seconds=3600.0)
            self.daemon.skip(LATER_SECONDS)
            self.daemon.judged("train-1", "job_stuck")
        else:
            self.site.do("lie")
            self.daemon.suspects("train-1")  # not yet: it may be busy
            self.daemon.skip(LATER_SECONDS)
            self.daemon.judged("train-1", "runtime_stuck")

    def history(self) -> str:
        """The output of `tpuwatch restarts history`."""
        status, output = self.daemon.command("restarts", "history")
        assert status == 0
        return output

    def calls(self) -> set[str]:
        """Methods that were called and change something in the cloud."""
        return {call.method for call in list(self.site.world.calls)} & {"StopNode", "StartNode", "ResetQueuedResource"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with simulated(tmp_path / "sim") as site:
        scene = Scene(tmp_path, site)
        with scene.daemon:
            yield scene


def only_record(scene: Scene, action: str, result: str) -> Any:
    """The record of the one action that was done; metrics, audit and history agree."""
    daemon = scene.daemon
    record = daemon.ended(action)
    assert (record["action"], record["phase"]) == (action, result)
    assert daemon.series("tpuwatch_restarts_begun_total") == {f'{{action="{action}"}}': 1}
    assert daemon.series("tpuwatch_restarts_total") == {f'{{action="{action}",result="{result}"}}': 1}
    audited = [one for one in daemon.audited() if one[0] == action and one[1] != "blocked"]
    assert audited == [(action, "begun", None), (action, result, None)]
    assert f"{action.replace('_', ' ')}, " in scene.history()
    assert "tpuwatch@" in scene.history()
    assert scene.calls() == set()
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.said()
    return record


def test_a_command_requests_a_checkpoint_once(scene: Scene) -> None:
    with Job(scene.here) as job:
        scene.begin("checkpoint", {"mode": "act", "checkpoint": True, "checkpoint_command": scene.command()})
        record = only_record(scene, "checkpoint", "done")
        assert scene.written.read_text().splitlines() == [
            "TPUWATCH_NODE=train-1",
            f"TPUWATCH_PIDS={job.holder}",
            "TPUWATCH_VERDICT=maintenance",
            "done",
        ]
        assert record["stops"] == 0
        assert job.is_unharmed()


def test_a_signal_requests_a_checkpoint_of_the_holder_once(scene: Scene) -> None:
    with Job(scene.here, "SIGUSR1") as job:
        scene.begin("checkpoint", {"mode": "act", "checkpoint": True, "checkpoint_signal": "SIGUSR1"})
        job.reports("holder SIGUSR1")
        record = only_record(scene, "checkpoint", "done")
        assert f"Process {job.holder} was sent SIGUSR1" in record["note"]
        assert job.words == ["holder SIGUSR1"]


def test_a_job_that_does_not_handle_the_signal_does_not_get_it(scene: Scene) -> None:
    with Job(scene.here) as job:
        scene.begin("checkpoint", {"mode": "act", "checkpoint": True, "checkpoint_signal": "SIGUSR1"})
        record = only_record(scene, "checkpoint", "failed")
        assert "does not handle SIGUSR1" in record["note"]
        assert job.is_unharmed()


@pytest.mark.parametrize("ignored", [0, 3])
def test_the_holder_gets_the_signals_in_order_and_no_other_process_does(scene: Scene, ignored: int) -> None:
    """It ignores the first `ignored` signals."""
    ladder = ("SIGINT", "SIGTERM", "SIGQUIT", "SIGKILL")
    with Job(scene.here, *ladder[:ignored]) as job:
        scene.begin("end_holder", {"mode": "act", "end_holder": True})
        wait_for(lambda: job.words, "the first signal")
        for number, name in enumerate(ladder[:ignored], 1):
            assert job.words[-1] == f"holder {name}"
            assert len(job.words) == number  # the next one is not sent before its grace has passed
            later(scene.daemon, lambda: len(job.words) > number, "the next signal", GRACE_SECONDS)  # noqa: B023 (at once)
        record = only_record(scene, "end_holder", "done")
        assert job.words == [*(f"holder {name}" for name in ladder[:ignored]), f"holder ended by {ladder[ignored]}"]
        assert f"Process {job.holder} has let go of the TPU." in record["note"]
        assert record["stops"] == 1
        assert any(f"Process {job.holder} of" in one for one in record["evidence"])  # what the process was


@pytest.mark.skipif(os.geteuid() != 0, reason="a device of another process takes a mount namespace")
def test_who_holds_a_device_of_this_machine_is_no_holder_here(scene: Scene) -> None:
    """Such as the job on a booted Debian that is tested beside these tests, or a real one: it must not be ended."""
    hold = "mount -t tmpfs none /dev && : >/dev/accel0 && exec 3</dev/accel0 && echo && exec cat"
    unshare = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", hold]
    with subprocess.Popen(unshare, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other, Job(scene.here) as job:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        assert Path(f"/proc/{other.pid}/fd/3").readlink() == Path("/dev/accel0")
        scene.daemon.begin({"mode": "observe"})
        seen = wait_for(lambda: scene.daemon.api("status")["host"], "the host's signal")
        assert [holder["pid"] for holder in seen["holders"]] == [job.holder]
        other.terminate()


@pytest.mark.parametrize(("ending", "result"), [("", "done"), ("; echo no such unit; exit 3", "failed")])
def test_a_command_restarts_the_runtime_once(scene: Scene, ending: str, result: str) -> None:
    with Job(scene.here) as job:
        table = {"mode": "act", "restart_runtime": True, "runtime_unit": "", "runtime_command": scene.command(ending)}
        scene.begin("restart_runtime", table)
        later(
            scene.daemon,
            lambda: ("restart_runtime", "blocked", "same_cause") in scene.daemon.audited(),
            "the decision after it",
        )
        record = only_record(scene, "restart_runtime", result)
        assert scene.written.read_text() == "done\n"
        assert record["stops"] == 1
        assert ("no such unit" in record["note"]) == bool(ending)
        assert job.is_unharmed()


@pytest.mark.parametrize(
    ("action", "mode", "reason"),
    [("checkpoint", "act", "switched_off"), ("end_holder", "observe", "observe")],
)
def test_an_action_that_is_off_is_reported_and_not_done(scene: Scene, action: str, mode: str, reason: str) -> None:
    daemon, argv = scene.daemon, scene.command()
    ways = {"checkpoint_command": argv, "checkpoint_signal": "SIGUSR1", "runtime_unit": "", "runtime_command": argv}
    on = {name: name != action or mode == "observe" for name in ACTIONS}
    with Job(scene.here, "SIGUSR1") as job:
        scene.begin(action, {"mode": mode, **ways, **on})
        later(daemon, lambda: (action, "blocked", reason) in daemon.audited(), "the decision")
        wait_for(lambda: set(daemon.series("tpuwatch_restart_person_needed").values()) == {1.0}, "the alert")
        # More than once where the clock's jumps had it decided again.
        assert daemon.counted(f'tpuwatch_restarts_blocked_total{{reason="{reason}"}}') >= 1
        assert f"but {'mode' if mode == 'observe' else action} under [restart] is" in daemon.said()
        assert daemon.series("tpuwatch_restarts_begun_total") == {}
        assert daemon.api("restarts")["restarts"] == []
        assert "No restart is recorded" in scene.history()
        assert daemon.stop() == 0
        assert job.is_unharmed()
    assert not scene.written.exists()
