"""Nothing that a user of the machine can forge ends anything, alone or with a false cloud. True faults do."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.health.forgeries import FORGERIES
from tests.unit.health.scenes import (
    ABSENT,
    HOUR,
    MINUTE,
    NOW,
    SPOT,
    answered,
    elsewhere,
    holder,
    host,
    hung,
    idle,
    job,
    logs,
    node,
    own,
    runtime,
    symptom,
    training,
)
from tests.unit.health.situations_peer import fell_silent
from tests.unit.restart.policy_scenes import ALL_ON, situation
from tpuwatch.core.codec import encode
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Answer
from tpuwatch.model.documents.nodes import NodeDocument
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.restart import RestartDecision
from tpuwatch.model.signals import CloudNode, Evidence, Identity, Known, Notices, Peer
from tpuwatch.model.verdict import DESTRUCTIVE, Action, Judgement, Source
from tpuwatch.model.workload import ModelServer, WorkloadKind
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.situation import Confirmation
from tpuwatch.signals.peer_calls import read_reply

LIMITS = JudgeLimits()
NOTEBOOK = host(holder(0.0, 5 * HOUR, command="python -m ipykernel_launcher"))
interactive = holder(0.0, 5 * HOUR, kind=WorkloadKind.INTERACTIVE)
serving = holder(0.0, 5 * HOUR, kind=WorkloadKind.SERVING)
# What is really there, and is well.
SCENES = {
    "a free machine": own(),
    "a notebook that rests": own(runtime=idle(2 * HOUR), host=NOTEBOOK),
    "a notebook whose runtime reports zeros": own(runtime=runtime(0.0, 0.0), host=NOTEBOOK),
    "a notebook that has not used the TPU yet": own(runtime=ABSENT, host=NOTEBOOK),
    "a notebook that is known as one": own(runtime=idle(2 * HOUR), host=host(interactive)),
    "a server that has no requests": own(
        runtime=idle(2 * HOUR), host=host(serving), server=answered(ModelServer("vLLM", 0, 0))
    ),
    "a program that trains": training(),
    "a program with slow steps": job(idle(3 * MINUTE), 0.2),
}
QUEUED = {"hosts": 4, "queued_resource": "q-1"}
# What the cloud may wrongly say.
CLOUDS: dict[str, CloudNode] = {
    **{
        f"READY and {health or 'nothing'}": node(health=health)
        for health in ("HEALTHY", "", "TIMEOUT", "UNHEALTHY_TENSORFLOW", "DEPRECATED_UNHEALTHY", "HEALTH_9")
    },
    **{
        state: node(state, "")
        for state in ("UNKNOWN", "PREEMPTED", "TERMINATED", "REPAIRING", "STOPPED", "STOPPING", "CREATING", "STATE_17")
    },
    "READY and UNHEALTHY_MAINTENANCE": node(health="UNHEALTHY_MAINTENANCE"),
    "symptoms": node(symptoms=(symptom("EXECUTE_TIMED_OUT"), symptom("OUT_OF_MEMORY"))),
    "TIMEOUT with symptoms": node(health="TIMEOUT", symptoms=(symptom("LOW_MEMORY"),)),
    "a slice": node(health="TIMEOUT", **QUEUED),
    "a spot node": node(health="TIMEOUT", spot=True),
}
FALSE = ("READY and HEALTHY", "READY and TIMEOUT", "READY and UNHEALTHY_TENSORFLOW", "TIMEOUT with symptoms", "a slice")


def with_cloud(scene: Evidence, cloud: CloudNode) -> Evidence:
    """The scene with this word of the cloud."""
    changed = replace(scene, cloud=answered(cloud))
    if cloud.state == "PREEMPTED":  # the metadata server repeats it
        changed = replace(changed, notices=answered(Notices(preempted=True)), identity=SPOT)
    return changed


def decided(judgement: Judgement, cloud: CloudNode | None, *, is_own: bool) -> RestartDecision:
    """What the policy makes of it, everything else allowing it."""
    seen = Confirmation(judgement.verdict, judgement.action, NOW - HOUR, judgement.at, 100, judgement.at)
    return decide(situation(judgement, confirmation=seen, cloud=cloud, own=is_own), ALL_ON)


def is_calm(judgement: Judgement, cloud: CloudNode) -> bool:
    """Whether nothing that ends anything is called for, or done."""
    if judgement.action in DESTRUCTIVE:
        return False
    # The policy by itself does not do it either, were the judge to call for it.
    for action in DESTRUCTIVE:
        wanted = replace(judgement, action=action)
        if any(decided(wanted, cloud, is_own=is_own).act is not None for is_own in (True, False)):
            return False
    return True


def as_peer(evidence: Evidence) -> Answer[Peer]:
    """What a watcher hears of this machine's own tpuwatch: by its JSON document, as it is sent."""
    judged = JudgedNode("trainer", "acme", "us-central2-b", True, judge_node(evidence, LIMITS), evidence.cloud.value)
    known = {"project": "acme", "zone": "us-central2-b", "node": "trainer"}
    identity = Identity(**{name: Known(value, "metadata") for name, value in known.items()})
    document: dict[str, Any] = {
        "now_epoch": NOW,
        "identity": encode(identity),
        "node": encode(NodeDocument.of(judged)),
        "signals": [],
    }
    return answered(Peer(NOW - 5, read_reply(document, "http://trainer").verdict))


