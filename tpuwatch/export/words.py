"""How verdicts are told to people: their order, their colour, and what would help, in words.

Everything takes an enum's member or its value, as a JSON document holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from tpuwatch.health.verdict import BAD, Rung, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.export.view import NodeStatus

Tone = Literal["good", "plain", "warn", "bad"]

# The worst first: what somebody must see to comes before what passes by itself.
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
_HELP: Final[dict[str, str]] = {
    Rung.NOTHING.value: "nothing",
    Rung.WAIT.value: "wait",
    Rung.CHECKPOINT.value: "checkpoint the job",
    Rung.FIX_PROGRAM.value: "fix the program",
    Rung.END_HOLDER.value: "end the holder",
    Rung.RESTART_RUNTIME.value: "restart the runtime",
    Rung.RESTART_NODE.value: "restart the node",
    Rung.RESET_QUEUED_RESOURCE.value: "reset the queued resource",
    Rung.RECREATE.value: "recreate the node",
    Rung.ASK.value: "ask a person",
}


def rank(verdict: str) -> int:
    """A verdict's place among all, the worst at 0."""
    return _RANKS.get(verdict, len(_RANKS))


def worst_first(nodes: Iterable[NodeStatus]) -> list[NodeStatus]:
    """Nodes in the order in which to see to them; among equals the own one first, then by name."""
    return sorted(nodes, key=lambda node: (rank(node.judgement.verdict), not node.own, node.node, node.zone))


def is_bad(verdict: str) -> bool:
    """Whether a verdict says that something is wrong; unknown does not."""
    return tone(verdict) == "bad"


def tone(verdict: str) -> Tone:
    """The colour of a verdict."""
    return _TONES.get(verdict, "plain")


def verdict_words(verdict: str) -> str:
    """A verdict as people write it: `runtime stuck`."""
    return verdict.replace("_", " ")


def help_words(rung: str) -> str:
    """What would help: `restart the runtime`."""
    return _HELP.get(rung, rung.replace("_", " "))


def cloud_words(state: str, health: str) -> str:
    """What the Cloud TPU API says of a node: `READY/HEALTHY`, or `CREATING` where it says nothing of its health."""
    return f"{state}/{health}" if health else state
