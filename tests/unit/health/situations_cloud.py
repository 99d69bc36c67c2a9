"""Situations that the cloud decides: nodes on their way up, down or away, maintenance, cloud against machine."""

from __future__ import annotations

from tests.unit.health.scenes import (
    ABSENT,
    DAY,
    HOUR,
    MINUTE,
    NOT_READ,
    NOW,
    SPOT,
    WAITING,
    Situation,
    elsewhere,
    event,
    holder,
    host,
    hung,
    identity,
    idle,
    job,
    logs,
    node,
    own,
    queued,
    silent,
    symptom,
    training,
)
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.signals import CloudNode, Maintenance, Monitoring, Notices

PREEMPTED = Notices(preempted=True)
SICK = Monitoring(infra_healthy=False, infra_at=NOW - 3 * MINUTE)
BUILD = "--accelerator-type=v5litepod-4 --version=v2-alpha-tpuv5-lite"


def lost(last: CloudNode, problem: Problem, age: float = 40.0) -> Answer[CloudNode]:
    """The cloud's answer of so long ago; the attempts since then failed."""
    return Answer(last, NOW - age, problem, "", NOW - 5)


SOON = Maintenance("SCHEDULED", "PENDING", NOW + 20 * MINUTE, NOW + 3 * HOUR)
LATER = Maintenance("SCHEDULED", "PENDING", NOW + 60 * HOUR, NOW + 63 * HOUR)

LOST_OF_QUEUE = silent(Problem.GONE, last=node(queued_resource="q-1"))

