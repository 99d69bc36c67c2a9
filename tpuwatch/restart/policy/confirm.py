"""Confirmation over time: for how long, and over how many answers, the same verdict has called for the same act.

It is kept in memory alone. After a start of tpuwatch everything has to be seen anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Witness

if TYPE_CHECKING:
    from tpuwatch.health.verdict import Judgement, Rung, Verdict

GAP_SECONDS: Final = 180.0  # a node is judged once a minute or more often; after a longer break all begins anew
DECIDING: Final = frozenset({Witness.CLOUD, Witness.RUNTIME})


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What has been seen without a break: the same verdict with the same advice."""

    verdict: Verdict
    rung: Rung
    since: float
    until: float  # the latest judgement
    polls: int = 0  # how many answers of the cloud or the runtime said so; of the slower one, where both do
    stamp: float | None = None  # when the latest of those answers was given

    @property
    def seconds(self) -> float:
        """For how long it has held."""
        return self.until - self.since


def confirm(previous: Confirmation | None, judgement: Judgement) -> Confirmation:
    """`previous` with one judgement more; a new one where the verdict or the advice is another one, or after a gap."""
    stamp = _stamp(judgement)
    if previous is None or not _continues(previous, judgement):
        polls = 0 if stamp is None else 1
        return Confirmation(judgement.verdict, judgement.rung, judgement.at, judgement.at, polls, stamp)
    held = replace(previous, until=judgement.at)
    if stamp is None or (previous.stamp is not None and stamp <= previous.stamp):
        return held
    return replace(held, polls=previous.polls + 1, stamp=stamp)


def takes(judgement: Judgement, seconds: float) -> float:
    """How long it must have held, by `confirm_seconds`: twice as long where witnesses contradict it."""
    return seconds * (2 if judgement.contradictions else 1)


def _continues(previous: Confirmation, judgement: Judgement) -> bool:
    same = (previous.verdict, previous.rung) == (judgement.verdict, judgement.rung)
    return same and 0 <= judgement.at - previous.until <= GAP_SECONDS


def _stamp(judgement: Judgement) -> float | None:
    """When the deciding witnesses were heard last, each of them."""
    heard: dict[Witness, float] = {}
    for reason in judgement.reasons:
        if reason.witness in DECIDING and reason.at is not None:
            heard[reason.witness] = max(reason.at, heard.get(reason.witness, reason.at))
    return min(heard.values(), default=None)
