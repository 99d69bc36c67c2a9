"""More of the table: when a person is asked, which is not before something else might have been done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.restart.policy_scenes import (
    HOUR,
    MINUTE,
    NOW,
    judged,
    ledger_view,
    reasons_from,
    record,
    seen,
    situation,
)
from tests.unit.restart.policy_table import ALONE, CLOUD, RUNTIME, Row
from tpuwatch.model.restart import Blocked, Phase
from tpuwatch.model.verdict import Action, Confidence, Judgement, Verdict
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.policy.situation import RestartSituation

MINE = judged()
PUT_OUT = judged(Verdict.STOPPED, Action.MANUAL, reasons_from(CLOUD))
PUZZLE = judged(Verdict.JOB_STUCK, Action.MANUAL, reasons_from(RUNTIME), Confidence.MEDIUM)
ENDS_ONLY = PolicySettings(act=True, allowed=frozenset({Action.END_HOLDER}))


def stuck_for(seconds: float, judgement: Judgement = ALONE, **more: Any) -> RestartSituation:
    """A verdict that has held for so long, with the action "manual" if no other is given."""
    return situation(judgement, confirmation=seen(judgement, seconds), **more)


def waiting(seconds: float, judgement: Judgement = MINE, **more: Any) -> RestartSituation:
    """The own node, for which a restart has been called for so long."""
    return stuck_for(seconds, judgement, **{"own": True, **more})


ASKING = [
    Row("a stopped node that has just been seen", stuck_for(0, PUT_OUT), None, "so far", asks=False),
    Row("… that has been so for a while", stuck_for(2 * MINUTE, PUT_OUT), None, asks=True),
    Row("a second signal may come, and a peer be asked", stuck_for(3 * MINUTE, own=True), None, "so far", asks=False),
    Row("… and for those who watch it a request", stuck_for(3 * MINUTE), None, asks=False),
    Row("… until it would have come", stuck_for(12 * MINUTE - 1, own=True), None, asks=False),
    Row("… and does not come", stuck_for(12 * MINUTE, own=True), None, "operator is needed", asks=True),
    Row(
        "… where signals contradict it, later",
        stuck_for(12 * MINUTE, replace(ALONE, contradictions=("No.",)), own=True),
        None,
        asks=False,
    ),
    Row("… where nothing would come of it, at once", stuck_for(2 * MINUTE), None, settings=PolicySettings(), asks=True),
    Row("… where the action is off, too", stuck_for(2 * MINUTE), None, settings=ENDS_ONLY, asks=True),
    Row(
        "all have spoken, and an operator is needed",
        stuck_for(2 * MINUTE, replace(ALONE, confidence=Confidence.HIGH)),
        None,
        asks=True,
    ),
    Row("a job without any report", stuck_for(2 * MINUTE, PUZZLE, own=True), None, asks=True),
    Row(
        "… that has just been contradicted",
        stuck_for(2 * MINUTE, replace(PUZZLE, contradictions=("No.",)), own=True),
        None,
        asks=False,
    ),
    Row(
        "… while tpuwatch only observes",
        stuck_for(2 * MINUTE, PUZZLE, own=True, watching_since=NOW - 4 * MINUTE),
        None,
        asks=False,
    ),
    Row(
        "the advice comes and goes, and the verdict stays",
        stuck_for(2 * MINUTE, replace(ALONE, since=NOW - HOUR), own=True),
        None,
        asks=True,
    ),
    Row(
        "… but what was so before tpuwatch began may be proven again",
        stuck_for(2 * MINUTE, replace(ALONE, since=NOW - HOUR), own=True, watching_since=NOW - 6 * MINUTE),
        None,
        asks=False,
    ),
    # The own node, of which others are asked
    Row("others are asked", waiting(4 * MINUTE), Blocked.OWN_NODE, asks=False),
    Row("… and have 10 min", waiting(12 * MINUTE - 2), Blocked.OWN_NODE, asks=False),
    Row("… but not more", waiting(12 * MINUTE), Blocked.OWN_NODE, asks=True),
    Row(
        "… from when they were asked, which was later, as it is contradicted",
        waiting(13 * MINUTE, replace(MINE, contradictions=("No.",))),
        Blocked.OWN_NODE,
        asks=False,
    ),
    Row(
        "… or later, as tpuwatch only looked on",
        waiting(13 * MINUTE, watching_since=NOW - 13 * MINUTE),
        Blocked.OWN_NODE,
        asks=False,
    ),
    Row(
        "… or later, as it had just booted",
        waiting(13 * MINUTE, up_since=NOW - 14 * MINUTE),
        Blocked.OWN_NODE,
        asks=False,
    ),
    Row("… and one has come", waiting(HOUR, ledger=ledger_view(record(Phase.STOPPING))), Blocked.OWN_NODE, asks=False),
    Row("no operator may be asked", waiting(2 * MINUTE), Blocked.OWN_NODE, settings=PolicySettings(), asks=True),
    Row("no operator can be asked", waiting(2 * MINUTE, ledger=None), Blocked.OWN_NODE, asks=True),
]
