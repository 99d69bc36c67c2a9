"""What `tpuwatch restart` prints in trouble, on a terminal of 80 columns and in a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.cli.restarting import Site, site
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.terminal.restart import RestartDisplay

__all__ = ["site"]  # a fixture

STOCKOUT = "There is no more capacity in the zone us-east5-a; you can try another zone, or later."


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, site: Site) -> Site:
    """The command's output is a terminal."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    return site


def on_screen(output: str) -> str:
    """What is left on the screen of all that was written, from the first phase on."""
    lines = [line.rpartition("\r\x1b[K")[2] for line in output.split("\n")]
    first = next(number for number, line in enumerate(lines) if re.match(r" +\d+:\d\d  ", line))
    text = re.sub(r"\d\d:\d\d:\d\d UTC", "12:34:56 UTC", "\n".join(lines[first:]))
    return re.sub(r"/\S+/state", "/state", text).rstrip()


def run(site: Site, *words: str) -> tuple[int, str]:
    """Exit code and what is shown of a restart of train-1."""
    site.clock.advance(1)  # it is no new node
    code, out, _ = site.run("train-1", "--yes", *words)
    return code, on_screen(out)


def fails(site: Site, method: str, code: str, **more: Any) -> None:
    site.cloud.world.faults.set(InjectedFault(method, code=code, **more))


def after(site: Site, seconds: float, do: Callable[[RestartDisplay], None]) -> None:
    """Do that in the first wait that ends so many seconds from now or later."""
    due, done = site.clock.monotonic() + seconds, []

    def look(display: RestartDisplay) -> None:
        if not done and site.clock.monotonic() >= due:
            done.append(None)
            do(display)

    site.on_wait = look


def interrupt(display: RestartDisplay) -> None:
    display.interrupted = True


def test_a_start_without_capacity_on_a_terminal(terminal: Site) -> None:
    """Nine tries take no more lines than one."""
    terminal.add()
    fails(terminal, "StartNode", "RESOURCE_EXHAUSTED", message=STOCKOUT)
    after(terminal, 2000, interrupt)
    code, shown = run(terminal)
    assert (code, len(terminal.calls())) == (130, 10)
    assert (
        shown
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
   0:00  stopping        The stop was accepted.
   1:02  stopped         It is stopped, and is started now.
train-1 IS STOPPED: its start fails. tpuwatch goes on trying by itself, without
end. By hand:
  gcloud compute tpus tpu-vm start train-1 --zone=us-east5-a --project=lab
   1:02  stopped         The start was refused (RESOURCE_EXHAUSTED). The
                         message: "There is no more capacity in the zone
                         us-east5-a; you can try another zone, or later."
train-1 IS STOPPED, and no process drives its restart now. To start it:
  tpuwatch restart projects/lab/locations/us-east5-a/nodes/train-1
   Interrupted; its record is in the ledger, in
   /state."""
    )


def test_a_start_without_capacity_in_a_pipe(site: Site) -> None:
    """Each line is whole, and each change is a line."""
    site.add()
    fails(site, "StartNode", "RESOURCE_EXHAUSTED", message=STOCKOUT, times=5)
    code, shown = run(site)
    assert (code, len(site.calls())) == (0, 7)
    assert (
        shown
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
   0:00  stopping        The stop was accepted.
   1:02  stopped         It is stopped, and is started now.
train-1 IS STOPPED: its start fails. tpuwatch goes on trying by itself, without end. By hand:
  gcloud compute tpus tpu-vm start train-1 --zone=us-east5-a --project=lab
   1:02  stopped         The start was refused (RESOURCE_EXHAUSTED). The message: "There is no more \
capacity in the zone us-east5-a; you can try another zone, or later."
   9:13  verifying       Node train-1 runs again. It must stay well for 30 s, within 15 min.
   9:48  done            Node train-1 was restarted in 9 min 48 s, and has been well for 30 s: its own tpuwatch answers."""  # noqa: E501 (a pipe is not wrapped)
    )


