"""Situations of a node that is watched from elsewhere, with the tpuwatch that runs on it as a signal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.health.scenes import HOUR, MINUTE, NOW, OFF, Situation, answered, elsewhere, node, silent, symptom
from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.signals import CloudNode, Evidence, Monitoring, Peer, PeerVerdict
from tpuwatch.model.verdict import Action, Confidence, Source, Verdict

SICK = Monitoring(infra_healthy=False, infra_at=NOW - 3 * MINUTE)
DEAD = node(health="TIMEOUT", held=5 * MINUTE)
OF_THE_MACHINE = frozenset({Signal.RUNTIME, Signal.HOST})


def word(verdict: Verdict, action: Action = Action.NONE, **more: Any) -> PeerVerdict:
    """What it makes of its node, by what it has seen there itself."""
    usual: dict[str, Any] = {
        "confidence": Confidence.HIGH,
        "summary": "So it is.",
        "signals": OF_THE_MACHINE,
        "age": 3.0,
        "sources": frozenset({Source.CLOUD, Source.RUNTIME, Source.KERNEL}),
    }
    return PeerVerdict(verdict, action, **{**usual, **more})


def peer_answer(verdict: Verdict, action: Action = Action.NONE, *, age: float = 5.0, **more: Any) -> Answer[Peer]:
    """It answered so long ago."""
    return answered(Peer(NOW - age, word(verdict, action, **more)), age)


def fell_silent(seconds: float = 4 * MINUTE, tries: int = 9, **more: Any) -> Answer[Peer]:
    """It answered before, and has not for so long."""
    last = word(Verdict.HEALTHY)
    return answered(Peer(NOW - seconds - 20, last, silent_since=NOW - seconds, tries=tries, **more))


def beside(cloud: CloudNode | Answer[CloudNode], peer: Peer | Answer[Peer], monitoring: Any = OFF) -> Evidence:
    """The answers of the cloud and of the peer."""
    return elsewhere(cloud, monitoring, peer)


STUCK = peer_answer(Verdict.NODE_STUCK, Action.RESTART_NODE)
NEVER = silent(Problem.ABSENT, "http://10.0.0.2:9478 did not answer within 5 s.")
ALL_SILENT = replace(fell_silent(), problem=Problem.UNREACHABLE, detail="5 of the 6 nodes are silent at once.")
FOREIGN = silent(Problem.FOREIGN, "At http://10.0.0.2:9478 the tpuwatch of p/z/other answers.", last=Peer(NOW - 600))

SITUATIONS = (
    # It has fallen silent.
    Situation(
        "peer: silent, and the API says timeout",
        beside(DEAD, fell_silent()),
        "node_stuck restart_node high cloud",
        words=("has been silent since, over 9 questions",),
        remedy=("tpuwatch restart us-central2-b/trainer --project=acme",),
    ),
    Situation(
        "peer: silent, and the API calls the runtime unhealthy",
        beside(node(health="UNHEALTHY_TENSORFLOW", held=5 * MINUTE), fell_silent()),
        "node_stuck restart_node high",
    ),
    Situation(
        "peer: silent, of a slice with a queued resource",
        beside(replace(DEAD, hosts=4, queued_resource="q"), fell_silent()),
        "node_stuck reset_queued_resource high",
    ),
    Situation("peer: silent, of a spot node", beside(replace(DEAD, spot=True), fell_silent()), "node_stuck recreate"),
    Situation(
        "peer: silent, and the state is unknown after a failed repair",
        beside(node("UNKNOWN", "", held=5 * MINUTE), fell_silent()),
        "node_stuck manual",
        remedy=("A repair has failed",),
    ),
    Situation(
        "peer: silent, and the API has called the node bad for a minute only",
        beside(replace(DEAD, changed=NOW - MINUTE), fell_silent()),
        "unknown wait",
        missing=("has not answered for 4 min",),
    ),
    Situation(
        "peer: silent for a minute only",
        beside(DEAD, fell_silent(MINUTE)),
        "node_stuck manual medium",
        missing=("has not answered for 1 min",),
    ),
    Situation(
        "peer: silent for long, over two questions only", beside(DEAD, fell_silent(tries=2)), "node_stuck manual"
    ),
    Situation(
        "peer: silent since hours before the API called the node bad",
        beside(DEAD, fell_silent(5 * HOUR)),
        "node_stuck manual",
        missing=("has not answered for 5 h",),
    ),
    Situation(
        "peer: its machine refuses the connection, so it is up",
        beside(DEAD, fell_silent(refuses=True)),
        "node_stuck manual",
        missing=("The machine is there, and tpuwatch does not run on it any more",),
    ),
    Situation(
        "peer: never answered, and the API says timeout",
        beside(DEAD, NEVER),
        "node_stuck manual medium",
        missing=("own tpuwatch is not there",),
    ),
    Situation("peer: never answered, and monitoring confirms", beside(DEAD, NEVER, SICK), "node_stuck manual medium"),
    Situation(
        "peer: many silent at once",
        beside(DEAD, ALL_SILENT),
        "node_stuck manual",
        missing=("5 of the 6 nodes are silent at once",),
    ),
    Situation(
        "peer: many silent at once, and monitoring confirms",
        beside(DEAD, ALL_SILENT, SICK),
        "node_stuck manual",
        missing=("5 of the 6 nodes are silent at once",),
    ),
    Situation(
        "peer: another node's answers",
        beside(DEAD, FOREIGN, SICK),
        "node_stuck manual",
        missing=("the tpuwatch of p/z/other answers",),
    ),
    Situation(
        "peer: was not asked yet",
        beside(DEAD, Answer(), SICK),
        "node_stuck manual",
        missing=("own tpuwatch was not asked yet",),
    ),
    Situation(
        "peer: silent, and the API calls the node healthy",
        beside(node(), fell_silent()),
        "unknown manual low peer",
        contradictions=("READY and HEALTHY, and the node's own tpuwatch has been silent for 4 min",),
        remedy=("tpu-vm describe trainer", "tpuwatch status"),
    ),
    Situation(
        "peer: silent, the API calls the node healthy, and monitoring does not",
        beside(node(), fell_silent(), SICK),
        "unknown manual",
        contradictions=("own tpuwatch has been silent", "the infrastructure is unhealthy"),
    ),
    Situation(
        "peer: silent, and the API names a symptom of a healthy node",
        beside(node(symptoms=(symptom("LOW_MEMORY"),)), fell_silent()),
        "node_stuck manual medium cloud",
        contradictions=("own tpuwatch has been silent", "names the symptom LOW_MEMORY"),
    ),
    Situation(
        "peer: silent, and the symptom was there long before",
        beside(node(symptoms=(symptom("LOW_MEMORY", 50 * MINUTE),)), fell_silent()),
        "unknown manual",
        contradictions=("own tpuwatch has been silent", "names the symptom LOW_MEMORY"),
    ),
    Situation(
        "peer: refused, and the API calls the node healthy",
        beside(node(), fell_silent(refuses=True)),
        "healthy none",
        missing=("tpuwatch does not run on it any more",),
    ),
    Situation(
        "peer: silent, and the API cannot be asked",
        beside(silent(Problem.UNREACHABLE, last=DEAD), fell_silent()),
        "unknown wait",
    ),
    Situation("peer: silent while the node is stopped", beside(node("STOPPED", ""), fell_silent()), "stopped manual"),
    # It answers.
    Situation(
        "peer: calls for a restart, and the API says timeout",
        beside(DEAD, STUCK),
        "node_stuck restart_node high cloud",
        words=("Its own tpuwatch calls it node_stuck (high): So it is.",),
    ),
    Situation(
        "peer: calls for a restart by the cloud's word alone",
        beside(
            DEAD,
            peer_answer(
                Verdict.NODE_STUCK,
                Action.RESTART_NODE,
                signals=frozenset({Signal.CLOUD, Signal.LOGS}),
                sources=frozenset({Source.CLOUD, Source.TEXT}),
            ),
        ),
        "node_stuck manual",
    ),
    Situation(
        "peer: calls for a restart by the cloud's word and what its kernel shows",
        beside(
            DEAD,
            peer_answer(Verdict.NODE_STUCK, Action.RESTART_NODE, sources=frozenset({Source.CLOUD, Source.KERNEL})),
        ),
        "node_stuck restart_node high cloud",
    ),
    Situation(
        "peer: of a former version, which does not report what its word rests on",
        beside(DEAD, peer_answer(Verdict.NODE_STUCK, Action.RESTART_NODE, sources=frozenset({Source.TEXT}))),
        "node_stuck manual medium peer",
    ),
    Situation(
        "peer: calls for a restart, two minutes ago",
        beside(DEAD, peer_answer(Verdict.NODE_STUCK, Action.RESTART_NODE, age=2 * MINUTE)),
        "node_stuck manual",
        missing=("The latest answer of the node's own tpuwatch is 2 min old",),
    ),
    Situation(
        "peer: calls for a restart by an old judgement",
        beside(DEAD, Peer(NOW - 3, word(Verdict.NODE_STUCK, Action.RESTART_NODE, age=600.0))),
        "node_stuck manual",
    ),
    Situation(
        "peer: calls for a restart, and the API calls the node healthy",
        beside(node(), STUCK),
        "node_stuck manual medium peer",
        contradictions=("READY and HEALTHY, and the node's own tpuwatch calls it",),
        remedy=("tpuwatch status",),
    ),
    Situation(
        "peer: sees to its runtime itself",
        beside(DEAD, peer_answer(Verdict.RUNTIME_STUCK, Action.RESTART_RUNTIME)),
        "runtime_stuck manual medium peer",
    ),
    Situation(
        "peer: a job is stuck on a node that the API calls healthy",
        beside(node(), peer_answer(Verdict.JOB_STUCK, Action.END_HOLDER, confidence=Confidence.LOW)),
        "job_stuck manual low",
        contradictions=("READY and HEALTHY, and the node's own tpuwatch calls it",),
    ),
    Situation(
        "peer: programs run, whatever the API and monitoring report",
        beside(DEAD, peer_answer(Verdict.HEALTHY), SICK),
        "healthy wait low peer",
        contradictions=("READY and TIMEOUT, and the node's own tpuwatch calls it healthy",),
    ),
    Situation(
        "peer: programs ran a moment ago, and one answer was lost",
        beside(DEAD, fell_silent(20.0, tries=1)),
        "healthy wait",
        contradictions=("own tpuwatch calls it healthy",),
    ),
    Situation(
        "peer: announces a maintenance that the API does not know of",
        beside(DEAD, peer_answer(Verdict.MAINTENANCE, Action.CHECKPOINT), SICK),
        "node_stuck manual",
    ),
    Situation(
        "peer: knows nothing, and monitoring confirms the API",
        beside(DEAD, peer_answer(Verdict.UNKNOWN, Action.WAIT), SICK),
        "node_stuck manual medium",
    ),
    Situation("peer: has not judged yet", beside(node(), Peer(NOW - 5)), "healthy none"),
    Situation(
        "peer: no program runs on a healthy node",
        beside(node(), peer_answer(Verdict.IDLE)),
        "idle none high peer",
        words=("Its own tpuwatch reports: So it is.",),
    ),
    Situation(
        "peer: the last program ended by its own fault",
        beside(node(), peer_answer(Verdict.IDLE, Action.FIX_PROGRAM)),
        "idle fix_program",
        remedy=("tpuwatch status",),
    ),
    Situation(
        "peer: answers, and the API cannot be asked",
        beside(silent(Problem.UNREACHABLE, last=node()), peer_answer(Verdict.COMPILING, Action.WAIT)),
        "compiling wait medium peer",
    ),
    Situation(
        "peer: calls for a restart, and the API cannot be asked",
        beside(silent(Problem.UNREACHABLE, last=DEAD), STUCK),
        "node_stuck manual",
    ),
)
