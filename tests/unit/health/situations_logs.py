"""Situations that logs and clocks decide: faults of programs, of other workers, of the past, repeated ones."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.health.scenes import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    OFF,
    PID,
    RESTING,
    UNSEEN,
    Situation,
    against_the_api,
    answered,
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
    of_type,
    own,
    silent,
    training,
)
from tpuwatch.model.answers import Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Event
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.signals import Identity, Known

HIDDEN = host(unseen=UNSEEN)


def tries(
    *ages: float, outcome: Outcome = Outcome.FAILED, cause: Cause | None = Cause.BAD_FLAG
) -> list[Launch | Event]:
    """Launches that began so long ago, of a process each, and met this."""
    entries: list[Launch | Event] = []
    for number, age in enumerate(ages):
        entries.append(launch(outcome, age, PID + number, cause=cause))
        entries += [event(cause, age - 10, pid=PID + number)] if cause else []
    return entries


LOOP = tries(MINUTE, 4 * MINUTE, 7 * MINUTE)
NEW = launch(Outcome.STARTING, 15, 99)
IN_USE = logs(launch(Outcome.FAILED, 5 * MINUTE), event(Cause.TPU_IN_USE))

SITUATIONS = (
    # Faults of programs, of other workers, of the past.
    Situation(
        "a program ended by running out of HBM",
        own(logs=logs(launch(), event(Cause.HBM_OOM_COMPILE))),
        "idle fix_program medium host",
        words=("hbm_oom_compile",),
    ),
    Situation(
        "an invalid program, while the next one trains",
        training(logs=logs(launch(age=2 * MINUTE), event(Cause.INVALID_PROGRAM, 10 * MINUTE), alive=(PID,))),
        "healthy none high",
    ),
    Situation(
        "a fault from which the next launch came up, and which ended well",
        own(logs=logs(launch(age=2 * MINUTE), event(Cause.HBM_OOM_COMPILE, 10 * MINUTE, pid=99))),
        "idle none",
    ),
    Situation("a fault of history", own(logs=logs(event(Cause.HBM_OOM_COMPILE, history=True))), "idle none high"),
    Situation("a fault of yesterday", own(logs=logs(event(Cause.HBM_OOM_COMPILE, DAY))), "idle none"),
    Situation(
        "a fault of before this boot",
        own(host=host(booted=10 * MINUTE), logs=logs(event(Cause.DRIVER_ERROR, 20 * MINUTE))),
        "idle none",
    ),
    Situation(
        "a fault of the device in the logs alone", own(logs=logs(event(Cause.DRIVER_ERROR))), "idle manual medium"
    ),
    Situation(
        "a launch that the kernel killed, and nothing has come up since",
        own(
            host=host(oom_kills=1, last_oom_kill=NOW - 5 * MINUTE),
            logs=logs(replace(launch(age=HOUR), faults={"host_oom": 3300.0})),
        ),
        "idle fix_program host",
        remedy=("Hold less in the host's memory",),
    ),
    Situation(
        "a process that the kernel killed, of which no launch is known",
        own(host=host(oom_kills=1, last_oom_kill=NOW - 5 * MINUTE)),
        "idle none host",
    ),
    Situation(
        "a process of no job that the kernel killed, by its log",
        own(logs=logs(event(Cause.PROCESS_KILLED, 5 * MINUTE))),
        "idle none high",
    ),
    against_the_api(
        "a worker that reports the fault of another, and waits",
        job(
            idle(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.BARRIER_TIMEOUT, 10 * MINUTE), alive=(PID,)),
            cloud=node(hosts=4, queued_resource="q-1"),
            identity=identity(hosts="4"),
        ),
        "job_stuck manual low logs",
        remedy=("Look at the other workers first",),
    ),
    Situation(
        "a worker that reports the fault of another, and compiles",
        job(idle(20 * MINUTE), 8.0, logs=logs(launch(), event(Cause.BARRIER_TIMEOUT, 10 * MINUTE), alive=(PID,))),
        "compiling wait",
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
        "idle manual",
        words=("tpu_in_use",),
    ),
    Situation(
        "a TPU in use, and the fault of its own behind it",
        own(logs=logs(event(Cause.HBM_OOM_RUNTIME, MINUTE), event(Cause.TPU_IN_USE, 40))),
        "idle fix_program",
        words=("hbm_oom_runtime",),
    ),
    Situation(
        "a worker that ended because of another one",
        own(logs=logs(launch(), event(Cause.HEARTBEAT_LOST))),
        "idle manual",
        words=("another worker (heartbeat_lost)",),
    ),
    Situation(
        "a worker that reports the fault of another, on a node that the API calls bad",
        job(
            hung(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.MESH_ERROR, 10 * MINUTE), alive=(PID,)),
            cloud=node(health="TIMEOUT"),
        ),
        "node_stuck manual",
        contradictions=("unresponsive",),
        missing=("reports the fault of another",),
    ),
    # Times.
    Situation(
        "the logs' clock is two minutes ahead",
        training(logs=logs(launch(age=-2 * MINUTE), event(Cause.SLOW_INIT, -2 * MINUTE), alive=(PID,))),
        "healthy none high",
        contradictions=("the store of the logs gives lies 2 min 10 s in the future",),
    ),
    Situation(
        "the clocks of API and host are ahead, and nothing else is wrong",
        own(cloud=answered(node(held=-10 * MINUTE), -10 * MINUTE), host=replace(host().value, booted=NOW + HOUR)),
        "starting wait",
        contradictions=("the Cloud TPU API gives lies 10 min", "the host's own view gives lies 1 h"),
    ),
    Situation("half a minute ahead is not worth telling", training(cloud=answered(node(), -30)), "healthy none high"),
    Situation(
        "all that a stuck job logged is old",
        job(
            replace(idle(20 * MINUTE), at=NOW - HOUR),
            0.0,
            host=replace(RESTING, at=NOW - HOUR),
            logs=answered(logs().value, HOUR),
        ),
        "healthy none low cloud",
        missing=("runtime metric service is 1 h old", "host's own view is 1 h old", "store of the logs is 1 h old"),
    ),
    Situation(
        "a machine that knows itself by configuration alone, training",
        training(identity=Identity(node=Known("trainer", "config")), notices=silent(Problem.ABSENT), cloud=OFF),
        "healthy none medium",
        missing=("The Cloud TPU API is switched off", "The metadata server is not there"),
    ),
    Situation(
        "three launches fail in seven minutes",
        own(logs=logs(*LOOP)),
        "job_stuck fix_program low logs",
        words=("the last 3, all within 7 min, the last one by bad_flag",),
        remedy=("tpuwatch's finding",),
    ),
    Situation(
        "three launches fail, and the next one initialises",
        own(logs=logs(NEW, *LOOP, alive=(99,)), host=host(holder(1.0, 20, 99))),
        "job_stuck fix_program",
        words=("Launch after launch fails",),
    ),
    Situation(
        "three launches fail, and the next one trains",
        training(logs=logs(launch(age=15, pid=99), *LOOP, alive=(99,))),
        "healthy none",
    ),
    Situation(
        "three launches fail on v3, and the next one came up and works",
        of_type(own(logs=logs(launch(age=MINUTE, pid=99), *LOOP, alive=(99,)), host=host(holder(3.0, 70, 99))), "v3-8"),
        "healthy none",
    ),
    Situation(
        "three launches fail on v3, and a program in no log has worked since",
        of_type(own(logs=logs(*tries(MINUTE, 8 * MINUTE, 9 * MINUTE)), host=host(holder(3.0, 7 * MINUTE, 99))), "v3-8"),
        "healthy none",
    ),
    Situation(
        "launches that come up, and run out of memory each time",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, outcome=Outcome.OK, cause=Cause.HBM_OOM_COMPILE))),
        "job_stuck fix_program",
        words=("by hbm_oom_compile",),
    ),
    Situation(
        "launches whose processes go away without a word",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, outcome=Outcome.KILLED, cause=None))),
        "job_stuck manual",
        remedy=("--logbuflevel=-1",),
    ),
    Situation(
        "launches that a user interrupts",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, outcome=Outcome.KILLED, cause=Cause.INTERRUPTED))),
        "idle none",
    ),
    Situation(
        "four processes of one job that failed together", own(logs=logs(*tries(60, 61, 62, 63))), "idle fix_program"
    ),
    Situation(
        "two launches that failed, and one of an hour ago",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, HOUR))),
        "idle fix_program",
    ),
    Situation(
        "three launches that failed, and between them one that came up and ended well",
        own(logs=logs(*tries(MINUTE, 9 * MINUTE, 12 * MINUTE), launch(age=5 * MINUTE, pid=99))),
        "idle fix_program",
    ),
    Situation(
        "launches fail again and again by a fault of another worker",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, cause=Cause.CONNECT_FAILED))),
        "job_stuck manual",
        remedy=("Look at the other workers first",),
    ),
    # In use by a process that is not seen.
    Situation(
        "a TPU in use by a process that cannot be seen",
        own(logs=IN_USE, host=host(unseen=UNSEEN, lock_file=True)),
        "unknown manual low logs",
        words=("by a process that tpuwatch cannot see",),
        missing=("The open files of 40 processes",),
        remedy=("Leave the lock file alone",),
    ),
    Situation(
        "a TPU that launch after launch finds in use, by a process that cannot be seen",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, cause=Cause.TPU_IN_USE)), host=HIDDEN),
        "job_stuck manual",
        remedy=("Leave the lock file alone",),
    ),
    Situation(
        "a TPU that launch after launch finds in use, by a process that is seen though others cannot be",
        own(
            logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, cause=Cause.TPU_IN_USE)),
            host=host(holder(0.1, 2 * MINUTE, 4799, devices=(), locks=True), unseen=UNSEEN),
        ),
        "job_stuck manual",
        remedy=("Ask the user of the program that holds the TPU (4799)", "kill 4799"),
    ),
    Situation(
        "a TPU that was in use, and its user has ended",
        own(logs=IN_USE),
        "idle manual",
        remedy=("Start the program again",),
    ),
    # Free, if it was seen.
    Situation(
        "it is hidden who holds a v3, which serves no metrics",
        of_type(own(host=HIDDEN), "v3-8"),
        "healthy none low cloud",
        missing=("The open files of 40 processes",),
    ),
    Situation(
        "it is hidden who holds the TPU, and the runtime was not asked",
        own(host=HIDDEN, runtime=OFF),
        "healthy none low cloud",
    ),
    Situation(
        "it is hidden who holds the TPU, and neither runtime nor API were asked",
        own(host=HIDDEN, runtime=OFF, cloud=OFF),
        "unknown wait low host",
        words=("not every process can be looked at",),
    ),
    Situation(
        "it is hidden who holds the TPU, and the API has called the node bad for a minute",
        own(host=HIDDEN, runtime=OFF, cloud=node(health="TIMEOUT", held=MINUTE)),
        "unknown wait",
        contradictions=("unresponsive",),
    ),
)
