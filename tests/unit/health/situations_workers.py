"""Situations of a slice of four hosts, of which one watches the others, or a watcher watches all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.health.scenes import (
    MINUTE,
    NOW,
    Situation,
    answered,
    elsewhere,
    event,
    identity,
    idle,
    job,
    launch,
    logs,
    node,
    own,
    training,
)
from tests.unit.health.situations_peer import fell_silent, peer_answer, word
from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.signals import Evidence, Peer
from tpuwatch.model.verdict import Action, Verdict

HOSTS = 4
WELL = peer_answer(Verdict.IDLE)
UNHEARD: Answer[Peer] = Answer(None, None, Problem.ABSENT, "It did not answer within 5 s.", NOW - 5)
REFUSING = fell_silent(refuses=True)
STUCK = peer_answer(Verdict.RUNTIME_STUCK, Action.RESTART_RUNTIME)
ECHO = peer_answer(Verdict.NODE_STUCK, Action.MANUAL, signals=frozenset({Signal.PEER}))


def failing(cause: Cause, age: float) -> Answer[Peer]:
    """It answers, and says that this was the first thing to go wrong there, so long before it answered."""
    return answered(Peer(NOW - 5, replace(word(Verdict.JOB_STUCK), failed=cause, failed_age=age - 5)))


def four(evidence: Evidence, *others: Answer[Peer]) -> Evidence:
    """This machine is worker 0 of four; what the others answer, from worker 1 on."""
    cloud = replace(evidence.cloud, value=evidence.cloud.value and replace(evidence.cloud.value, hosts=HOSTS))
    who = identity(hosts="4", accelerator="v5litepod-16")
    return replace(evidence, cloud=cloud, identity=who, workers=dict(enumerate(others, 1)))


def watched(*workers: Answer[Peer], **of_node: Any) -> Evidence:
    """A watcher sees a slice of four, and asks its workers from worker 0 on."""
    seen = elsewhere(node(hosts=HOSTS, **of_node), peer=workers[0])
    return replace(seen, workers=dict(enumerate(workers)))


IDLE = job(idle(20 * MINUTE), 0.0)

SITUATIONS = (
    Situation(
        "worker: one of four is silent under a program that stands still",
        four(IDLE, WELL, fell_silent(), WELL),
        "node_stuck manual medium peer",
        words=("Worker 2 of 4 has been silent for 4 min, while others answer.",),
        remedy=("--worker=2 --command='tpuwatch status'", "describe trainer"),
    ),
    Situation(
        "worker: one is silent on an unused slice", four(own(), WELL, WELL, fell_silent()), "node_stuck manual medium"
    ),
    Situation(
        "worker: one is silent under a program that makes steps",
        four(training(), WELL, fell_silent(), WELL),
        "healthy none high",
    ),
    Situation(
        "worker: one has been silent for half a minute only",
        four(own(), WELL, fell_silent(MINUTE / 2, tries=4), WELL),
        "idle none",
    ),
    Situation("worker: an answer was lost", four(own(), WELL, fell_silent(tries=2), WELL), "idle none"),
    Situation("worker: its machine refuses, so it is up", four(own(), WELL, REFUSING, WELL), "idle none"),
    Situation("worker: one was never heard", four(own(), WELL, UNHEARD, WELL), "idle none"),
    Situation(
        "worker: the only other one is silent, and the cloud answers",
        four(own(), fell_silent()),
        "node_stuck manual medium",
        words=("while the cloud answers",),
    ),
    Situation(
        "worker: all are silent, and the cloud does not answer either",
        four(own(cloud=Answer(None, None, Problem.UNREACHABLE, "No route.", NOW - 5)), fell_silent()),
        "unknown manual low",
        words=("nothing shows whether that is this machine's network",),
    ),
    Situation(
        "worker: the runtime of another one is dead by its own word",
        four(IDLE, WELL, WELL, STUCK),
        "runtime_stuck manual medium peer",
        words=("Worker 3 of 4 reports: So it is.",),
        remedy=("--worker=3",),
    ),
    Situation("worker: one repeats what it heard of another", four(own(), ECHO, WELL, WELL), "idle none"),
    Situation(
        "worker: elsewhere, the third of four is silent, and the first calls its job stuck",
        watched(peer_answer(Verdict.JOB_STUCK, Action.END_HOLDER), WELL, fell_silent(), WELL),
        "node_stuck manual medium peer",
        contradictions=("own tpuwatch calls it job_stuck",),
        remedy=("--worker=2",),
    ),
    Situation(
        "worker: elsewhere, one is silent, and the first reports that programs run",
        watched(peer_answer(Verdict.HEALTHY), WELL, fell_silent(), WELL),
        "healthy none high",
    ),
    Situation(
        "worker: elsewhere, one is silent, and the cloud and the first agree that the node is stuck",
        watched(
            peer_answer(Verdict.NODE_STUCK, Action.RESTART_NODE),
            WELL,
            fell_silent(),
            health="TIMEOUT",
            held=5 * MINUTE,
            queued_resource="q",
        ),
        "node_stuck reset_queued_resource high cloud",
    ),
    Situation(
        "worker: elsewhere, all are silent",
        watched(*[fell_silent()] * 4),
        "unknown manual low",
        contradictions=("own tpuwatch has been silent",),
    ),
    Situation(
        "worker: elsewhere, the second is stuck by its own word",
        watched(WELL, STUCK, WELL, WELL),
        "runtime_stuck manual medium",
        words=("Worker 1 of 4 reports",),
    ),
    Situation(
        "worker: another one failed first, and its program has ended",
        four(
            own(logs=logs(event(Cause.HEARTBEAT_LOST), launch(age=600.0))), WELL, failing(Cause.CORE_HALTED, 400), WELL
        ),
        "idle manual",
        remedy=("--worker=2 --command='tpuwatch status'",),
        unwanted=("--worker=0",),
    ),
    Situation(
        "worker: another one is lost, and none is known to have failed",
        four(own(logs=logs(event(Cause.HEARTBEAT_LOST), launch(age=600.0))), WELL, UNHEARD, WELL),
        "idle manual",
        remedy=("Look at the other workers first",),
    ),
)
