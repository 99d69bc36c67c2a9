"""Situations that the cloud alone reports: nodes watched from elsewhere, on their way up, down or away."""

from __future__ import annotations

from tests.unit.health.scenes import (
    HOUR,
    MINUTE,
    NOW,
    SPOT,
    Situation,
    answered,
    elsewhere,
    node,
    own,
    silent,
    symptom,
    training,
)
from tpuwatch.model.signals import Answer, CloudNode, Monitoring, Notices, Problem, Signal
from tpuwatch.model.verdict import Action, Confidence, Verdict

PREEMPTED = answered(Notices(preempted=True))
SICK = Monitoring(infra_healthy=False, infra_at=NOW - 3 * MINUTE)
BUILD = "--accelerator-type=v5litepod-4 --version=v2-alpha-tpuv5-lite"


def lost(last: CloudNode, problem: Problem, age: float = 40.0) -> Answer[CloudNode]:
    """The cloud's answer of so long ago; the attempts since then failed."""
    return Answer(last, NOW - age, problem, "", NOW - 5)


SITUATIONS = (
    # Watched from elsewhere: the cloud's word alone.
    Situation(
        "elsewhere: ready and healthy",
        elsewhere(answered(node())),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        Signal.CLOUD,
    ),
    Situation(
        "elsewhere: missing health is not bad",
        elsewhere(answered(node(health=""))),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.LOW,
        Signal.CLOUD,
        missing=("nothing about the node's health",),
    ),
    Situation(
        "elsewhere: timeout for a minute only",
        elsewhere(answered(node(health="TIMEOUT", held=MINUTE))),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
    ),
    Situation(
        "elsewhere: timeout for ten minutes, no signal confirms",
        elsewhere(answered(node(health="TIMEOUT", held=10 * MINUTE))),
        Verdict.NODE_STUCK,
        Action.MANUAL,
        Confidence.MEDIUM,
        Signal.CLOUD,
        words=("10 min",),
        remedy=("tpu-vm stop trainer --zone=us-central2-b --project=acme",),
    ),
    Situation(
        "elsewhere: timeout, and it is not known since when",
        elsewhere(answered(node(health="TIMEOUT", held=NOW))),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "elsewhere: timeout, and monitoring confirms",
        elsewhere(answered(node(health="TIMEOUT", held=10 * MINUTE)), answered(SICK, 30)),
        Verdict.NODE_STUCK,
        Action.RESTART_NODE,
        Confidence.HIGH,
        Signal.CLOUD,
    ),
    Situation(
        "elsewhere: monitoring's sample is too old to confirm",
        elsewhere(
            answered(node(health="TIMEOUT", held=10 * MINUTE)),
            answered(Monitoring(infra_healthy=False, infra_at=NOW - 20 * MINUTE), 30),
        ),
        Verdict.NODE_STUCK,
        Action.MANUAL,
    ),
    Situation(
        "elsewhere: monitoring alone against a healthy node",
        elsewhere(answered(node()), answered(SICK, 30)),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.LOW,
        contradictions=("Cloud Monitoring reports that the infrastructure is unhealthy",),
    ),
    Situation(
        "elsewhere: idle by monitoring",
        elsewhere(answered(node()), answered(Monitoring(idle_seconds=2 * HOUR, idle_at=NOW - 4 * MINUTE), 30)),
        Verdict.IDLE,
        Action.NONE,
        Confidence.MEDIUM,
    ),
    Situation(
        "elsewhere: a slice of several hosts with a queued resource",
        elsewhere(answered(node(health="TIMEOUT", hosts=4, queued_resource="q-1")), answered(SICK, 30)),
        Verdict.NODE_STUCK,
        Action.RESET_QUEUED_RESOURCE,
        remedy=("queued-resources reset q-1 --zone=us-central2-b --project=acme",),
    ),
    Situation(
        "elsewhere: a symptom under READY and HEALTHY",
        elsewhere(answered(node(symptoms=(symptom("OUT_OF_MEMORY"),)))),
        Verdict.HEALTHY,
        Action.FIX_PROGRAM,
        Confidence.LOW,
        contradictions=("names the symptom OUT_OF_MEMORY",),
        words=("OUT_OF_MEMORY",),
    ),
    Situation(
        "elsewhere: a symptom of last week",
        elsewhere(answered(node(symptoms=(symptom("OUT_OF_MEMORY", 7 * 24 * HOUR),)))),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
    ),
    Situation(
        "elsewhere: a mesh that could not be built",
        elsewhere(answered(node(symptoms=(symptom("MESH_BUILD_FAIL"),)))),
        Verdict.HEALTHY,
        Action.MANUAL,
        contradictions=("MESH_BUILD_FAIL",),
    ),
    Situation(
        "elsewhere: suspected abuse",
        elsewhere(answered(node(symptoms=(symptom("PROJECT_ABUSE"),)))),
        Verdict.HEALTHY,
        Action.MANUAL,
        contradictions=("PROJECT_ABUSE",),
    ),
    Situation(
        "elsewhere: a state that is new",
        elsewhere(answered(node("STATE_17"))),
        Verdict.UNKNOWN,
        Action.MANUAL,
        Confidence.LOW,
        missing=("STATE_17",),
    ),
    Situation(
        "elsewhere: a health that is new",
        elsewhere(answered(node(health="HEALTH_9"))),
        Verdict.UNKNOWN,
        Action.MANUAL,
        missing=("HEALTH_9",),
    ),
    Situation(
        "elsewhere: hidden", elsewhere(answered(node("HIDDEN"))), Verdict.UNKNOWN, Action.MANUAL, missing=("HIDDEN",)
    ),
    # On the way up, down, or away.
    Situation(
        "being created",
        elsewhere(answered(node("CREATING", "", held=4 * MINUTE))),
        Verdict.STARTING,
        Action.WAIT,
        Confidence.HIGH,
    ),
    Situation(
        "restarting, however bad its health",
        elsewhere(answered(node("RESTARTING", "TIMEOUT", held=10 * MINUTE)), answered(SICK, 30)),
        Verdict.STARTING,
        Action.WAIT,
    ),
    Situation(
        "starting for two hours",
        elsewhere(answered(node("STARTING", "", held=2 * HOUR))),
        Verdict.STARTING,
        Action.MANUAL,
        Confidence.MEDIUM,
        words=("2 h",),
    ),
    Situation(
        "stopped by a user",
        elsewhere(answered(node("STOPPED", ""))),
        Verdict.STOPPED,
        Action.MANUAL,
        Confidence.HIGH,
        remedy=("tpu-vm start trainer --zone=us-central2-b --project=acme",),
    ),
    Situation(
        "stopped, and spot",
        elsewhere(answered(node("STOPPED", "", spot=True))),
        Verdict.STOPPED,
        Action.MANUAL,
        remedy=("tpu-vm delete trainer", f"{BUILD} --spot"),
    ),
    Situation("being stopped", elsewhere(answered(node("STOPPING", ""))), Verdict.STOPPED, Action.WAIT),
    Situation(
        "being stopped while programs run",
        training(cloud=answered(node("STOPPING", ""))),
        Verdict.STOPPED,
        Action.CHECKPOINT,
        Confidence.MEDIUM,
        contradictions=("The API says STOPPING, and programs run",),
    ),
    Situation("being deleted", elsewhere(answered(node("DELETING", ""))), Verdict.GONE, Action.MANUAL),
    Situation(
        "vanished after it was seen",
        elsewhere(silent(Problem.GONE, last=node())),
        Verdict.GONE,
        Action.MANUAL,
        Confidence.HIGH,
        Signal.CLOUD,
        remedy=(f"tpu-vm create trainer --zone=us-central2-b --project=acme {BUILD}",),
    ),
    Situation(
        "vanished by the API while programs run here",
        training(cloud=silent(Problem.GONE, last=node())),
        Verdict.GONE,
        Action.CHECKPOINT,
        Confidence.LOW,
        contradictions=("tpuwatch runs on it",),
    ),
    Situation(
        "a spot node that was preempted, by the cloud's word",
        elsewhere(answered(node("PREEMPTED", "", spot=True))),
        Verdict.PREEMPTED,
        Action.MANUAL,
        Confidence.HIGH,
        missing=("No second signal",),
        remedy=("tpu-vm delete trainer", f"{BUILD} --spot"),
    ),
    Situation(
        "a spot node that was preempted, by the cloud's and the metadata server's word",
        own(cloud=answered(node("PREEMPTED", "", spot=True)), notices=PREEMPTED, identity=SPOT),
        Verdict.PREEMPTED,
        Action.RECREATE,
        Confidence.HIGH,
        Signal.CLOUD,
        contradictions=("The API says PREEMPTED, and this machine is up",),
    ),
    Situation(
        "preempted, of a queued resource",
        own(cloud=answered(node("PREEMPTED", "", spot=True, queued_resource="q-1")), notices=PREEMPTED, identity=SPOT),
        Verdict.PREEMPTED,
        Action.RECREATE,
        contradictions=("this machine is up",),
        remedy=("queued-resources delete q-1 --force", "queued-resources create q-1 --node-id=trainer"),
    ),
    Situation(
        "preempted by the API while programs run",
        training(cloud=answered(node("PREEMPTED", "", spot=True)), identity=SPOT),
        Verdict.PREEMPTED,
        Action.CHECKPOINT,
        Confidence.MEDIUM,
        contradictions=("The API says PREEMPTED, and programs run",),
    ),
    Situation(
        "a notice of preemption, seconds ahead",
        training(notices=PREEMPTED, identity=SPOT, cloud=answered(node(spot=True))),
        Verdict.PREEMPTED,
        Action.CHECKPOINT,
        Confidence.MEDIUM,
        Signal.METADATA,
        contradictions=("the metadata server reports that the node is being preempted",),
    ),
    Situation(
        "terminated by the service",
        elsewhere(answered(node("TERMINATED", ""))),
        Verdict.PREEMPTED,
        Action.MANUAL,
        remedy=("tpu-vm delete trainer",),
    ),
    # A poll that failed, after one that did not.
    Situation(
        "elsewhere: well, and the next poll failed",
        elsewhere(lost(node(), Problem.SERVER)),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        missing=("an error on its side",),
    ),
    Situation(
        "elsewhere: well, and the next poll was denied",
        elsewhere(lost(node(), Problem.DENIED)),
        Verdict.HEALTHY,
        Action.NONE,
        missing=("a permission is missing",),
        remedy=("roles/tpu.viewer",),
    ),
    Situation(
        "elsewhere: well three polls ago, and all since were denied",
        elsewhere(lost(node(), Problem.DENIED, age=91.0)),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
    ),
    Situation(
        "elsewhere: well three polls ago, and none since was answered",
        elsewhere(lost(node(), Problem.TIMEOUT, age=91.0)),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "elsewhere: stuck by a poll of just now, and the next failed",
        elsewhere(lost(node(health="TIMEOUT"), Problem.SERVER)),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "elsewhere: ready with a symptom by a poll of just now, and the next failed",
        elsewhere(lost(node(symptoms=(symptom("LOW_MEMORY"),)), Problem.SERVER)),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "elsewhere: preempted by a poll of just now, and the next failed",
        elsewhere(lost(node("PREEMPTED", ""), Problem.UNREACHABLE)),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "elsewhere: well by the last good poll, and gone by the next",
        elsewhere(lost(node(), Problem.GONE)),
        Verdict.GONE,
        Action.MANUAL,
    ),
)
