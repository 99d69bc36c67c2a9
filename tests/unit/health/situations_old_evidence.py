"""Situations that events of the logs and clocks decide: faults of programs, of other workers, of the past."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.health.scenes import (
    API_WELL,
    DAY,
    HOUR,
    MINUTE,
    NOW,
    OFF,
    PID,
    RESTING,
    Situation,
    answered,
    event,
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
from tpuwatch.model.signals import Identity, Known, Problem, Signal
from tpuwatch.model.verdict import Action, Confidence, Verdict

SITUATIONS = (
    # Faults of programs, of other workers, of the past.
    Situation(
        "a program ended by running out of HBM",
        own(logs=logs(launch(), event(Cause.HBM_OOM_COMPILE))),
        Verdict.IDLE,
        Action.FIX_PROGRAM,
        Confidence.MEDIUM,
        Signal.HOST,
        words=("hbm_oom_compile",),
    ),
    Situation(
        "an invalid program, while the next one trains",
        training(logs=logs(launch(age=2 * MINUTE), event(Cause.INVALID_PROGRAM, 10 * MINUTE), alive=(PID,))),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.HIGH,
    ),
    Situation(
        "a fault from which the next launch came up, and which ended well",
        own(logs=logs(launch(age=2 * MINUTE), event(Cause.HBM_OOM_COMPILE, 10 * MINUTE, pid=99))),
        Verdict.IDLE,
        Action.NONE,
    ),
    Situation(
        "a fault of history",
        own(logs=logs(event(Cause.HBM_OOM_COMPILE, history=True))),
        Verdict.IDLE,
        Action.NONE,
        Confidence.HIGH,
    ),
    Situation(
        "a fault of yesterday",
        own(logs=logs(event(Cause.HBM_OOM_COMPILE, DAY))),
        Verdict.IDLE,
        Action.NONE,
    ),
    Situation(
        "a fault of before this boot",
        own(host=host(booted=10 * MINUTE), logs=logs(event(Cause.DRIVER_ERROR, 20 * MINUTE))),
        Verdict.IDLE,
        Action.NONE,
    ),
    Situation(
        "a fault of the device in the logs alone",
        own(logs=logs(event(Cause.DRIVER_ERROR))),
        Verdict.IDLE,
        Action.MANUAL,
        Confidence.MEDIUM,
    ),
    Situation(
        "killed by the kernel, and nothing has come up since",
        own(host=host(oom_kills=1, last_oom_kill=NOW - 5 * MINUTE)),
        Verdict.IDLE,
        Action.FIX_PROGRAM,
        first=Signal.HOST,
        remedy=("Hold less in the host's memory",),
    ),
    Situation(
        "a worker that reports the fault of another, and waits",
        job(
            idle(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.BARRIER_TIMEOUT, 10 * MINUTE), alive=(PID,)),
            cloud=answered(node(hosts=4, queued_resource="q-1")),
            identity=identity(hosts="4"),
        ),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.MEDIUM,
        Signal.LOGS,
        contradictions=(API_WELL,),
        remedy=("Look at the other workers first",),
    ),
    Situation(
        "a worker that reports the fault of another, and compiles",
        job(idle(20 * MINUTE), 8.0, logs=logs(launch(), event(Cause.BARRIER_TIMEOUT, 10 * MINUTE), alive=(PID,))),
        Verdict.COMPILING,
        Action.WAIT,
    ),
    Situation(
        "a fault of its own an hour ago, and a TPU in use just now",
        own(
            logs=logs(
                launch(Outcome.FAILED, MINUTE),
                event(Cause.HBM_OOM_RUNTIME, 50 * MINUTE),
                event(Cause.TPU_IN_USE, MINUTE),
            )
        ),
        Verdict.IDLE,
        Action.MANUAL,
        words=("tpu_in_use",),
    ),
    Situation(
        "a TPU in use, and the fault of its own behind it",
        own(logs=logs(event(Cause.HBM_OOM_RUNTIME, MINUTE), event(Cause.TPU_IN_USE, 40))),
        Verdict.IDLE,
        Action.FIX_PROGRAM,
        words=("hbm_oom_runtime",),
    ),
    Situation(
        "a worker that ended because of another one",
        own(logs=logs(launch(), event(Cause.HEARTBEAT_LOST))),
        Verdict.IDLE,
        Action.MANUAL,
        words=("another worker (heartbeat_lost)",),
    ),
    Situation(
        "a worker that reports the fault of another, on a node that the API calls bad",
        job(
            hung(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.MESH_ERROR, 10 * MINUTE), alive=(PID,)),
            cloud=answered(node(health="TIMEOUT")),
        ),
        Verdict.NODE_STUCK,
        Action.MANUAL,
        contradictions=("unresponsive",),
        missing=("reports the fault of another",),
    ),
    # Times.
    Situation(
        "the logs' clock is two minutes ahead",
        training(logs=logs(launch(age=-2 * MINUTE), event(Cause.SLOW_INIT, -2 * MINUTE), alive=(PID,))),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.HIGH,
        contradictions=("the store of the logs gives lies 2 min 10 s in the future",),
    ),
    Situation(
        "the clocks of API and host are ahead, and nothing else is wrong",
        own(
            cloud=answered(node(held=-10 * MINUTE), -10 * MINUTE),
            host=answered(replace(host().value, booted=NOW + HOUR)),
        ),
        Verdict.STARTING,
        Action.WAIT,
        contradictions=("the Cloud TPU API gives lies 10 min", "the host's own view gives lies 1 h"),
    ),
    Situation(
        "half a minute ahead is not worth telling",
        training(cloud=answered(node(), -30)),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.HIGH,
    ),
    Situation(
        "all that a stuck job logged is old",
        job(
            replace(idle(20 * MINUTE), at=NOW - HOUR),
            0.0,
            host=replace(RESTING, at=NOW - HOUR),
            logs=answered(logs().value, HOUR),
        ),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.LOW,
        Signal.CLOUD,
        missing=("runtime metric service is 1 h old", "host's own view is 1 h old", "store of the logs is 1 h old"),
    ),
    Situation(
        "idle without a word on how long",
        job(runtime(0.0, None), 0.0),
        Verdict.IDLE,
        Action.WAIT,
        Confidence.LOW,
    ),
    Situation(
        "a machine that knows itself by configuration alone, training",
        training(identity=Identity(node=Known("trainer", "config")), notices=silent(Problem.ABSENT), cloud=OFF),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        missing=("The Cloud TPU API is switched off", "The metadata server is not there"),
    ),
)
