"""When a person is asked: not before tpuwatch would have done something itself, or had it done. Pure.

The witnesses of a node that is stuck do not speak at once. The cloud may call it bad minutes before its runtime counts
as hung; until then the verdict calls for a person, and from then on for a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.health.verdict import STUCK, Sureness, Verdict
from tpuwatch.restart.policy.budgets import under_way
from tpuwatch.restart.policy.confirm import takes
from tpuwatch.restart.policy.situation import OF_THE_NODE, REQUEST_SECONDS

if TYPE_CHECKING:
    from tpuwatch.restart.policy.settings import Settings
    from tpuwatch.restart.policy.situation import Situation


def has_lasted(situation: Situation, settings: Settings) -> bool:
    """Whether a verdict that calls for a person has held for so long that one is asked."""
    seen, judgement = situation.confirmation, situation.judgement
    if seen is None:
        return False
    if judgement.verdict not in STUCK:
        return seen.seconds >= settings.confirm_seconds
    if situation.now < situation.watching_since + settings.startup_seconds:
        return False
    confirmed = takes(judgement, settings.confirm_seconds)
    # The advice may come and go with a witness, while the verdict stays: that is no reason to wait for ever.
    since = seen.since if judgement.since is None else max(judgement.since, situation.watching_since)
    lasted = max(seen.seconds, judgement.at - since)
    return seen.seconds >= confirmed and lasted >= confirmed + _silence(situation, settings)


def is_alone(situation: Situation, settings: Settings, *, request: bool) -> bool:
    """Whether others would have to restart the own node, and are not asked, or have not come in their time."""
    seen = situation.confirmation
    if seen is None or under_way(situation.record):
        return False
    if not request:
        return True
    asked = max(
        seen.since + takes(situation.judgement, settings.confirm_seconds),
        situation.watching_since + settings.startup_seconds,
        (situation.booted or 0.0) + settings.boot_grace_seconds,
    )
    return situation.now >= asked + REQUEST_SECONDS


def _silence(situation: Situation, settings: Settings) -> float:
    """How long a witness may take that would have the node restarted, from here or by who is asked; in seconds."""
    judgement = situation.judgement
    proven = judgement.sureness is Sureness.CERTAIN  # all have spoken, and a person is needed all the same
    if judgement.verdict is not Verdict.NODE_STUCK or proven:
        return 0.0
    return settings.witness_seconds if settings.act and settings.allowed & OF_THE_NODE else 0.0