SITUATIONS = (
    # Watched from elsewhere: the cloud's word alone.
    Situation("elsewhere: ready and healthy", elsewhere(node()), "healthy none medium cloud"),
    Situation(
        "elsewhere: ready and healthy without any network endpoint",
        elsewhere(node(lacks_endpoints=True)),
        "unknown manual low cloud",
        missing=("no network endpoint",),
        remedy=("tpu-vm describe trainer",),
    ),
    Situation(
        "without any network endpoint, and it trains",
        training(cloud=node(lacks_endpoints=True)),
        "healthy none",
        missing=("no network endpoint",),
    ),
    Situation(
        "elsewhere: missing health is not bad",
        elsewhere(node(health="")),
        "healthy none low cloud",
        missing=("nothing about the node's health",),
    ),
    Situation(
        "elsewhere: timeout for a minute only", elsewhere(node(health="TIMEOUT", held=MINUTE)), "unknown wait low"
    ),
    Situation(
        "elsewhere: timeout for ten minutes, no signal confirms",
        elsewhere(node(health="TIMEOUT", held=10 * MINUTE)),
        "node_stuck manual medium cloud",
        words=("10 min",),
        remedy=("tpuwatch restart us-central2-b/trainer --project=acme",),
    ),
    Situation(
        "elsewhere: timeout, and it is not known since when",
        elsewhere(node(health="TIMEOUT", held=NOW)),
        "unknown wait",
    ),
    Situation(
        "elsewhere: timeout, and monitoring confirms",
        elsewhere(node(health="TIMEOUT", held=10 * MINUTE), SICK),
        "node_stuck manual medium cloud",
    ),
    Situation(
        "elsewhere: monitoring's sample is too old to confirm",
        elsewhere(
            node(health="TIMEOUT", held=10 * MINUTE), Monitoring(infra_healthy=False, infra_at=NOW - 20 * MINUTE)
        ),
        "node_stuck manual",
    ),
    Situation(
        "elsewhere: monitoring alone against a healthy node",
        elsewhere(node(), SICK),
        "healthy none low",
        contradictions=("Cloud Monitoring reports that the infrastructure is unhealthy",),
    ),
    Situation(
        "elsewhere: idle by monitoring",
        elsewhere(node(), Monitoring(idle_seconds=2 * HOUR, idle_at=NOW - 4 * MINUTE)),
        "idle none medium",
    ),
    Situation(
        "elsewhere: a slice of several hosts with a queued resource",
        elsewhere(node(health="TIMEOUT", hosts=4, queued_resource="q-1"), SICK),
        "node_stuck manual medium",
        remedy=("reset its queued resource `q-1`, from another machine: `tpuwatch restart us-central2-b/trainer",),
    ),
    Situation(
        "elsewhere: a symptom under READY and HEALTHY",
        elsewhere(node(symptoms=(symptom("OUT_OF_MEMORY"),))),
        "healthy fix_program low",
        contradictions=("names the symptom OUT_OF_MEMORY",),
        words=("OUT_OF_MEMORY",),
    ),
    Situation(
        "elsewhere: a symptom of last week",
        elsewhere(node(symptoms=(symptom("OUT_OF_MEMORY", 7 * 24 * HOUR),))),
        "healthy none medium",
    ),
    Situation(
        "elsewhere: a mesh that could not be built",
        elsewhere(node(symptoms=(symptom("MESH_BUILD_FAIL"),))),
        "healthy manual",
        contradictions=("MESH_BUILD_FAIL",),
    ),
    Situation(
        "elsewhere: suspected abuse",
        elsewhere(node(symptoms=(symptom("PROJECT_ABUSE"),))),
        "healthy manual",
        contradictions=("PROJECT_ABUSE",),
    ),
    Situation(
        "elsewhere: a state that is new", elsewhere(node("STATE_17")), "unknown manual low", missing=("STATE_17",)
    ),
    Situation(
        "elsewhere: a health that is new", elsewhere(node(health="HEALTH_9")), "unknown manual", missing=("HEALTH_9",)
    ),
    Situation("elsewhere: hidden", elsewhere(node("HIDDEN")), "unknown manual", missing=("HIDDEN",)),
    # On the way up, down, or away.
    Situation("being created", elsewhere(node("CREATING", "", held=4 * MINUTE)), "starting wait high"),
    Situation(
        "restarting, however bad its health",
        elsewhere(node("RESTARTING", "TIMEOUT", held=10 * MINUTE), SICK),
        "starting wait",
    ),
    Situation(
        "starting for two hours",
        elsewhere(node("STARTING", "", held=2 * HOUR)),
        "starting manual medium",
        words=("2 h",),
    ),
    Situation(
        "stopped by a user",
        elsewhere(node("STOPPED", "")),
        "stopped manual high",
        remedy=("start it; that is tried until there is capacity: `tpuwatch restart us-central2-b/trainer",),
    ),
    Situation(
        "stopped, and spot",
        elsewhere(node("STOPPED", "", spot=True)),
        "stopped manual",
        remedy=("tpu-vm delete trainer", f"{BUILD} --spot"),
    ),
    Situation("being stopped", elsewhere(node("STOPPING", "")), "stopped wait"),
    Situation(
        "being stopped while programs run",
        training(cloud=node("STOPPING", "")),
        "stopped checkpoint medium",
        contradictions=("The API says STOPPING, and programs run",),
    ),
    Situation("being deleted", elsewhere(node("DELETING", "")), "gone manual"),
    Situation(
        "vanished after it was seen",
        elsewhere(silent(Problem.GONE, last=node())),
        "gone manual high cloud",
        remedy=(f"tpu-vm create trainer --zone=us-central2-b --project=acme {BUILD}",),
    ),
    *(
        Situation(
            f"vanished, and its queued resource is {state}",
            elsewhere(LOST_OF_QUEUE, queued=queued(state)),
            "gone wait high cloud",
            words=(f"q-1 is {state}",),
            remedy=("queued-resources describe q-1",),
            unwanted=("delete", "create"),
        )
        for state in WAITING
    ),
    *(
        Situation(
            f"vanished, and its queued resource is {state}",
            elsewhere(LOST_OF_QUEUE, queued=queued(state)),
            "gone manual high cloud",
            words=(f"q-1 is {state}",),
            remedy=(
                "queued-resources describe q-1",
                "queued-resources delete q-1 --force",
                "queued-resources create q-1 --node-id=trainer",
            ),
        )
        for state in ("FAILED", "SUSPENDED")
    ),
    *(
        Situation(
            f"vanished, and its queued resource is {state}",
            elsewhere(LOST_OF_QUEUE, queued=queued(state)),
            "gone manual high cloud",
            words=(f"q-1 is {state}",),
            remedy=("queued-resources describe q-1",),
            unwanted=("delete", "create"),
        )
        for state in ("ACTIVE", "SUSPENDING", "DELETING", "STATE_17")
    ),
    *(
        Situation(
            f"vanished, and its queued resource {name}",
            elsewhere(LOST_OF_QUEUE, queued=answer),
            "gone manual high cloud",
            words=("q-1 is not known",),
            remedy=("queued-resources describe q-1",),
            unwanted=("delete", "create"),
        )
        for name, answer in (
            ("was not read", NOT_READ),
            ("cannot be read", silent(Problem.DENIED)),
            ("was suspended when it was read an hour ago", queued("SUSPENDED", HOUR, problem=Problem.SERVER)),
        )
    ),
    Situation(
        "vanished with its queued resource",
        elsewhere(LOST_OF_QUEUE, queued=queued()),
        "gone manual high cloud",
        remedy=("queued-resources create q-1 --node-id=trainer",),
        unwanted=("delete",),
    ),
    Situation(
        "vanished, and a new queued resource makes it",
        elsewhere(silent(Problem.GONE, last=node()), queued=queued("PROVISIONING")),
        "gone wait high cloud",
        remedy=("queued-resources describe q-1",),
        unwanted=("delete", "create"),
    ),
    Situation(
        "vanished by the API while programs run here",
        training(cloud=silent(Problem.GONE, last=node())),
        "gone checkpoint low",
        contradictions=("tpuwatch runs on it",),
    ),
    Situation(
        "a spot node that was preempted, by the cloud's word",
        elsewhere(node("PREEMPTED", "", spot=True)),
        "preempted manual high",
        missing=("No second source",),
        remedy=("tpu-vm delete trainer", f"{BUILD} --spot"),
    ),
    Situation(
        "a spot node that was preempted, by the cloud's and the metadata server's word",
        own(cloud=node("PREEMPTED", "", spot=True), notices=PREEMPTED, identity=SPOT),
        "preempted manual high cloud",
        contradictions=("The API says PREEMPTED, and this machine is up",),
    ),
    Situation(
        "preempted, of a queued resource",
        own(cloud=node("PREEMPTED", "", spot=True, queued_resource="q-1"), notices=PREEMPTED, identity=SPOT),
        "preempted manual",
        contradictions=("this machine is up",),
        remedy=("queued-resources delete q-1 --force", "queued-resources create q-1 --node-id=trainer"),
    ),
    Situation(
        "preempted by the API while programs run",
        training(cloud=node("PREEMPTED", "", spot=True), identity=SPOT),
        "preempted checkpoint medium",
        contradictions=("The API says PREEMPTED, and programs run",),
    ),
    Situation(
        "a notice of preemption, seconds ahead",
        training(notices=PREEMPTED, identity=SPOT, cloud=node(spot=True)),
        "preempted checkpoint medium metadata",
        contradictions=("the metadata server reports that the node is being preempted",),
    ),
    Situation(
        "terminated by the service",
        elsewhere(node("TERMINATED", "")),
        "preempted manual",
        remedy=("tpu-vm delete trainer",),
    ),
    # A poll that failed, after one that did not.
    Situation(
        "elsewhere: well, and the next poll failed",
        elsewhere(lost(node(), Problem.SERVER)),
        "healthy none medium",
        missing=("an error on its side",),
    ),
    Situation(
        "elsewhere: well, and the next poll was denied",
        elsewhere(lost(node(), Problem.DENIED)),
        "healthy none",
        missing=("a permission is missing",),
        remedy=("roles/tpu.viewer",),
    ),
    Situation(
        "elsewhere: well three polls ago, and all since were denied",
        elsewhere(lost(node(), Problem.DENIED, age=91.0)),
        "unknown none",
    ),
    Situation(
        "elsewhere: well three polls ago, and none since was answered",
        elsewhere(lost(node(), Problem.TIMEOUT, age=91.0)),
        "unknown wait",
    ),
    Situation(
        "elsewhere: stuck by a poll of just now, and the next failed",
        elsewhere(lost(node(health="TIMEOUT"), Problem.SERVER)),
        "unknown wait",
    ),
    Situation(
        "elsewhere: ready with a symptom by a poll of just now, and the next failed",
        elsewhere(lost(node(symptoms=(symptom("LOW_MEMORY"),)), Problem.SERVER)),
        "unknown wait",
    ),
    Situation(
        "elsewhere: preempted by a poll of just now, and the next failed",
        elsewhere(lost(node("PREEMPTED", ""), Problem.UNREACHABLE)),
        "unknown wait",
    ),
    Situation(
        "elsewhere: well by the last good poll, and gone by the next",
        elsewhere(lost(node(), Problem.GONE)),
        "gone manual",
    ),
    # Maintenance.
    Situation(
        "maintenance mark while training still steps",
        training(cloud=node(health="UNHEALTHY_MAINTENANCE")),
        "maintenance checkpoint medium cloud",
        contradictions=("The API says READY and UNHEALTHY_MAINTENANCE, and programs run",),
    ),
    Situation(
        "maintenance mark before a preemption: nothing of the program is known",
        elsewhere(node(health="UNHEALTHY_MAINTENANCE", held=10, spot=True)),
        "maintenance checkpoint high cloud",
    ),
    Situation("maintenance mark on a free node", own(cloud=node(health="UNHEALTHY_MAINTENANCE")), "maintenance wait"),
    Situation(
        "maintenance mark on a stuck program",
        job(idle(20 * MINUTE), 0.0, cloud=node(health="UNHEALTHY_MAINTENANCE")),
        "maintenance checkpoint",
    ),
    Situation("repairing", elsewhere(node("REPAIRING", "")), "maintenance wait high"),
    Situation(
        "the metadata server ends the machine for maintenance",
        training(notices=Notices("TERMINATE_ON_HOST_MAINTENANCE")),
        "maintenance checkpoint medium metadata",
    ),
    Situation(
        "a maintenance in 20 minutes, by Kubernetes",
        training(kubernetes=Notices(maintenance=SOON)),
        "maintenance checkpoint medium kubernetes",
        words=("begins in 20 min",),
    ),
    Situation(
        "Kubernetes is about to terminate the node",
        training(kubernetes=Notices(terminating=True)),
        "maintenance checkpoint medium kubernetes",
        words=("about to be terminated",),
    ),
    Situation(
        "Kubernetes calls the node ill, and it trains",
        training(kubernetes=Notices(conditions=("Ready is False (KubeletNotReady)",))),
        "healthy none",
        contradictions=("Ready is False (KubeletNotReady)",),
    ),
    Situation(
        "Kubernetes calls the node ill, and nothing runs",
        own(kubernetes=Notices(conditions=("Ready is False", "DiskPressure is True", "0 of 4 TPUs are allocatable"))),
        "idle manual low",
        words=("Ready is False, DiskPressure is True and 0 of 4 TPUs are allocatable",),
        contradictions=("Ready is False", "DiskPressure", "0 of 4 TPUs are allocatable"),
    ),
    Situation(
        "Kubernetes does not answer, and once announced the end",
        training(kubernetes=silent(Problem.DENIED, last=Notices(terminating=True))),
        "healthy none",
        missing=("API of Kubernetes refuses",),
    ),
    Situation(
        "a maintenance in 20 minutes, by two signals",
        training(cloud=node(maintenance=SOON), notices=Notices(maintenance=SOON)),
        "maintenance checkpoint high cloud",
        words=("begins in 20 min",),
    ),
    Situation(
        "a maintenance that is under way, without a word on since when",
        training(notices=Notices(maintenance=Maintenance("UNSCHEDULED", "ONGOING", None, None))),
        "maintenance checkpoint medium metadata",
        words=("(unscheduled) is ongoing",),
    ),
    Situation(
        "a maintenance whose window is over",
        training(cloud=node(maintenance=Maintenance("SCHEDULED", "PENDING", NOW - DAY, NOW - HOUR))),
        "healthy none",
    ),
    Situation(
        "a maintenance in days",
        training(cloud=node(maintenance=LATER), notices=Notices(maintenance=LATER)),
        "healthy none high",
    ),
    Situation(
        "a maintenance that is reported as ongoing, hours after its window",
        training(cloud=node(maintenance=Maintenance("SCHEDULED", "ONGOING", NOW - DAY, NOW - 2 * HOUR))),
        "healthy none high",
    ),
    Situation(
        "a maintenance that takes a little longer than its window",
        training(cloud=node(maintenance=Maintenance("SCHEDULED", "ONGOING", NOW - 2 * HOUR, NOW - 10 * MINUTE))),
        "maintenance checkpoint",
    ),
    Situation(
        "a maintenance without an end that goes on for a day",
        training(notices=Notices(maintenance=Maintenance("UNSCHEDULED", "ONGOING", NOW - DAY, None))),
        "maintenance manual",
        words=("under maintenance for 24 h",),
        remedy=("tpu-vm describe", "write a checkpoint"),
    ),
    Situation(
        "a maintenance mark for five hours",
        elsewhere(node(health="UNHEALTHY_MAINTENANCE", held=5 * HOUR)),
        "maintenance manual",
        words=("for 5 h, longer than it should",),
    ),
    Situation(
        "repairing for five hours",
        elsewhere(node("REPAIRING", "", held=5 * HOUR)),
        "maintenance manual medium",
        words=("repairing the node for 5 h",),
        remedy=("tpu-vm describe",),
    ),
    # The cloud against the machine.
    Situation(
        "timeout by the API, and the runtime trains",
        training(cloud=node(health="TIMEOUT")),
        "healthy wait low runtime",
        contradictions=("The API says READY and TIMEOUT, and programs run on the chips",),
    ),
    Situation(
        "timeout by the API, and the program compiles",
        job(idle(20 * MINUTE), 5.0, cloud=node(health="TIMEOUT")),
        "compiling wait",
        contradictions=("The API says READY and TIMEOUT, and the program works",),
    ),
    Situation(
        "timeout by the API on a free node that tpuwatch runs on",
        own(cloud=node(health="TIMEOUT")),
        "node_stuck manual low cloud",
        contradictions=("calls the node unresponsive (TIMEOUT), and tpuwatch runs on it",),
    ),
    Situation(
        "timeout by the API and a hung runtime",
        job(hung(20 * MINUTE), 0.0, cloud=node(health="TIMEOUT")),
        "node_stuck restart_node high cloud",
        contradictions=("unresponsive",),
        remedy=("tpuwatch restart us-central2-b/trainer",),
    ),
    Situation(
        "timeout by the API, and a call on the device that is blocked in the kernel",
        own(cloud=node(health="TIMEOUT"), host=host(holder(0.0, blocked_seconds=20 * MINUTE))),
        "node_stuck restart_node high cloud",
        contradictions=("unresponsive",),
        words=("blocked in the kernel for 20 min",),
    ),
    Situation(
        "the ML stack unhealthy by the API, and a hung runtime",
        job(hung(20 * MINUTE), 0.0, cloud=node(health="UNHEALTHY_TENSORFLOW")),
        "runtime_stuck restart_runtime high cloud",
    ),
    Situation(
        "the same on several hosts with a queued resource",
        job(hung(20 * MINUTE), 0.0, cloud=node(health="TIMEOUT", hosts=4, queued_resource="q-1")),
        "node_stuck reset_queued_resource high",
        contradictions=("unresponsive", "4 hosts, this machine knows of 1"),
    ),
    Situation(
        "the same on several hosts without a queued resource",
        job(hung(20 * MINUTE), 0.0, cloud=node(health="TIMEOUT", hosts=4), identity=identity(hosts="4")),
        "node_stuck manual",
        contradictions=("unresponsive",),
        remedy=("tpu-vm delete trainer", "tpu-vm create trainer"),
    ),
    Situation(
        "only the machine knows that it is one of several hosts",
        job(hung(20 * MINUTE), 0.0, cloud=node(health="TIMEOUT"), identity=identity(hosts="2")),
        "node_stuck manual",
        contradictions=("unresponsive", "1 hosts, this machine knows of 2"),
    ),
    Situation(
        "the same on a spot node",
        job(hung(20 * MINUTE), 0.0, cloud=node(health="TIMEOUT", spot=True), identity=SPOT),
        "node_stuck recreate",
        contradictions=("unresponsive",),
    ),
    Situation(
        "the same without a word from the metadata server",
        job(hung(20 * MINUTE), 0.0, cloud=node(health="TIMEOUT"), notices=silent(Problem.TIMEOUT)),
        "node_stuck manual",
        contradictions=("unresponsive",),
        missing=("The metadata server did not answer", "without an answer from the metadata server"),
    ),
    Situation(
        "timeout by the API and a fault of the device in the logs",
        own(cloud=node(health="TIMEOUT"), logs=logs(event(Cause.DRIVER_ERROR))),
        "node_stuck manual low",
        contradictions=("unresponsive",),
    ),
    Situation(
        "the same fault in the logs of before this boot",
        own(
            cloud=node(health="TIMEOUT"),
            host=host(booted=20 * MINUTE),
            logs=logs(event(Cause.DRIVER_ERROR, 30 * MINUTE)),
        ),
        "node_stuck manual",
        contradictions=("unresponsive",),
    ),
    Situation(
        "the ML stack unhealthy by the API, and chips idle under a live program",
        job(idle(20 * MINUTE), 0.0, cloud=node(health="UNHEALTHY_TENSORFLOW")),
        "node_stuck manual low cloud",
    ),
    Situation(
        "the ML stack unhealthy by the API alone",
        elsewhere(node(health="UNHEALTHY_TENSORFLOW")),
        "node_stuck manual medium",
    ),
    Situation(
        "unknown after a failed repair",
        elsewhere(node("UNKNOWN", "")),
        "node_stuck manual medium",
        remedy=("A repair has failed",),
    ),
    Situation(
        "unknown after a failed repair, and confirmed: there is nothing that may be stopped",
        job(hung(20 * MINUTE), 0.0, cloud=node("UNKNOWN", "")),
        "node_stuck manual high",
    ),
    Situation(
        "unknown after a failed repair, and programs run",
        training(cloud=node("UNKNOWN", "")),
        "healthy checkpoint low",
        contradictions=("The API says UNKNOWN, and programs run",),
    ),
    Situation(
        "timeout by the API within the grace of a boot",
        own(cloud=node(health="TIMEOUT", held=4 * MINUTE), host=host(booted=4 * MINUTE)),
        "starting wait host",
        contradictions=("unresponsive",),
    ),
    Situation(
        "a new health while training",
        training(cloud=node(health="HEALTH_9")),
        "healthy none medium",
        missing=("HEALTH_9",),
    ),
    Situation(
        "creating by the API while programs run",
        training(cloud=node("CREATING", "")),
        "healthy none",
        contradictions=("The API says CREATING, and programs run",),
    ),
    Situation(
        "a holder that rests confirms a timeout where no metrics are served",
        own(cloud=node(health="TIMEOUT"), runtime=ABSENT, host=host(holder(0.0))),
        "node_stuck manual low",
        contradictions=("unresponsive",),
    ),
)
