"""Situations of idle chips: what tells a program that is stuck from one that waits, and whose it is."""

from __future__ import annotations

from dataclasses import replace

from tests.health.scenes import (
    HOUR,
    MINUTE,
    PID,
    Situation,
    event,
    heard,
    holder,
    host,
    hung,
    idle,
    job,
    launch,
    logs,
    node,
    own,
    symptom,
)
from tpuwatch.health.evidence import Witness
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.model import Cause, Outcome

OTHER = 4712
TOOL = 4713
WELL = "The API says READY and HEALTHY"
WAITS = "it may be stuck, or wait for its user"
NOTEBOOK = holder(0.0, 5 * HOUR, command="python -m ipykernel_launcher")
IN_USE = launch(Outcome.FAILED, 10 * MINUTE, OTHER, cause=Cause.TPU_IN_USE)
WAITING = idle(2 * HOUR, queue=3)

SITUATIONS = (
    Situation(
        "a notebook whose user went home",
        job(idle(2 * HOUR), 0.0, 5 * HOUR, host=host(NOTEBOOK)),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        Witness.RUNTIME,
        contradictions=(WELL,),
        says=(WAITS,),
        remedy=(f"holds the TPU ({PID}) whether it waits",),
    ),
    Situation(
        "a notebook of which no log tells",
        own(runtime=idle(2 * HOUR), host=host(NOTEBOOK)),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
        says=(WAITS,),
    ),
    Situation(
        "a notebook of which no log tells, and a launch that found the TPU in use",
        own(runtime=idle(2 * HOUR), host=host(NOTEBOOK), logs=logs(IN_USE, event(Cause.TPU_IN_USE, pid=OTHER))),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
        says=(WAITS,),
    ),
    Situation(
        "a notebook that was opened after a program had ended",
        own(host=host(replace(NOTEBOOK, started=holder(age=20 * MINUTE).started)), logs=logs(launch(pid=OTHER))),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=(WELL,),
        remedy=("whether it waits",),
    ),
    Situation(
        "a notebook that was opened before a program that has ended",
        own(host=host(NOTEBOOK), logs=logs(launch(pid=OTHER))),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=(WELL,),
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
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
        says=(WAITS,),
    ),
    Situation(
        "a notebook, and a fault of another program",
        job(
            idle(20 * MINUTE),
            0.0,
            logs=logs(launch(), event(Cause.HBM_OOM_RUNTIME, 20 * MINUTE, pid=OTHER), alive=(PID,)),
        ),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
        says=(WAITS,),
    ),
    Situation(
        "a program that hangs by its own log",
        job(idle(20 * MINUTE), 0.0, logs=logs(launch(), event(Cause.HANG, 19 * MINUTE), alive=(PID,))),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.CERTAIN,
        contradictions=(WELL,),
        says=("told of hang",),
        remedy=(f"kill {PID},",),
    ),
    Situation(
        "a program that never came up",
        job(idle(20 * MINUTE), 0.0, 21 * MINUTE, logs=logs(launch(Outcome.SILENT, 20 * MINUTE), alive=(PID,))),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.CERTAIN,
        contradictions=(WELL,),
        says=("has not come up",),
    ),
    Situation(
        "a child of a program that has ended keeps the runtime",
        own(runtime=idle(20 * MINUTE), host=host(holder(0.0, pid=OTHER)), logs=logs(launch())),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.CERTAIN,
        contradictions=(WELL,),
        says=("its process has ended",),
        remedy=(f"kill {OTHER},",),
    ),
    Situation(
        "a child of a program that has ended holds the TPU, and those who start anew find it in use",
        own(host=host(holder(0.0, pid=OTHER)), logs=logs(replace(IN_USE, pid=TOOL), launch())),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.LIKELY,
        contradictions=(WELL,),
        remedy=(f"kill {OTHER},",),
    ),
    Situation(
        "a symptom by the API, and the program rests",
        job(idle(20 * MINUTE), 0.0, cloud=heard(node(symptoms=(symptom("EXECUTE_TIMED_OUT"),)))),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.CERTAIN,
        contradictions=(WELL, "EXECUTE_TIMED_OUT"),
    ),
    # Whose pid is named.
    Situation(
        "stuck, beside a tool that looks at the TPU",
        job(WAITING, 0.0, host=host(holder(0.0, 3 * HOUR), holder(1.0, 20, TOOL, command="tpu-info"))),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.CERTAIN,
        contradictions=(WELL,),
        remedy=(f"kill {PID},",),
    ),
    Situation(
        "stuck, beside a tool that has looked at the TPU for two minutes",
        own(runtime=WAITING, host=host(holder(0.0, 3 * HOUR), holder(0.0, 2 * MINUTE, TOOL))),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        contradictions=(WELL,),
        remedy=(f"kill {PID},",),
    ),
    Situation(
        "stuck, and its log tells which of two processes is the program",
        job(WAITING, 0.0, host=host(holder(0.0, 3 * HOUR), holder(0.0, 2 * MINUTE, TOOL))),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        contradictions=(WELL,),
        remedy=(f"kill {PID},",),
    ),
    Situation(
        "stuck, and of two launches only one has met a fault",
        job(
            idle(20 * MINUTE),
            0.0,
            host=host(holder(0.0), holder(0.0, pid=OTHER)),
            logs=logs(launch(), launch(pid=OTHER), event(Cause.HANG, pid=OTHER), alive=(PID, OTHER)),
        ),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        contradictions=(WELL,),
        remedy=(f"kill {OTHER},",),
    ),
    Situation(
        "stuck, and processes of two users hold the TPU",
        job(WAITING, 0.0, host=host(holder(0.0), holder(0.0, pid=OTHER, user="bob"))),
        Verdict.JOB_STUCK,
        Rung.ASK,
        contradictions=(WELL,),
        missing=("which of the processes that hold the TPU",),
        remedy=("kill PID,",),
    ),
    Situation(
        "a hung runtime, and processes of two users hold the TPU",
        job(hung(20 * MINUTE), 0.0, host=host(holder(0.0), holder(0.0, pid=OTHER, user="bob"))),
        Verdict.RUNTIME_STUCK,
        Rung.ASK,
        contradictions=(WELL,),
        missing=("which of the processes that hold the TPU",),
        remedy=("kill -9 PID)",),
    ),
)
