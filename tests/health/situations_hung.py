"""Situations with a runtime that does not answer."""

from __future__ import annotations

from tests.health.scenes import (
    GIB,
    MINUTE,
    NOW,
    PID,
    Situation,
    heard,
    holder,
    host,
    hung,
    job,
    launch,
    logs,
    own,
    silent,
)
from tpuwatch.health.evidence import Problem, Runtime, RuntimePort, Witness
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.model import Outcome

SILENT = logs(launch(Outcome.SILENT, 20 * MINUTE), alive=(PID,))
UP = logs(launch(age=41 * MINUTE), alive=(PID,))
UNSEEN = ("The open files of 40 processes cannot be seen.",)
WELL = "The API says READY and HEALTHY"

SITUATIONS = (
    # Runtimes that do not answer.
    Situation(
        "a hung runtime under READY and HEALTHY: the host ran out of memory",
        job(
            hung(31 * MINUTE),
            None,
            host=host(
                holder(None), cpu_busy=None, memory_available_bytes=GIB, oom_kills=2, last_oom_kill=NOW - 31 * MINUTE
            ),
        ),
        Verdict.RUNTIME_STUCK,
        Rung.RESTART_RUNTIME,
        Sureness.CERTAIN,
        Witness.RUNTIME,
        contradictions=(f"{WELL}, the runtime has not answered for 31 min",),
        says=("killed for lack of memory",),
        remedy=(f"kill -9 {PID}", "Hold less in the host's memory"),
    ),
    Situation(
        "a hung runtime whose program rests",
        job(hung(20 * MINUTE), 0.0),
        Verdict.RUNTIME_STUCK,
        Rung.RESTART_RUNTIME,
        Sureness.CERTAIN,
        contradictions=(WELL,),
    ),
    Situation(
        "a hung runtime whose program works",
        job(hung(20 * MINUTE), 6.0),
        Verdict.COMPILING,
        Rung.WAIT,
        Sureness.WEAK,
        Witness.HOST,
    ),
    Situation(
        "a hung runtime whose program works, on a machine out of memory",
        job(hung(20 * MINUTE), 6.0, host=host(holder(6.0), memory_available_bytes=GIB)),
        Verdict.RUNTIME_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=(WELL,),
    ),
    Situation(
        "a runtime that has not answered for a minute",
        job(hung(MINUTE), 0.0),
        Verdict.UNKNOWN,
        Rung.WAIT,
        Sureness.WEAK,
    ),
    Situation(
        "a runtime that does not answer, and it is not known since when",
        job(hung(None), 0.0),
        Verdict.UNKNOWN,
        Rung.WAIT,
    ),
    Situation(
        "a hung runtime and nothing known of the processors",
        job(hung(20 * MINUTE), None),
        Verdict.RUNTIME_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        contradictions=(WELL,),
    ),
    Situation(
        "the runtime gave no answer at all: that is silence, not a hang",
        job(silent(Problem.TIMEOUT, last=Runtime((RuntimePort(8431),))), 0.0),
        Verdict.UNKNOWN,
        Rung.WAIT,
        missing=("The runtime metric service did not answer in time",),
    ),
    Situation(
        "something else on the port",
        own(runtime=heard(Runtime((RuntimePort(8431, problem=Problem.FOREIGN, detail="It speaks HTTP."),)))),
        Verdict.IDLE,
        Rung.NOTHING,
        missing=("Port 8431 serves no runtime metrics: It speaks HTTP",),
    ),
    Situation(
        "one core of 240 compiles for 40 minutes, the runtime does not answer, and nobody may see who holds the TPU",
        own(runtime=hung(10 * MINUTE), host=host(cpu_busy=1 / 240, unseen=UNSEEN), logs=UP),
        Verdict.COMPILING,
        Rung.WAIT,
    ),
    Situation(
        "the same, and the processors rest: the number of the process in the log's name is no reason to end one",
        own(runtime=hung(10 * MINUTE), host=host(unseen=UNSEEN), logs=UP),
        Verdict.RUNTIME_STUCK,
        Rung.RESTART_RUNTIME,
        contradictions=(WELL,),
        remedy=("kill -9 PID",),
    ),
    Situation(
        "a port that does not answer on a machine that is seen to be free is not libtpu's",
        own(runtime=hung(30 * MINUTE)),
        Verdict.IDLE,
        Rung.NOTHING,
        missing=("Port 8431 does not answer, and no process holds the TPU",),
    ),
)
