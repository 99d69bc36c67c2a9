"""Situations without runtime metrics that show it: stuck starts, what was left behind, v2 and v3."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.health.scenes import (
    ABSENT,
    API_WELL,
    HOUR,
    MINUTE,
    NOW,
    OFF,
    PID,
    RESTING,
    SILENT_LAUNCH,
    Situation,
    event,
    holder,
    host,
    launch,
    logs,
    of_type,
    own,
)
from tpuwatch.model.events import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import Signal
from tpuwatch.model.verdict import Action, Confidence, Verdict

CHILD = 4712
STARTED = logs(launch(Outcome.STARTING, 20 * MINUTE), alive=(PID,))
ENDED = logs(launch(age=HOUR))
BUFFERED = own(host=RESTING)

SITUATIONS = (
    # Stuck starts, and what is left behind.
    Situation(
        "a stuck initialisation that logs nothing, because INFO is buffered",
        BUFFERED,
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.LOW,
        Signal.HOST,
        contradictions=(f"{API_WELL}, a program has held the TPU for 20 min",),
        remedy=("--logbuflevel=-1",),
    ),
    Situation(
        "a stuck initialisation whose log shows its beginning",
        own(host=RESTING, logs=SILENT_LAUNCH),
        Verdict.JOB_STUCK,
        Action.END_HOLDER,
        Confidence.MEDIUM,
        Signal.HOST,
        contradictions=(API_WELL,),
    ),
    Situation(
        "the same on v3, which serves no metrics at all",
        of_type(own(host=RESTING, logs=SILENT_LAUNCH), "v3-8"),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.LOW,
        contradictions=(API_WELL,),
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "the same, and the runtime was not asked",
        own(host=RESTING, logs=SILENT_LAUNCH, runtime=OFF),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        contradictions=(API_WELL,),
    ),
    Situation(
        "a launch that logs nothing, and it is hidden who holds the TPU",
        own(logs=STARTED, host=host(cpu_busy=0.001)),
        Verdict.UNKNOWN,
        Action.WAIT,
    ),
    Situation(
        "the same, and metrics were not asked for for an hour",
        own(host=RESTING, logs=SILENT_LAUNCH, runtime=replace(ABSENT, tried=NOW - HOUR)),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        contradictions=(API_WELL,),
    ),
    Situation(
        "a launch of before this boot, whose number another process has now",
        own(logs=SILENT_LAUNCH, host=host(booted=10 * MINUTE)),
        Verdict.IDLE,
        Action.NONE,
    ),
    Situation(
        "v2: a program came up and works",
        of_type(own(host=host(holder(2.0)), logs=logs(launch(), alive=(PID,))), "v2-8"),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.MEDIUM,
        Signal.HOST,
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "v3: a program came up and hardly uses the processors",
        of_type(own(host=host(holder(0.02)), logs=logs(launch(), alive=(PID,))), "v3-8"),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.LOW,
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "v3: a holder in no log, resting",
        of_type(BUFFERED, "v3-8"),
        Verdict.UNKNOWN,
        Action.WAIT,
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "a program that came up, whose metrics are gone",
        own(host=host(holder(0.02)), logs=logs(launch(), alive=(PID,))),
        Verdict.UNKNOWN,
        Action.WAIT,
        missing=("The runtime metric service is not there",),
    ),
    Situation(
        "a job that ended and left a child on /dev/vfio",
        own(host=host(holder(0.0, pid=CHILD)), logs=ENDED),
        Verdict.JOB_STUCK,
        Action.END_HOLDER,
        Confidence.MEDIUM,
        Signal.HOST,
        contradictions=(API_WELL,),
        words=(f"Process {CHILD} (python train.py) of alice holds /dev/vfio/0", "its process has ended"),
        remedy=(f"kill {CHILD}",),
    ),
    Situation(
        "the same on v2: it may as well work",
        of_type(own(host=host(holder(0.0, pid=CHILD)), logs=ENDED), "v2-8"),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        Confidence.LOW,
        contradictions=(API_WELL,),
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "a job that ended and left the lock file",
        own(
            host=host(lock_file=True),
            logs=logs(launch(Outcome.FAILED, 10 * MINUTE), event(Cause.TPU_IN_USE, 10 * MINUTE)),
        ),
        Verdict.IDLE,
        Action.MANUAL,
        Confidence.MEDIUM,
        words=("tpu_in_use",),
        remedy=("rm /tmp/libtpu_lockfile",),
    ),
)
