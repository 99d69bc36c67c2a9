"""Situations that runtime metrics and processors decide: training, free, compiling, stuck, hung."""

from __future__ import annotations

from tests.health.scenes import (
    HOUR,
    MINUTE,
    NOW,
    PID,
    Situation,
    event,
    heard,
    holder,
    host,
    identity,
    idle,
    job,
    launch,
    logs,
    node,
    own,
    runtime,
    silent,
    symptom,
    training,
)
from tpuwatch.health.evidence import Chip, Problem, Runtime, RuntimePort, Witness
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.model import Cause, Outcome

CHILD = 4712
SILENT = logs(launch(Outcome.SILENT, 20 * MINUTE), alive=(PID,))
BUSY = host(holder(4.0, 20 * MINUTE))
WELL = "The API says READY and HEALTHY"

SITUATIONS = (
    # Training, free, starting.
    Situation("training", training(), Verdict.HEALTHY, Rung.NOTHING, Sureness.CERTAIN, Witness.RUNTIME, says=("90%",)),
    Situation(
        "training by a small idle time, without a duty cycle",
        training(runtime=runtime(None, 2.0)),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.CERTAIN,
    ),
    Situation(
        "training, and some chips have run nothing for long",
        training(
            runtime=heard(
                Runtime((RuntimePort(8431, (Chip("0", None, None, 0.9, 0.1), Chip("1", None, None, 0.0, HOUR))),))
            )
        ),
        Verdict.HEALTHY,
        Rung.NOTHING,
        contradictions=("1 have run nothing for long",),
    ),
    Situation(
        "training, and one of two processes does not answer",
        training(
            runtime=heard(
                Runtime(
                    (
                        RuntimePort(8431, (Chip("0", None, None, 0.9, 0.1),)),
                        RuntimePort(8432, problem=Problem.TIMEOUT, since=NOW - HOUR),
                    )
                )
            )
        ),
        Verdict.HEALTHY,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=("port 8432 does not answer",),
        says=("port 8432 has not answered for 1 h.",),
        remedy=("py-spy dump",),
    ),
    Situation("free", own(), Verdict.IDLE, Rung.NOTHING, Sureness.CERTAIN, Witness.HOST),
    Situation(
        "free, as far as a daemon with few rights can see",
        own(host=host(unseen=("processes of other users: run as root to see them",))),
        Verdict.IDLE,
        Rung.NOTHING,
        Sureness.LIKELY,
        missing=("Processes of other users",),
    ),
    Situation(
        "booted two minutes ago",
        own(host=host(booted=2 * MINUTE)),
        Verdict.STARTING,
        Rung.WAIT,
        Sureness.LIKELY,
        Witness.HOST,
        says=("2 min",),
    ),
    Situation(
        "trains already two minutes after the boot",
        training(host=host(holder(age=MINUTE), booted=2 * MINUTE)),
        Verdict.HEALTHY,
        Rung.NOTHING,
    ),
    Situation(
        "a program took the TPU a minute ago",
        own(host=host(holder(2.0, MINUTE))),
        Verdict.STARTING,
        Rung.WAIT,
        first=Witness.HOST,
    ),
    Situation(
        "a launch began a minute ago, and nobody may see who holds the TPU",
        own(logs=logs(launch(Outcome.STARTING, MINUTE), alive=(PID,))),
        Verdict.STARTING,
        Rung.WAIT,
        first=Witness.LOGS,
    ),
    # Compiles.
    Situation(
        "a compile of two minutes",
        job(idle(2 * MINUTE), 0.2, 2 * MINUTE),
        Verdict.COMPILING,
        Rung.WAIT,
        Sureness.LIKELY,
        Witness.RUNTIME,
    ),
    Situation(
        "a compile of 20 minutes with the processors busy",
        job(idle(20 * MINUTE), 8.0, 20 * MINUTE),
        Verdict.COMPILING,
        Rung.WAIT,
        Sureness.LIKELY,
        Witness.HOST,
        says=("8.00 cores",),
    ),
    Situation(
        "a compile of 20 minutes, of which only the whole machine's processors tell",
        job(idle(20 * MINUTE), None, 20 * MINUTE, host=host(holder(None, 20 * MINUTE), cpu_busy=0.4)),
        Verdict.COMPILING,
        Rung.WAIT,
    ),
    Situation(
        "a compile of 20 minutes without processors",
        job(idle(20 * MINUTE, queue=1), 0.01, 20 * MINUTE),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.CERTAIN,
        Witness.RUNTIME,
        contradictions=(f"{WELL}, the chips have run nothing for 20 min",),
        remedy=(f"kill {PID}",),
    ),
    Situation(
        "a compile of 20 minutes before the metrics are up, with the processors busy",
        own(host=BUSY, logs=SILENT),
        Verdict.COMPILING,
        Rung.WAIT,
        first=Witness.HOST,
    ),
    Situation(
        "a compile of three hours with the processors busy",
        job(idle(3 * HOUR), 1.0, 4 * HOUR),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=(WELL,),
        says=("though the host works",),
    ),
    Situation(
        "steps of minutes: chips idle for four in an old program",
        job(idle(4 * MINUTE), 0.2),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.LIKELY,
        Witness.RUNTIME,
    ),
    Situation(
        "chips idle for four minutes, and programs wait",
        job(idle(4 * MINUTE, queue=2), 0.2),
        Verdict.IDLE,
        Rung.WAIT,
        Sureness.LIKELY,
        Witness.RUNTIME,
    ),
    Situation(
        "chips idle for four minutes after a hang",
        job(idle(4 * MINUTE), 0.0, logs=logs(launch(), event(Cause.HANG, 3 * MINUTE), alive=(PID,))),
        Verdict.IDLE,
        Rung.WAIT,
    ),
    Situation(
        "chips idle for four minutes, and no program has run on them since this one began seven minutes ago",
        job(idle(4 * MINUTE), 0.2, 7 * MINUTE),
        Verdict.IDLE,
        Rung.WAIT,
    ),
    Situation(
        "chips idle for six minutes in an old program",
        job(idle(6 * MINUTE), 0.2),
        Verdict.IDLE,
        Rung.WAIT,
        Sureness.LIKELY,
    ),
    Situation(
        "a new program on chips that were idle for hours",
        job(idle(3 * HOUR), 0.0, MINUTE),
        Verdict.COMPILING,
        Rung.WAIT,
    ),
    # Stuck jobs.
    Situation(
        "idle for 20 minutes, and it is not known what the processors do",
        job(idle(20 * MINUTE), None),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
    ),
    Situation(
        "idle for 20 minutes, and the host gave no answer",
        job(idle(20 * MINUTE), 0.0, host=silent(Problem.INTERNAL)),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
        missing=("The host's own view could not be asked",),
    ),
    Situation(
        "idle for 20 minutes, and the API names a symptom",
        job(idle(20 * MINUTE), None, cloud=heard(node(symptoms=(symptom("EXECUTE_TIMED_OUT"),)))),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.CERTAIN,
        contradictions=(WELL, "EXECUTE_TIMED_OUT"),
    ),
    Situation(
        "stuck, while the API is down: nobody may object, so nobody acts",
        job(idle(20 * MINUTE, queue=3), 0.0, cloud=silent(Problem.SERVER, last=node())),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.CERTAIN,
        missing=("The Cloud TPU API has an error", "without a word from the Cloud TPU API"),
    ),
    Situation(
        "stuck, on a TPU made through Compute Engine, of which the API knows nothing",
        job(
            idle(20 * MINUTE, queue=3),
            0.0,
            cloud=silent(Problem.UNCONFIGURED),
            identity=identity(node=""),
        ),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.CERTAIN,
    ),
    Situation(
        "stuck, and programs wait in the queue",
        job(idle(20 * MINUTE, queue=3), 0.0),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        contradictions=(WELL,),
        says=("3 programs wait",),
    ),
    Situation(
        "stuck, and nobody is seen to hold the TPU",
        job(idle(20 * MINUTE, queue=3), 0.0, host=host(cpu_busy=0.0002)),
        Verdict.JOB_STUCK,
        Rung.ASK,
        contradictions=(WELL,),
        missing=("No process is seen to hold the TPU",),
    ),
    Situation(
        "stuck after a fault of its own",
        job(
            idle(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.HBM_OOM_RUNTIME, 20 * MINUTE), alive=(PID,)),
        ),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        contradictions=(WELL,),
        says=("hbm_oom_runtime",),
    ),
    Situation(
        "idle for 20 minutes, and the program uses a little of the processors",
        job(idle(20 * MINUTE), 0.3),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
    ),
    Situation(
        "idle for 20 minutes, and of one of two processes nothing is known",
        job(idle(20 * MINUTE), 0.0, host=host(holder(0.0), holder(None, pid=CHILD), cpu_busy=None)),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
    ),
    Situation(
        "one core of 240 compiles for 40 minutes, and nobody may see who holds the TPU",
        own(
            runtime=idle(40 * MINUTE),
            host=host(cpu_busy=1 / 240, unseen=("The open files of 40 processes cannot be seen.",)),
            logs=logs(launch(age=41 * MINUTE), alive=(PID,)),
        ),
        Verdict.COMPILING,
        Rung.WAIT,
    ),
    Situation(
        "a worker of a slice that rests: it may wait for another, so it is not ended",
        job(idle(20 * MINUTE, queue=3), 0.02, identity=identity(hosts="4"), cloud=heard(node(hosts=4))),
        Verdict.JOB_STUCK,
        Rung.ASK,
        contradictions=(WELL,),
        missing=("The node has several hosts",),
        remedy=("Look at the other workers first", "kill 4711"),
    ),
    Situation(
        "chips that count as busy after a lost heartbeat: they may wait in a collective for ever",
        training(runtime=runtime(1.0, 0.0), logs=logs(launch(), event(Cause.HEARTBEAT_LOST, 3 * MINUTE), alive=(PID,))),
        Verdict.HEALTHY,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=("The log told of heartbeat_lost, and the chips count as busy",),
        remedy=("Look at the other workers first",),
    ),
)
