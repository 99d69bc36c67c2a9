"""What is wrong with queued resources, and that nothing which is on its way is ever advised to be deleted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud import tpu_v2, tpu_v2alpha1

from tests.unit.health.scenes import HOUR, NOW, elsewhere, node, own, queued, silent, training
from tests.unit.restart.records import TARGET
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.health.queued_resources import judge_queued_resources
from tpuwatch.model.answers import Problem
from tpuwatch.model.judged_queued_resource import JudgedQueuedResource, QueuedProblem
from tpuwatch.model.remedies import RemedyStep
from tpuwatch.model.signals import QUEUED_ENDED, QUEUED_STATES, QUEUED_WAITING, Evidence, QueuedResource
from tpuwatch.restart.workflow import commands
from tpuwatch.restart.workflow.types import NodeObservation

DAY = 86_400.0
STATES = (*QUEUED_STATES, "STATE_17")


def judge(*found: QueuedResource, wait: float = DAY) -> tuple[JudgedQueuedResource, ...]:
    return judge_queued_resources(found, NOW, wait)


def resource(state: str, age: float = HOUR, name: str = "q-1", **more: Any) -> QueuedResource:
    values = {"project": "acme", "zone": "us-a", "nodes": ("n1",), "created": NOW - age, **more}
    return QueuedResource(name, state, **values)


def verbs(judged: JudgedQueuedResource) -> list[str]:
    """The verbs of its commands about queued resources, in their order."""
    return re.findall(r"`gcloud compute tpus queued-resources (\w+) q-1 ", " ".join(step.do for step in judged.remedy))


@pytest.mark.parametrize("version", [tpu_v2, tpu_v2alpha1])
def test_the_states_are_those_of_the_api(version: Any) -> None:
    assert set(QUEUED_STATES) == {state.name for state in version.QueuedResourceState.State}


@pytest.mark.parametrize("state", STATES)
def test_what_has_ended_holds_quota_and_nothing_else_is_wrong_with_a_young_one(state: str) -> None:
    (one,) = judge(resource(state, detail="no capacity"))
    if state in QUEUED_ENDED:
        assert one.problem is QueuedProblem.ENDED
        assert one.summary.startswith(f"It is {state}: it makes no nodes any more, and counts against the quota")
        assert one.summary.endswith("no capacity.")
        assert verbs(one) == ["describe", "delete"]
        assert "--zone=us-a --project=acme" in one.remedy[1].do
    else:
        assert one == JudgedQueuedResource(one.queued)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("age", "wait", "overdue"), [(2 * DAY, DAY, True), (DAY, DAY, False), (99 * DAY, 0.0, False)])
def test_what_waits_for_longer_than_the_setting_is_overdue(state: str, age: float, wait: float, overdue: bool) -> None:
    (one,) = judge(resource(state, age), wait=wait)
    assert (one.problem is QueuedProblem.OVERDUE) == (overdue and state in QUEUED_WAITING)
    if one.problem is QueuedProblem.OVERDUE:
        assert one.summary == (
            f"It has waited for 48 h, longer than 24 h (`request_wait_seconds` under [cloud]), and is {state}."
        )
        assert verbs(one) == ["describe"]


def test_one_that_has_no_time_is_not_overdue() -> None:
    assert judge(resource("ACCEPTED", created=None), wait=1.0)[0].problem is None


def test_one_whose_nodes_are_lost_is_an_orphan_and_is_not_deleted() -> None:
    nodes = tuple(f"n{number}" for number in range(7))
    (one,) = judge(resource("ACTIVE", nodes=nodes, lost=nodes))
    assert one.problem is QueuedProblem.ORPHANED
    assert one.summary == "It is ACTIVE, and the zone no longer lists n0, n1, n2, n3 and 3 more."
    assert verbs(one) == ["describe"]
    assert "tpu-vm list --zone=us-a --project=acme" in one.remedy[1].do


def test_one_that_nodes_name_and_the_zone_lacks_is_not_found() -> None:
    (one,) = judge(resource("", created=None))
    assert (one.problem, one.summary) == (QueuedProblem.NOT_FOUND, "n1 names it, and the zone does not list it.")
    assert judge(resource("", nodes=("n1", "n2")))[0].summary.startswith("n1 and n2 name it")
    assert "queued-resources list --zone=us-a" in one.remedy[0].do


def test_those_with_a_problem_come_first_and_of_each_the_oldest() -> None:
    given = [
        resource("ACCEPTED", HOUR, "young"),
        resource("ACTIVE", DAY, "active"),
        resource("CREATING", 3 * DAY, "late"),
        resource("SUSPENDED", HOUR, "suspended"),
        resource("FAILED", DAY, "failed"),
        resource("ACTIVE", DAY, "orphan", lost=("n1",)),
    ]
    found = judge(*given)
    assert [one.queued.name for one in found] == ["failed", "suspended", "orphan", "late", "active", "young"]
    assert judge(*given[::-1]) == found


def test_a_name_in_a_command_is_quoted_for_a_shell() -> None:
    (one,) = judge(resource("FAILED", zone="a; rm x"))
    assert all("--zone='a; rm x'" in step.do for step in one.remedy)


# -- nothing that is on its way is advised to be deleted


def scenes(state: str) -> Iterator[Evidence]:
    """Nodes in every state that calls for advice, whose queued resource is in this one."""
    answer = queued(state)
    yield elsewhere(silent(Problem.GONE), queued=answer)
    yield elsewhere(silent(Problem.GONE, last=node(queued_resource="q-1")), queued=answer)
    yield elsewhere(silent(Problem.GONE, last=node()), queued=answer)
    for spot in (False, True):
        for hosts in (1, 4):
            for api, health in (
                ("PREEMPTED", ""),
                ("TERMINATED", ""),
                ("STOPPED", ""),
                ("DELETING", ""),
                ("REPAIRING", ""),
                ("UNKNOWN", ""),
                ("CREATING", ""),
                ("READY", "TIMEOUT"),
                ("READY", "UNHEALTHY_TENSORFLOW"),
            ):
                cloud = node(api, health, spot=spot, hosts=hosts, queued_resource="q-1", held=10 * HOUR)
                yield elsewhere(cloud, queued=answer)
                yield own(cloud=cloud, queued=answer)
                yield training(cloud=cloud, queued=answer)


@pytest.mark.parametrize("state", STATES)
def test_no_advice_about_a_node_deletes_a_queued_resource_that_changes_by_itself(state: str) -> None:
    deletes = 0
    for evidence in scenes(state):
        judgement = judge_node(evidence, JudgeLimits())
        said = " ".join((judgement.summary, *(step.do for step in judgement.remedy)))
        if "queued-resources delete" in said:
            deletes += 1
            steps = [step.do for step in judgement.remedy]
            first = next(place for place, do in enumerate(steps) if "queued-resources describe q-1" in do)
            assert first < next(place for place, do in enumerate(steps) if "queued-resources delete q-1" in do)
    assert (deletes > 0) == (state in (*QUEUED_ENDED, "ACTIVE"))  # ACTIVE: of a node that is dead


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("lost", [(), ("n1",)])
def test_no_finding_deletes_a_queued_resource_but_one_that_has_ended(state: str, lost: tuple[str, ...]) -> None:
    for age in (1.0, 900 * DAY):
        (one,) = judge(resource(state, age, lost=lost))
        assert ("delete" in verbs(one)) == (state in QUEUED_ENDED)


def test_each_step_that_deletes_one_is_known_to_this_test() -> None:
    assert [step.name for step in RemedyStep if "queued-resources delete" in step.value.do] == ["DELETE_QUEUED"]


@pytest.mark.parametrize("state", ["PREEMPTED", "TERMINATED", "STOPPED", "READY", "UNKNOWN"])
def test_an_operator_is_told_to_look_before_a_queued_resource_is_deleted(state: str) -> None:
    said = commands.renew(TARGET, NodeObservation(NOW, state, queued_resource="q-1"))
    assert re.findall(r"queued-resources (\w+) ", said) == ["describe", "delete", "create"]
    assert "Leave it alone while it is ACCEPTED, CREATING, PROVISIONING or WAITING_FOR_RESOURCES" in said
