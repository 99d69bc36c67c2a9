"""A call to a person carries all that they need: what the node is, since when, why, what was done, what to run."""

from __future__ import annotations

from typing import Any

from tests.unit.restart.restart_side import NOW, ZONE, Side, cloud, half_done, target
from tpuwatch.model.answers import Signal
from tpuwatch.model.events import Remedy
from tpuwatch.model.restart import Blocked, Breaker, Fleet, Phase
from tpuwatch.model.verdict import Action, Verdict
from tpuwatch.restart.operator_message import OperatorMessage

PATH = target("train-1").path


def only(called: list[dict[str, Any]]) -> dict[str, Any]:
    (document,) = called
    return document


def test_a_stuck_node_that_is_only_observed(side: Side) -> None:
    side.stuck("train-1")
    side.watch(mode="observe").turn()
    call = only(side.called)
    assert (call["node"], call["zone"], call["project"]) == ("train-1", ZONE, "lab")
    assert (call["state"], call["health"], call["verdict"], call["blocked"]) == (
        "READY",
        "TIMEOUT",
        "node_stuck",
        Blocked.OBSERVE,
    )
    assert call["since_epoch"] == NOW
    assert call["evidence"] == ["cloud: The cloud says so.", "runtime: The runtime says so."]
    assert call["do"] == [f"tpuwatch restart {PATH}"]
    assert call["text"] == (
        f"tpuwatch: train-1 (zone {ZONE}, project lab): Would stop and start the node, but mode under [restart] is "
        f'"observe". It is stuck. The cloud says READY and TIMEOUT. It is node_stuck since {call["since"]}. '
        f"To do: tpuwatch restart {PATH}"
    )


def test_an_open_breaker_names_both_commands(side: Side) -> None:
    side.stuck("train-1")
    side.ledger.write_fleet(Fleet(Breaker(NOW - 60, "3 restarts have failed.")), 0)
    side.watch().turn()
    assert only(side.called)["do"] == [f"tpuwatch restart {PATH}", "tpuwatch restarts reset-breaker"]


def test_a_verdict_that_only_a_person_can_help_has_content(side: Side) -> None:
    remedy = (Remedy("Correct the name under nodes in [cloud].", "https://example.com"),)
    side.judge("train-1", Verdict.MISCONFIGURED, Action.MANUAL, Signal.CLOUD, remedy=remedy)
    side.watch().turn()
    call = only(side.called)
    assert call["sentence"] == "An operator is needed: It is stuck. Correct the name under nodes in [cloud]."
    assert call["do"] == ["Correct the name under nodes in [cloud]."]


def test_a_restart_that_is_hindered_tells_what_was_tried(side: Side) -> None:
    start = "gcloud compute tpus tpu-vm start train-1"
    record = half_done(
        tries=12,
        failure="The start was refused (RESOURCE_EXHAUSTED).",
        operations=("operation-1",),
        note=f"Node train-1 is STOPPED and does not start. By hand: `{start}`.",
        shown="STOPPED",
    )
    side.judge("train-1", Verdict.STOPPED, shown=cloud("train-1", "STOPPED", ""))
    watch = side.watch()
    watch._notifier.notify_note(record, side.nodes["train-1"])
    call = only(side.called)
    assert (call["event"], call["state"], call["verdict"], call["do"]) == (
        "restart_hindered",
        "STOPPED",
        "stopped",
        [start],
    )
    last = call["last_restart"]
    assert (last["tries"], last["last_error"], last["operations"]) == (12, record.failure, ["operation-1"])
    assert "Tried 12 times: The start was refused (RESOURCE_EXHAUSTED)." in call["text"]


def test_a_restart_that_failed_names_the_command_to_try_again() -> None:
    record = half_done(phase=Phase.FAILED, note="It runs. Look: `gcloud compute tpus tpu-vm describe train-1`.")
    assert OperatorMessage(record.target, record=record, config="/etc/t.toml").steps() == [
        "gcloud compute tpus tpu-vm describe train-1",
        f"tpuwatch restart --config /etc/t.toml {PATH}",
    ]


def test_no_call_is_without_a_step() -> None:
    record = half_done(phase=Phase.NEEDS_OPERATOR, note="It is gone.")
    assert OperatorMessage(record.target, record=record).steps() == [f"tpuwatch restarts {PATH}"]
