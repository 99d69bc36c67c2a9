"""Situations that runtime, host and logs decide: training, free, compiling, stuck, hung, and whose process it is."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.health.scenes import (
    ABSENT,
    API_WELL,
    GIB,
    HOUR,
    MINUTE,
    NOW,
    OFF,
    PID,
    RESTING,
    SILENT_LAUNCH,
    UNSEEN,
    Situation,
    against_the_api,
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
    runtime,
    silent,
    symptom,
    training,
)
from tpuwatch.model.answers import Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import Chip, Runtime, RuntimePort

OTHER = 4712
STARTED = logs(launch(Outcome.STARTING, 20 * MINUTE), alive=(PID,))
ENDED = logs(launch(age=HOUR))
BUFFERED = own(host=RESTING)
TOOL = 4713
WAITS = "it may be stuck, or wait for its user"
NOTEBOOK = holder(0.0, 5 * HOUR, command="python -m ipykernel_launcher")
IN_USE = launch(Outcome.FAILED, 10 * MINUTE, OTHER, cause=Cause.TPU_IN_USE)
WAITING = idle(2 * HOUR, queue=3)
UP = logs(launch(age=41 * MINUTE), alive=(PID,))

SITUATIONS = (
    # Training, free, starting.
    Situation("training", training(), "healthy none high runtime", words=("90%", "on 4 of 4 chips,")),
    Situation(
        "training on chips that are two devices each",
        of_type(training(runtime=runtime(chips=8)), "tpu7x-8"),
        "healthy none high runtime",
        words=("on 8 of 8 devices of 4 chips,",),
    ),
    Situation(
        "training by a small idle time, without a duty cycle", training(runtime=runtime(None, 2.0)), "healthy none high"
    ),
    Situation(
        "training, and some chips have run nothing for long",
        training(
            runtime=Runtime((RuntimePort(8431, (Chip("0", None, None, 0.9, 0.1), Chip("1", None, None, 0.0, HOUR))),))
        ),
        "healthy none",
        contradictions=("1 have run nothing for long",),
    ),
    Situation(
        "training, and one of two processes does not answer",
        training(
            runtime=Runtime(
                (
                    RuntimePort(8431, (Chip("0", None, None, 0.9, 0.1),)),
                    RuntimePort(8432, problem=Problem.TIMEOUT, since=NOW - HOUR),
                )
            )
        ),
        "healthy manual low",
        contradictions=("port 8432 does not answer",),
        words=("port 8432 has not answered for 1 h.",),
        remedy=("py-spy dump",),
    ),
    Situation("free", own(), "idle none high host"),
    Situation(
        "free, as far as a daemon with few rights can see",
        own(host=host(unseen=("processes of other users: run as root to see them",))),
        "idle none medium",
        missing=("Processes of other users",),
    ),
    Situation(
        "booted two minutes ago", own(host=host(booted=2 * MINUTE)), "starting wait medium host", words=("2 min",)
    ),
    Situation(
        "trains already two minutes after the boot",
        training(host=host(holder(age=MINUTE), booted=2 * MINUTE)),
        "healthy none",
    ),
    Situation("a program took the TPU a minute ago", own(host=host(holder(2.0, MINUTE))), "starting wait host"),
    Situation(
        "a launch began a minute ago, and it is hidden who holds the TPU",
        own(logs=logs(launch(Outcome.STARTING, MINUTE), alive=(PID,))),
        "starting wait logs",
    ),
    # Compiles.
    Situation("a compile of two minutes", job(idle(2 * MINUTE), 0.2, 2 * MINUTE), "compiling wait medium runtime"),
    Situation(
        "a compile of 20 minutes with the processors busy",
        job(idle(20 * MINUTE), 8.0, 20 * MINUTE),
        "compiling wait medium host",
        words=("8.00 cores",),
    ),
    Situation(
        "a compile of 20 minutes, beside a process of any user that has a device by name only and rests",
        job(
            idle(20 * MINUTE),
            8.0,
            20 * MINUTE,
            host=host(holder(8.0, 20 * MINUTE), holder(0, pid=OTHER, trusted=False)),
        ),
        "compiling wait",
    ),
    Situation(
        "a program that is stuck, beside a process of any user that has a device by name only and works",
        job(idle(20 * MINUTE, queue=1), 0.0, host=host(holder(0.0), holder(8.0, pid=OTHER, user="bob", trusted=False))),
        "job_stuck manual",
        contradictions=(API_WELL,),
    ),
    Situation(
        "a compile of 20 minutes without processors",
        job(idle(20 * MINUTE, queue=1), 0.01, 20 * MINUTE),
        "job_stuck end_holder high runtime",
        contradictions=(f"{API_WELL}, the chips have run nothing for 20 min",),
        remedy=(f"kill {PID}",),
    ),
    Situation(
        "a compile of 20 minutes before the metrics are up, with the processors busy",
        own(host=host(holder(4.0, 20 * MINUTE)), logs=SILENT_LAUNCH),
        "compiling wait host",
    ),
    Situation(
        "a compile of three hours with the processors busy",
        job(idle(3 * HOUR), 1.0, 4 * HOUR),
        "idle none low",
        words=("though the host works",),
    ),
    Situation(
        "steps of minutes: chips idle for four in an old program",
        job(idle(4 * MINUTE), 0.2),
        "healthy none medium runtime",
    ),
    Situation(
        "chips idle for four minutes, and programs wait",
        job(idle(4 * MINUTE, queue=2), 0.2),
        "idle wait medium runtime",
    ),
    Situation(
        "chips idle for four minutes after a hang",
        job(idle(4 * MINUTE), 0.0, logs=logs(launch(), event(Cause.HANG, 3 * MINUTE), alive=(PID,))),
        "idle wait",
    ),
    Situation(
        "chips idle for four minutes, and no program has run on them since this one began seven minutes ago",
        job(idle(4 * MINUTE), 0.2, 7 * MINUTE),
        "idle wait",
    ),
    Situation("chips idle for six minutes in an old program", job(idle(6 * MINUTE), 0.2), "idle wait medium"),
    Situation("a new program on chips that were idle for hours", job(idle(3 * HOUR), 0.0, MINUTE), "compiling wait"),
    # Stuck jobs.
    Situation(
        "idle for 20 minutes, and it is not known what the processors do",
        job(idle(20 * MINUTE), None),
        "idle none medium",
    ),
    Situation(
        "idle for 20 minutes, and the host gave no answer",
        job(idle(20 * MINUTE), 0.0, host=silent(Problem.INTERNAL)),
        "idle none low",
        missing=("The host's own view could not be asked",),
    ),
    Situation(
        "idle for 20 minutes, and the API names a symptom",
        job(idle(20 * MINUTE), None, cloud=node(symptoms=(symptom("EXECUTE_TIMED_OUT"),))),
        "job_stuck manual medium",
        contradictions=(API_WELL, "EXECUTE_TIMED_OUT"),
    ),
    Situation(
        "stuck, while the API is down: no objection can be seen, so nothing is done",
        job(idle(20 * MINUTE, queue=3), 0.0, cloud=silent(Problem.SERVER, last=node())),
        "job_stuck manual high",
        missing=("The Cloud TPU API has an error", "without an answer from the Cloud TPU API"),
    ),
    Situation(
        "stuck, on a TPU made through Compute Engine, of which the API knows nothing",
        job(idle(20 * MINUTE, queue=3), 0.0, cloud=silent(Problem.UNCONFIGURED), identity=identity(node="")),
        "job_stuck end_holder high",
    ),
    against_the_api(
        "stuck, and programs wait in the queue",
        job(idle(20 * MINUTE, queue=3), 0.0),
        "job_stuck end_holder",
        words=("3 programs wait",),
    ),
    Situation(
        "stuck, and no process is seen to hold the TPU",
        job(idle(20 * MINUTE, queue=3), 0.0, host=host()),
        "idle none low",
    ),
    against_the_api(
        "stuck after a fault of its own",
        job(idle(20 * MINUTE), 0.0, logs=logs(launch(), event(Cause.HBM_OOM_RUNTIME, 20 * MINUTE), alive=(PID,))),
        "job_stuck manual low",
        words=("hbm_oom_runtime",),
    ),
    Situation(
        "idle for 20 minutes, and the program uses a little of the processors",
        job(idle(20 * MINUTE), 0.3),
        "idle none medium",
    ),
    Situation(
        "idle for 20 minutes, and of one of two processes nothing is known",
        job(idle(20 * MINUTE), 0.0, host=host(holder(0.0), holder(None, pid=OTHER))),
        "idle none medium",
    ),
    Situation(
        "chips that have run nothing for 40 minutes, and it is hidden who holds the TPU, so nothing shows a compile",
        own(runtime=idle(40 * MINUTE), host=host(unseen=UNSEEN), logs=UP),
        "idle none low",
        words=(WAITS,),
    ),
    against_the_api(
        "a worker of a slice that rests: it may wait for another, so it is not ended",
        job(idle(20 * MINUTE, queue=3), 0.02, identity=identity(hosts="4"), cloud=node(hosts=4)),
        "job_stuck manual",
        missing=("The node has several hosts",),
        remedy=("Look at the other workers first", "kill 4711"),
    ),
    Situation(
        "chips that count as busy after a lost heartbeat: they may wait in a collective for ever",
        training(runtime=runtime(1.0, 0.0), logs=logs(launch(), event(Cause.HEARTBEAT_LOST, 3 * MINUTE), alive=(PID,))),
        "healthy manual low",
        contradictions=("The log reports heartbeat_lost, and the chips count as busy",),
        remedy=("Look at the other workers first",),
    ),
    # Stuck starts, and what is left behind.
    Situation(
        "a stuck initialisation that logs nothing, because INFO is buffered",
        BUFFERED,
        "job_stuck manual low host",
        contradictions=(f"{API_WELL}, a program has held the TPU for 20 min",),
        remedy=("--logbuflevel=-1",),
    ),
    against_the_api(
        "a stuck initialisation whose log shows its beginning",
        own(host=RESTING, logs=SILENT_LAUNCH),
        "job_stuck manual low host",
    ),
    against_the_api(
        "the same on v3, which serves no metrics at all",
        of_type(own(host=RESTING, logs=SILENT_LAUNCH), "v3-8"),
        "job_stuck manual low",
        missing=("serves no runtime metrics",),
    ),
    against_the_api(
        "the same, and the runtime was not asked",
        own(host=RESTING, logs=SILENT_LAUNCH, runtime=OFF),
        "job_stuck manual",
    ),
    Situation(
        "a launch that logs nothing, and it is hidden who holds the TPU",
        own(logs=STARTED, host=host()),
        "unknown wait",
    ),
    against_the_api(
        "the same, and metrics were not asked for for an hour",
        own(host=RESTING, logs=SILENT_LAUNCH, runtime=replace(ABSENT, tried=NOW - HOUR)),
        "job_stuck manual",
    ),
    Situation(
        "a launch of before this boot, whose number another process has now",
        own(logs=SILENT_LAUNCH, host=host(booted=10 * MINUTE)),
        "idle none",
    ),
    Situation(
        "v2: a program came up and works",
        of_type(own(host=host(holder(2.0)), logs=logs(launch(), alive=(PID,))), "v2-8"),
        "healthy none medium host",
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "v3: a program came up and hardly uses the processors",
        of_type(own(host=host(holder(0.02)), logs=logs(launch(), alive=(PID,))), "v3-8"),
        "healthy none low",
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "v3: a program that came up, reported that a core had halted, and rests since",
        of_type(
            own(host=host(holder(0.0)), logs=logs(launch(), event(Cause.CORE_HALTED, 20 * MINUTE), alive=(PID,))),
            "v3-8",
        ),
        "job_stuck manual low",
        contradictions=("a program has held the TPU",),
        words=("core_halted",),
        missing=("serves no runtime metrics",),
        remedy=(f"kill {PID}",),
    ),
    Situation(
        "v3: a holder in no log, resting",
        of_type(BUFFERED, "v3-8"),
        "unknown wait",
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "a program that came up, whose metrics are gone",
        own(host=host(holder(0.02)), logs=logs(launch(), alive=(PID,))),
        "unknown wait",
        missing=("The runtime metric service is not there",),
    ),
    against_the_api(
        "a job that ended and left a child on /dev/vfio",
        own(host=host(holder(0.0, pid=OTHER)), logs=ENDED),
        "job_stuck manual low host",
        words=(f"Process {OTHER} (python train.py) of alice holds /dev/vfio/0", "its process has ended"),
        remedy=(f"kill {OTHER}",),
    ),
    against_the_api(
        "the same on v2: it may as well work",
        of_type(own(host=host(holder(0.0, pid=OTHER)), logs=ENDED), "v2-8"),
        "job_stuck manual low",
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "a job that ended and left the lock file",
        own(
            host=host(lock_file=True),
            logs=logs(launch(Outcome.FAILED, 10 * MINUTE), event(Cause.TPU_IN_USE, 10 * MINUTE)),
        ),
        "idle manual medium",
        words=("tpu_in_use",),
        remedy=("rm /tmp/libtpu_lockfile",),
    ),
    Situation(
        "a notebook whose user went home",
        job(idle(2 * HOUR), 0.0, 5 * HOUR, host=host(NOTEBOOK)),
        "idle none medium runtime",
        words=(WAITS,),
        remedy=(f"holds the TPU ({PID}) whether it waits",),
    ),
    Situation(
        "a notebook in no log",
        own(runtime=idle(2 * HOUR), host=host(NOTEBOOK)),
        "idle none medium",
        words=(WAITS,),
    ),
    Situation(
        "a notebook in no log, and a launch that found the TPU in use",
        own(runtime=idle(2 * HOUR), host=host(NOTEBOOK), logs=logs(IN_USE, event(Cause.TPU_IN_USE, pid=OTHER))),
        "idle none medium",
        words=(WAITS,),
    ),
    against_the_api(
        "a notebook that was opened after a program had ended",
        own(host=host(replace(NOTEBOOK, started=holder(age=20 * MINUTE).started)), logs=logs(launch(pid=OTHER))),
        "job_stuck manual low",
        remedy=("whether it waits",),
    ),
    against_the_api(
        "a notebook that was opened before a program that has ended",
        own(host=host(NOTEBOOK), logs=logs(launch(pid=OTHER))),
        "job_stuck manual low",
        remedy=("whether it waits",),
    ),
    Situation(
        "a notebook in which a cell failed, and others ran since",
        job(
            idle(20 * MINUTE),
            0.0,
            host=host(NOTEBOOK),
            logs=logs(launch(), event(Cause.HBM_OOM_RUNTIME, 40 * MINUTE), alive=(PID,)),
        ),
        "idle none medium",
        words=(WAITS,),
    ),
    Situation(
        "a notebook, and a fault of another program",
        job(
            idle(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.HBM_OOM_RUNTIME, 20 * MINUTE, pid=OTHER), alive=(PID,)),
        ),
        "idle none medium",
        words=(WAITS,),
    ),
    against_the_api(
        "a program that hangs by its own log",
        job(idle(20 * MINUTE), 0.0, logs=logs(launch(), event(Cause.HANG, 19 * MINUTE), alive=(PID,))),
        "job_stuck manual low",
        words=("reported hang",),
        remedy=(f"kill {PID}`",),
    ),
    against_the_api(
        "a program that never came up",
        job(idle(20 * MINUTE), 0.0, 21 * MINUTE, logs=logs(launch(Outcome.SILENT, 20 * MINUTE), alive=(PID,))),
        "job_stuck manual low",
        words=("has not come up",),
    ),
    against_the_api(
        "a child of a program that has ended keeps the runtime",
        own(runtime=idle(20 * MINUTE), host=host(holder(0.0, pid=OTHER)), logs=logs(launch())),
        "job_stuck manual low",
        words=("its process has ended",),
        remedy=(f"kill {OTHER}`",),
    ),
    against_the_api(
        "a child of a program that has ended holds the TPU, and those who start again find it in use",
        own(host=host(holder(0.0, pid=OTHER)), logs=logs(replace(IN_USE, pid=TOOL), launch())),
        "job_stuck manual low",
        remedy=(f"kill {OTHER}`",),
    ),
    Situation(
        "a symptom by the API, and the program rests",
        job(idle(20 * MINUTE), 0.0, cloud=node(symptoms=(symptom("EXECUTE_TIMED_OUT"),))),
        "job_stuck manual medium",
        contradictions=(API_WELL, "EXECUTE_TIMED_OUT"),
    ),
    # Whose pid is named.
    against_the_api(
        "stuck, beside a tool that looks at the TPU",
        job(WAITING, 0.0, host=host(holder(0.0, 3 * HOUR), holder(1.0, 20, TOOL, command="tpu-info"))),
        "job_stuck end_holder high",
        remedy=(f"kill {PID}`",),
    ),
    against_the_api(
        "stuck, beside a tool that has looked at the TPU for two minutes",
        own(runtime=WAITING, host=host(holder(0.0, 3 * HOUR), holder(0.0, 2 * MINUTE, TOOL))),
        "job_stuck end_holder",
        remedy=(f"kill {PID}`",),
    ),
    against_the_api(
        "stuck, and its log shows which of two processes is the program",
        job(WAITING, 0.0, host=host(holder(0.0, 3 * HOUR), holder(0.0, 2 * MINUTE, TOOL))),
        "job_stuck end_holder",
        remedy=(f"kill {PID}`",),
    ),
    against_the_api(
        "stuck, and of two launches only one has met a fault",
        job(
            idle(20 * MINUTE),
            0.0,
            host=host(holder(0.0), holder(0.0, pid=OTHER)),
            logs=logs(launch(), launch(pid=OTHER), event(Cause.HANG, pid=OTHER), alive=(PID, OTHER)),
        ),
        "job_stuck manual low",
        remedy=(f"kill {OTHER}`",),
    ),
    against_the_api(
        "stuck, and processes of two users hold the TPU",
        job(WAITING, 0.0, host=host(holder(0.0), holder(0.0, pid=OTHER, user="bob"))),
        "job_stuck manual",
        missing=("which of the processes that hold the TPU",),
        remedy=("kill PID`",),
    ),
    against_the_api(
        "a hung runtime, and processes of two users hold the TPU",
        job(hung(20 * MINUTE), 0.0, host=host(holder(0.0), holder(0.0, pid=OTHER, user="bob"))),
        "runtime_stuck manual",
        missing=("which of the processes that hold the TPU",),
        remedy=("kill -9 PID`",),
    ),
    # Runtimes that do not answer.
    against_the_api(
        "a call on the device that is blocked in the kernel, and nothing else is known",
        own(host=host(replace(holder(0.0), blocked_seconds=20 * MINUTE))),
        "job_stuck manual medium host",
        words=("on /dev/vfio/0 has been blocked in the kernel for 20 min",),
    ),
    against_the_api(
        "a call on the device that is blocked in the kernel, and programs that wait",
        job(WAITING, 0.0, host=host(replace(holder(0.0), blocked_seconds=20 * MINUTE))),
        "job_stuck end_holder high",
        remedy=(f"kill {PID}`",),
    ),
    Situation(
        "a call on the device that has been blocked for a minute only",
        job(idle(20 * MINUTE), 0.0, host=host(replace(holder(0.0), blocked_seconds=MINUTE))),
        "idle none medium",
    ),
    Situation(
        "a lock of any user's process, on a machine where all can be seen",
        own(host=host(holder(0.0, devices=(), locks=True))),
        "unknown wait low host",
        words=("holds no device",),
    ),
    Situation(
        "a port that does not answer, on which another process than the holder listens",
        own(runtime=hung(30 * MINUTE), host=host(holder(0.0), listeners=())),
        "unknown wait low host",
        missing=("Port 8431 does not answer, and others than who holds the TPU listen there",),
    ),
    Situation(
        "a hung runtime under READY and HEALTHY: the host ran out of memory",
        job(
            hung(31 * MINUTE),
            None,
            host=host(holder(None), memory_available_bytes=GIB, oom_kills=2, last_oom_kill=NOW - 31 * MINUTE),
        ),
        "runtime_stuck manual medium runtime",
        contradictions=(f"{API_WELL}, the runtime has not answered for 31 min",),
        words=("killed a process for lack of memory",),
        remedy=(f"kill -9 {PID}", "Hold less in the host's memory"),
    ),
    against_the_api(
        "a hung runtime whose program rests", job(hung(20 * MINUTE), 0.0), "runtime_stuck restart_runtime high"
    ),
    Situation("a hung runtime whose program works", job(hung(20 * MINUTE), 6.0), "compiling wait low host"),
    against_the_api(
        "a hung runtime whose program works, on a machine out of memory",
        job(hung(20 * MINUTE), 6.0, host=host(holder(6.0), memory_available_bytes=GIB)),
        "runtime_stuck manual low",
    ),
    Situation("a runtime that has not answered for a minute", job(hung(MINUTE), 0.0), "unknown wait low"),
    Situation("a runtime that does not answer, and it is not known since when", job(hung(None), 0.0), "unknown wait"),
    against_the_api(
        "a hung runtime and nothing known of the processors",
        job(hung(20 * MINUTE), None),
        "runtime_stuck manual medium",
    ),
    Situation(
        "the runtime gave no answer at all: that is silence, not a hang",
        job(silent(Problem.TIMEOUT, last=Runtime((RuntimePort(8431),))), 0.0),
        "unknown wait",
        missing=("The runtime metric service did not answer in time",),
    ),
    Situation(
        "something else on the port",
        own(runtime=Runtime((RuntimePort(8431, problem=Problem.FOREIGN, detail="It speaks HTTP."),))),
        "idle none",
        missing=("Port 8431 serves no runtime metrics: It speaks HTTP",),
    ),
    against_the_api(
        "a hung runtime, and it is hidden who holds the TPU: a pid in a log's name is no reason to end a process",
        own(runtime=hung(10 * MINUTE), host=host(unseen=UNSEEN), logs=UP),
        "runtime_stuck manual low",
        remedy=("kill -9 PID",),
    ),
    Situation(
        "a port that does not answer on a machine that is seen to be free is not libtpu's",
        own(runtime=hung(30 * MINUTE)),
        "idle none",
        missing=("Port 8431 does not answer, and no process holds the TPU",),
    ),
)
