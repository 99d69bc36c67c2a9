"""Whether what a restart was decided on still holds, as it is judged again right before the node is taken down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.policy_scenes import (
    ALL_ON,
    HOUR,
    NOW,
    TARGET,
    attempt,
    bad_counts,
    cloud,
    judged,
    ledger_view,
    past,
    reasons_from,
    record,
    seen,
    situation,
)
from tpuwatch.model.answers import Signal
from tpuwatch.model.restart import Breaker, Fleet, Grounds, Lease, Phase, RestartRecord
from tpuwatch.model.verdict import Action, Confidence, Judgement, Verdict
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.present import present_evidence
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.policy.situation import RestartSituation
from tpuwatch.restart.workflow.types import PresentEvidence, Standing


def begun(*, view: RestartSituation | None = None) -> RestartRecord:
    """The record that the policy's decision becomes, with a driver."""
    decision = decide(view or situation(), ALL_ON)
    assert decision.act is Action.RESTART_NODE, decision.sentence
    return record(
        Phase.REQUESTED,
        requested=NOW,
        began=NOW,
        lease=Lease("watcher"),
        signals=decision.signals,
        sources=decision.sources,
        grounds=decision.grounds,
    )


def again(
    view: RestartSituation, of: RestartRecord | None = None, settings: PolicySettings = ALL_ON
) -> PresentEvidence:
    of = of or begun()
    if view.ledger is not None:
        view = replace(view, ledger=replace(view.ledger, records={of.target.path: of, **view.ledger.records}))
    return present_evidence(of, view.judgement, view, settings, view.now)


def test_it_holds_while_nothing_changes() -> None:
    of = begun()
    assert of.grounds == Grounds("node_stuck", Action.RESTART_NODE, NOW - 1)
    assert again(situation(), of).standing is Standing.HOLDS


def test_its_own_share_of_the_budgets_is_no_reason_against_it() -> None:
    settings = replace(ALL_ON, node_max=1, fleet_max=1)
    assert again(situation(), settings=settings).standing is Standing.HOLDS


@pytest.mark.parametrize("verdict", [Verdict.HEALTHY, Verdict.IDLE, Verdict.COMPILING, Verdict.STARTING])
def test_a_node_that_is_well_has_recovered(verdict: Verdict) -> None:
    judgement = judged(verdict, Action.NONE, reasons_from(Signal.PEER), summary="No job runs.")
    for view in (None, situation(judgement)):
        present = present_evidence(begun(), judgement, view, ALL_ON, NOW)
        assert present == PresentEvidence(Standing.RECOVERED, f"It is {verdict.value} now: No job runs.")


LAPSED = {
    "another verdict": situation(judged(Verdict.RUNTIME_STUCK)),
    "maintenance": situation(judged(Verdict.MAINTENANCE, Action.WAIT)),
    "another action": situation(judged(action=Action.RESET_QUEUED_RESOURCE)),
    "nothing that helps": situation(judged(action=Action.MANUAL)),
    "one signal": situation(judged(reasons=reasons_from(Signal.CLOUD))),
    "unsure": situation(judged(confidence=Confidence.MEDIUM)),
    "it booted": situation(up_since=NOW - 10),
    "it is repaired": situation(cloud=cloud("REPAIRING")),
    "storm": situation(bad_counts=bad_counts((100, 50), (20, 10))),
    "open breaker": situation(ledger=ledger_view(fleet=Fleet(Breaker(NOW, "It broke.")))),
    "own": situation(own=True),
}


@pytest.mark.parametrize("view", LAPSED.values(), ids=LAPSED.keys())
def test_what_has_changed_goes_back_to_the_policy(view: RestartSituation) -> None:
    present = again(view)
    assert present.standing is Standing.LAPSED
    assert present.sentence.endswith(".")


@pytest.mark.parametrize("settings", [replace(ALL_ON, act=False), replace(ALL_ON, allowed=frozenset())])
def test_the_settings_of_now_count(settings: PolicySettings) -> None:
    present = again(situation(), settings=settings)
    assert present.standing is Standing.LAPSED
    assert present.sentence.startswith("It would not be begun now: ")  # a key keeps its own letters


def test_failures_that_open_the_breaker_count_too() -> None:
    failed = [attempt(minutes * 60, phase=Phase.FAILED) for minutes in (5, 6, 7)]
    assert again(situation(ledger=past(*failed)), replace(begun(), history=tuple(failed))).standing is Standing.LAPSED


OLD = judged(at=NOW - 121)
UNKNOWN = {
    "old": situation(OLD),
    "unknown": situation(judged(Verdict.UNKNOWN, Action.MANUAL)),
    "the cloud is silent": situation(cloud=None),
    "not confirmed here": situation(confirmation=seen(judged(), seconds=10)),
    "judged again just now": situation(confirmation=seen(judged(at=NOW - 30))),
    "tpuwatch has just begun": situation(watching_since=NOW - 10),
    "no ledger": situation(ledger=None),
}


@pytest.mark.parametrize("view", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_cannot_be_judged_is_not_known(view: RestartSituation) -> None:
    assert again(view).standing is Standing.UNKNOWN


@pytest.mark.parametrize(
    ("judgement", "standing"),
    [(judged(), Standing.UNKNOWN), (judged(action=Action.WAIT), Standing.LAPSED), (OLD, Standing.UNKNOWN)],
)
def test_a_judgement_that_the_loop_has_not_seen_yet_allows_nothing(judgement: Judgement, standing: Standing) -> None:
    assert present_evidence(begun(), judgement, None, ALL_ON, NOW).standing is standing


# -- on the word of the node's own daemon

HALF = judged(action=Action.MANUAL, reasons=reasons_from(Signal.CLOUD), confidence=Confidence.MEDIUM)
REQUEST = record(
    Phase.REQUESTED,
    requested=NOW - 60,
    signals=("host", "runtime"),
    sources=("kernel", "runtime"),
    actor="tpuwatch@trainer",
    began=0.0,
)


def test_the_request_of_its_own_daemon_is_kept_in_the_record_and_counts_as_long_as_it_did() -> None:
    of = begun(view=situation(HALF, ledger=ledger_view(REQUEST)))
    assert of.grounds == Grounds(
        "node_stuck", Action.MANUAL, NOW - 1, "tpuwatch@trainer", NOW - 60, ("kernel", "runtime")
    )
    assert again(situation(HALF), of).standing is Standing.HOLDS
    later = replace(HALF, at=NOW + 540, reasons=tuple(replace(one, at=NOW + 535) for one in HALF.reasons))
    at = {"now": NOW + 541, "confirmation": seen(later)}
    assert again(situation(later, **at), of).standing is Standing.LAPSED
    assert again(situation(replace(HALF, verdict=Verdict.IDLE)), of).standing is Standing.RECOVERED
    assert again(situation(HALF)).standing is Standing.LAPSED  # without the request


def test_a_record_of_a_former_version_has_to_be_proven_here() -> None:
    of = replace(begun(), grounds=Grounds())
    assert again(situation(), of).standing is Standing.HOLDS
    assert again(situation(HALF), of).standing is Standing.LAPSED
    assert again(situation(up_since=NOW - HOUR), of).standing is Standing.HOLDS
    assert of.target == TARGET
