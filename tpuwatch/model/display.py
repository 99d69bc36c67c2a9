"""How verdicts are shown to people: order and colour.

All functions take an enum's member or its value, as in a JSON document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from tpuwatch.model.verdict import BAD, Verdict
from tpuwatch.model.workload import WorkloadKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model.judged_node import JudgedNode

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


def verdict_words(verdict: str, kind: str | None, *, last_known: bool = False) -> str:
    """A verdict with the kind of workload where its rules are others than training's: `idle (serving)`. One that is
    only the `last_known` says so: `node_stuck (last known)`."""
    word = verdict.value if isinstance(verdict, Verdict) else verdict
    named = kind.value if isinstance(kind, WorkloadKind) else kind
    notes = [named] if named and named != WorkloadKind.TRAINING.value else []
    notes += ["last known"] if last_known else []
    return f"{word} ({', '.join(notes)})" if notes else word


def queued_words(state: str) -> str:
    """In place of a node's state, where the API does not list it: the state of its queued resource."""
    return f"queued: {state}"


def cloud_words(state: str, health: str) -> str:
    """A node's state in the Cloud TPU API: `READY/HEALTHY`, or `CREATING` if it gives no health."""
    return f"{state}/{health}" if health else state