def test_starts_that_fail_go_to_and_fro_in_one_line(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StartNodeOperation", "RESOURCE_EXHAUSTED", message=STOCKOUT, times=3)
    code, shown = run(terminal)
    assert code == 0
    assert (
        shown
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
   0:00  stopping        The stop was accepted.
   1:02  stopped         It is stopped, and is started now.
   1:02  starting        The start was accepted.
train-1 IS STOPPED: its start fails. tpuwatch goes on trying by itself, without
end. By hand:
  gcloud compute tpus tpu-vm start train-1 --zone=us-east5-a --project=lab
   4:03  stopped         The start has failed: There is no more capacity in the
                         zone us-east5-a; you can try another zone, or later.
  14:16  verifying       Node train-1 runs again.
  14:51  done            Node train-1 was restarted in 14 min 51 s, and has been
                         well for 30 s: its own tpuwatch answers."""
    )


def test_a_stop_that_is_refused(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StopNode", "FAILED_PRECONDITION", message="The node is busy.")
    code, shown = run(terminal)
    assert code == 1
    assert (
        shown
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
train-1 is as it was: its stop failed. tpuwatch tries it again by itself until
12:34:56 UTC.
   0:00  requested       The stop was refused (FAILED_PRECONDITION). The
                         message: "The node is busy."
  10:30  failed          Node train-1 was not restarted within 10 min: The stop
                         of node train-1 was refused (FAILED_PRECONDITION). The
                         message: "The node is busy." Nothing was done, as far
                         as is known. Look at it:
                           gcloud compute tpus tpu-vm describe train-1 --zone=us-east5-a --project=lab
                         then ask for the restart again."""
    )


def test_a_stop_that_may_not_be_called_has_a_failed_line(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StopNode", "PERMISSION_DENIED")
    code, shown = run(terminal)
    assert code == 1
    assert (
        shown
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
   0:00  failed          The Cloud TPU API refused the stop of node train-1 in
                         zone us-east5-a in project lab: the caller needs the
                         permission tpu.nodes.stop. Grant it a role that has it,
                         such as roles/tpu.admin:
                           gcloud projects add-iam-policy-binding lab --member=serviceAccount:ACCOUNT \
--role=roles/tpu.admin
                         ACCOUNT is the account whose credentials tpuwatch has:
                           tpuwatch doctor
                         The reply was: "A fault is set: PERMISSION_DENIED.".
                         Nothing was done: node train-1 is as it was."""
    )


def test_a_lost_answer(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StopNode", "UNAVAILABLE", message="The connection was reset.", times=1)
    code, shown = run(terminal)
    assert code == 0
    assert (
        shown
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
                         The stop was not answered, and may have been carried
                         out or not (UNAVAILABLE). The message: "The connection
                         was reset."
   1:00  stopping        The stop was not carried out.
   1:00  stopping        The stop was accepted.
   2:02  stopped         It is stopped, and is started now.
   2:02  starting        The start was accepted.
   5:03  verifying       Node train-1 runs again.
   5:38  done            Node train-1 was restarted in 5 min 38 s, and has been
                         well for 30 s: its own tpuwatch answers."""
    )


def test_control_c_while_the_node_stops(terminal: Site) -> None:
    terminal.add()
    after(terminal, 30, interrupt)
    code, shown = run(terminal, "--config", str(terminal.config))
    assert code == 130
    assert (
        re.sub(r"--config \S+", "--config c.toml", shown)
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
   0:00  stopping        The stop was accepted.
train-1 IS BEING STOPPED, and no process drives its restart now. To continue it:
  tpuwatch restart --config c.toml projects/lab/locations/us-east5-a/nodes/train-1
   Interrupted; its record is in the ledger, in
   /state."""
    )


def test_a_stop_that_hangs(terminal: Site) -> None:
    terminal.add()
    terminal.cloud.world.timing.stop = 1e6
    after(terminal, 2000, interrupt)
    code, shown = run(terminal)
    assert code == 130
    assert (
        shown
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
   0:00  stopping        The stop was accepted.
train-1 IS BEING STOPPED since 12:34:56 UTC, which is too long. tpuwatch goes on
waiting, and starts it by itself. Look:
  gcloud compute tpus tpu-vm describe train-1 --zone=us-east5-a --project=lab
train-1 IS BEING STOPPED, and no process drives its restart now. To continue it:
  tpuwatch restart projects/lab/locations/us-east5-a/nodes/train-1
   Interrupted; its record is in the ledger, in
   /state."""
    )


def test_an_api_that_falls_silent_while_the_node_is_down(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StartNode", "RESOURCE_EXHAUSTED", message=STOCKOUT)
    after(terminal, 100, lambda _: fails(terminal, "GetNode", "UNAVAILABLE"))
    silent, end = terminal.on_wait, terminal.clock.monotonic() + 600

    def wait(display: RestartDisplay) -> None:
        silent(display)
        display.interrupted = terminal.clock.monotonic() >= end

    terminal.on_wait = wait
    code, shown = run(terminal)
    assert code == 130
    assert (
        shown
        == """\
   0:00  intent          Node train-1 is stopped now, to be started again.
   0:00  stopping        The stop was accepted.
   1:02  stopped         It is stopped, and is started now.
train-1 IS STOPPED: its start fails. tpuwatch goes on trying by itself, without
end. By hand:
  gcloud compute tpus tpu-vm start train-1 --zone=us-east5-a --project=lab
   1:02  stopped         The start was refused (RESOURCE_EXHAUSTED). The
                         message: "There is no more capacity in the zone
                         us-east5-a; you can try another zone, or later."
train-1 IS STOPPED, as far as is known. The Cloud TPU API has not said how
train-1 is since 12:34:56 UTC. tpuwatch goes on asking by itself. By hand:
  gcloud compute tpus tpu-vm start train-1 --zone=us-east5-a --project=lab
train-1 IS STOPPED, and no process drives its restart now. To start it:
  tpuwatch restart projects/lab/locations/us-east5-a/nodes/train-1
   Interrupted; its record is in the ledger, in
   /state."""
    )


def test_verbose_shows_each_try_whole_messages_and_operations(site: Site) -> None:
    site.add()
    fails(site, "StartNode", "RESOURCE_EXHAUSTED", message=STOCKOUT, times=3)
    code, shown = run(site, "--verbose")
    assert code == 0
    assert shown.count(STOCKOUT.rstrip(".")) == 3
    assert "is stopped; it is started in 40 s." in shown
    assert all(f"Operation: {operation}" in shown for operation in site.record().operations)


def test_the_live_line_says_what_control_c_would_leave(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StartNode", "RESOURCE_EXHAUSTED", times=3)
    terminal.clock.advance(1)
    _, out, _ = terminal.run("train-1", "--yes")
    live = re.findall(r"\r\x1b\[K( [^\r\n]+)", out)
    assert "   1:02  … stopped 0:00, 1 try, next in 0:10; Ctrl-C leaves it STOPPED" in live
    assert any("3 tries, next in 0:40; Ctrl-C leaves it STOPPED" in line for line in live)
    assert any(line.endswith("verifying 0:00; Ctrl-C leaves it as it is") for line in live)
    assert max(map(len, live)) < 80
