"""Situations in which a signal cannot be asked, does not answer, or gives a sparse answer."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.health.scenes import (
    ABSENT,
    GIB,
    HOUR,
    MINUTE,
    NOW,
    PID,
    Situation,
    answered,
    elsewhere,
    event,
    holder,
    host,
    hung,
    identity,
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
from tpuwatch.model.events import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import Answer, Chip, Evidence, Identity, Known, Problem, Runtime, RuntimePort, Signal
from tpuwatch.model.verdict import Action, Confidence, Verdict

NO_LOCAL_SIGNAL = {
    "runtime": silent(Problem.UNREACHABLE),
    "host": silent(Problem.INTERNAL),
    "logs": silent(Problem.INTERNAL),
    "notices": silent(Problem.UNREACHABLE),
}
LAPTOP = {"identity": Identity(), "notices": silent(Problem.ABSENT), "cloud": silent(Problem.UNCONFIGURED)}
NO_WORD = "The runtime answers, and does not report what the chips do"
ONE_STEPS = RuntimePort(8431, (Chip("0", 9 * GIB, 16 * GIB, 0.9, 0.1),))
ZEROS = answered(Runtime((RuntimePort(8431, tuple(Chip(str(number), 0, 0, 0.0, 0.0) for number in range(4)), 0),)))

HUNG = RuntimePort(8434, problem=Problem.TIMEOUT, since=NOW - 20 * MINUTE)


def four(*ages: float, logged: bool = True, queue: int = 0, last: RuntimePort | None = HUNG) -> Evidence:
    """Four programs of one user, a chip for each, that began so long ago and rest; the `last` has this port."""
    held = [holder(0.0, age, pid=PID + place) for place, age in enumerate(ages)]
    begun = [launch(age=age, pid=PID + place) for place, age in enumerate(ages)]
    ports = [RuntimePort(8431 + place, (Chip(str(place), GIB, 16 * GIB, 0.0, HOUR),)) for place in range(4)]
    ports[3] = last or replace(ports[3], hlo_queue=queue)
    return own(
        runtime=answered(Runtime(tuple(ports))),
        host=host(*held),
        logs=logs(*begun, alive=tuple(one.pid for one in begun)) if logged else logs(),
    )


APART = (9 * HOUR, 7 * HOUR, 5 * HOUR, 3 * HOUR)
WHICH = "It is not known which of the processes that hold the TPU is at fault"

SITUATIONS = (
    Situation(
        "a name that is not in the list since the start",
        elsewhere(silent(Problem.GONE, "There is no node trainer in us-central2-b.")),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
        Confidence.HIGH,
        Signal.CLOUD,
        words=("There is no node trainer",),
        remedy=("tpu-vm list --zone=us-central2-b --project=acme",),
    ),
    Situation(
        "a wrong zone",
        elsewhere(silent(Problem.NOT_FOUND)),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
        remedy=("locations list --project=acme",),
    ),
    Situation(
        "the API is not enabled",
        elsewhere(silent(Problem.DISABLED)),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
        remedy=("gcloud services enable tpu.googleapis.com --project=acme",),
    ),
    Situation(
        "no credentials",
        elsewhere(silent(Problem.CREDENTIALS)),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
        remedy=("application-default login",),
    ),
    Situation(
        "a missing scope",
        elsewhere(silent(Problem.SCOPE)),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
        remedy=("https://www.googleapis.com/auth/cloud-platform",),
    ),
    Situation(
        "the API refuses",
        elsewhere(silent(Problem.DENIED)),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
        remedy=("roles/tpu.viewer",),
    ),
    Situation(
        "the API refuses, and programs run here",
        training(cloud=silent(Problem.DENIED)),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        Signal.RUNTIME,
        missing=("a permission is missing",),
        remedy=("roles/tpu.viewer",),
    ),
    Situation(
        "no credentials, and the machine is free",
        own(cloud=silent(Problem.CREDENTIALS)),
        Verdict.IDLE,
        Action.NONE,
        Confidence.MEDIUM,
        missing=("no valid credentials",),
        remedy=("application-default login",),
    ),
    Situation(
        "no metadata server, and nothing configured",
        own(**LAPTOP),
        Verdict.UNKNOWN,
        Action.NONE,
        words=("Nothing shows that this is a Cloud TPU",),
        remedy=("Set project, zone and nodes in [cloud]",),
    ),
    Situation(
        "no metadata server, and only the zone configured",
        own(**{**LAPTOP, "identity": Identity(zone=Known("us-central2-b", "config"))}),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
        Confidence.HIGH,
        remedy=("Set project, zone and nodes in [cloud]",),
        missing=("The metadata server is not there",),
    ),
    Situation(
        "a metadata server that hangs, and nothing configured",
        own(**{**LAPTOP, "notices": silent(Problem.TIMEOUT)}),
        Verdict.MISCONFIGURED,
        Action.MANUAL,
        missing=("The metadata server did not answer",),
    ),
    Situation(
        "no metadata server, nothing configured, and programs run here",
        training(**LAPTOP),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        remedy=("Set project, zone and nodes",),
    ),
    Situation(
        "made through Compute Engine, and free",
        own(cloud=silent(Problem.UNCONFIGURED), identity=identity(node="")),
        Verdict.IDLE,
        Action.NONE,
        Confidence.MEDIUM,
    ),
    Situation(
        "no signal was asked yet",
        Evidence("trainer", NOW, own=True),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
        missing=("The Cloud TPU API was not asked yet.", "The runtime metric service was not asked yet."),
    ),
    Situation(
        "the API is down",
        elsewhere(silent(Problem.UNREACHABLE, last=node())),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
        missing=("cannot be reached. Its last answer is 10 min old.",),
    ),
    Situation(
        "the API throttles",
        elsewhere(silent(Problem.THROTTLED, "Quota of requests per minute.", last=node())),
        Verdict.UNKNOWN,
        Action.WAIT,
        missing=("asked too often: Quota of requests per minute. Its last answer",),
    ),
    Situation(
        "the API is down, after it called the node bad",
        elsewhere(silent(Problem.SERVER, last=node(health="TIMEOUT"))),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "the API is down, and programs run here",
        training(cloud=silent(Problem.TIMEOUT, last=node())),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        missing=("did not answer in time",),
    ),
    Situation(
        "the API's answer is stale",
        elsewhere(answered(node(health="TIMEOUT"), 10 * MINUTE)),
        Verdict.UNKNOWN,
        Action.WAIT,
        missing=("is 10 min old; it counts for 1 min 30 s",),
    ),
    Situation(
        "that the node is gone was reported an hour ago",
        elsewhere(Answer(node(), NOW - 2 * HOUR, Problem.GONE, "", NOW - HOUR)),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "no signal of the machine answers, the API does",
        own(**NO_LOCAL_SIGNAL),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.LOW,
        Signal.CLOUD,
        missing=("The runtime metric service cannot be reached", "The host's own view", "The store of the logs"),
    ),
    Situation(
        "no signal answers at all",
        own(cloud=silent(Problem.UNREACHABLE), **NO_LOCAL_SIGNAL),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
        missing=("The Cloud TPU API cannot be reached", "The metadata server cannot be reached"),
    ),
    Situation(
        "no signal answers but the store: a program came up, and lives",
        own(cloud=silent(Problem.UNREACHABLE), **{**NO_LOCAL_SIGNAL, "logs": logs(launch(), alive=(4711,))}),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "a node that is watched from elsewhere takes nothing from this machine",
        Evidence("other", NOW, cloud=silent(Problem.UNREACHABLE), runtime=ABSENT, host=host(holder(0.0))),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    # The runtime.
    Situation(
        "a runtime that answers with zeros, and its program rests",
        job(ZEROS, 0.0),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
        missing=(NO_WORD,),
    ),
    Situation(
        "a runtime that answers with zeros, and its program works",
        job(ZEROS, 3.0),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        missing=(NO_WORD,),
    ),
    Situation(
        "a runtime that answers with zeros under a program that never came up",
        own(
            runtime=ZEROS,
            host=host(holder(0.0)),
            logs=logs(launch(Outcome.SILENT), alive=(PID,)),
        ),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.LOW,
        contradictions=("without a sign of work",),
        missing=(NO_WORD,),
    ),
    Situation(
        "a step has just begun on chips that were idle for long",
        job(runtime(0.0, 0.0), 0.0),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.HIGH,
    ),
    Situation(
        "a runtime that reports memory alone, and its program works",
        job(runtime(None, None), 3.0),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        missing=(NO_WORD,),
    ),
    Situation(
        "a runtime that reports memory alone, and its program rests",
        job(runtime(None, None), 0.0),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
        missing=(NO_WORD,),
    ),
    Situation(
        "a duty cycle of nothing, and not since when",
        job(runtime(0.0, None), 0.0),
        Verdict.IDLE,
        Action.WAIT,
        Confidence.LOW,
        words=("since an unknown time",),
    ),
    Situation(
        "training on one of two ports, and the other has not answered for a minute",
        job(answered(Runtime((ONE_STEPS, RuntimePort(8432, problem=Problem.TIMEOUT, since=NOW - MINUTE)))), 3.0),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.HIGH,
        contradictions=("port 8432 does not answer",),
    ),
    Situation(
        "one of four ports does not answer, and nothing runs on the chips of the others",
        job(
            answered(
                Runtime(
                    (
                        *(RuntimePort(8431 + n, (Chip(str(n), GIB, 16 * GIB, 0.0, 20 * MINUTE),)) for n in range(3)),
                        RuntimePort(8434, problem=Problem.TIMEOUT, since=NOW - 20 * MINUTE),
                    )
                )
            ),
            0.0,
        ),
        Verdict.RUNTIME_STUCK,
        Action.RESTART_RUNTIME,
        Confidence.HIGH,
        contradictions=("has not answered for 20 min",),
    ),
    Situation(
        "programs have waited for 20 minutes on chips that run nothing, and the host works",
        job(idle(20 * MINUTE, queue=3), 3.0, 5 * HOUR),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.LOW,
        contradictions=("the chips have run nothing for 20 min",),
        words=("3 programs wait", "though the host works"),
    ),
    Situation(
        "programs have waited for eight minutes, and the host works",
        job(idle(8 * MINUTE, queue=3), 3.0, 5 * HOUR),
        Verdict.COMPILING,
        Action.WAIT,
    ),
    # Several programs.
    Situation(
        "four processes of one job, and one of them does not answer",
        four(*[5 * HOUR] * 4),
        Verdict.RUNTIME_STUCK,
        Action.RESTART_RUNTIME,
        contradictions=("has not answered for 20 min",),
        remedy=("kill -9 4711 4712 4713 4714",),
    ),
    Situation(
        "four programs of one user, and one of them does not answer: the others may be notebooks",
        four(*APART),
        Verdict.RUNTIME_STUCK,
        Action.MANUAL,
        contradictions=("has not answered for 20 min",),
        missing=(WHICH,),
        remedy=("kill -9 PID",),
    ),
    Situation(
        "the same, in no log: the oldest may be as good as any",
        four(*APART, logged=False),
        Verdict.RUNTIME_STUCK,
        Action.MANUAL,
        contradictions=("has not answered for 20 min",),
        missing=(WHICH,),
        remedy=("kill -9 PID",),
    ),
    Situation(
        "four programs of one user, and what one of them wants to run waits",
        four(*APART, last=None, queue=4),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        contradictions=("the chips have run nothing for 1 h",),
        missing=(WHICH,),
        remedy=("kill PID",),
    ),
    # The type of the TPU.
    Situation(
        "of unknown type: a program came up and rests",
        own(
            identity=identity(accelerator=""),
            cloud=silent(Problem.SERVER),
            host=host(holder(0.0)),
            logs=logs(launch(), alive=(PID,)),
        ),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
        words=("without runtime metrics nothing shows",),
    ),
    # The cloud.
    Situation(
        "a failed repair under maintenance",
        own(cloud=answered(node("UNKNOWN", "UNHEALTHY_MAINTENANCE"))),
        Verdict.MAINTENANCE,
        Action.WAIT,
        words=("The API says UNKNOWN and UNHEALTHY_MAINTENANCE",),
    ),
    Situation(
        "a zone that is not known, and a program is stuck",
        job(
            idle(HOUR, queue=3),
            0.0,
            2 * HOUR,
            identity=identity(zone=""),
            cloud=replace(silent(Problem.UNCONFIGURED, "No zone is known."), tried=NOW - 5),
        ),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        missing=("No zone is known", "without an answer from the Cloud TPU API"),
        remedy=("kill 4711",),
    ),
    # Several hosts.
    Situation(
        "a hung runtime on one of four hosts",
        job(hung(20 * MINUTE), 0.0, 5 * HOUR, identity=identity(hosts="4"), cloud=answered(node(hosts=4))),
        Verdict.RUNTIME_STUCK,
        Action.MANUAL,
        contradictions=("has not answered for 20 min",),
        missing=("The node has several hosts",),
        remedy=("Look at the other workers first", "kill -9 4711"),
    ),
    Situation(
        "a fault whose record is too long to be shown in full",
        own(logs=logs(launch(Outcome.FAILED), event(Cause.HBM_OOM_COMPILE, text="Ran out of memory " * 40))),
        Verdict.IDLE,
        Action.FIX_PROGRAM,
        words=("Ran out of…",),
    ),
    # Programs that a user ended.
    Situation(
        "asked to end ten minutes ago, and still there",
        own(
            host=host(holder(0.0)),
            logs=logs(launch(last_heard=NOW - 10 * MINUTE), event(Cause.INTERRUPTED, 10 * MINUTE), alive=(PID,)),
        ),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
    ),
)
