"""How verdicts and actions are shown to people: order, colour and words.

All functions take an enum's member or its value, as in a JSON document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from tpuwatch.model import BAD, Action, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model.verdict import JudgedNode

Tone = Literal["good", "plain", "warn", "bad"]

# The worst first: what needs an operator comes before what passes by itself.
_ORDER: Final = (
    Verdict.NODE_STUCK,
    Verdict.RUNTIME_STUCK,
    Verdict.JOB_STUCK,
    Verdict.PREEMPTED,
    Verdict.GONE,
    Verdict.STOPPED,
    Verdict.MISCONFIGURED,
    Verdict.MAINTENANCE,
    Verdict.UNKNOWN,
    Verdict.STARTING,
    Verdict.COMPILING,
    Verdict.IDLE,
    Verdict.HEALTHY,
)
_RANKS: Final[dict[str, int]] = {verdict.value: rank for rank, verdict in enumerate(_ORDER)}
_TONES: Final[dict[str, Tone]] = {
    **{verdict.value: "bad" for verdict in BAD},
    Verdict.UNKNOWN.value: "warn",
    Verdict.HEALTHY.value: "good",
}
_ACTIONS: Final[dict[str, str]] = {
    Action.NONE.value: "none",
    Action.WAIT.value: "wait",
    Action.CHECKPOINT.value: "checkpoint the job",
    Action.FIX_PROGRAM.value: "fix the program",
    Action.END_HOLDER.value: "end the holder",
    Action.RESTART_RUNTIME.value: "restart the runtime",
    Action.RESTART_NODE.value: "restart the node",
    Action.RESET_QUEUED_RESOURCE.value: "reset the queued resource",
    Action.RECREATE.value: "recreate the node",
    Action.MANUAL.value: "manual",
}


def rank(verdict: str) -> int:
    """A verdict's place among all, the worst at 0."""
    return _RANKS.get(verdict, len(_RANKS))


def worst_first(nodes: Iterable[JudgedNode]) -> list[JudgedNode]:
    """Nodes ordered by urgency; among equals the own one first, then by name."""
    return sorted(nodes, key=lambda node: (rank(node.judgement.verdict), not node.own, node.node, node.zone))


def is_bad(verdict: str) -> bool:
    """Whether a verdict means that something is wrong; unknown does not."""
    return tone(verdict) == "bad"


def tone(verdict: str) -> Tone:
    """The colour of a verdict."""
    return _TONES.get(verdict, "plain")


def verdict_words(verdict: str) -> str:
    """A verdict as people write it: `runtime stuck`."""
    return verdict.replace("_", " ")


def action_words(action: str) -> str:
    """An action in words: `restart the runtime`."""
    return _ACTIONS.get(action, action.replace("_", " "))


def cloud_words(state: str, health: str) -> str:
    """A node's state in the Cloud TPU API: `READY/HEALTHY`, or `CREATING` if it gives no health."""
    return f"{state}/{health}" if health else state
