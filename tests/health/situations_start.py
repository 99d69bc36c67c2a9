"""Situations without runtime metrics that tell: stuck starts, what was left behind, v2 and v3."""

from __future__ import annotations

from dataclasses import replace

from tests.health.scenes import (
    ABSENT,
    HOUR,
    MINUTE,
    NOW,
    OFF,
    PID,
    Situation,
    event,
    holder,
    host,
    launch,
    logs,
    of_type,
    own,
)
from tpuwatch.health.evidence import Witness
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.model import Cause, Outcome

CHILD = 4712
STARTED = logs(launch(Outcome.STARTING, 20 * MINUTE), alive=(PID,))
SILENT = logs(launch(Outcome.SILENT, 20 * MINUTE), alive=(PID,))
ENDED = logs(launch(age=HOUR))
RESTING = host(holder(0.0, 20 * MINUTE))
BUFFERED = own(host=RESTING)
WELL = "The API says READY and HEALTHY"

SITUATIONS = (
    # Stuck starts, and what is left behind.
    Situation(
        "a stuck initialisation that logs nothing, because INFO is buffered",
        BUFFERED,
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        Witness.HOST,
        contradictions=(f"{WELL}, a program has held the TPU for 20 min",),
        remedy=("--logbuflevel=-1",),
    ),
    Situation(
        "a stuck initialisation whose log tells of its beginning",
        own(host=RESTING, logs=SILENT),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.LIKELY,
        Witness.HOST,
        contradictions=(WELL,),
    ),
    Situation(
        "the same on v3, which serves no metrics at all",
        of_type(own(host=RESTING, logs=SILENT), "v3-8"),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=(WELL,),
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "the same, and the runtime was not asked",
        own(host=RESTING, logs=SILENT, runtime=OFF),
        Verdict.JOB_STUCK,
        Rung.ASK,
        contradictions=(WELL,),
    ),
    Situation(
        "a launch that says nothing, and nobody may see who holds the TPU",
        own(logs=STARTED, host=host(cpu_busy=0.001)),
        Verdict.UNKNOWN,
        Rung.WAIT,
    ),
    Situation(
        "the same, and nobody has asked for metrics for an hour",
        own(host=RESTING, logs=SILENT, runtime=replace(ABSENT, tried=NOW - HOUR)),
        Verdict.JOB_STUCK,
        Rung.ASK,
        contradictions=(WELL,),
    ),
    Situation(
        "a launch of before this boot, whose number another process has now",
        own(logs=SILENT, host=host(booted=10 * MINUTE)),
        Verdict.IDLE,
        Rung.NOTHING,
    ),
    Situation(
        "v2: a program came up and works",
        of_type(own(host=host(holder(2.0)), logs=logs(launch(), alive=(PID,))), "v2-8"),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.LIKELY,
        Witness.HOST,
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "v3: a program came up and hardly uses the processors",
        of_type(own(host=host(holder(0.02)), logs=logs(launch(), alive=(PID,))), "v3-8"),
        Verdict.HEALTHY,
        Rung.NOTHING,
        Sureness.WEAK,
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "v3: a holder of which no log tells, resting",
        of_type(BUFFERED, "v3-8"),
        Verdict.UNKNOWN,
        Rung.WAIT,
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "a program that came up, whose metrics are gone",
        own(host=host(holder(0.02)), logs=logs(launch(), alive=(PID,))),
        Verdict.UNKNOWN,
        Rung.WAIT,
        missing=("The runtime metric service is not there",),
    ),
    Situation(
        "a job that ended and left a child on /dev/vfio",
        own(host=host(holder(0.0, pid=CHILD)), logs=ENDED),
        Verdict.JOB_STUCK,
        Rung.END_HOLDER,
        Sureness.LIKELY,
        Witness.HOST,
        contradictions=(WELL,),
        says=(f"Process {CHILD} (python train.py) of alice holds /dev/vfio/0", "its process has ended"),
        remedy=(f"kill {CHILD}",),
    ),
    Situation(
        "the same on v2: it may as well work",
        of_type(own(host=host(holder(0.0, pid=CHILD)), logs=ENDED), "v2-8"),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=(WELL,),
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "a job that ended and left the lock file",
        own(
            host=host(lock_file=True),
            logs=logs(launch(Outcome.FAILED, 10 * MINUTE), event(Cause.TPU_IN_USE, 10 * MINUTE)),
        ),
        Verdict.IDLE,
        Rung.ASK,
        Sureness.LIKELY,
        says=("tpu_in_use",),
        remedy=("rm /tmp/libtpu_lockfile",),
    ),
)
