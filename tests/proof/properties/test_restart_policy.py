"""What holds of every situation: nothing is done on the evidence that never counts, and all that is done is proven."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.health.scenes import Situation as Scene
from tests.unit.health.test_judge import SITUATIONS as SCENES
from tests.unit.restart.policy_scenes import (
    ALL_ON,
    DAY,
    HOUR,
    NOW,
    TARGET,
    ledger_view,
    reasons_from,
    record,
    situation,
)
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Signal
from tpuwatch.model.restart import Blocked, Breaker, Fleet, Lease, Phase
from tpuwatch.model.signals import CloudNode, Maintenance
from tpuwatch.model.verdict import DESTRUCTIVE, Action, Confidence, Judgement, Reason, Source, Verdict
from tpuwatch.restart.policy.mass_failure import BadCount, BadCounts
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.policy.situation import Confirmation, RestartSituation, confirm

NODE_ACTIONS = (Action.RESTART_NODE, Action.RESET_QUEUED_RESOURCE)
STATES = st.sampled_from(
    ["READY"] * 8
    + ["CREATING", "RESTARTING", "REIMAGING", "DELETING", "REPAIRING", "STOPPED", "STOPPING", "STARTING"]
    + ["PREEMPTED", "TERMINATED", "HIDING", "HIDDEN", "UNHIDING", "UNKNOWN", "STATE_17", ""]
)
HEALTHS = st.sampled_from(
    ["TIMEOUT"] * 3 + ["", "HEALTHY", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE", "HEALTH_9"]
)
NEAR = Maintenance("SCHEDULED", "PENDING", NOW + 60, NOW + 7200)
STUCK = (Verdict.NODE_STUCK, Verdict.RUNTIME_STUCK, Verdict.JOB_STUCK)
TIMES = st.sampled_from([NOW - 5, NOW - 2 * DAY, None])
REASONS = st.lists(
    st.builds(
        Reason,
        st.sampled_from(Signal),
        st.just("It is so."),
        TIMES,
        st.frozensets(st.sampled_from(Source), max_size=2),
        st.booleans(),
    ),
    max_size=4,
).map(tuple)


@st.composite
def situations(draw: st.DrawFn) -> RestartSituation:
    """One in which all speaks for an act, and then some of that is changed, at random."""
    own = draw(st.booleans())
    spoilt = draw(st.sets(st.sampled_from(ASPECTS), max_size=3))

    def one_of(aspect: str, good: list[object], bad: st.SearchStrategy[object]) -> object:
        return draw(bad if aspect in spoilt else st.sampled_from(good))

    actions: list[object] = [Action.END_HOLDER, Action.RESTART_RUNTIME] if own else [*NODE_ACTIONS, Action.MANUAL]
    action = one_of("action", actions, st.sampled_from(Action))
    slice_ = action is Action.RESET_QUEUED_RESOURCE
    enough = [reasons_from(Signal.CLOUD, Signal.HOST), reasons_from(Signal.RUNTIME, Signal.HOST)]
    judgement = Judgement(
        node=TARGET.node,
        verdict=one_of("verdict", [*STUCK], st.sampled_from(Verdict)),
        at=one_of("at", [NOW, NOW - 60], st.sampled_from([NOW - 900, NOW + 900])),
        confidence=one_of("confidence", [Confidence.HIGH], st.sampled_from(Confidence)),
        action=action,
        summary="It is stuck.",
        reasons=one_of("reasons", enough if action is not Action.MANUAL else [reasons_from(Signal.CLOUD)], REASONS),
        contradictions=draw(st.sampled_from([(), ("It is not so.",)])),
    )
    node = CloudNode(
        TARGET.project,
        TARGET.zone,
        TARGET.node,
        one_of("state", ["READY"], STATES),
        one_of("health", ["TIMEOUT", "HEALTHY", ""], HEALTHS),
        hosts=one_of("hosts", [4 if slice_ else 1], st.sampled_from([1, 4])),
        spot=one_of("spot", [False], st.booleans()),
        queued_resource=one_of("queue", ["queue"], st.sampled_from(["", "queue"])),
        maintenance=one_of("maintenance", [None], st.just(NEAR)),
        changed=NOW - DAY,
    )
    known = record(
        one_of("phase", [Phase.REQUESTED], st.sampled_from(Phase)),
        requested=NOW - one_of("requested", [60], st.sampled_from([-3600, 900, 3 * DAY])),
        entered=NOW - 60,
        action=one_of("asked", [Action.RESTART_NODE], st.sampled_from(Action)),
        cause=one_of("cause", [judgement.verdict.value], st.just("operator")),
        signals=one_of("signals", [("runtime", "host")], st.sampled_from([(), ("cloud",), ("logs",)])),
        sources=one_of("sources", [("runtime", "kernel")], st.sampled_from([(), ("cloud", "text"), ("process",)])),
        lease=Lease(one_of("lease", [""], st.just("another"))),
    )
    breaker = Breaker(one_of("breaker", [None], st.just(NOW - 99 * DAY)))
    since = NOW - one_of("held", [HOUR], st.sampled_from([10, 30]))
    seen = Confirmation(judgement.verdict, judgement.action, since, judgement.at, 9, NOW)
    return RestartSituation(
        target=TARGET,
        judgement=judgement,
        confirmation=one_of("confirmation", [seen], st.none()),
        now=NOW,
        cloud=one_of("cloud", [node], st.none()),
        own=one_of("own", [own], st.booleans()),
        up_since=one_of("up", [NOW - DAY], st.sampled_from([NOW - 60, None])),
        bad_counts=BadCounts(BadCount(100, one_of("storm", [1], st.just(50))), BadCount(10, 1)),
        ledger=one_of("books", [ledger_view(known, fleet=Fleet(breaker))], st.none()),
        watching_since=NOW - one_of("watching", [DAY], st.just(30)),
    )


ASPECTS = (
    *("action", "verdict", "at", "confidence", "reasons", "state", "health", "hosts", "spot", "queue", "maintenance"),
    *(
        "phase",
        "requested",
        "asked",
        "cause",
        "signals",
        "sources",
        "lease",
        "breaker",
        "held",
        "confirmation",
        "cloud",
    ),
    *("own", "up", "storm", "books", "watching"),
)


def never(view: RestartSituation, action: Action) -> bool:
    """The list of what never causes an act, read again from the evidence alone."""
    node, judgement = view.cloud, view.judgement
    booted = view.up_since if view.up_since is not None or node is None else node.changed
    fresh = [one for one in judgement.reasons if one.at is not None and booted and one.at >= booted]
    asked = view.record.sources if view.record and judgement.action is Action.MANUAL and not view.own else ()
    reported = {source.value for one in fresh if not one.idle for source in one.sources} | set(asked)
    of_the_node = action in NODE_ACTIONS
    return any(
        (
            judgement.verdict not in STUCK,
            node is not None and node.state != "READY",
            node is not None and (node.health == "UNHEALTHY_MAINTENANCE" or node.maintenance is not None),
            of_the_node and (node is None or node.spot),
            of_the_node and view.own,
            not of_the_node and not view.own,
            of_the_node and node is not None and action is Action.RESTART_NODE and node.hosts > 1,
            of_the_node and node is not None and action is not Action.RESTART_NODE and not node.queued_resource,
            booted is None or NOW - booted < ALL_ON.boot_grace_seconds,
            len(reported - {"process", "text"}) < 2,
            judgement.confidence is Confidence.LOW,
            abs(NOW - judgement.at) > 130,
            view.ledger is None,
            view.confirmation is None or view.confirmation.seconds < ALL_ON.confirm_seconds,
            NOW - view.watching_since < ALL_ON.startup_seconds,
        )
    )


@settings(max_examples=600, deadline=None)
@given(situations())
def test_nothing_is_ever_done_on_what_never_counts(view: RestartSituation) -> None:
    decision = decide(view, ALL_ON)
    assert decision == decide(view, ALL_ON)
    assert decision.act is None or decision.blocked is None
    if decision.act is None:
        return
    assert decision.act is decision.wanted
    if decision.act in DESTRUCTIVE:
        assert not never(view, decision.act)
        assert view.ledger is not None
        assert view.ledger.fleet.breaker.opened is None
        assert view.bad_counts.fleet.bad < 10
        known = view.record
        assert known is None or known.phase is Phase.REQUESTED or not known.open
    else:
        assert decision.act is Action.CHECKPOINT
        assert view.own


def test_a_good_part_of_what_is_drawn_is_done() -> None:
    done: set[Action] = set()

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(situations())
    def draw(view: RestartSituation) -> None:
        done.add(decide(view, ALL_ON).act or Action.NONE)

    draw()
    assert done >= {*NODE_ACTIONS, Action.END_HOLDER, Action.RESTART_RUNTIME}


@settings(max_examples=300, deadline=None)
@given(situations(), st.sets(st.sampled_from(Action)))
def test_switches_only_ever_take_away(view: RestartSituation, allowed: set[Action]) -> None:
    every = decide(view, ALL_ON)
    some = decide(view, PolicySettings(act=True, allowed=frozenset(allowed)))
    watched = decide(view, PolicySettings())
    assert watched.act is None
    assert some.act in (every.act, None)
    assert some.act is None or some.act in allowed
    assert (watched.blocked is Blocked.OBSERVE) == (every.act is not None)
    assert watched.request is False


@settings(max_examples=300, deadline=None)
@given(situations(), st.sampled_from(Signal))
def test_to_lose_a_signal_never_makes_it_act(view: RestartSituation, signal: Signal) -> None:
    left = tuple(one for one in view.judgement.reasons if one.signal is not signal)
    assume(len(left) < len(view.judgement.reasons))
    if decide(view, ALL_ON).act is None:
        silenced = replace(view, judgement=replace(view.judgement, reasons=left))
        assert decide(silenced, ALL_ON).act not in DESTRUCTIVE


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_from_evidence_to_decision(scene: Scene) -> None:
    """Every situation that the judge is tested by: what it advises is done if the machine may do it, and else not."""
    evidence = scene.evidence
    judgement = judge_node(evidence, JudgeLimits())
    node, machine = evidence.cloud.value, evidence.host.value
    view = situation(
        judgement,
        confirmation=Confirmation(judgement.verdict, judgement.action, NOW - HOUR, judgement.at, 9, judgement.at),
        now=evidence.now,
        cloud=evidence.cloud.current(evidence.now, 90),
        own=evidence.own,
        up_since=machine.booted if evidence.own and machine else None,
        bad_counts=BadCounts(BadCount(100, 1), BadCount(20, 1)),
    )
    decision = decide(view, ALL_ON)
    if judgement.action not in DESTRUCTIVE | {Action.CHECKPOINT}:
        assert (decision.act, decision.blocked) == (None, None)
    elif judgement.action is Action.RECREATE:
        assert decision.blocked is Blocked.RECREATE
    elif judgement.action in NODE_ACTIONS:
        assert decision.blocked is (Blocked.OWN_NODE if evidence.own else None)
        assert decision.request is evidence.own
    else:
        assert (decision.act is judgement.action) is evidence.own
    if node is not None and node.state != "READY":
        assert decision.act not in DESTRUCTIVE


def test_from_the_first_bad_word_to_the_act() -> None:
    """A node goes bad, with a poll each 30 s: when may it be restarted, and what has to be seen until then?"""
    view, seen, acted = situation(), None, None
    for turn in range(60):
        now = NOW + 5 * turn
        at = NOW + 30 * (turn // 6)
        reasons = (
            Reason(Signal.CLOUD, "Bad.", at, frozenset({Source.CLOUD})),
            Reason(Signal.RUNTIME, "Hung.", now, frozenset({Source.RUNTIME})),
        )
        judgement = replace(view.judgement, at=now, reasons=reasons)
        seen = confirm(seen, judgement)
        decision = decide(replace(view, judgement=judgement, confirmation=seen, now=now), ALL_ON)
        if decision.act:
            acted = now - NOW
            break
        assert decision.blocked is Blocked.UNCONFIRMED
    assert acted == ALL_ON.confirm_seconds
