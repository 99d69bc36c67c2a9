"""Situations that events of the logs and clocks decide: faults of programs, of other workers, of the past."""

from __future__ import annotations

from dataclasses import replace

from tests.health.scenes import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    OFF,
    PID,
    Situation,
    event,
    heard,
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
from tpuwatch.health.evidence import Identity, Known, Problem, Witness
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.model import Cause, Outcome

SILENT = logs(launch(Outcome.SILENT, 20 * MINUTE), alive=(PID,))
RESTING = host(holder(0.0, 20 * MINUTE))
WELL = "The API says READY and HEALTHY"

SITUATIONS = (
    # Faults of programs, of other workers, of the past.
    Situation(
        "a program ended by running out of HBM",
        own(logs=logs(launch(), event(Cause.HBM_OOM_COMPILE))),
        Verdict.IDLE,
        Rung.FIX_PROGRAM,
        Sureness.LIKELY,
        Witness.HOST,
        says=("hbm_oom_compile",),
    ),
    Situation(
        "an invalid program, while the next one trains",
        training(logs=logs(launch(age=2 * MINUTE), event(Cause.INVALID_PROGRAM, 10 * MINUTE), alive=(PID,))),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.CERTAIN,
    ),
    Situation(
        "a fault from which the next launch came up, and which ended well",
        own(logs=logs(launch(age=2 * MINUTE), event(Cause.HBM_OOM_COMPILE, 10 * MINUTE, pid=99))),
        Verdict.IDLE,
        Rung.NOTHING,
    ),
    Situation(
        "a fault of history",
        own(logs=logs(event(Cause.HBM_OOM_COMPILE, history=True))),
        Verdict.IDLE,
        Rung.NOTHING,
        Sureness.CERTAIN,
    ),
    Situation(
        "a fault of yesterday",
        own(logs=logs(event(Cause.HBM_OOM_COMPILE, DAY))),
        Verdict.IDLE,
        Rung.NOTHING,
    ),
    Situation(
        "a fault of before this boot",
        own(host=host(booted=10 * MINUTE), logs=logs(event(Cause.DRIVER_ERROR, 20 * MINUTE))),
        Verdict.IDLE,
        Rung.NOTHING,
    ),
    Situation(
        "a fault of the device in the logs alone",
        own(logs=logs(event(Cause.DRIVER_ERROR))),
        Verdict.IDLE,
        Rung.ASK,
        Sureness.LIKELY,
    ),
    Situation(
        "killed by the kernel, and nothing has come up since",
        own(host=host(oom_kills=1, last_oom_kill=NOW - 5 * MINUTE)),
        Verdict.IDLE,
        Rung.FIX_PROGRAM,
        first=Witness.HOST,
        remedy=("Hold less in the host's memory",),
    ),
    Situation(
        "a worker that reports another one's fault, and waits",
        job(
            idle(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.BARRIER_TIMEOUT, 10 * MINUTE), alive=(PID,)),
            cloud=heard(node(hosts=4, queued_resource="q-1")),
            identity=identity(hosts="4"),
        ),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        Witness.LOGS,
        contradictions=(WELL,),
        remedy=("Look at the other workers first",),
    ),
    Situation(
        "a worker that reports another one's fault, and compiles",
        job(idle(20 * MINUTE), 8.0, logs=logs(launch(), event(Cause.BARRIER_TIMEOUT, 10 * MINUTE), alive=(PID,))),
        Verdict.COMPILING,
        Rung.WAIT,
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
        Rung.ASK,
        says=("tpu_in_use",),
    ),
    Situation(
        "a TPU in use, and the fault of its own behind it",
        own(logs=logs(event(Cause.HBM_OOM_RUNTIME, MINUTE), event(Cause.TPU_IN_USE, 40))),
        Verdict.IDLE,
        Rung.FIX_PROGRAM,
        says=("hbm_oom_runtime",),
    ),
    Situation(
        "a worker that ended because of another one",
        own(logs=logs(launch(), event(Cause.HEARTBEAT_LOST))),
        Verdict.IDLE,
        Rung.ASK,
        says=("another worker (heartbeat_lost)",),
    ),
    Situation(
        "a worker that reports another one's fault, on a node that the API calls bad",
        job(
            hung(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.MESH_ERROR, 10 * MINUTE), alive=(PID,)),
            cloud=heard(node(health="TIMEOUT")),
        ),
        Verdict.NODE_STUCK,
        Rung.ASK,
        contradictions=("unresponsive",),
        missing=("reports another one's fault",),
    ),
    # Times.
    Situation(
        "the logs' clock is two minutes ahead",
        training(logs=logs(launch(age=-2 * MINUTE), event(Cause.SLOW_INIT, -2 * MINUTE), alive=(PID,))),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.CERTAIN,
        contradictions=("the journal of the logs gives lies 2 min 10 s in the future",),
    ),
    Situation(
        "the clocks of API and host are ahead, and nothing else is wrong",
        own(cloud=heard(node(held=-10 * MINUTE), -10 * MINUTE), host=heard(replace(host().value, booted=NOW + HOUR))),
        Verdict.STARTING,
        Rung.WAIT,
        contradictions=("the Cloud TPU API gives lies 10 min", "the host's own view gives lies 1 h"),
    ),
    Situation(
        "half a minute ahead is not worth telling",
        training(cloud=heard(node(), -30)),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.CERTAIN,
    ),
    Situation(
        "all that a stuck job said is old",
        job(
            replace(idle(20 * MINUTE), at=NOW - HOUR),
            0.0,
            host=replace(RESTING, at=NOW - HOUR),
            logs=heard(logs().value, HOUR),
        ),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.WEAK,
        Witness.CLOUD,
        missing=("runtime metric service is 1 h old", "host's own view is 1 h old", "journal of the logs is 1 h old"),
    ),
    Situation(
        "idle without a word on how long",
        job(runtime(0.0, None), 0.0),
        Verdict.IDLE,
        Rung.WAIT,
        Sureness.WEAK,
    ),
    Situation(
        "a machine that knows itself by configuration alone, training",
        training(identity=Identity(node=Known("trainer", "config")), notices=silent(Problem.ABSENT), cloud=OFF),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.LIKELY,
        missing=("The Cloud TPU API is switched off", "The metadata server is not there"),
    ),
)
