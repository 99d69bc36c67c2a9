"""Situations of servers and of interactive programs, which wait: idle is no fault of theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.health.scenes import (
    ABSENT,
    HOUR,
    MINUTE,
    NOW,
    OFF,
    PID,
    Situation,
    against_the_api,
    elsewhere,
    event,
    holder,
    host,
    hung,
    idle,
    job,
    launch,
    logs,
    node,
    of_type,
    own,
    silent,
    symptom,
    training,
)
from tpuwatch.model.answers import Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import Evidence, Holder, Peer, PeerVerdict
from tpuwatch.model.verdict import Action, Confidence, Source, Verdict
from tpuwatch.model.workload import ModelServer, WorkloadKind

OTHER = 4712
FAILED_CELL = logs(launch(age=5 * HOUR), event(Cause.HBM_OOM_RUNTIME, 20 * MINUTE), alive=(PID,))
NO_REQUESTS = ModelServer("vLLM", 0, 0)


def vllm(cores: float | None = 0.0, age: float = 5 * HOUR, **more: Any) -> Holder:
    return holder(cores, age, kind=WorkloadKind.SERVING, command="VLLM::EngineCore", **more)


def notebook(cores: float | None = 0.0, age: float = 5 * HOUR, **more: Any) -> Holder:
    return holder(cores, age, kind=WorkloadKind.INTERACTIVE, command="python -m ipykernel_launcher", **more)


def requests(stalled: float, running: int = 3, waiting: int = 1, progressed: float | None = None) -> ModelServer:
    """A server that has had requests for so long without progress."""
    when = None if progressed is None else NOW - progressed
    return ModelServer("vLLM", running, waiting, NOW - stalled, when)


def serving(seconds: float, **answers: Any) -> Evidence:
    """A server whose chips have run nothing for so long."""
    up = logs(launch(age=5 * HOUR), alive=(PID,))
    return own(**{"runtime": idle(seconds), "host": host(vllm()), "logs": up, **answers})


def interactive(seconds: float, **answers: Any) -> Evidence:
    """A notebook whose chips have run nothing for so long."""
    return serving(seconds, **{"host": host(notebook()), **answers})


def peer(kind: WorkloadKind) -> Peer:
    verdict = PeerVerdict(
        Verdict.IDLE, Action.NONE, Confidence.HIGH, "Idle.", frozenset(), 2.0, frozenset({Source.RUNTIME}), kind
    )
    return Peer(NOW - 5, verdict)


SITUATIONS = (
    # Interactive programs.
    Situation(
        "a notebook that has run nothing for hours",
        interactive(4 * HOUR),
        "idle none medium runtime",
        words=("An interactive program runs nothing on the TPU for 4 h: it waits for its user.",),
    ),
    Situation("a notebook in no log", interactive(2 * HOUR, logs=logs()), "idle none medium"),
    Situation(
        "a notebook whose cell failed and ran nothing since",
        interactive(20 * MINUTE, logs=FAILED_CELL),
        "idle none medium",
    ),
    Situation(
        "a notebook whose cell reported that another worker is missing",
        interactive(20 * MINUTE, logs=logs(launch(), event(Cause.HEARTBEAT_LOST, 20 * MINUTE), alive=(PID,))),
        "idle none medium",
    ),
    Situation(
        "a notebook that was opened after a program had ended",
        own(host=host(notebook(age=20 * MINUTE)), logs=logs(launch(pid=OTHER))),
        "idle none medium host",
        words=("holds the TPU and does not work",),
    ),
    Situation(
        "a notebook whose cell works on the host", interactive(20 * MINUTE, host=host(notebook(3.0))), "compiling wait"
    ),
    Situation("a notebook whose cell trains", training(host=host(notebook(3.0))), "healthy none high"),
    Situation(
        "a notebook that was just opened",
        job(idle(3 * HOUR), 0.0, MINUTE, host=host(notebook(0.0, MINUTE))),
        "compiling wait",
    ),
    against_the_api(
        "a notebook whose programs wait for the chips: that is no rest",
        interactive(20 * MINUTE, runtime=idle(20 * MINUTE, queue=2)),
        "job_stuck end_holder high",
        words=("2 programs wait",),
    ),
    against_the_api(
        "a notebook whose runtime does not answer",
        job(hung(20 * MINUTE), 0.0, host=host(notebook())),
        "runtime_stuck restart_runtime high",
    ),
    Situation(
        "a notebook, and another program that trains: the stricter rule counts",
        own(
            runtime=idle(20 * MINUTE),
            host=host(notebook(), holder(0.0, pid=OTHER)),
            logs=logs(launch(pid=OTHER), event(Cause.HANG, 19 * MINUTE, pid=OTHER), alive=(OTHER,)),
        ),
        "job_stuck manual low",
        contradictions=("The API says READY and HEALTHY",),
    ),
    Situation(
        "a stuck job, and a process of any user that calls itself a notebook and has a device by name only",
        own(
            runtime=idle(20 * MINUTE),
            host=host(holder(0.0), notebook(pid=OTHER, user="bob", trusted=False)),
            logs=logs(launch(), event(Cause.HANG, 19 * MINUTE), alive=(PID,)),
        ),
        "job_stuck manual low",
        contradictions=("The API says READY and HEALTHY",),
    ),
    # Servers whose own metrics are not read.
    Situation(
        "a server that has run nothing for hours",
        serving(4 * HOUR),
        "idle none medium runtime",
        words=("The server runs nothing on the TPU for 4 h; it waits for requests, as far as is known.",),
    ),
    Situation("a server that works", training(host=host(vllm(3.0))), "healthy none high"),
    Situation("a server that compiles", serving(20 * MINUTE, host=host(vllm(3.0))), "compiling wait medium"),
    Situation(
        "a server without runtime metrics that rests",
        own(host=host(vllm())),
        "idle none medium host",
        words=("The server holds the TPU and does not work; it waits for requests",),
    ),
    against_the_api(
        "a server whose engine hangs by its log",
        serving(20 * MINUTE, logs=logs(launch(), event(Cause.HANG, 19 * MINUTE), alive=(PID,))),
        "job_stuck manual low",
    ),
    Situation(
        "a server whose metrics cannot be read",
        serving(4 * HOUR, server=silent(Problem.FOREIGN, "http://127.0.0.1:8000/metrics answered 404.")),
        "idle none medium",
        missing=("The server's own metrics page is not what answers there",),
    ),
    Situation(
        "a server whose metrics nobody serves",
        serving(4 * HOUR, server=ABSENT),
        "idle none medium",
        missing=("The server's own metrics page is not there",),
    ),
    Situation("a free node that is to serve", own(server=ABSENT), "idle none high host"),
    # Servers by their own metrics.
    Situation(
        "a server that has no requests",
        serving(4 * HOUR, server=NO_REQUESTS),
        "idle none medium runtime",
        words=(
            "The server has no requests and runs nothing on the TPU for 4 h.",
            "The server (vLLM) reports no requests.",
        ),
    ),
    Situation(
        "a server that looks for requests without a rest",
        serving(4 * HOUR, host=host(vllm(1.0)), server=NO_REQUESTS),
        "idle none medium",
    ),
    Situation(
        "a server one of whose requests failed",
        serving(20 * MINUTE, logs=FAILED_CELL, server=NO_REQUESTS),
        "idle none medium",
    ),
    Situation(
        "a program of no known kind that answers as a server",
        serving(4 * HOUR, host=host(holder(0.0, 5 * HOUR)), server=NO_REQUESTS),
        "idle none medium",
        words=("The server has no requests",),
    ),
    against_the_api(
        "a server that has requests and makes no progress",
        serving(20 * MINUTE, server=requests(20 * MINUTE)),
        "job_stuck manual low server",
        words=(
            "The server (vLLM) reports 3 requests that run and 1 that wait, and no progress for 20 min.",
            "requests for 20 min",
        ),
        remedy=("Send the server a short request", f"kill {PID}"),
    ),
    against_the_api(
        "the same, and its processors are busy",
        serving(20 * MINUTE, host=host(vllm(2.0)), server=requests(20 * MINUTE)),
        "job_stuck manual low server",
    ),
    against_the_api(
        "the same on v3, without runtime metrics",
        of_type(own(host=host(vllm(2.0)), server=requests(20 * MINUTE)), "v3-8"),
        "job_stuck manual low server",
        missing=("serves no runtime metrics",),
    ),
    against_the_api(
        "a server whose engine has ended, and requests wait",
        own(server=requests(20 * MINUTE, 0, 3)),
        "job_stuck manual low server",
    ),
    Situation(
        "a server that has had requests for five minutes",
        serving(20 * MINUTE, server=requests(5 * MINUTE)),
        "idle none medium",
        words=("it has had requests for 5 min, which counts from 10 min on",),
    ),
    Situation(
        "a server that makes no progress by its metrics, and whose chips run",
        training(host=host(vllm(3.0)), server=requests(20 * MINUTE)),
        "healthy none high",
        contradictions=(
            "The server has had requests for 20 min and makes no progress, and programs run on the chips.",
        ),
    ),
    Situation(
        "a server without runtime metrics that has just made progress",
        own(host=host(vllm(0.3)), server=requests(10, progressed=10)),
        "healthy none low server",
        words=("The server answers requests",),
    ),
    against_the_api(
        "a server that makes no progress, and whose programs wait for the chips",
        serving(20 * MINUTE, runtime=idle(20 * MINUTE, queue=2), server=requests(20 * MINUTE)),
        "job_stuck end_holder high runtime",
    ),
    Situation(
        "a server that makes no progress, and a symptom by the API",
        serving(20 * MINUTE, server=requests(20 * MINUTE), cloud=node(symptoms=(symptom("EXECUTE_TIMED_OUT"),))),
        "job_stuck manual medium",
        contradictions=("The API says READY and HEALTHY", "EXECUTE_TIMED_OUT"),
    ),
    Situation(
        "a stuck job beside which something answers as a server does: the job is no server",
        job(
            idle(20 * MINUTE, queue=3),
            0.0,
            server=NO_REQUESTS,
            host=host(replace(holder(0.0), kind=WorkloadKind.TRAINING)),
        ),
        "job_stuck end_holder high",
        contradictions=("The API says READY and HEALTHY",),
    ),
    Situation(
        "a server's answer of a minute ago",
        serving(4 * HOUR, server=replace(silent(Problem.TIMEOUT), problem=None, at=NOW - MINUTE, value=requests(HOUR))),
        "idle none medium",
        missing=("The latest answer of the server's own metrics page is 1 min old",),
    ),
    # What names the kind where no holder is seen, and from elsewhere.
    Situation(
        "the environment of a launch names the kind, and it is hidden who holds the TPU",
        own(
            runtime=idle(4 * HOUR),
            logs=logs(
                launch(Outcome.OK, 5 * HOUR, environment={"TPUWATCH_KIND": "serving"}),
                event(Cause.HEARTBEAT_LOST, pid=OTHER),
                alive=(PID,),
            ),
        ),
        "job_stuck manual low",
        contradictions=("The API says READY and HEALTHY",),
    ),
    Situation(
        "a server that is watched from elsewhere",
        elsewhere(node(), OFF, peer(WorkloadKind.SERVING)),
        "idle none high peer",
    ),
)
