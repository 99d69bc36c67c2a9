"""Phases and unfinished restarts in words, for every message to an operator."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from tpuwatch.core import length
from tpuwatch.model import Phase

if TYPE_CHECKING:
    from tpuwatch.model import Action, RestartRecord, Target

DOWN: Final = {
    Phase.INTENT: "MAY BE STOPPED",
    Phase.STOPPING: "IS BEING STOPPED",
    Phase.STOPPED: "IS STOPPED",
    Phase.STARTING: "IS STARTING",
}


def words(value: Phase | Action) -> str:
    """A phase or an action as it is shown: `needs operator`, `restart node`."""
    return str(value.value).replace("_", " ")


def full_name(target: Target) -> str:
    """A node with its zone and project."""
    return f"{target.node} (zone {target.zone}, project {target.project})"


def own_command(*words: str, config: str = "") -> str:
    """A command of tpuwatch, to be copied; `config` is the configuration that it needs, "" for the usual one."""
    return shlex.join(["tpuwatch", *words[:1], *(["--config", config] if config else []), *words[1:]])


def describe_local_action(record: RestartRecord, now: float) -> str:
    """What the node's own tpuwatch is doing to it, a sentence."""
    return (
        f"The node's own tpuwatch began an action on it {length(now - record.requested)} ago, which this restart "
        f"ends: {words(record.action)}, phase {words(record.phase)!r}."
    )
