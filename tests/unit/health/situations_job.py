"""Situations that runtime metrics and processors decide: training, free, compiling, stuck, hung."""

from __future__ import annotations

from tests.unit.health.scenes import (
    API_WELL,
    HOUR,
    MINUTE,
    NOW,
    PID,
    SILENT_LAUNCH,
    Situation,
    answered,
    event,
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
from tpuwatch.model.events import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import Chip, Problem, Runtime, RuntimePort, Signal
from tpuwatch.model.verdict import Action, Confidence, Verdict

CHILD = 4712
BUSY = host(holder(4.0, 20 * MINUTE))

SITUATIONS = (
    # Training, free, starting.
    Situation("training", training(), Verdict.HEALTHY, Action.NONE, Confidence.HIGH, Signal.RUNTIME, words=("90%",)),
    Situation(
        "training by a small idle time, without a duty cycle",
        training(runtime=runtime(None, 2.0)),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.HIGH,
    ),
    Situation(
        "training, and some chips have run nothing for long",
        training(
            runtime=answered(
                Runtime((RuntimePort(8431, (Chip("0", None, None, 0.9, 0.1), Chip("1", None, None, 0.0, HOUR))),))
            )
        ),
        Verdict.HEALTHY,
        Action.NONE,
        contradictions=("1 have run nothing for long",),
    ),
    Situation(
        "training, and one of two processes does not answer",
        training(
            runtime=answered(
                Runtime(
                    (
                        RuntimePort(8431, (Chip("0", None, None, 0.9, 0.1),)),
                        RuntimePort(8432, problem=Problem.TIMEOUT, since=NOW - HOUR),
                    )
                )
            )
        ),
        Verdict.HEALTHY,
        Action.MANUAL,
        Confidence.LOW,
        contradictions=("port 8432 does not answer",),
        words=("port 8432 has not answered for 1 h.",),
        remedy=("py-spy dump",),
    ),
    Situation("free", own(), Verdict.IDLE, Action.NONE, Confidence.HIGH, Signal.HOST),
    Situation(
        "free, as far as a daemon with few rights can see",
        own(host=host(unseen=("processes of other users: run as root to see them",))),
        Verdict.IDLE,
        Action.NONE,
        Confidence.MEDIUM,
        missing=("Processes of other users",),
    ),
    Situation(
        "booted two minutes ago",
        own(host=host(booted=2 * MINUTE)),
        Verdict.STARTING,
        Action.WAIT,
        Confidence.MEDIUM,
        Signal.HOST,
        words=("2 min",),
    ),
    Situation(
        "trains already two minutes after the boot",
        training(host=host(holder(age=MINUTE), booted=2 * MINUTE)),
        Verdict.HEALTHY,
        Action.NONE,
    ),
    Situation(
        "a program took the TPU a minute ago",
        own(host=host(holder(2.0, MINUTE))),
        Verdict.STARTING,
        Action.WAIT,
        first=Signal.HOST,
    ),
    Situation(
        "a launch began a minute ago, and it is hidden who holds the TPU",
        own(logs=logs(launch(Outcome.STARTING, MINUTE), alive=(PID,))),
        Verdict.STARTING,
        Action.WAIT,
        first=Signal.LOGS,
    ),
    # Compiles.
    Situation(
        "a compile of two minutes",
        job(idle(2 * MINUTE), 0.2, 2 * MINUTE),
        Verdict.COMPILING,
        Action.WAIT,
        Confidence.MEDIUM,
        Signal.RUNTIME,
    ),
    Situation(
        "a compile of 20 minutes with the processors busy",
        job(idle(20 * MINUTE), 8.0, 20 * MINUTE),
        Verdict.COMPILING,
        Action.WAIT,
        Confidence.MEDIUM,
        Signal.HOST,
        words=("8.00 cores",),
    ),
    Situation(
        "a compile of 20 minutes, which only the whole machine's processors show",
        job(idle(20 * MINUTE), None, 20 * MINUTE, host=host(holder(None, 20 * MINUTE), cpu_busy=0.4)),
        Verdict.COMPILING,
        Action.WAIT,
    ),
    Situation(
        "a compile of 20 minutes without processors",
        job(idle(20 * MINUTE, queue=1), 0.01, 20 * MINUTE),
        Verdict.JOB_STUCK,
        Action.END_HOLDER,
        Confidence.HIGH,
        Signal.RUNTIME,
        contradictions=(f"{API_WELL}, the chips have run nothing for 20 min",),
        remedy=(f"kill {PID}",),
    ),
    Situation(
        "a compile of 20 minutes before the metrics are up, with the processors busy",
        own(host=BUSY, logs=SILENT_LAUNCH),
        Verdict.COMPILING,
        Action.WAIT,
        first=Signal.HOST,
    ),
    Situation(
        "a compile of three hours with the processors busy",
        job(idle(3 * HOUR), 1.0, 4 * HOUR),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.LOW,
        contradictions=(API_WELL,),
        words=("though the host works",),
    ),
    Situation(
        "steps of minutes: chips idle for four in an old program",
        job(idle(4 * MINUTE), 0.2),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        Signal.RUNTIME,
    ),
    Situation(
        "chips idle for four minutes, and programs wait",
        job(idle(4 * MINUTE, queue=2), 0.2),
        Verdict.IDLE,
        Action.WAIT,
        Confidence.MEDIUM,
        Signal.RUNTIME,
    ),
    Situation(
        "chips idle for four minutes after a hang",
        job(idle(4 * MINUTE), 0.0, logs=logs(launch(), event(Cause.HANG, 3 * MINUTE), alive=(PID,))),
        Verdict.IDLE,
        Action.WAIT,
    ),
    Situation(
        "chips idle for four minutes, and no program has run on them since this one began seven minutes ago",
        job(idle(4 * MINUTE), 0.2, 7 * MINUTE),
        Verdict.IDLE,
        Action.WAIT,
    ),
    Situation(
        "chips idle for six minutes in an old program",
        job(idle(6 * MINUTE), 0.2),
        Verdict.IDLE,
        Action.WAIT,
        Confidence.MEDIUM,
    ),
    Situation(
        "a new program on chips that were idle for hours",
        job(idle(3 * HOUR), 0.0, MINUTE),
        Verdict.COMPILING,
        Action.WAIT,
    ),
    # Stuck jobs.
    Situation(
        "idle for 20 minutes, and it is not known what the processors do",
        job(idle(20 * MINUTE), None),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.MEDIUM,
        contradictions=(API_WELL,),
    ),
    Situation(
        "idle for 20 minutes, and the host gave no answer",
        job(idle(20 * MINUTE), 0.0, host=silent(Problem.INTERNAL)),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.MEDIUM,
        contradictions=(API_WELL,),
        missing=("The host's own view could not be asked",),
    ),
    Situation(
        "idle for 20 minutes, and the API names a symptom",
        job(idle(20 * MINUTE), None, cloud=answered(node(symptoms=(symptom("EXECUTE_TIMED_OUT"),)))),
        Verdict.JOB_STUCK,
        Action.END_HOLDER,
        Confidence.HIGH,
        contradictions=(API_WELL, "EXECUTE_TIMED_OUT"),
    ),
    Situation(
        "stuck, while the API is down: no objection can be seen, so nothing is done",
        job(idle(20 * MINUTE, queue=3), 0.0, cloud=silent(Problem.SERVER, last=node())),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.HIGH,
        missing=("The Cloud TPU API has an error", "without an answer from the Cloud TPU API"),
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
        Action.END_HOLDER,
        Confidence.HIGH,
    ),
    Situation(
        "stuck, and programs wait in the queue",
        job(idle(20 * MINUTE, queue=3), 0.0),
        Verdict.JOB_STUCK,
        Action.END_HOLDER,
        contradictions=(API_WELL,),
        words=("3 programs wait",),
    ),
    Situation(
        "stuck, and no process is seen to hold the TPU",
        job(idle(20 * MINUTE, queue=3), 0.0, host=host(cpu_busy=0.0002)),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        contradictions=(API_WELL,),
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
        Action.END_HOLDER,
        contradictions=(API_WELL,),
        words=("hbm_oom_runtime",),
    ),
    Situation(
        "idle for 20 minutes, and the program uses a little of the processors",
        job(idle(20 * MINUTE), 0.3),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.MEDIUM,
        contradictions=(API_WELL,),
    ),
    Situation(
        "idle for 20 minutes, and of one of two processes nothing is known",
        job(idle(20 * MINUTE), 0.0, host=host(holder(0.0), holder(None, pid=CHILD), cpu_busy=None)),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.MEDIUM,
        contradictions=(API_WELL,),
    ),
    Situation(
        "one core of 240 compiles for 40 minutes, and it is hidden who holds the TPU",
        own(
            runtime=idle(40 * MINUTE),
            host=host(cpu_busy=1 / 240, unseen=("The open files of 40 processes cannot be seen.",)),
            logs=logs(launch(age=41 * MINUTE), alive=(PID,)),
        ),
        Verdict.COMPILING,
        Action.WAIT,
    ),
    Situation(
        "a worker of a slice that rests: it may wait for another, so it is not ended",
        job(idle(20 * MINUTE, queue=3), 0.02, identity=identity(hosts="4"), cloud=answered(node(hosts=4))),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        contradictions=(API_WELL,),
        missing=("The node has several hosts",),
        remedy=("Look at the other workers first", "kill 4711"),
    ),
    Situation(
        "chips that count as busy after a lost heartbeat: they may wait in a collective for ever",
        training(runtime=runtime(1.0, 0.0), logs=logs(launch(), event(Cause.HEARTBEAT_LOST, 3 * MINUTE), alive=(PID,))),
        Verdict.HEALTHY,
        Action.MANUAL,
        Confidence.LOW,
        contradictions=("The log reports heartbeat_lost, and the chips count as busy",),
        remedy=("Look at the other workers first",),
    ),
)
