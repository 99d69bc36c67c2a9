"""The rules of safety by themselves: what may be advised, whatever a rule proposes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.health.scenes import (
    MINUTE,
    NOW,
    PID,
    answered,
    elsewhere,
    event,
    hung,
    identity,
    idle,
    job,
    node,
    own,
    silent,
    training,
)
from tests.unit.health.situations_peer import ALL_SILENT, DEAD, NEVER, beside, peer_answer
from tpuwatch.health.facts import Facts
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.health.proposal import Proposal, allowed_action, confidence, node_action
from tpuwatch.health.remedies import remedy
from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.remedies import RemedyStep
from tpuwatch.model.signals import Evidence, Peer
from tpuwatch.model.verdict import DESTRUCTIVE, STUCK, Action, Confidence, Reason, Source, Verdict

TWO = (Source.RUNTIME, Source.KERNEL)
ON_THE_WAY = ("STARTING", "STOPPING", "REPAIRING", "DELETING", "UNKNOWN", "STATE_17")
RESTS = job(idle(20 * MINUTE), 0.0)


def proposed(action: Action, *sources: Source, verdict: Verdict = Verdict.JOB_STUCK, idle: bool = False) -> Proposal:
    reasons = tuple(Reason(Signal.HOST, "It is stuck.", NOW, frozenset({source}), idle) for source in sources)
    return Proposal(verdict, Confidence.HIGH, action, "It is stuck.", reasons, pids=(PID,))


def allowed(case: Proposal, evidence: Evidence = RESTS) -> Action:
    return allowed_action(case, Facts(evidence, JudgeLimits()))[0]


@pytest.mark.parametrize("action", sorted(DESTRUCTIVE))
def test_two_sources_may_advise_anything(action: Action) -> None:
    assert allowed(proposed(action, *TWO)) is action


@pytest.mark.parametrize("action", sorted(set(Action) - DESTRUCTIVE))
def test_what_is_harmless_needs_no_proof(action: Action) -> None:
    assert allowed(proposed(action)) is action


@pytest.mark.parametrize("action", sorted(DESTRUCTIVE))
@pytest.mark.parametrize(
    "sources",
    [
        (),
        *((source,) for source in Source),
        *((source, source) for source in Source),
        *((source, forged) for source in Source for forged in (Source.PROCESS, Source.TEXT)),
        (Source.CLOUD, Source.PROCESS, Source.TEXT),
    ],
    ids=lambda sources: "+".join(source.value for source in sources) or "none",
)
def test_one_source_with_all_that_can_be_forged_advises_nothing(action: Action, sources: tuple[Source, ...]) -> None:
    assert allowed(proposed(action, *sources)) is Action.MANUAL


@pytest.mark.parametrize("action", sorted(DESTRUCTIVE))
def test_that_nothing_runs_is_no_fault(action: Action) -> None:
    assert allowed(proposed(action, *TWO, idle=True)) is Action.MANUAL


@pytest.mark.parametrize("verdict", sorted(STUCK))
@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ((Source.CLOUD, Source.RUNTIME), Confidence.HIGH),
        ((Source.CLOUD, Source.TEXT), Confidence.MEDIUM),
        ((Source.TEXT, Source.PROCESS), Confidence.LOW),
        ((), Confidence.LOW),
    ],
)
def test_a_verdict_is_no_surer_than_what_it_rests_on(
    verdict: Verdict, sources: tuple[Source, ...], expected: Confidence
) -> None:
    sure = proposed(Action.NONE, *sources, verdict=verdict)
    assert confidence(sure) is expected
    assert confidence(replace(sure, confidence=Confidence.LOW)) is Confidence.LOW  # nor than the rule
    stopped = replace(sure, verdict=Verdict.STOPPED)
    assert confidence(stopped) is Confidence.HIGH  # the cloud itself says so


@pytest.mark.parametrize("action", sorted(DESTRUCTIVE))
def test_nothing_interrupts_programs_that_run(action: Action) -> None:
    assert allowed(proposed(action, *TWO), training()) is Action.MANUAL


@pytest.mark.parametrize("signal", ["cloud", "runtime", "host", "logs", "notices"])
@pytest.mark.parametrize("action", sorted(DESTRUCTIVE))
def test_everybody_who_could_object_must_have_spoken(action: Action, signal: str) -> None:
    evidence = job(idle(20 * MINUTE), 0.0, **{signal: silent(Problem.UNREACHABLE)})
    assert allowed(proposed(action, *TWO), evidence) is Action.MANUAL


@pytest.mark.parametrize(
    "peer", [NEVER, ALL_SILENT, peer_answer(Verdict.MAINTENANCE, Action.CHECKPOINT), peer_answer(Verdict.IDLE)]
)
def test_nothing_interrupts_a_node_whose_own_daemon_objects_or_may(peer: Answer[Peer]) -> None:
    sure = proposed(Action.RESTART_NODE, Source.CLOUD, Source.NETWORK, verdict=Verdict.NODE_STUCK)
    never_asked = peer is NEVER
    assert allowed(sure, beside(DEAD, peer)) is (Action.RESTART_NODE if never_asked else Action.MANUAL)


def test_where_there_is_no_node_by_the_api_only_the_node_itself_is_safe_from_it() -> None:
    evidence = job(idle(20 * MINUTE), 0.0, cloud=silent(Problem.UNCONFIGURED), identity=identity(node=""))
    assert allowed(proposed(Action.END_HOLDER, *TWO), evidence) is Action.END_HOLDER
    assert allowed(proposed(Action.RESTART_NODE, *TWO), evidence) is Action.MANUAL


@pytest.mark.parametrize("action", [Action.END_HOLDER, Action.RESTART_RUNTIME])
def test_nothing_is_ended_where_it_is_not_known_what(action: Action) -> None:
    assert allowed(replace(proposed(action, *TWO), pids=())) is Action.MANUAL


def test_another_workers_fault_stops_it_here() -> None:
    evidence = job(idle(20 * MINUTE), 0.0)
    assert evidence.logs.value is not None
    fault = event(Cause.HEARTBEAT_LOST)
    blamed = job(idle(20 * MINUTE), 0.0, logs=answered(type(evidence.logs.value)((), (fault,))))
    assert allowed(proposed(Action.END_HOLDER, *TWO), blamed) is Action.MANUAL


@pytest.mark.parametrize(
    ("shown", "action"),
    [
        (node(), Action.RESTART_NODE),
        (node(hosts=2), Action.MANUAL),
        (node(hosts=2, queued_resource="q"), Action.RESET_QUEUED_RESOURCE),
        (node(spot=True), Action.RECREATE),
        (node(spot=True, hosts=2, queued_resource="q"), Action.RECREATE),
        (node("PREEMPTED"), Action.RECREATE),
        (node("TERMINATED"), Action.RECREATE),
        *((node(state, spot=spot), Action.MANUAL) for state in ON_THE_WAY for spot in (False, True)),
    ],
    ids=lambda value: getattr(value, "state", ""),
)
def test_the_service_allows_only_some_ways_to_renew_a_node(shown: object, action: Action) -> None:
    assert node_action(Facts(elsewhere(answered(shown)), JudgeLimits()))[0] is action  # type: ignore[arg-type]


def test_ages_are_never_negative_and_unknown_where_the_time_is() -> None:
    facts = Facts(job(hung(MINUTE), 0.0), JudgeLimits())
    assert facts.age(NOW + 100) == 0
    assert facts.age(NOW - 100) == 100
    assert [facts.age(when) for when in (None, 0.0, -5.0, float("nan"), float("inf"))] == [None] * 5


def test_on_a_node_of_kubernetes_no_step_asks_the_cloud_tpu_api() -> None:
    facts = Facts(own(identity=identity(node="", kubernetes="gke-pool-1"), cloud=silent(Problem.ABSENT)), JudgeLimits())
    action, steps = node_action(facts)
    assert action is Action.MANUAL
    (step,) = remedy((*steps, RemedyStep.MAINTENANCE), facts)
    assert step.do.startswith("Look at its conditions, taints and labels: `kubectl describe node gke-pool-1`.")
    assert "never restarted through the Cloud TPU API" in step.do
    assert "tpu-vm" not in step.do


@pytest.mark.parametrize("own", [True, False])
def test_another_daemon_counts_only_of_a_node_that_is_watched_from_elsewhere(own: bool) -> None:
    heard = Answer(Peer(answered=NOW), NOW, None, "", NOW)
    assert (Facts(Evidence("trainer", NOW, own=own, peer=heard), JudgeLimits()).peer is None) is own
