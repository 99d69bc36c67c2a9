"""Situations in which a signal cannot be asked, does not answer, or gives a sparse answer."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.health.scenes import (
    ABSENT,
    GIB,
    HOUR,
    MINUTE,
    NOT_READ,
    NOW,
    PID,
    WAITING,
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
    queued,
    runtime,
    silent,
    training,
)
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import Chip, Evidence, Identity, Known, Runtime, RuntimePort

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
        runtime=Runtime(tuple(ports)),
        host=host(*held),
        logs=logs(*begun, alive=tuple(one.pid for one in begun)) if logged else logs(),
    )


NO_TRAINER = silent(Problem.GONE, "There is no node trainer in us-central2-b.")
APART = (9 * HOUR, 7 * HOUR, 5 * HOUR, 3 * HOUR)
WHICH = "It is not known which of the processes that hold the TPU is at fault"

SITUATIONS = (
    Situation(
        "a name that is not in the list since the start, and no queued resource makes it",
        elsewhere(NO_TRAINER, queued=queued()),
        "misconfigured manual high cloud",
        words=("There is no node trainer",),
        remedy=("tpu-vm list --zone=us-central2-b --project=acme",),
    ),
    *(
        Situation(
            f"a name that is not in the list since the start, and queued resources {name}",
            elsewhere(NO_TRAINER, queued=answer),
            "unknown manual low cloud",
            words=("There is no node trainer", "not known whether a queued resource"),
            remedy=("queued-resources list --zone=us-central2-b --project=acme", "tpu-vm list"),
            unwanted=("delete",),
        )
        for name, answer in (
            ("were not read", NOT_READ),
            ("cannot be read", silent(Problem.DENIED)),
            ("were read too long ago", queued(age=HOUR, problem=Problem.SERVER)),
        )
    ),
    *(
        Situation(
            f"a name that is not in the list since the start, and its queued resource is {state}",
            elsewhere(NO_TRAINER, queued=queued(state)),
            "starting wait high cloud",
            words=(f"q-1 is {state}",),
            remedy=("queued-resources describe q-1 --zone=us-central2-b --project=acme",),
            unwanted=("delete", "tpu-vm list"),
        )
        for state in WAITING
    ),
    *(
        Situation(
            f"a name that is not in the list since the start, and its queued resource is {state}",
            elsewhere(NO_TRAINER, queued=queued(state)),
            "gone manual medium cloud",
            words=(f"q-1 is {state}",),
            remedy=("queued-resources describe q-1", "queued-resources delete q-1 --force"),
        )
        for state in ("FAILED", "SUSPENDED")
    ),
    *(
        Situation(
            f"a name that is not in the list since the start, and its queued resource is {state}",
            elsewhere(NO_TRAINER, queued=queued(state)),
            "unknown manual low cloud",
            words=(f"q-1 is {state}",),
            remedy=("queued-resources describe q-1",),
            unwanted=("delete",),
        )
        for state in ("ACTIVE", "SUSPENDING", "DELETING", "STATE_17")
    ),
    *(
        Situation(name, elsewhere(silent(problem)), "unknown none low cloud", remedy=(step,))
        for name, problem, step in (
            ("a wrong zone", Problem.NOT_FOUND, "locations list --project=acme"),
            ("the API is not enabled", Problem.DISABLED, "gcloud services enable tpu.googleapis.com --project=acme"),
            ("no credentials", Problem.CREDENTIALS, "application-default login"),
            ("a missing scope", Problem.SCOPE, "https://www.googleapis.com/auth/cloud-platform"),
            ("the API refuses", Problem.DENIED, "roles/tpu.viewer"),
        )
    ),
    Situation(
        "the API refuses, and programs run here",
        training(cloud=silent(Problem.DENIED)),
        "healthy none medium runtime",
        missing=("a permission is missing",),
        remedy=("roles/tpu.viewer",),
    ),
    Situation(
        "no credentials, and the machine is free",
        own(cloud=silent(Problem.CREDENTIALS)),
        "idle none medium",
        missing=("no valid credentials",),
        remedy=("application-default login",),
    ),
    Situation(
        "no metadata server, and nothing configured",
        own(**LAPTOP),
        "unknown none",
        words=("Nothing shows that this is a Cloud TPU",),
        remedy=("Set project, zone and nodes in [cloud]",),
    ),
    Situation(
        "no metadata server, and only the zone configured",
        own(**{**LAPTOP, "identity": Identity(zone=Known("us-central2-b", "config"))}),
        "unknown none low",
        remedy=("Set project, zone and nodes in [cloud]",),
        missing=("The metadata server is not there",),
    ),
    Situation(
        "a metadata server that hangs, and nothing configured",
        own(**{**LAPTOP, "notices": silent(Problem.TIMEOUT)}),
        "unknown none",
        missing=("The metadata server did not answer",),
    ),
    Situation(
        "no metadata server, nothing configured, and programs run here",
        training(**LAPTOP),
        "healthy none medium",
        remedy=("Set project, zone and nodes",),
    ),
    Situation(
        "made through Compute Engine, and free",
        own(cloud=silent(Problem.UNCONFIGURED), identity=identity(node="")),
        "idle none medium",
    ),
    Situation(
        "no signal was asked yet",
        Evidence("trainer", NOW, own=True),
        "unknown wait low",
        missing=("The Cloud TPU API was not asked yet.", "The runtime metric service was not asked yet."),
    ),
    Situation(
        "the API is down",
        elsewhere(silent(Problem.UNREACHABLE, last=node())),
        "unknown wait low",
        missing=("cannot be reached. Its last answer is 10 min old.",),
    ),
    Situation(
        "the API throttles",
        elsewhere(silent(Problem.THROTTLED, "Quota of requests per minute.", last=node())),
        "unknown wait",
        missing=("asked too often: Quota of requests per minute. Its last answer",),
    ),
    Situation(
        "the API is down, after it called the node bad",
        elsewhere(silent(Problem.SERVER, last=node(health="TIMEOUT"))),
        "unknown wait",
    ),
    Situation(
        "the API is down, and programs run here",
        training(cloud=silent(Problem.TIMEOUT, last=node())),
        "healthy none medium",
        missing=("did not answer in time",),
    ),
    Situation(
        "the API's answer is stale",
        elsewhere(answered(node(health="TIMEOUT"), 10 * MINUTE)),
        "unknown wait",
        missing=("is 10 min old; it counts for 1 min 30 s",),
    ),
    Situation(
        "that the node is gone was reported an hour ago",
        elsewhere(Answer(node(), NOW - 2 * HOUR, Problem.GONE, "", NOW - HOUR)),
        "unknown wait",
    ),
    Situation(
        "no signal of the machine answers, the API does",
        own(**NO_LOCAL_SIGNAL),
        "healthy none low cloud",
        missing=("The runtime metric service cannot be reached", "The host's own view", "The store of the logs"),
    ),
    Situation(
        "no signal answers at all",
        own(cloud=silent(Problem.UNREACHABLE), **NO_LOCAL_SIGNAL),
        "unknown wait low",
        missing=("The Cloud TPU API cannot be reached", "The metadata server cannot be reached"),
    ),
    Situation(
        "no signal answers but the store: a program came up, and lives",
        own(cloud=silent(Problem.UNREACHABLE), **{**NO_LOCAL_SIGNAL, "logs": logs(launch(), alive=(4711,))}),
        "unknown wait",
    ),
    Situation(
        "a node that is watched from elsewhere takes nothing from this machine",
        Evidence("other", NOW, cloud=silent(Problem.UNREACHABLE), runtime=ABSENT, host=host(holder(0.0))),
        "unknown wait",
    ),
    # The runtime.
    Situation(
        "a runtime that answers with zeros, and its program rests",
        job(ZEROS, 0.0),
        "unknown wait low",
        missing=(NO_WORD,),
    ),
    Situation(
        "a runtime that answers with zeros, and its program works",
        job(ZEROS, 3.0),
        "healthy none medium",
        missing=(NO_WORD,),
    ),
    Situation(
        "a runtime that answers with zeros under a program that never came up",
        own(runtime=ZEROS, host=host(holder(0.0)), logs=logs(launch(Outcome.SILENT), alive=(PID,))),
        "job_stuck manual low",
        contradictions=("without a sign of work",),
        missing=(NO_WORD,),
    ),
    Situation(
        "a step has just begun on chips that were idle for long", job(runtime(0.0, 0.0), 0.0), "healthy none high"
    ),
    Situation(
        "a runtime that reports memory alone, and its program works",
        job(runtime(None, None), 3.0),
        "healthy none medium",
        missing=(NO_WORD,),
    ),
    Situation(
        "a runtime that reports memory alone, and its program rests",
        job(runtime(None, None), 0.0),
        "unknown wait low",
        missing=(NO_WORD,),
    ),
    Situation(
        "a duty cycle of nothing, and not since when",
        job(runtime(0.0, None), 0.0),
        "idle wait low",
        words=("since an unknown time",),
    ),
    Situation(
        "training on one of two ports, and the other has not answered for a minute",
        job(Runtime((ONE_STEPS, RuntimePort(8432, problem=Problem.TIMEOUT, since=NOW - MINUTE))), 3.0),
        "healthy none high",
        contradictions=("port 8432 does not answer",),
    ),
    Situation(
        "one of four ports does not answer, and nothing runs on the chips of the others",
        job(
            Runtime(
                (
                    *(RuntimePort(8431 + n, (Chip(str(n), GIB, 16 * GIB, 0.0, 20 * MINUTE),)) for n in range(3)),
                    RuntimePort(8434, problem=Problem.TIMEOUT, since=NOW - 20 * MINUTE),
                )
            ),
            0.0,
        ),
        "runtime_stuck restart_runtime high",
        contradictions=("has not answered for 20 min",),
    ),
    Situation(
        "programs have waited for 20 minutes on chips that run nothing, and the host works",
        job(idle(20 * MINUTE, queue=3), 3.0, 5 * HOUR),
        "job_stuck manual low",
        contradictions=("the chips have run nothing for 20 min",),
        words=("3 programs wait", "though the host works"),
    ),
    Situation(
        "programs have waited for eight minutes, and the host works",
        job(idle(8 * MINUTE, queue=3), 3.0, 5 * HOUR),
        "compiling wait",
    ),
    # Several programs.
    Situation(
        "four processes of one job, and one of them does not answer",
        four(*[5 * HOUR] * 4),
        "runtime_stuck restart_runtime",
        contradictions=("has not answered for 20 min",),
        remedy=("kill -9 4711 4712 4713 4714",),
    ),
    Situation(
        "four programs of one user, and one of them does not answer: the others may be notebooks",
        four(*APART),
        "runtime_stuck manual",
        contradictions=("has not answered for 20 min",),
        missing=(WHICH,),
        remedy=("kill -9 PID",),
    ),
    Situation(
        "the same, in no log: the oldest may be as good as any",
        four(*APART, logged=False),
        "runtime_stuck manual",
        contradictions=("has not answered for 20 min",),
        missing=(WHICH,),
        remedy=("kill -9 PID",),
    ),
    Situation(
        "four programs of one user, and what one of them wants to run waits",
        four(*APART, last=None, queue=4),
        "job_stuck manual",
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
        "unknown wait low",
        words=("without runtime metrics nothing shows",),
    ),
    # The cloud.
    Situation(
        "a failed repair under maintenance",
        own(cloud=node("UNKNOWN", "UNHEALTHY_MAINTENANCE")),
        "maintenance wait",
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
        "job_stuck manual",
        missing=("No zone is known", "without an answer from the Cloud TPU API"),
        remedy=("kill 4711",),
    ),
    # Several hosts.
    Situation(
        "a hung runtime on one of four hosts",
        job(hung(20 * MINUTE), 0.0, 5 * HOUR, identity=identity(hosts="4"), cloud=node(hosts=4)),
        "runtime_stuck manual",
        contradictions=("has not answered for 20 min",),
        missing=("The node has several hosts",),
        remedy=("Look at the other workers first", "kill -9 4711"),
    ),
    Situation(
        "a fault whose record is too long to be shown in full",
        own(logs=logs(launch(Outcome.FAILED), event(Cause.HBM_OOM_COMPILE, text="Ran out of memory " * 40))),
        "idle fix_program",
        words=("Ran out of…",),
    ),
    # Programs that a user ended.
    Situation(
        "asked to end ten minutes ago, and still there",
        own(
            host=host(holder(0.0)),
            logs=logs(launch(last_heard=NOW - 10 * MINUTE), event(Cause.INTERRUPTED, 10 * MINUTE), alive=(PID,)),
        ),
        "unknown wait low",
    ),
)
