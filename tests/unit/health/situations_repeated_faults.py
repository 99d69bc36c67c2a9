"""Situations of programs that end by faults: again and again, or because of a process that cannot be seen."""

from __future__ import annotations

from tests.unit.health.scenes import (
    HOUR,
    MINUTE,
    OFF,
    PID,
    UNSEEN,
    Situation,
    answered,
    event,
    holder,
    host,
    launch,
    logs,
    node,
    of_type,
    own,
    training,
)
from tpuwatch.model.events import Cause, Event
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.signals import Signal
from tpuwatch.model.verdict import Action, Confidence, Verdict

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
    Situation(
        "three launches fail in seven minutes",
        own(logs=logs(*LOOP)),
        Verdict.JOB_STUCK,
        Action.FIX_PROGRAM,
        Confidence.MEDIUM,
        Signal.LOGS,
        words=("the last 3, all within 7 min, the last one by bad_flag",),
        remedy=("tpuwatch's finding",),
    ),
    Situation(
        "three launches fail, and the next one initialises",
        own(logs=logs(NEW, *LOOP, alive=(99,)), host=host(holder(1.0, 20, 99))),
        Verdict.JOB_STUCK,
        Action.FIX_PROGRAM,
        words=("Launch after launch fails",),
    ),
    Situation(
        "three launches fail, and the next one trains",
        training(logs=logs(launch(age=15, pid=99), *LOOP, alive=(99,))),
        Verdict.HEALTHY,
        Action.NONE,
    ),
    Situation(
        "three launches fail on v3, and the next one came up and works",
        of_type(own(logs=logs(launch(age=MINUTE, pid=99), *LOOP, alive=(99,)), host=host(holder(3.0, 70, 99))), "v3-8"),
        Verdict.HEALTHY,
        Action.NONE,
    ),
    Situation(
        "three launches fail on v3, and a program in no log has worked since",
        of_type(own(logs=logs(*tries(MINUTE, 8 * MINUTE, 9 * MINUTE)), host=host(holder(3.0, 7 * MINUTE, 99))), "v3-8"),
        Verdict.HEALTHY,
        Action.NONE,
    ),
    Situation(
        "launches that come up, and run out of memory each time",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, outcome=Outcome.OK, cause=Cause.HBM_OOM_COMPILE))),
        Verdict.JOB_STUCK,
        Action.FIX_PROGRAM,
        words=("by hbm_oom_compile",),
    ),
    Situation(
        "launches whose processes go away without a word",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, outcome=Outcome.KILLED, cause=None))),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        remedy=("--logbuflevel=-1",),
    ),
    Situation(
        "launches that a user interrupts",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, outcome=Outcome.KILLED, cause=Cause.INTERRUPTED))),
        Verdict.IDLE,
        Action.NONE,
    ),
    Situation(
        "four processes of one job that failed together",
        own(logs=logs(*tries(60, 61, 62, 63))),
        Verdict.IDLE,
        Action.FIX_PROGRAM,
    ),
    Situation(
        "two launches that failed, and one of an hour ago",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, HOUR))),
        Verdict.IDLE,
        Action.FIX_PROGRAM,
    ),
    Situation(
        "three launches that failed, and between them one that came up and ended well",
        own(logs=logs(*tries(MINUTE, 9 * MINUTE, 12 * MINUTE), launch(age=5 * MINUTE, pid=99))),
        Verdict.IDLE,
        Action.FIX_PROGRAM,
    ),
    Situation(
        "launches fail again and again by a fault of another worker",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, cause=Cause.CONNECT_FAILED))),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        remedy=("Look at the other workers first",),
    ),
    # In use by a process that is not seen.
    Situation(
        "a TPU in use by a process that cannot be seen",
        own(logs=IN_USE, host=host(unseen=UNSEEN, lock_file=True)),
        Verdict.UNKNOWN,
        Action.MANUAL,
        Confidence.LOW,
        Signal.LOGS,
        words=("by a process that tpuwatch cannot see",),
        missing=("The open files of 40 processes",),
        remedy=("Leave the lock file alone",),
    ),
    Situation(
        "a TPU that launch after launch finds in use, by a process that cannot be seen",
        own(logs=logs(*tries(MINUTE, 4 * MINUTE, 7 * MINUTE, cause=Cause.TPU_IN_USE)), host=HIDDEN),
        Verdict.JOB_STUCK,
        Action.MANUAL,
        remedy=("Leave the lock file alone",),
    ),
    Situation(
        "a TPU that was in use, and its user has ended",
        own(logs=IN_USE),
        Verdict.IDLE,
        Action.MANUAL,
        remedy=("Start the program again",),
    ),
    # Free, if it was seen.
    Situation(
        "it is hidden who holds a v3, which serves no metrics",
        of_type(own(host=HIDDEN), "v3-8"),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.LOW,
        Signal.CLOUD,
        missing=("The open files of 40 processes",),
    ),
    Situation(
        "it is hidden who holds the TPU, and the runtime was not asked",
        own(host=HIDDEN, runtime=OFF),
        Verdict.HEALTHY,
        Action.NONE,
        Confidence.LOW,
        Signal.CLOUD,
    ),
    Situation(
        "it is hidden who holds the TPU, and neither runtime nor API were asked",
        own(host=HIDDEN, runtime=OFF, cloud=OFF),
        Verdict.UNKNOWN,
        Action.WAIT,
        Confidence.LOW,
        Signal.HOST,
        words=("not every process can be looked at",),
    ),
    Situation(
        "it is hidden who holds the TPU, and the API has called the node bad for a minute",
        own(host=HIDDEN, runtime=OFF, cloud=answered(node(health="TIMEOUT", held=MINUTE))),
        Verdict.UNKNOWN,
        Action.WAIT,
        contradictions=("unresponsive",),
    ),
)
