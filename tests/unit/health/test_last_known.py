"""A signal that is lost clears no fault: the last bad verdict stays until something shows how the node is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.health.scenes import (
    ABSENT,
    HOUR,
    MINUTE,
    NOW,
    Situation,
    answered,
    elsewhere,
    event,
    holder,
    host,
    idle,
    job,
    launch,
    logs,
    node,
    own,
    runtime,
    silent,
    training,
)
from tests.unit.health.situations_peer import DEAD, beside, fell_silent, peer_answer, word
from tests.unit.health.test_judge import SITUATIONS, named
from tpuwatch.health.judge import following, judge_node, keep_last_known
from tpuwatch.health.last_known import ON_THE_NODE
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import Evidence, Notices, Peer
from tpuwatch.model.verdict import BAD, DESTRUCTIVE, Action, Confidence, Judgement, Verdict

LIMITS = JudgeLimits()
FIELDS = {
    Signal.CLOUD: "cloud",
    Signal.RUNTIME: "runtime",
    Signal.HOST: "host",
    Signal.LOGS: "logs",
    Signal.METADATA: "notices",
    Signal.KUBERNETES: "kubernetes",
    Signal.MONITORING: "monitoring",
    Signal.PEER: "peer",
    Signal.SERVER: "server",
}
LOSSES = (Problem.DENIED, Problem.CREDENTIALS, Problem.TIMEOUT, Problem.UNREACHABLE, Problem.SERVER, Problem.INTERNAL)
BAD_SITUATIONS = [one for one in SITUATIONS if one.verdict in BAD]


def seen(evidence: Evidence) -> Judgement:
    """The verdict on it, as the first one."""
    return following(None, judge_node(evidence, LIMITS))


def then(before: Judgement, evidence: Evidence) -> Judgement:
    """The verdict that is shown next."""
    new = judge_node(evidence, LIMITS)
    return keep_last_known(before, new, evidence, LIMITS) or following(before, new)


def without(evidence: Evidence, signal: Signal, problem: Problem = Problem.DENIED, *, value: bool = True) -> Evidence:
    """The same, and the signal gives no answer any more; without its last `value` as after a start of tpuwatch."""
    answer: Answer[Any] = getattr(evidence, FIELDS[signal])
    lost = Answer(answer.value if value else None, answer.at if value else None, problem, "Why.", NOW)
    return replace(evidence, **{FIELDS[signal]: lost})


@pytest.mark.parametrize("situation", BAD_SITUATIONS, ids=named)
def test_no_signal_that_is_lost_makes_a_bad_verdict_a_good_one(situation: Situation) -> None:
    before = seen(situation.evidence)
    for signal in {one.signal for one in before.reasons}:
        for problem in LOSSES:
            after = then(before, without(situation.evidence, signal, problem))
            if before.verdict is Verdict.GONE and any(one.signal is Signal.RUNTIME for one in after.reasons):
                continue  # programs run on its chips
            assert after.verdict in BAD, (signal, problem, after)
            if after.is_last_known:
                assert (after.verdict, after.at, after.since) == (before.verdict, before.at, before.since)
                assert after.reasons == before.reasons
                assert after.confidence is Confidence.LOW
                assert after.action not in DESTRUCTIVE | {Action.CHECKPOINT}
                assert after.unseen is not None
                assert after.unseen.signal in {one.signal for one in before.reasons}
                assert after.pids == ()


def test_nor_does_it_where_the_last_answer_is_not_known_any_more() -> None:
    """Only what is seen on the node itself clears it then."""
    for situation in BAD_SITUATIONS:
        before = seen(situation.evidence)
        for signal in {one.signal for one in before.reasons}:
            after = then(before, without(situation.evidence, signal, value=False))
            assert after.verdict in BAD or any(one.signal in ON_THE_NODE for one in after.reasons), situation.name


@pytest.mark.parametrize("situation", BAD_SITUATIONS, ids=named)
def test_the_fresh_verdict_replaces_it_at_once(situation: Situation) -> None:
    before = seen(situation.evidence)
    healthy = training() if situation.evidence.own else elsewhere(node())
    assert then(before, healthy).verdict is Verdict.HEALTHY or situation.evidence.peer.problem is not Problem.OFF


STUCK_JOB = job(idle(HOUR, queue=1), 0.0)
HUNG_NODE = beside(DEAD, fell_silent())
PEERS_WORD = beside(node(), peer_answer(Verdict.JOB_STUCK, Action.END_HOLDER))
SILENT_SINCE = answered(Peer(NOW - 260, word(Verdict.JOB_STUCK, Action.END_HOLDER), NOW - 240, 9))
LOST_CLOUD = silent(Problem.DENIED, "The account may not list them.", last=DEAD)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        pytest.param(HUNG_NODE, beside(LOST_CLOUD, fell_silent()), "node_stuck", id="the cloud alone is lost"),
        pytest.param(HUNG_NODE, beside(node(), fell_silent()), "unknown", id="the cloud calls it healthy again"),
        pytest.param(HUNG_NODE, beside(LOST_CLOUD, peer_answer(Verdict.HEALTHY)), "healthy", id="its tpuwatch answers"),
        pytest.param(HUNG_NODE, beside(silent(Problem.GONE, last=DEAD), fell_silent()), "gone", id="it is gone"),
        pytest.param(HUNG_NODE, beside(node("STARTING", ""), fell_silent()), "starting", id="it is started anew"),
        pytest.param(PEERS_WORD, beside(node(), SILENT_SINCE), "job_stuck", id="its tpuwatch falls silent"),
        pytest.param(PEERS_WORD, beside(node(), silent(Problem.FOREIGN)), "job_stuck", id="and nothing is known of it"),
        pytest.param(PEERS_WORD, beside(node("STOPPED", ""), fell_silent()), "stopped", id="and it is stopped"),
        pytest.param(PEERS_WORD, elsewhere(node()), "healthy", id="it is not to be asked any more"),
        pytest.param(
            elsewhere(node("STOPPED", "")),
            beside(silent(Problem.DENIED, last=node("STOPPED", "")), peer_answer(Verdict.IDLE)),
            "idle",
            id="a stopped node whose own tpuwatch answers",
        ),
        pytest.param(STUCK_JOB, own(runtime=ABSENT), "idle", id="the program has ended"),
        pytest.param(
            STUCK_JOB, job(replace(ABSENT, value=idle(HOUR, queue=1).value), 3.0, age=30.0), "healthy", id="a new one"
        ),
        pytest.param(
            STUCK_JOB,
            job(replace(ABSENT, value=idle(HOUR, queue=1).value), 0.0),
            "job_stuck",
            id="the same one serves no metrics any more",
        ),
        pytest.param(
            own(notices=Notices(maintenance_event="TERMINATE_ON_HOST_MAINTENANCE")),
            training(notices=replace(ABSENT, value=Notices(maintenance_event="TERMINATE_ON_HOST_MAINTENANCE"))),
            "maintenance",
            id="the metadata server is absent",
        ),
        pytest.param(
            own(cloud=node(health="TIMEOUT"), host=host(holder(0.0))),
            training(cloud=silent(Problem.DENIED, last=node(health="TIMEOUT")), runtime=runtime()),
            "healthy",
            id="programs run on the chips",
        ),
        pytest.param(
            own(
                host=host(holder(3.0, 10.0)),
                logs=logs(*(launch(Outcome.FAILED, age * MINUTE) for age in (1, 5, 9)), event(Cause.NO_TPU_FOUND)),
            ),
            own(logs=silent(Problem.DENIED)),
            "idle",
            id="the logs cannot be read, and the host shows that the TPU is free",
        ),
    ],
)
def test_what_is_shown_next(before: Evidence, after: Evidence, verdict: str) -> None:
    first = seen(before)
    assert first.verdict in BAD, first
    assert then(first, after).verdict.value == verdict


def test_time_alone_clears_nothing_while_nobody_can_look() -> None:
    """The event that shows the fault would be too old, if the runtime still answered."""
    evidence = job(idle(HOUR), 0.0, age=2 * HOUR)
    evidence = replace(evidence, logs=logs(launch(age=2 * HOUR), event(Cause.HANG, 30 * MINUTE), alive=(holder().pid,)))
    before = seen(evidence)
    assert before.verdict is Verdict.JOB_STUCK
    later = replace(without(evidence, Signal.RUNTIME, Problem.INTERNAL), now=NOW + 3 * HOUR)
    later = replace(later, host=replace(later.host, at=later.now), cloud=replace(later.cloud, at=later.now))
    later = replace(later, logs=replace(later.logs, at=later.now))
    after = then(before, later)
    assert (after.verdict, after.is_last_known) == (Verdict.JOB_STUCK, True)


def test_what_was_never_seen_bad_is_unknown_and_not_bad() -> None:
    for before in (None, seen(elsewhere(node()))):
        lost = elsewhere(silent(Problem.DENIED, "The account may not list them.", last=before and node()))
        after = then(before, lost) if before else seen(lost)
        assert after.verdict is Verdict.UNKNOWN
        assert after.unseen is not None
        assert (after.unseen.signal, after.unseen.problem) == (Signal.CLOUD, Problem.DENIED)
        assert not after.is_last_known


def test_a_suspicion_is_no_verdict_that_stays() -> None:
    young = elsewhere(node(health="TIMEOUT", held=10.0))
    before = seen(young)
    assert before.verdict is Verdict.UNKNOWN
    assert then(before, without(young, Signal.CLOUD)).verdict is Verdict.UNKNOWN


def test_it_says_what_it_was_how_old_that_is_and_why_it_is_not_known_now() -> None:
    before = seen(HUNG_NODE)
    later = replace(beside(LOST_CLOUD, fell_silent()), now=NOW + 8 * MINUTE)
    after = then(before, later)
    assert "8 min ago" in after.summary
    assert before.summary in after.summary
    assert after.unseen is not None
    assert after.unseen.detail == "The account may not list them."
    assert any("The account may not list them." in one for one in after.missing)
    assert any("roles/tpu.viewer" in step.do for step in after.remedy)


def test_the_command_that_gives_sight_back_is_whole() -> None:
    detail = f"It was refused. Grant the role: `gcloud projects {'x' * 400} --role=roles/tpu.viewer`."
    lost = then(seen(HUNG_NODE), beside(silent(Problem.DENIED, detail, last=DEAD), fell_silent()))
    assert lost.unseen is not None
    assert lost.unseen.detail == detail


def test_when_answers_are_fresh_again_its_action_may_be_advised_again() -> None:
    after = then(seen(HUNG_NODE), HUNG_NODE)
    assert (after.verdict, after.is_last_known, after.action) == (Verdict.NODE_STUCK, False, Action.RESTART_NODE)
