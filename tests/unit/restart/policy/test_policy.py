"""The policy in a table of situations: what is called for, what is done, and what stands in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.policy_scenes import (
    ALL_ON,
    HOUR,
    MINUTE,
    NOW,
    PROVEN,
    attempt,
    judged,
    ledger_view,
    others,
    past,
    record,
    seen,
    situation,
)
from tests.unit.restart.policy_table import ALONE, ASKED, ROWS, Row
from tests.unit.restart.policy_table_asking import ASKING
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.restart import FOR_OPERATOR, Blocked, Breaker, Fleet, Phase
from tpuwatch.model.verdict import STUCK, Action, Unseen, Verdict
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import PolicySettings


def named(row: Row) -> str:
    return row.name


@pytest.mark.parametrize("row", [*ROWS, *ASKING], ids=named)
def test_situations(row: Row) -> None:
    decision = decide(row.situation, row.settings)
    assert (decision.act or decision.blocked) == row.expected, decision.sentence
    assert decision.act is None or decision.blocked is None
    assert row.says in decision.sentence
    assert row.asks in (None, decision.needs_operator), decision.sentence
    assert decision.sentence[0].isupper()
    assert decision.sentence.endswith(".")
    assert decide(row.situation, row.settings) == decision, "it is not a function"


@pytest.mark.parametrize(
    "row", [row for row in [*ROWS, *ASKING] if row.situation.judgement.verdict in STUCK], ids=named
)
def test_nothing_at_all_is_done_on_the_last_known_verdict(row: Row) -> None:
    """However fresh its time looks, whatever is allowed, and whoever asks for it."""
    lost = Unseen(Signal.CLOUD, Problem.DENIED, "The account may not list the nodes.")
    blind = replace(row.situation, judgement=replace(row.situation.judgement, unseen=lost))
    decision = decide(blind, replace(row.settings, act=True, allowed=ALL_ON.allowed))
    assert decision.act is None
    assert not decision.request


def test_every_reason_that_there_is_stands_in_the_table() -> None:
    assert {row.expected for row in ROWS if isinstance(row.expected, Blocked)} == set(Blocked)


def test_a_person_is_asked_where_nothing_else_will_help() -> None:
    asked = {row.expected for row in ROWS if decide(row.situation, row.settings).needs_operator}
    assert asked - {None, Blocked.OWN_NODE} == FOR_OPERATOR
    assert decide(situation(ALONE), ALL_ON).needs_operator
    assert not decide(situation(judged(Verdict.HEALTHY, Action.NONE)), ALL_ON).needs_operator


def test_the_own_node_is_left_to_others_who_are_asked_once_and_only_if_it_may_be_done() -> None:
    mine = situation(own=True)
    assert decide(mine, ALL_ON).request
    assert not decide(mine, replace(ALL_ON, act=False)).request
    assert not decide(mine, PolicySettings(act=True)).request
    assert not decide(replace(mine, ledger=None), ALL_ON).request
    assert not decide(replace(mine, ledger=ledger_view(record(Phase.STARTING))), ALL_ON).request
    assert not decide(situation(), ALL_ON).request


def test_a_decision_carries_what_an_audit_needs() -> None:
    judgement = judged(contradictions=("The node says otherwise.",))
    decision = decide(situation(judgement, ledger=ledger_view(*others(4))), ALL_ON)
    assert (decision.node, decision.at, decision.verdict) == ("trainer", NOW, "node_stuck")
    assert decision.signals == ("cloud", "runtime")
    assert decision.evidence == ("cloud: The cloud says so.", "runtime: The runtime says so.")
    assert decision.against == ("The node says otherwise.",)
    assert decision.held_seconds == HOUR
    assert decision.use is not None
    assert (decision.use.node, decision.use.node_max, decision.use.fleet, decision.use.fleet_max) == (0, 3, 4, 10)


def test_what_was_asked_for_is_part_of_the_evidence() -> None:
    decision = decide(situation(ALONE, ledger=ledger_view(ASKED)), ALL_ON)
    assert decision.evidence == ("cloud: The cloud says so.", "request of trainer: runtime: it hangs.")
    assert decision.signals == ("cloud", "runtime")


def test_failures_make_the_daemon_open_the_breaker() -> None:
    decision = decide(situation(ledger=ledger_view(*others(3, phase=Phase.FAILED))), ALL_ON)
    assert decision.opens_breaker == "3 restarts have failed within 24 h: of other-0, other-1 and other-2."
    again = decide(situation(ledger=ledger_view(fleet=Fleet(Breaker(NOW, decision.opens_breaker)))), ALL_ON)
    assert (again.blocked, again.opens_breaker) == (Blocked.BREAKER, "")


def test_when_it_is_over_is_reported_where_it_is_known() -> None:
    blocked = situation(ledger=past(attempt(5 * MINUTE, phase=Phase.FAILED)))
    decision = decide(blocked, ALL_ON)
    assert decision.retry_at == NOW + 5 * MINUTE
    later = replace(blocked, now=decision.retry_at, judgement=judged(at=decision.retry_at, reasons=PROVEN))
    assert decide(replace(later, confirmation=seen(later.judgement)), ALL_ON).act is Action.RESTART_NODE


def test_a_decision_is_another_one_when_what_is_done_or_blocks_it_changes() -> None:
    first, later = decide(situation(), ALL_ON), decide(situation(now=NOW + 5), ALL_ON)
    assert first.key == later.key
    assert first.key != decide(situation(), PolicySettings()).key