def check_alone(name: str, words: Iterable[str]) -> None:
    """With each of these words of the cloud, the forgery ends nothing in any scene. The proof has them all."""
    for (scene, evidence), word in itertools.product(SCENES.items(), words):
        judgement = judge_node(FORGERIES[name](with_cloud(evidence, CLOUDS[word])), LIMITS)
        assert is_calm(judgement, CLOUDS[word]), (scene, word, judgement)


def check_by_peer(name: str, words: Iterable[str]) -> None:
    """The same where another node reports it."""
    for (scene, evidence), word in itertools.product(SCENES.items(), words):
        inside = FORGERIES[name](with_cloud(evidence, CLOUDS[word]))
        judgement = judge_node(elsewhere(CLOUDS[word], peer=as_peer(inside)), LIMITS)
        assert is_calm(judgement, CLOUDS[word]), (scene, word, judgement)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_ends_nothing_whatever_the_cloud_says(name: str) -> None:
    check_alone(name, FALSE)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_ends_nothing_by_way_of_a_peer(name: str) -> None:
    check_by_peer(name, FALSE[1:3])


def test_all_forgeries_at_once_end_nothing() -> None:
    for evidence, cloud in itertools.product(SCENES.values(), CLOUDS.values()):
        forged = with_cloud(evidence, cloud)
        for forge in FORGERIES.values():
            forged = forge(forged)
        assert is_calm(judge_node(forged, LIMITS), cloud)


