"""Phases and unfinished restarts in words, for every message to an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core import length
from tpuwatch.model import Phase

if TYPE_CHECKING:
    from tpuwatch.model import Action, RestartRecord, Target


def phase_words(phase: Phase) -> str:
    """A phase as it is shown: `needs operator`."""
    return phase.value.replace("_", " ")


def action_words(action: Action) -> str:
    """An action as it is shown: `restart node`."""
    return action.value.replace("_", " ")


def full_name(target: Target) -> str:
    """A node with its zone and project."""
    return f"{target.node} (zone {target.zone}, project {target.project})"


def describe_unfinished(record: RestartRecord) -> str:
    """The state that an unfinished restart leaves the node in, a sentence; "" where the phase says enough."""
    node = record.target.node
    return {
        Phase.REQUESTED: f"Nothing has been done to {node} yet.",
        Phase.INTENT: f"The stop of {node} may have been called.",
        Phase.STOPPING: f"{node} is being stopped, and stays stopped until the restart is continued.",
        Phase.STOPPED: f"{node} is STOPPED, and stays stopped until the restart is continued.",
        Phase.STARTING: f"{node} is being started; a failed start is not retried until the restart is continued.",
        Phase.VERIFYING: f"{node} runs again; whether it stays healthy has not been verified.",
    }.get(record.phase, "")


def describe_local_action(record: RestartRecord, now: float) -> str:
    """What the node's own tpuwatch is doing to it, a sentence."""
    return (
        f"The node's own tpuwatch began an action on it {length(now - record.requested)} ago, which this restart "
        f"ends: {action_words(record.action)}, phase {phase_words(record.phase)!r}."
    )
