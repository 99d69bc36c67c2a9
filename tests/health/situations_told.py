"""Situations in which a witness answers, and what it tells is little, or makes no sense."""

from __future__ import annotations

from dataclasses import replace

from tests.health.scenes import (
    GIB,
    HOUR,
    MINUTE,
    NOW,
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
)
from tpuwatch.health.evidence import Chip, Evidence, Problem, Runtime, RuntimePort
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.model import Cause, Outcome

NO_WORD = "The runtime answers, and does not tell what the chips do"
ONE_STEPS = RuntimePort(8431, (Chip("0", 9 * GIB, 16 * GIB, 0.9, 0.1),))
ZEROS = heard(Runtime((RuntimePort(8431, tuple(Chip(str(number), 0, 0, 0.0, 0.0) for number in range(4)), 0),)))

HUNG = RuntimePort(8434, problem=Problem.TIMEOUT, since=NOW - 20 * MINUTE)


def four(*ages: float, told: bool = True, queue: int = 0, last: RuntimePort | None = HUNG) -> Evidence:
    """Four programs of one user, a chip for each, that began so long ago and rest; what the port of the `last` says."""
    held = [holder(0.0, age, pid=PID + place) for place, age in enumerate(ages)]
    begun = [launch(age=age, pid=PID + place) for place, age in enumerate(ages)]
    ports = [RuntimePort(8431 + place, (Chip(str(place), GIB, 16 * GIB, 0.0, HOUR),)) for place in range(4)]
    ports[3] = last or replace(ports[3], hlo_queue=queue)
    return own(
        runtime=heard(Runtime(tuple(ports))),
        host=host(*held),
        logs=logs(*begun, alive=tuple(one.pid for one in begun)) if told else logs(),
    )


APART = (9 * HOUR, 7 * HOUR, 5 * HOUR, 3 * HOUR)
WHICH = "Nothing tells which of the processes that hold the TPU is at fault"

SITUATIONS = (
    # The runtime.
    Situation(
        "a runtime that answers with zeros, and its program rests",
        job(ZEROS, 0.0),
        Verdict.UNKNOWN,
        Rung.WAIT,
        Sureness.WEAK,
        missing=(NO_WORD,),
    ),
    Situation(
        "a runtime that answers with zeros, and its program works",
        job(ZEROS, 3.0),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.LIKELY,
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
        Rung.ASK,
        Sureness.WEAK,
        contradictions=("without a sign of work",),
        missing=(NO_WORD,),
    ),
    Situation(
        "a step has just begun on chips that were idle for long",
        job(runtime(0.0, 0.0), 0.0),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.CERTAIN,
    ),
    Situation(
        "a runtime that tells of memory alone, and its program works",
        job(runtime(None, None), 3.0),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.LIKELY,
        missing=(NO_WORD,),
    ),
    Situation(
        "a runtime that tells of memory alone, and its program rests",
        job(runtime(None, None), 0.0),
        Verdict.UNKNOWN,
        Rung.WAIT,
        Sureness.WEAK,
        missing=(NO_WORD,),
    ),
    Situation(
        "a duty cycle of nothing, and no word on since when",
        job(runtime(0.0, None), 0.0),
        Verdict.IDLE,
        Rung.WAIT,
        Sureness.WEAK,
        says=("since when is not told",),
    ),
    Situation(
        "training on one of two ports, and the other has not answered for a minute",
        job(heard(Runtime((ONE_STEPS, RuntimePort(8432, problem=Problem.TIMEOUT, since=NOW - MINUTE)))), 3.0),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.CERTAIN,
        contradictions=("port 8432 does not answer",),
    ),
    Situation(
        "one of four ports does not answer, and nothing runs on the chips of the others",
        job(
            heard(
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
        Rung.RESTART_RUNTIME,
        Sureness.CERTAIN,
        contradictions=("has not answered for 20 min",),
    ),
    Situation(
        "programs have waited for 20 minutes on chips that run nothing, and the host works",
        job(idle(20 * MINUTE, queue=3), 3.0, 5 * HOUR),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=("the chips have run nothing for 20 min",),
        says=("3 programs wait", "though the host works"),
    ),
    Situation(
        "programs have waited for eight minutes, and the host works",
        job(idle(8 * MINUTE, queue=3), 3.0, 5 * HOUR),
        Verdict.COMPILING,
        Rung.WAIT,
    ),
    # Several programs.
    Situation(
        "four processes of one job, and one of them does not answer",
        four(*[5 * HOUR] * 4),
        Verdict.RUNTIME_STUCK,
        Rung.RESTART_RUNTIME,
        contradictions=("has not answered for 20 min",),
        remedy=("kill -9 4711 4712 4713 4714",),
    ),
    Situation(
        "four programs of one user, and one of them does not answer: the others may be notebooks",
        four(*APART),
        Verdict.RUNTIME_STUCK,
        Rung.ASK,
        contradictions=("has not answered for 20 min",),
        missing=(WHICH,),
        remedy=("kill -9 PID",),
    ),
    Situation(
        "the same, and no log tells of them: the oldest may be as good as any",
        four(*APART, told=False),
        Verdict.RUNTIME_STUCK,
        Rung.ASK,
        contradictions=("has not answered for 20 min",),
        missing=(WHICH,),
        remedy=("kill -9 PID",),
    ),
    Situation(
        "four programs of one user, and what one of them wants to run waits",
        four(*APART, last=None, queue=4),
        Verdict.JOB_STUCK,
        Rung.ASK,
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
        Rung.WAIT,
        Sureness.WEAK,
        says=("without runtime metrics nothing tells",),
    ),
    # The cloud.
    Situation(
        "a failed repair under maintenance",
        own(cloud=heard(node("UNKNOWN", "UNHEALTHY_MAINTENANCE"))),
        Verdict.MAINTENANCE,
        Rung.WAIT,
        says=("The API says UNKNOWN and UNHEALTHY_MAINTENANCE",),
    ),
    Situation(
        "a zone that nothing tells, and a program is stuck",
        job(
            idle(HOUR, queue=3),
            0.0,
            2 * HOUR,
            identity=identity(zone=""),
            cloud=replace(silent(Problem.UNCONFIGURED, "No zone is known."), tried=NOW - 5),
        ),
        Verdict.JOB_STUCK,
        Rung.ASK,
        missing=("No zone is known", "without a word from the Cloud TPU API"),
        remedy=("kill 4711",),
    ),
    # Several hosts.
    Situation(
        "a hung runtime on one of four hosts",
        job(hung(20 * MINUTE), 0.0, 5 * HOUR, identity=identity(hosts="4"), cloud=heard(node(hosts=4))),
        Verdict.RUNTIME_STUCK,
        Rung.ASK,
        contradictions=("has not answered for 20 min",),
        missing=("The node has several hosts",),
        remedy=("Look at the other workers first", "kill -9 4711"),
    ),
    Situation(
        "a fault whose record is too long to be told in full",
        own(logs=logs(launch(Outcome.FAILED), event(Cause.HBM_OOM_COMPILE, text="Ran out of memory " * 40))),
        Verdict.IDLE,
        Rung.FIX_PROGRAM,
        says=("Ran out of…",),
    ),
    # Programs that somebody ended.
    Situation(
        "told to end ten minutes ago, and still there",
        own(
            host=host(holder(0.0)),
            logs=logs(launch(last_heard=NOW - 10 * MINUTE), event(Cause.INTERRUPTED, 10 * MINUTE), alive=(PID,)),
        ),
        Verdict.UNKNOWN,
        Rung.WAIT,
        Sureness.WEAK,
    ),
)
