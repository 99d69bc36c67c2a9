"""The policy's settings are those of the configuration, and its defaults too."""

from __future__ import annotations

import pytest

from tpuwatch.config import Config
from tpuwatch.model.verdict import Action
from tpuwatch.restart.policy.settings import SWITCHED, PolicySettings


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert PolicySettings.of(Config()) == PolicySettings()


@pytest.mark.parametrize(("idle", "compiling"), [(900.0, 300.0), (600.0, 1200.0)])
def test_values_are_taken_over_and_the_slower_of_the_runtimes_graces(idle: float, compiling: float) -> None:
    given = {"health": {"idle_seconds": idle}, "logs": {"compile_grace_seconds": compiling}}
    made = PolicySettings.of(Config.model_validate({**given, "restart": {"node_max": 7, "storm_percent": 2.5}}))
    assert (made.node_max, made.storm_percent, made.act) == (7, 2.5, False)
    assert made.signal_seconds == max(idle, compiling)


def test_every_switch_allows_its_own_action_and_no_other() -> None:
    for action in SWITCHED:
        restart = {"mode": "act", "checkpoint_signal": "SIGUSR1", action.value: True}
        made = PolicySettings.of(Config.model_validate({"restart": restart, "health": {"boot_grace_seconds": 1}}))
        assert (made.act, made.allowed, made.boot_grace_seconds) == (True, {action}, 1)


def test_what_has_no_switch_is_never_done() -> None:
    assert not {Action.RECREATE, Action.MANUAL, Action.FIX_PROGRAM, Action.WAIT, Action.NONE} & set(SWITCHED)
