"""A checkpoint is asked for once; a runtime is restarted once, and has to stay up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.restart.local.machine import SHOW, Desk
from tests.unit.restart.records import record
from tpuwatch.config.restart import RestartConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import ConflictError
from tpuwatch.model.restart import OnMachine, Phase, RestartRecord
from tpuwatch.model.verdict import Action
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.local.driver import ORPHANED_SECONDS, orphaned
from tpuwatch.restart.local.system import CommandOutcome
from tpuwatch.restart.workflow.types import PhaseLimits

COMMAND = RestartConfig(checkpoint_command=("/opt/checkpoint", "now"))
SIGNAL = RestartConfig(checkpoint_signal="SIGUSR1")


# -- action 1


def checkpoint(context: Desk, settings: RestartConfig, *at_fault: int) -> RestartRecord:
    context.want(Action.CHECKPOINT)
    holders = tuple(context.system.processes[pid].holder for pid in at_fault)
    return context.driver(holders, settings=settings).drive()


def test_a_command_asks_for_a_checkpoint(context: Desk) -> None:
    context.system.add(40)
    context.system.add(41, parent=40, group=40)
    ended = checkpoint(context, COMMAND, 40)
    assert (ended.phase, ended.stops, ended.machine.act) == (Phase.DONE, 0, "checkpoint_command")
    environment = {"TPUWATCH_NODE": "train-1", "TPUWATCH_VERDICT": "job_stuck", "TPUWATCH_PIDS": "40 41"}
    assert context.system.ran == [(("/opt/checkpoint", "now"), environment)]
    assert context.system.sent == []


def test_a_command_needs_no_holder(context: Desk) -> None:
    assert checkpoint(context, COMMAND).phase is Phase.DONE
    assert context.system.ran[0][1]["TPUWATCH_PIDS"] == ""


@pytest.mark.parametrize(
    ("ran", "expected"),
    [
        (CommandOutcome(3, "no\x1b[31m disk\n"), "it ended with status 3. Its output: no [31m disk"),
        (
            CommandOutcome(None, fault="it was not done within 2 min, and was ended"),
            "it was not done within 2 min, and was ended.",
        ),
    ],
)
def test_a_command_that_fails_is_reported(context: Desk, ran: CommandOutcome, expected: str) -> None:
    context.system.answer = lambda _: ran
    ended = checkpoint(context, COMMAND)
    assert (ended.phase, ended.note) == (Phase.FAILED, f"The checkpoint's command has failed: {expected}")


@pytest.mark.parametrize("fields", [{}, {"catches": ("SIGUSR1",), "denied": True}])
def test_a_signal_that_nobody_can_take_is_a_failure(context: Desk, fields: dict[str, Any]) -> None:
    context.system.add(40, **fields)
    assert checkpoint(context, SIGNAL, 40).phase is Phase.FAILED
    assert (context.system.sent, context.system.handles) == ([], 0)


@pytest.mark.parametrize("settings", [SIGNAL, RestartConfig()])
def test_nobody_to_ask_or_no_way_to_do_it_is_called_off(context: Desk, settings: RestartConfig) -> None:
    assert checkpoint(context, settings).phase is Phase.CANCELLED


def test_it_is_never_asked_for_twice(context: Desk) -> None:
    context.want(Action.CHECKPOINT)
    context.put(phase=Phase.INTENT)
    ended = context.driver(settings=COMMAND).drive()
    assert (ended.phase, context.system.ran) == (Phase.FAILED, [])
    assert "it is not known" in ended.note


# -- action 3


class Systemd:
    """A unit, as systemctl shows it."""

    def __init__(self, context: Desk) -> None:
        self.loaded, self.active, self.invocation = "loaded", "active", "aa"
        self.restart: Callable[[], CommandOutcome] = self.again
        self.shows = 0
        self.after: Callable[[], object] = lambda: None
        context.system.answer = self.answer
        context.system.programs = {"systemctl": "/bin/systemctl"}

    def again(self) -> CommandOutcome:
        self.invocation += "b"
        self.active = "active"
        return CommandOutcome(0)

    def answer(self, argv: tuple[str, ...]) -> CommandOutcome:
        assert argv[0] == "/bin/systemctl"
        if argv[1:] == ("restart", "--no-ask-password", "--", "tpu-runtime.service"):
            return self.restart()
        assert argv[1:] == SHOW
        self.shows += 1
        self.after()
        return CommandOutcome(
            0, f"LoadState={self.loaded}\nActiveState={self.active}\nInvocationID={self.invocation}\n"
        )


@pytest.fixture
def systemd(context: Desk) -> Systemd:
    context.want(Action.RESTART_RUNTIME)
    return Systemd(context)


def restarts(context: Desk) -> int:
    return sum(argv[1] == "restart" for argv, _ in context.system.ran)


@pytest.mark.usefixtures("systemd")
def test_the_unit_is_restarted_and_has_to_stay_up(context: Desk) -> None:
    began = context.clock.monotonic()
    ended = context.driver().drive()
    assert (ended.phase, ended.stops, restarts(context)) == (Phase.DONE, 1, 1)
    assert ended.note == "tpu-runtime.service was restarted, and has been active for 1 min."
    assert 60 <= context.clock.monotonic() - began < 70
    assert ended.machine.invocation == "aa"


def test_a_unit_that_needs_a_while_is_waited_for(context: Desk, systemd: Systemd) -> None:
    def slow() -> CommandOutcome:
        systemd.again()
        systemd.active = "activating"
        return CommandOutcome(0)

    def ready() -> None:
        if systemd.shows == 9:
            systemd.active = "active"

    systemd.restart, systemd.after = slow, ready
    assert context.driver().drive().phase is Phase.DONE


def test_a_unit_that_begins_again_and_again_has_failed(context: Desk, systemd: Systemd) -> None:
    def crash() -> None:
        if systemd.shows % 5 == 0:
            systemd.again()

    systemd.after = crash
    ended = context.driver().drive()
    assert (ended.phase, restarts(context)) == (Phase.FAILED, 1)
    assert "does not stay up" in ended.note


def test_a_unit_that_does_not_come_up_has_failed(context: Desk, systemd: Systemd) -> None:
    def fail() -> CommandOutcome:
        systemd.again()
        systemd.active = "failed"
        return CommandOutcome(1, "Job for tpu-runtime.service failed.\n")

    systemd.restart = fail
    ended = context.driver().drive()
    assert (ended.phase, ended.stops, restarts(context)) == (Phase.FAILED, 1, 1)
    assert "Job for tpu-runtime.service failed." in ended.note
    assert "is failed after 2 min" in ended.note


def test_what_is_not_allowed_is_for_a_person(context: Desk, systemd: Systemd) -> None:
    systemd.restart = lambda: CommandOutcome(
        1, "Failed to restart tpu-runtime.service: Interactive authentication required."
    )
    ended = context.driver().drive()
    assert (ended.phase, ended.stops) == (Phase.NEEDS_OPERATOR, 0)
    assert "Interactive authentication required." in ended.note


@pytest.mark.parametrize("loaded", ["not-found", "masked", ""])
def test_a_unit_that_is_not_there_is_not_restarted(context: Desk, systemd: Systemd, loaded: str) -> None:
    systemd.loaded = loaded
    assert context.driver().drive().phase is Phase.NEEDS_OPERATOR
    assert restarts(context) == 0


@pytest.mark.parametrize(("carried_out", "phase"), [(True, Phase.DONE), (False, Phase.FAILED)])
def test_who_dies_in_a_restart_is_followed_by_one_who_looks(
    context: Desk, systemd: Systemd, carried_out: bool, phase: Phase
) -> None:
    context.put(phase=Phase.INTENT, machine=OnMachine(invocation="aa"), boot_id="boot-1")
    if carried_out:
        systemd.again()
    assert context.driver().drive().phase is phase
    assert restarts(context) == 0


def test_who_is_to_end_leaves_it_to_the_next(context: Desk, systemd: Systemd) -> None:
    def broken_off() -> CommandOutcome:
        systemd.again()
        return CommandOutcome(None, fault="tpuwatch is to end")

    systemd.restart = broken_off
    assert context.driver(wait=lambda _: bool(restarts(context))).drive().phase is Phase.INTENT
    assert context.driver().drive().phase is Phase.DONE
    assert restarts(context) == 1


# -- whose record it is


def test_a_record_of_the_machine_is_not_driven_through_the_api(context: Desk) -> None:
    context.want(Action.END_HOLDER)
    api: Any = None  # would fail at the first look
    driver = Driver(
        context.ledger, record().target, api=api, limits=PhaseLimits(), clock=context.clock, wait=context.wait
    )
    with pytest.raises(ConflictError, match="done on that machine itself"):
        driver.drive()


def test_a_restart_of_the_node_is_not_driven_on_the_machine(context: Desk) -> None:
    context.want(Action.RESTART_NODE)
    with pytest.raises(ConflictError, match="through the Cloud TPU API"):
        context.driver().drive()


@pytest.mark.parametrize(
    ("phase", "after"),
    [(Phase.REQUESTED, Phase.CANCELLED), (Phase.INTENT, Phase.FAILED), (Phase.VERIFYING, Phase.FAILED)],
)
def test_what_a_machine_does_not_finish_is_given_up_by_its_watchers(phase: Phase, after: Phase) -> None:
    now = ManualClock().time()
    begun = record(action=Action.END_HOLDER, phase=phase, requested=now, entered=now)
    assert orphaned(begun, now + ORPHANED_SECONDS - 1) is None
    ended = orphaned(begun, now + ORPHANED_SECONDS)
    assert ended is not None
    assert (ended.phase, ended.history[0].phase) == (after, after)
    assert orphaned(ended, now + 2 * ORPHANED_SECONDS) is None
    assert orphaned(record(phase=phase, requested=now, entered=now), now + 2 * ORPHANED_SECONDS) is None
