"""The gcloud commands for an operator where tpuwatch may not act itself, quoted for a shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tpuwatch.core import clean

if TYPE_CHECKING:
    from tpuwatch.model import Target
    from tpuwatch.restart.workflow.types import NodeObservation

_TPUS = "gcloud compute tpus"
_SETTLED = frozenset({"READY", "STOPPED", "PREEMPTED", "TERMINATED", "UNKNOWN"})  # in any other state it may come up


def plain(command: str) -> str:
    """One of these commands without the marks that set it off in a sentence."""
    return command.strip("`")


def start(target: Target) -> str:
    """Starts a node that is stopped."""
    return f"`{_TPUS} tpu-vm start {_node(target)}`"


def describe(target: Target) -> str:
    """Shows a node."""
    return f"`{_TPUS} tpu-vm describe {_node(target)}`"


def renew(target: Target, observation: NodeObservation) -> str:
    """How an operator has the node again, without the full stop. Nothing that is on its way is deleted."""
    if observation.gone:
        return (
            f"Look first whether a queued resource makes it: `{_TPUS} queued-resources list {_where(target)}`. While "
            "one is ACCEPTED, CREATING, PROVISIONING or WAITING_FOR_RESOURCES, wait for it. If there is none, create "
            f"the node: {create(target)}"
        )
    if observation.state not in _SETTLED:
        return f"Leave it alone while it is {clean(observation.state, 40)}. To look at it: {describe(target)}"
    return f"To recreate it: {recreate(target, observation.queued_resource)}"


def recreate(target: Target, queued_resource: str = "") -> str:
    """Deletes a node, with its queued resource where it has one, and creates it again."""
    node, where = _quoted(target.node), _where(target)
    if queued_resource:
        queued = _quoted(queued_resource)
        return (
            f"look first at its queued resource: `{_TPUS} queued-resources describe {queued} {where}`. Leave it alone "
            "while it is ACCEPTED, CREATING, PROVISIONING or WAITING_FOR_RESOURCES. Else "
            f"`{_TPUS} queued-resources delete {queued} --force {where}`, then `{_TPUS} queued-resources create "
            f"{queued} --node-id={node} {where} --accelerator-type=TYPE --runtime-version=VERSION`"
        )
    return f"`{_TPUS} tpu-vm delete {node} {where}`, then {create(target)}"


def create(target: Target) -> str:
    """Creates a node that is gone."""
    return f"`{_TPUS} tpu-vm create {_node(target)} --accelerator-type=TYPE --version=VERSION`"


def _node(target: Target) -> str:
    return f"{_quoted(target.node)} {_where(target)}"


def _where(target: Target) -> str:
    return f"--zone={_quoted(target.zone)} --project={_quoted(target.project)}"


def _quoted(name: str) -> str:
    return shlex.quote(clean(name, 100))
