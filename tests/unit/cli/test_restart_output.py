"""What `tpuwatch restart` prints in trouble, on a terminal of 80 columns and in a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests import golden
from tests.unit.cli.restarting import Site, site
from tests.unit.cli.test_sessions import SESSIONS
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
    golden.holds(SESSIONS / "restart-a-start-without-capacity.80.txt", f"{shown}\n")


def test_a_start_without_capacity_in_a_pipe(site: Site) -> None:
    """Each line is whole, and each change is a line."""
    site.add()
    fails(site, "StartNode", "RESOURCE_EXHAUSTED", message=STOCKOUT, times=5)
    code, shown = run(site)
    assert (code, len(site.calls())) == (0, 7)
    golden.holds(SESSIONS / "restart-a-start-without-capacity.pipe.txt", f"{shown}\n")


def test_starts_that_fail_go_to_and_fro_in_one_line(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StartNodeOperation", "RESOURCE_EXHAUSTED", message=STOCKOUT, times=3)
    code, shown = run(terminal)
    assert code == 0
    golden.holds(SESSIONS / "restart-starts-that-fail-go-to-and-fro-in-one-line.80.txt", f"{shown}\n")


def test_a_stop_that_is_refused(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StopNode", "FAILED_PRECONDITION", message="The node is busy.")
    code, shown = run(terminal)
    assert code == 1
    golden.holds(SESSIONS / "restart-a-stop-that-is-refused.80.txt", f"{shown}\n")


def test_a_stop_that_may_not_be_called_has_a_failed_line(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StopNode", "PERMISSION_DENIED")
    code, shown = run(terminal)
    assert code == 1
    golden.holds(SESSIONS / "restart-a-stop-that-may-not-be-called-has-a-failed-line.80.txt", f"{shown}\n")


def test_a_lost_answer(terminal: Site) -> None:
    terminal.add()
    fails(terminal, "StopNode", "UNAVAILABLE", message="The connection was reset.", times=1)
    code, shown = run(terminal)
    assert code == 0
    golden.holds(SESSIONS / "restart-a-lost-answer.80.txt", f"{shown}\n")


def test_control_c_while_the_node_stops(terminal: Site) -> None:
    terminal.add()
    after(terminal, 30, interrupt)
    code, shown = run(terminal, "--config", str(terminal.config))
    assert code == 130
    golden.holds(
        SESSIONS / "restart-control-c-while-the-node-stops.80.txt",
        re.sub(r"--config \S+", "--config c.toml", f"{shown}\n"),
    )


def test_a_stop_that_hangs(terminal: Site) -> None:
    terminal.add()
    terminal.cloud.world.timing.stop = 1e6
    after(terminal, 2000, interrupt)
    code, shown = run(terminal)
    assert code == 130
    golden.holds(SESSIONS / "restart-a-stop-that-hangs.80.txt", f"{shown}\n")


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
    golden.holds(SESSIONS / "restart-an-api-that-falls-silent-while-the-node-is-down.80.txt", f"{shown}\n")


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
