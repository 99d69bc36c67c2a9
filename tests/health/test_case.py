"""The rules of safety by themselves: what may be advised, whatever a rule proposes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.health.scenes import (
    MINUTE,
    NOW,
    PID,
    elsewhere,
    event,
    heard,
    hung,
    identity,
    idle,
    job,
    node,
    silent,
    training,
)
from tpuwatch.health.case import Case, advised, of_the_node
from tpuwatch.health.evidence import Evidence, Problem, Witness
from tpuwatch.health.facts import Facts
from tpuwatch.health.limits import Limits
from tpuwatch.health.verdict import DESTRUCTIVE, Reason, Rung, Sureness, Verdict
from tpuwatch.model import Cause

TWO = (Witness.RUNTIME, Witness.HOST)
ON_THE_WAY = ("STARTING", "STOPPING", "REPAIRING", "DELETING", "UNKNOWN", "STATE_17")
STUCK = job(idle(20 * MINUTE), 0.0)


def proposed(rung: Rung, *witnesses: Witness, verdict: Verdict = Verdict.JOB_STUCK) -> Case:
    reasons = tuple(Reason(witness, "It is stuck.", NOW) for witness in witnesses)
    return Case(verdict, Sureness.CERTAIN, rung, "It is stuck.", reasons, pids=(PID,))


def allowed(case: Case, evidence: Evidence = STUCK) -> Rung:
    return advised(case, Facts(evidence, Limits()))[0]


@pytest.mark.parametrize("rung", sorted(DESTRUCTIVE))
def test_two_witnesses_may_advise_anything(rung: Rung) -> None:
    assert allowed(proposed(rung, *TWO)) is rung


@pytest.mark.parametrize("rung", sorted(set(Rung) - DESTRUCTIVE))
def test_what_harms_nobody_needs_no_proof(rung: Rung) -> None:
    assert allowed(proposed(rung)) is rung


@pytest.mark.parametrize("rung", sorted(DESTRUCTIVE))
@pytest.mark.parametrize(
    "witnesses",
    [
        (),
        (Witness.RUNTIME,),
        (Witness.HOST, Witness.HOST),
        (Witness.LOGS, Witness.LOGS),
        (Witness.LOGS, Witness.METADATA),
        (Witness.LOGS, Witness.MONITORING),
        (Witness.AGENT,),
        (Witness.AGENT, Witness.MONITORING),
        (Witness.AGENT, Witness.LOGS),
    ],
    ids=lambda witnesses: "+".join(witness.value for witness in witnesses) or "nobody",
)
def test_one_witness_or_hearsay_advises_nothing(rung: Rung, witnesses: tuple[Witness, ...]) -> None:
    assert allowed(proposed(rung, *witnesses)) is Rung.ASK


@pytest.mark.parametrize("rung", sorted(DESTRUCTIVE))
def test_nothing_interrupts_programs_that_run(rung: Rung) -> None:
    assert allowed(proposed(rung, *TWO), training()) is Rung.ASK


@pytest.mark.parametrize("witness", ["cloud", "runtime", "host", "logs", "notices"])
@pytest.mark.parametrize("rung", sorted(DESTRUCTIVE))
def test_everybody_who_could_object_must_have_spoken(rung: Rung, witness: str) -> None:
    evidence = job(idle(20 * MINUTE), 0.0, **{witness: silent(Problem.UNREACHABLE)})
    assert allowed(proposed(rung, *TWO), evidence) is Rung.ASK


def test_where_there_is_no_node_by_the_api_only_the_node_itself_is_safe_from_it() -> None:
    evidence = job(idle(20 * MINUTE), 0.0, cloud=silent(Problem.UNCONFIGURED), identity=identity(node=""))
    assert allowed(proposed(Rung.END_HOLDER, *TWO), evidence) is Rung.END_HOLDER
    assert allowed(proposed(Rung.RESTART_NODE, *TWO), evidence) is Rung.ASK


@pytest.mark.parametrize("rung", [Rung.END_HOLDER, Rung.RESTART_RUNTIME])
def test_nothing_is_ended_where_it_is_not_known_what(rung: Rung) -> None:
    assert allowed(replace(proposed(rung, *TWO), pids=())) is Rung.ASK


def test_another_workers_fault_stops_it_here() -> None:
    evidence = job(idle(20 * MINUTE), 0.0)
    assert evidence.logs.value is not None
    told = event(Cause.HEARTBEAT_LOST)
    blamed = job(idle(20 * MINUTE), 0.0, logs=heard(type(evidence.logs.value)((), (told,))))
    assert allowed(proposed(Rung.END_HOLDER, *TWO), blamed) is Rung.ASK


@pytest.mark.parametrize(
    ("shown", "rung"),
    [
        (node(), Rung.RESTART_NODE),
        (node(hosts=2), Rung.ASK),
        (node(hosts=2, queued_resource="q"), Rung.RESET_QUEUED_RESOURCE),
        (node(spot=True), Rung.RECREATE),
        (node(spot=True, hosts=2, queued_resource="q"), Rung.RECREATE),
        (node("PREEMPTED"), Rung.RECREATE),
        (node("TERMINATED"), Rung.RECREATE),
        *((node(state, spot=spot), Rung.ASK) for state in ON_THE_WAY for spot in (False, True)),
    ],
    ids=lambda value: getattr(value, "state", ""),
)
def test_the_service_allows_only_some_ways_to_renew_a_node(shown: object, rung: Rung) -> None:
    assert of_the_node(Facts(elsewhere(heard(shown)), Limits()))[0] is rung  # type: ignore[arg-type]


def test_ages_are_never_negative_and_unknown_where_the_time_is() -> None:
    facts = Facts(job(hung(MINUTE), 0.0), Limits())
    assert facts.age(NOW + 100) == 0
    assert facts.age(NOW - 100) == 100
    assert [facts.age(when) for when in (None, 0.0, -5.0, float("nan"), float("inf"))] == [None] * 5