DEAD = node(health="TIMEOUT")
BLOCKED = host(holder(0.0, blocked_seconds=20 * MINUTE))
TRUE_FAULTS: dict[str, tuple[Evidence, Action]] = {
    "the cloud, and a call that the kernel has blocked": (own(cloud=DEAD, host=BLOCKED), Action.RESTART_NODE),
    "the cloud, and the holder's runtime that hangs": (job(hung(20 * MINUTE), 0.0, cloud=DEAD), Action.RESTART_NODE),
    "the same, beside a lock of another user": (
        job(
            hung(20 * MINUTE),
            0.0,
            cloud=DEAD,
            host=host(holder(0.0), holder(0.0, pid=1, user="bob", devices=(), locks=True)),
        ),
        Action.RESTART_NODE,
    ),
    "the same on a slice": (
        job(hung(20 * MINUTE), 0.0, cloud=node(health="TIMEOUT", **QUEUED)),
        Action.RESET_QUEUED_RESOURCE,
    ),
    "the cloud on the ML stack, and the runtime that hangs": (
        job(hung(20 * MINUTE), 0.0, cloud=node(health="UNHEALTHY_TENSORFLOW")),
        Action.RESTART_RUNTIME,
    ),
    "the runtime that hangs, and the kernel on its program": (job(hung(20 * MINUTE), 0.0), Action.RESTART_RUNTIME),
    "a symptom, and the runtime that hangs": (
        job(hung(20 * MINUTE), None, cloud=node(symptoms=(symptom("EXECUTE_TIMED_OUT"),))),
        Action.RESTART_RUNTIME,
    ),
    "programs that wait, and the kernel on theirs": (job(idle(20 * MINUTE, queue=2), 0.0), Action.END_HOLDER),
    "a symptom, and programs that wait": (
        job(idle(20 * MINUTE, queue=2), None, cloud=node(symptoms=(symptom("EXECUTE_TIMED_OUT"),))),
        Action.END_HOLDER,
    ),
    "a symptom, and a call that the kernel has blocked": (
        job(idle(20 * MINUTE), 0.0, host=BLOCKED, cloud=node(symptoms=(symptom("EXECUTE_TIMED_OUT"),)), logs=logs()),
        Action.END_HOLDER,
    ),
    "a runtime of root, without the right to see what it holds": (
        job(hung(20 * MINUTE), 0.0, cloud=DEAD, host=host(holder(0.0, devices=(), locks=True, trusted=True))),
        Action.RESTART_NODE,
    ),
    "the cloud, and a machine that has fallen silent": (elsewhere(DEAD, peer=fell_silent()), Action.RESTART_NODE),
    "the cloud, and a peer by its kernel": (
        elsewhere(DEAD, peer=as_peer(own(cloud=DEAD, host=BLOCKED))),
        Action.RESTART_NODE,
    ),
    "the cloud, and a peer by its runtime": (
        elsewhere(DEAD, peer=as_peer(job(hung(20 * MINUTE), 0.0, cloud=DEAD))),
        Action.RESTART_NODE,
    ),
}


@pytest.mark.parametrize("name", TRUE_FAULTS)
def test_a_true_fault_is_acted_on(name: str) -> None:
    evidence, action = TRUE_FAULTS[name]
    judgement = judge_node(evidence, LIMITS)
    assert judgement.action is action, judgement
    local = action in (Action.END_HOLDER, Action.RESTART_RUNTIME)
    assert decided(judgement, evidence.cloud.value, is_own=local).act is action


def test_heartbeats_of_another_process_do_not_save_a_program_that_is_stuck() -> None:
    forge = FORGERIES["heartbeats of his own"]
    for name, (evidence, action) in TRUE_FAULTS.items():
        assert judge_node(forge(evidence), LIMITS).action is action, name


def test_steps_that_go_on_hold_an_act_back() -> None:
    forge = FORGERIES["steps that go on in another's output"]
    for name, (evidence, _) in TRUE_FAULTS.items():
        if evidence.own:
            judgement = judge_node(forge(evidence), LIMITS)
            assert judgement.action not in DESTRUCTIVE, name
            assert any("its steps go on" in sentence for sentence in judgement.missing), name


def two_of_the_trial() -> Iterator[tuple[str, Evidence]]:
    """The four forgeries that each led to a restart, with a false TIMEOUT."""
    yield "a log line", FORGERIES["node_unhealthy of nobody, 2 min ago"](own(cloud=DEAD))
    yield "a lock", FORGERIES["a lock"](own(cloud=DEAD))
    yield "a mute port", FORGERIES["a mute listener"](own(cloud=DEAD))
    yield "an idle notebook", own(cloud=DEAD, runtime=idle(2 * HOUR), host=NOTEBOOK)


def test_the_forgeries_that_led_to_restarts_rest_on_the_cloud_alone() -> None:
    for name, evidence in two_of_the_trial():
        assert judge_node(evidence, LIMITS).sources <= {Source.CLOUD, Source.TEXT, Source.PROCESS}, name
        watched = judge_node(elsewhere(DEAD, peer=as_peer(evidence)), LIMITS)
        assert watched.action is Action.MANUAL, name
