"""Situations in which the job reports its steps, or has ceased to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.health.scenes import (
    ABSENT,
    HOUR,
    MINUTE,
    NOW,
    PID,
    Situation,
    event,
    holder,
    host,
    hung,
    idle,
    job,
    launch,
    logs,
    of_type,
    own,
    training,
)
from tpuwatch.model.causes import Cause
from tpuwatch.model.progress import ProgressSource, TrainingLoop
from tpuwatch.model.signals import Evidence


def reporting(evidence: Evidence, age: float, *faults: Cause, pid: int | None = PID, **more: Any) -> Evidence:
    """The same, with a loop whose latest step is so old."""
    source = ProgressSource.OUTPUT if pid is None else ProgressSource.HEARTBEAT
    loop = TrainingLoop(
        source, "", pid, "alice", NOW - HOUR, 1200, NOW - age, NOW - age, alive=True, faults=faults, **more
    )
    return replace(evidence, loops=(loop,))


RESTING = own(runtime=ABSENT, host=host(holder(0.0, 2 * HOUR)))
UNSEEN = own(runtime=ABSENT, host=host(holder(0.3, 2 * HOUR)))
SITUATIONS = (
    Situation(
        "steps that go on where no runtime metrics show anything",
        reporting(UNSEEN, 5.0),
        "healthy none low logs",
        words=("its steps go on (step 1200)", f"the training loop of process {PID} made step 1200"),
        missing=("The runtime metric service is not there",),
    ),
    Situation(
        "steps of another process say nothing of the one that holds the TPU",
        reporting(UNSEEN, 5.0, pid=99),
        "unknown wait",
    ),
    Situation("steps that are over say nothing", reporting(UNSEEN, 10 * MINUTE), "unknown wait"),
    Situation(
        "a holder that sends heartbeats is not stuck, though it uses no processor and serves no metrics",
        reporting(RESTING, 1.0),
        "healthy none low logs",
        words=("its steps go on (step 1200)",),
    ),
    Situation(
        "nor while it evaluates: what has stepped has come up",
        reporting(RESTING, 90.0),
        "unknown wait",
        words=("came up", "made step 1200"),
    ),
    Situation(
        "nor under a runtime port that does not answer",
        reporting(own(runtime=hung(20 * MINUTE), host=host(holder(0.0, 2 * HOUR))), 1.0),
        "healthy none low logs",
    ),
    Situation(
        "a loop that stands still where no runtime metrics show anything",
        reporting(RESTING, 30 * MINUTE, Cause.STEPS_STALLED),
        "job_stuck manual low",
        contradictions=("a program has held the TPU for 2 h without a sign of work",),
        words=("stands still",),
    ),
    Situation(
        "slow steps go on for as long as one of them takes",
        reporting(UNSEEN, 200.0, usual_step_seconds=120.0),
        "healthy none low logs",
    ),
    Situation(
        "steps that go on while the chips rest: the job may compute on the CPU",
        reporting(job(idle(30 * MINUTE), 4.0), 5.0),
        "compiling wait",
        contradictions=("The job reports steps, and the chips have run nothing for 30 min",),
    ),
    Situation(
        "a holder that sends heartbeats is not stuck, though programs wait in the queue and it uses no processor",
        reporting(job(idle(20 * MINUTE, queue=2), 0.0), 5.0),
        "unknown wait low",
        contradictions=("The job reports steps, and the chips have run nothing for 20 min",),
        words=("its steps go on (step 1200)",),
    ),
    Situation(
        "steps in an output, which anybody may write, do not outweigh the queue: the program is left alone",
        reporting(job(idle(20 * MINUTE, queue=2), 0.0), 5.0, pid=None),
        "job_stuck manual",
        contradictions=("the chips have run nothing for 20 min", "The job reports steps"),
        missing=("its steps go on, so nothing that interrupts is advised",),
    ),
    Situation(
        "a worker that steps does not wait for another",
        reporting(job(idle(20 * MINUTE), 0.0, logs=logs(event(Cause.HEARTBEAT_LOST, 10 * MINUTE))), 5.0),
        "idle none",
        contradictions=("The job reports steps, and the chips have run nothing for 20 min",),
    ),
    Situation(
        "a printed step each second, where the program uses no processor and serves no metrics",
        reporting(RESTING, 1.0, pid=None),
        "unknown wait low",
        words=("shows steps (step 1200)",),
        missing=("The runtime metric service is not there",),
    ),
    Situation(
        "nor is it stuck while it evaluates",
        reporting(RESTING, 66.0, pid=None),
        "unknown wait low",
        words=("shows steps (step 1200)",),
    ),
    Situation(
        "v3: a program that reported that a core had halted, and prints steps since",
        reporting(
            of_type(
                own(host=host(holder(0.0)), logs=logs(launch(), event(Cause.CORE_HALTED, 20 * MINUTE), alive=(PID,))),
                "v3-8",
            ),
            1.0,
            pid=None,
        ),
        "healthy none low",
        missing=("serves no runtime metrics",),
    ),
    Situation(
        "printed steps that ended before the TPU was taken are of another program",
        reporting(RESTING, 3 * HOUR, pid=None),
        "job_stuck manual low",
        contradictions=("a program has held the TPU for 2 h without a sign of work",),
    ),
    Situation(
        "printed steps that stand still",
        reporting(RESTING, 30 * MINUTE, Cause.STEPS_STALLED, pid=None),
        "job_stuck manual low",
        contradictions=("a program has held the TPU for 2 h without a sign of work",),
        words=("stands still",),
    ),
    Situation(
        "a loop that stands still, under chips that rest",
        reporting(job(idle(30 * MINUTE), 0.0), 30 * MINUTE, Cause.STEPS_STALLED),
        "job_stuck manual low",
        contradictions=("the chips have run nothing for 30 min",),
        words=("made step 1200",),
    ),
    Situation(
        "a loop that stands still, under chips that count as busy",
        reporting(training(), 30 * MINUTE, Cause.STEPS_STALLED),
        "healthy none",
        contradictions=("the job has made no step for 30 min: it may wait in a collective",),
    ),
)
