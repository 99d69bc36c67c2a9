"""Budgets over random histories: never exceeded, never twice within the back-off, and in order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.restart.policy_scenes import (
    ALL_ON,
    DAY,
    HOUR,
    MINUTE,
    NOW,
    TARGET,
    attempt,
    ledger_view,
    others,
    past,
    record,
)
from tpuwatch.model.restart import Attempt, Blocked, Breaker, Claim, Fleet, Phase, RestartRecord, Target
from tpuwatch.model.verdict import Action
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.budgets import LedgerView
from tpuwatch.restart.policy.settings import PolicySettings

ENDS = st.sampled_from([Phase.DONE, Phase.DONE, Phase.DONE, Phase.FAILED, Phase.NEEDS_OPERATOR, Phase.CANCELLED])
CAUSES = st.sampled_from(["node_stuck", "runtime_stuck", "job_stuck"])


@st.composite
def limits(draw: st.DrawFn) -> PolicySettings:
    return PolicySettings(
        act=True,
        allowed=frozenset(Action),
        node_max=draw(st.integers(1, 4)),
        node_window_seconds=draw(st.floats(60, 20_000)),
        fleet_max=draw(st.integers(1, 8)),
        fleet_percent=draw(st.floats(0, 100)),
        fleet_window_seconds=draw(st.floats(60, 20_000)),
        backoff_seconds=draw(st.floats(1, 2000)),
        max_backoff_seconds=draw(st.floats(1, 10_000)),
        cooldown_seconds=draw(st.floats(0, 2000)),
        same_cause_seconds=draw(st.floats(0, 3000)),
        breaker_failures=draw(st.integers(1, 5)),
        breaker_window_restarts=draw(st.integers(1, 12)),
        breaker_window_seconds=draw(st.floats(60, 20_000)),
    )


class World:
    """A ledger as those who restart by it keep it, and what was done, as the signal of the tests."""

    def __init__(self, watched: int, rules: PolicySettings) -> None:
        self.watched, self.rules = watched, rules
        self.now = NOW
        self.records: dict[str, RestartRecord] = {}
        self.fleet = Fleet()
        self.begun: list[tuple[str, float]] = []
        self.ended: dict[str, list[Attempt]] = {}

    def turn(self, number: int, cause: str, phase: Phase, took: float) -> None:
        """A node is bad: it is restarted if that may be."""
        target = Target(TARGET.project, TARGET.zone, f"node-{number}")
        ledger = LedgerView(self.records, self.fleet)
        hold = budgets.hold(ledger, target, Action.RESTART_NODE, cause, self.watched, self.rules, self.now)
        if hold is not None:
            assert hold.until is None or hold.until > self.now
            if hold.opens_breaker:
                self.fleet = replace(self.fleet, breaker=Breaker(self.now, hold.opens_breaker))
            return
        self.check(target.path, cause)
        began, self.now = self.now, self.now + took
        if phase is not Phase.CANCELLED:
            self.begun.append((target.path, began))
        done = Attempt(Action.RESTART_NODE, cause, began, self.now, phase, int(phase is not Phase.CANCELLED), "x")
        before = self.records.get(target.path)
        history = (done, *(before.history if before else ()))[:50]
        self.ended[target.path] = [done, *self.ended.get(target.path, [])]
        self.records[target.path] = record(phase, *history, target=target)

    def check(self, path: str, cause: str) -> None:
        """What may never be, computed again from what was done and not from the ledger."""
        rules, now = self.rules, self.now
        of_node = [began for each, began in self.begun if each == path and began > now - rules.node_window_seconds]
        assert len(of_node) < rules.node_max
        of_fleet = [began for _, began in self.begun if began > now - rules.fleet_window_seconds]
        allowed = min(rules.fleet_max, int(self.watched * rules.fleet_percent / 100 + 1e-9))
        assert len(of_fleet) < max(1, allowed)
        assert self.fleet.breaker.opened is None
        for one in self.ended.get(path, []):
            assert now >= one.ended + (rules.cooldown_seconds if one.phase is Phase.DONE else 0)
        for last in self.ended.get(path, [])[:1]:
            assert now >= last.ended + rules.backoff_seconds
            assert last.cause != cause or now >= last.ended + rules.same_cause_seconds
        everything = [one for past in self.ended.values() for one in past if one.phase is not Phase.CANCELLED]
        latest = sorted(everything, key=lambda one: -one.ended)[: rules.breaker_window_restarts]
        failed = [one for one in latest if one.phase is Phase.FAILED]
        assert sum(one.ended > now - rules.breaker_window_seconds for one in failed) < rules.breaker_failures


@given(
    limits(),
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(0, 5), CAUSES, ENDS, st.floats(0, 900), st.floats(0, 4000)), max_size=60),
)
def test_no_history_makes_it_exceed_a_budget(
    rules: PolicySettings, watched: int, turns: list[tuple[int, str, Phase, float, float]]
) -> None:
    world = World(watched, rules)
    for number, cause, phase, took, pause in turns:
        world.turn(number, cause, phase, took)
        world.now += pause


def test_random_histories_do_restart_something() -> None:
    world = World(50, replace(ALL_ON, same_cause_seconds=0, cooldown_seconds=0))
    for turn in range(200):
        world.turn(turn % 6, "node_stuck", Phase.DONE, 60)
        world.now += 300
    assert len(world.begun) == 6 * ALL_ON.node_max


wild = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from((0.0, 1e308, -1e308, NOW))


@given(st.lists(st.tuples(wild, wild, ENDS, st.integers()), max_size=4), wild, wild, st.sampled_from(Phase))
def test_nothing_in_a_ledger_makes_it_raise(
    reported: list[tuple[float, float, Phase, int]], requested: float, entered: float, phase: Phase
) -> None:
    history = tuple(
        attempt(0, began=began, ended=ended, phase=end, stops=stops) for began, ended, end, stops in reported
    )
    one = replace(record(phase), history=history, requested=requested, entered=entered)
    claims = (Claim(TARGET, requested), Claim(replace(TARGET, node="other"), entered))
    ledger = ledger_view(one, fleet=Fleet(claims=claims))
    budgets.hold(ledger, TARGET, Action.RESTART_NODE, "node_stuck", 10, ALL_ON, NOW)
    budgets.hold_checkpoint(one, ALL_ON, NOW)
    assert budgets.use(ledger, TARGET, 10, ALL_ON, NOW).node >= 0


SMALL_SHARE = replace(ALL_ON, fleet_max=10_000, fleet_percent=0.7)  # must not be lost to rounding


@pytest.mark.parametrize(
    ("watched", "rules", "allowed"),
    [
        *((watched, ALL_ON, 1) for watched in (0, 1, 9, 10, 19)),
        (20, ALL_ON, 2),
        (5000, ALL_ON, 10),
        (1000, SMALL_SHARE, 7),
    ],
)
def test_the_smaller_of_number_and_share_and_at_least_one(watched: int, rules: PolicySettings, allowed: int) -> None:
    assert budgets.allowance(watched, rules) == allowed


@pytest.mark.parametrize(
    ("done", "seconds"), [(0, 600), (1, 600), (2, 1200), (3, 2400), (6, 19_200), (7, 21_600), (10**9, 21_600)]
)
def test_the_back_off_doubles_up_to_its_limit(done: int, seconds: float) -> None:
    assert budgets.backoff_seconds(done, ALL_ON) == seconds
    low_limit = replace(ALL_ON, max_backoff_seconds=1)
    assert budgets.backoff_seconds(done, low_limit) == ALL_ON.backoff_seconds


def test_what_is_under_way_counts_once_and_from_its_beginning() -> None:
    running = record(Phase.STARTING, requested=NOW - HOUR, began=NOW - 30 * MINUTE)
    used = budgets.use(ledger_view(running), TARGET, 100, ALL_ON, NOW)
    assert (used.node, used.fleet) == (1, 1)
    used = budgets.use(ledger_view(replace(running, began=NOW - 2 * HOUR)), TARGET, 100, ALL_ON, NOW)
    assert (used.node, used.fleet) == (1, 1), "however long ago"


def test_what_a_daemon_asks_others_for_does_not_count() -> None:
    asked = record(Phase.REQUESTED, signals=("cloud",))
    assert budgets.is_request(asked)
    assert budgets.use(ledger_view(asked), TARGET, 100, ALL_ON, NOW).fleet == 0
    assert not budgets.is_request(replace(asked, signals=())), "an operator's"
    assert not budgets.is_request(replace(asked, began=NOW)), "taken up"


def test_a_claim_counts_until_the_record_shows_what_became_of_it() -> None:
    claim = Fleet(claims=(Claim(TARGET, NOW - MINUTE),))
    assert budgets.use(ledger_view(fleet=claim), TARGET, 100, ALL_ON, NOW).fleet == 1
    running = record(Phase.INTENT, requested=NOW - MINUTE)
    assert budgets.use(ledger_view(running, fleet=claim), TARGET, 100, ALL_ON, NOW).fleet == 1
    before = record(Phase.DONE, attempt(HOUR / 2))
    assert budgets.use(ledger_view(before, fleet=claim), TARGET, 100, ALL_ON, NOW).fleet == 2
    cancelled = record(Phase.CANCELLED, attempt(0, began=NOW - MINUTE, phase=Phase.CANCELLED))
    assert budgets.use(ledger_view(cancelled, fleet=claim), TARGET, 100, ALL_ON, NOW).fleet == 0


def test_a_record_that_ended_is_an_attempt_whether_its_history_says_so_or_not() -> None:
    reported = record(Phase.FAILED, attempt(HOUR, phase=Phase.FAILED))
    silent = replace(reported, history=())
    assert len(budgets.attempts(reported)) == 1
    assert [(one.ended, one.phase, one.action) for one in budgets.attempts(silent)] == [
        (NOW - HOUR, Phase.FAILED, Action.RESTART_NODE)
    ]


def test_claims_are_kept_no_longer_than_they_count() -> None:
    other = replace(TARGET, node="other")
    reported = Fleet(claims=(Claim(other, NOW - MINUTE), Claim(TARGET, NOW - HOUR), Claim(TARGET, NOW - 1000 * HOUR)))
    ledger = ledger_view(record(Phase.STARTING, target=other), fleet=reported)
    assert budgets.claimed(ledger, TARGET, ALL_ON, NOW).claims == (Claim(TARGET, NOW), Claim(TARGET, NOW - HOUR))


def test_one_is_in_the_singular() -> None:
    one = ledger_view(record(Phase.FAILED, entered=NOW - 10 * HOUR, stops=1))
    assert budgets.trips(one, replace(ALL_ON, breaker_failures=1), NOW).startswith("1 restart has failed within")
    done = ledger_view(record(Phase.DONE, entered=NOW - 10 * HOUR))
    hold = budgets.hold(done, TARGET, Action.RESTART_NODE, "job_stuck", 1, replace(ALL_ON, node_max=1), NOW)
    assert hold is not None
    assert hold.sentence == "the node has used 1 of its 1 restart within 24 h"


def test_a_restart_that_was_refused_has_shown_nothing() -> None:
    """It counts in the budgets; but it is no failure, and the fault is not back after it."""
    refused = record(Phase.FAILED, attempt(2 * HOUR, phase=Phase.FAILED, stops=0, cause="job_stuck"))
    carried_out = record(Phase.FAILED, attempt(2 * HOUR, phase=Phase.FAILED, cause="job_stuck"))
    once = replace(ALL_ON, breaker_failures=1, backoff_seconds=0.0, cooldown_seconds=0.0)
    for one, counts in ((refused, False), (carried_out, True)):
        view = ledger_view(one)
        assert bool(budgets.trips(view, once, NOW)) == counts
        hold = budgets.hold(view, TARGET, Action.RESTART_NODE, "job_stuck", 100, replace(once, breaker_failures=9), NOW)
        assert (hold is not None and hold.blocked is Blocked.SAME_CAUSE) == counts, hold
        assert budgets.use(view, TARGET, 100, ALL_ON, NOW).node == 1


@pytest.mark.parametrize("phase", [Phase.NEEDS_OPERATOR, Phase.DONE, Phase.NOT_VERIFIED, Phase.CANCELLED])
def test_what_others_did_after_our_stop_opens_no_breaker(phase: Phase) -> None:
    """A node that was deleted, preempted, terminated or stopped by others ends with a call for an operator."""
    view = ledger_view(*others(9, phase=phase))
    assert not budgets.trips(view, replace(ALL_ON, breaker_failures=1), NOW)
    assert budgets.trips(ledger_view(*others(9, phase=Phase.FAILED)), ALL_ON, NOW)


@pytest.mark.parametrize(
    ("phase", "blocked"),
    [
        (Phase.NEEDS_OPERATOR, Blocked.NEEDS_OPERATOR),
        (Phase.FAILED, Blocked.SAME_CAUSE),
        (Phase.NOT_VERIFIED, Blocked.BACKOFF),
        (Phase.DONE, Blocked.COOLDOWN),
    ],
)
def test_what_was_done_to_a_former_node_of_the_name_holds_up_no_new_one(phase: Phase, blocked: Blocked) -> None:
    cause = "job_stuck" if phase is Phase.FAILED else "other"
    rules = replace(ALL_ON, breaker_failures=99, backoff_seconds=0.0 if phase is Phase.DONE else 1200.0)
    view = past(attempt(10 * MINUTE, phase=phase, cause=cause), attempt(HOUR, phase=Phase.CANCELLED, cause="other"))

    def blocks(created: float | None) -> Blocked | None:
        hold = budgets.hold(view, TARGET, Action.RESTART_NODE, "job_stuck", 100, rules, NOW, created)
        return hold.blocked if hold is not None else None

    assert [blocks(created) for created in (None, NOW - DAY, NOW - 5 * MINUTE)] == [blocked, blocked, None]


def test_a_former_node_of_the_name_has_used_the_budget_of_all_nodes_only() -> None:
    view = past(*(attempt(ago * MINUTE) for ago in (10, 20, 30)))
    claimed = replace(view, fleet=Fleet(claims=(Claim(TARGET, NOW - MINUTE),)))
    before, after = (budgets.use(claimed, TARGET, 100, ALL_ON, NOW, NOW - ago * MINUTE) for ago in (90, 5))
    assert ((before.node, before.fleet), (after.node, after.fleet)) == ((4, 4), (1, 4))
    asked = record(Phase.DONE, attempt(MINUTE, action=Action.CHECKPOINT))
    assert budgets.hold_checkpoint(asked, ALL_ON, NOW)
    assert budgets.hold_checkpoint(asked, ALL_ON, NOW, NOW - 30) is None


def test_a_breaker_is_opened_once_and_closed_by_a_name() -> None:
    open_ = budgets.opened(Fleet(claims=(Claim(TARGET, NOW),)), "They failed.", NOW)
    assert (open_.breaker.opened, open_.breaker.reason) == (NOW, "They failed.")
    assert budgets.opened(open_, "Others failed.", NOW + 1) == open_
    again = budgets.closed(ledger_view(fleet=open_), "alice", NOW + 2)
    assert again.breaker == Breaker(reset_at=NOW + 2, reset_by="alice")
    assert again.claims == open_.claims


@pytest.mark.parametrize(("ahead", "counts"), [(-60.0, False), (100.0, False), (3600.0, True)])
def test_a_breaker_is_closed_by_a_clock_behind_of_those_whose_restarts_failed(ahead: float, counts: bool) -> None:
    failed = [
        record(Phase.FAILED, target=replace(TARGET, node=f"n-{number}"), entered=NOW + ahead + number, stops=1)
        for number in range(3)
    ]
    before = ledger_view(*failed)
    assert budgets.trips(before, ALL_ON, NOW)
    after = replace(before, fleet=budgets.closed(before, "alice", NOW))
    assert bool(budgets.trips(after, ALL_ON, NOW)) == counts
    assert after.fleet.breaker.reset_at <= NOW + 120
