"""Situations of a node that is watched from elsewhere, with the tpuwatch that runs on it as a witness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.health.scenes import HOUR, MINUTE, NOW, Situation, elsewhere, heard, node, silent, symptom
from tpuwatch.health.evidence import Agent, Answer, CloudNode, Evidence, Monitoring, Problem, Witness, Word
from tpuwatch.health.verdict import Rung, Sureness, Verdict

SICK = heard(Monitoring(infra_healthy=False, infra_at=NOW - 3 * MINUTE), 30)
DEAD = node(health="TIMEOUT", held=5 * MINUTE)
OF_THE_MACHINE = frozenset({Witness.RUNTIME, Witness.HOST})


def word(verdict: Verdict, rung: Rung = Rung.NOTHING, **more: Any) -> Word:
    """What it makes of its node, by what it has seen there itself."""
    usual: dict[str, Any] = {
        "sureness": Sureness.CERTAIN,
        "summary": "So it is.",
        "witnesses": OF_THE_MACHINE,
        "age": 3.0,
    }
    return Word(verdict, rung, **{**usual, **more})


def says(verdict: Verdict, rung: Rung = Rung.NOTHING, *, age: float = 5.0, **more: Any) -> Answer[Agent]:
    """It answered so long ago."""
    return heard(Agent(NOW - age, word(verdict, rung, **more)), age)


def fell_silent(seconds: float = 4 * MINUTE, tries: int = 9, **more: Any) -> Answer[Agent]:
    """It answered before, and has not for so long."""
    last = word(Verdict.HEALTHY)
    return heard(Agent(NOW - seconds - 20, last, silent_since=NOW - seconds, tries=tries, **more))


def beside(cloud: CloudNode | Answer[CloudNode], agent: Answer[Agent], monitoring: Any = None) -> Evidence:
    """What the cloud says, and the agent."""
    told = cloud if isinstance(cloud, Answer) else heard(cloud)
    scene = elsewhere(told) if monitoring is None else elsewhere(told, monitoring)
    return replace(scene, agent=agent)


STUCK = says(Verdict.NODE_STUCK, Rung.RESTART_NODE)
NEVER = silent(Problem.ABSENT, "http://10.0.0.2:9478 did not answer within 5 s.")
STORM = replace(fell_silent(), problem=Problem.UNREACHABLE, detail="5 of the 6 nodes are silent at once.")
FOREIGN = silent(Problem.FOREIGN, "At http://10.0.0.2:9478 the tpuwatch of p/z/other answers.", last=Agent(NOW - 600))

SITUATIONS = (
    # It has fallen silent.
    Situation(
        "agent: silent, and the API says timeout",
        beside(DEAD, fell_silent()),
        Verdict.NODE_STUCK,
        Rung.RESTART_NODE,
        Sureness.CERTAIN,
        Witness.CLOUD,
        says=("has been silent since, over 9 questions",),
        remedy=("tpu-vm stop trainer",),
    ),
    Situation(
        "agent: silent, and the API calls the runtime unhealthy",
        beside(node(health="UNHEALTHY_TENSORFLOW", held=5 * MINUTE), fell_silent()),
        Verdict.NODE_STUCK,
        Rung.RESTART_NODE,
        Sureness.CERTAIN,
    ),
    Situation(
        "agent: silent, of a slice with a queued resource",
        beside(replace(DEAD, hosts=4, queued_resource="q"), fell_silent()),
        Verdict.NODE_STUCK,
        Rung.RESET_QUEUED_RESOURCE,
        Sureness.CERTAIN,
    ),
    Situation(
        "agent: silent, of a spot node",
        beside(replace(DEAD, spot=True), fell_silent()),
        Verdict.NODE_STUCK,
        Rung.RECREATE,
    ),
    Situation(
        "agent: silent, and the state is unknown after a failed repair",
        beside(node("UNKNOWN", "", held=5 * MINUTE), fell_silent()),
        Verdict.NODE_STUCK,
        Rung.ASK,
        remedy=("A repair has failed",),
    ),
    Situation(
        "agent: silent, and the API has called the node bad for a minute only",
        beside(replace(DEAD, changed=NOW - MINUTE), fell_silent()),
        Verdict.UNKNOWN,
        Rung.WAIT,
        missing=("has not answered for 4 min",),
    ),
    Situation(
        "agent: silent for a minute only",
        beside(DEAD, fell_silent(MINUTE)),
        Verdict.NODE_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        missing=("has not answered for 1 min",),
    ),
    Situation(
        "agent: silent for long, over two questions only",
        beside(DEAD, fell_silent(tries=2)),
        Verdict.NODE_STUCK,
        Rung.ASK,
    ),
    Situation(
        "agent: silent since hours before the API called the node bad",
        beside(DEAD, fell_silent(5 * HOUR)),
        Verdict.NODE_STUCK,
        Rung.ASK,
        missing=("has not answered for 5 h",),
    ),
    Situation(
        "agent: its machine refuses the connection, so it is up",
        beside(DEAD, fell_silent(refuses=True)),
        Verdict.NODE_STUCK,
        Rung.ASK,
        missing=("The machine is there, and tpuwatch does not run on it any more",),
    ),
    Situation(
        "agent: never answered, and the API says timeout",
        beside(DEAD, NEVER),
        Verdict.NODE_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        missing=("own tpuwatch is not there",),
    ),
    Situation(
        "agent: never answered, and monitoring confirms",
        beside(DEAD, NEVER, SICK),
        Verdict.NODE_STUCK,
        Rung.RESTART_NODE,
    ),
    Situation(
        "agent: many silent at once",
        beside(DEAD, STORM),
        Verdict.NODE_STUCK,
        Rung.ASK,
        missing=("5 of the 6 nodes are silent at once",),
    ),
    Situation(
        "agent: many silent at once, and monitoring confirms",
        beside(DEAD, STORM, SICK),
        Verdict.NODE_STUCK,
        Rung.ASK,
        missing=("without a word from the node's own tpuwatch",),
    ),
    Situation(
        "agent: another node's answers",
        beside(DEAD, FOREIGN, SICK),
        Verdict.NODE_STUCK,
        Rung.ASK,
        missing=("the tpuwatch of p/z/other answers",),
    ),
    Situation(
        "agent: was not asked yet",
        beside(DEAD, Answer(), SICK),
        Verdict.NODE_STUCK,
        Rung.ASK,
        missing=("own tpuwatch was not asked yet",),
    ),
    Situation(
        "agent: silent, and the API calls the node healthy",
        beside(node(), fell_silent()),
        Verdict.UNKNOWN,
        Rung.ASK,
        Sureness.WEAK,
        Witness.AGENT,
        contradictions=("READY and HEALTHY, and the node's own tpuwatch has been silent for 4 min",),
        remedy=("tpu-vm describe trainer", "tpuwatch status"),
    ),
    Situation(
        "agent: silent, the API calls the node healthy, and monitoring does not",
        beside(node(), fell_silent(), SICK),
        Verdict.UNKNOWN,
        Rung.ASK,
        contradictions=("own tpuwatch has been silent", "the infrastructure is unhealthy"),
    ),
    Situation(
        "agent: silent, and the API names a symptom of a healthy node",
        beside(node(symptoms=(symptom("LOW_MEMORY"),)), fell_silent()),
        Verdict.NODE_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        Witness.CLOUD,
        contradictions=("own tpuwatch has been silent", "names the symptom LOW_MEMORY"),
    ),
    Situation(
        "agent: silent, and the symptom was there long before",
        beside(node(symptoms=(symptom("LOW_MEMORY", 50 * MINUTE),)), fell_silent()),
        Verdict.UNKNOWN,
        Rung.ASK,
        contradictions=("own tpuwatch has been silent", "names the symptom LOW_MEMORY"),
    ),
    Situation(
        "agent: refused, and the API calls the node healthy",
        beside(node(), fell_silent(refuses=True)),
        Verdict.HEALTHY,
        Rung.NOTHING,
        missing=("tpuwatch does not run on it any more",),
    ),
    Situation(
        "agent: silent, and the API cannot be asked",
        beside(silent(Problem.UNREACHABLE, last=DEAD), fell_silent()),
        Verdict.UNKNOWN,
        Rung.WAIT,
    ),
    Situation(
        "agent: silent while the node is stopped",
        beside(node("STOPPED", ""), fell_silent()),
        Verdict.STOPPED,
        Rung.ASK,
    ),
    # It answers.
    Situation(
        "agent: calls for a restart, and the API says timeout",
        beside(DEAD, STUCK),
        Verdict.NODE_STUCK,
        Rung.RESTART_NODE,
        Sureness.CERTAIN,
        Witness.CLOUD,
        says=("Its own tpuwatch calls it node_stuck (certain): So it is.",),
    ),
    Situation(
        "agent: calls for a restart by the cloud's word alone",
        beside(DEAD, says(Verdict.NODE_STUCK, Rung.RESTART_NODE, witnesses=frozenset({Witness.CLOUD, Witness.LOGS}))),
        Verdict.NODE_STUCK,
        Rung.ASK,
    ),
    Situation(
        "agent: calls for a restart, two minutes ago",
        beside(DEAD, says(Verdict.NODE_STUCK, Rung.RESTART_NODE, age=2 * MINUTE)),
        Verdict.NODE_STUCK,
        Rung.ASK,
        missing=("The latest answer of the node's own tpuwatch is 2 min old",),
    ),
    Situation(
        "agent: calls for a restart by an old judgement",
        beside(DEAD, heard(Agent(NOW - 3, word(Verdict.NODE_STUCK, Rung.RESTART_NODE, age=600.0)))),
        Verdict.NODE_STUCK,
        Rung.ASK,
    ),
    Situation(
        "agent: calls for a restart, and the API calls the node healthy",
        beside(node(), STUCK),
        Verdict.NODE_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        Witness.AGENT,
        contradictions=("READY and HEALTHY, and the node's own tpuwatch calls it",),
        remedy=("tpuwatch status",),
    ),
    Situation(
        "agent: sees to its runtime itself",
        beside(DEAD, says(Verdict.RUNTIME_STUCK, Rung.RESTART_RUNTIME)),
        Verdict.RUNTIME_STUCK,
        Rung.ASK,
        Sureness.LIKELY,
        Witness.AGENT,
    ),
    Situation(
        "agent: a job is stuck on a node that the API calls healthy",
        beside(node(), says(Verdict.JOB_STUCK, Rung.END_HOLDER, sureness=Sureness.WEAK)),
        Verdict.JOB_STUCK,
        Rung.ASK,
        Sureness.WEAK,
        contradictions=("READY and HEALTHY, and the node's own tpuwatch calls it",),
    ),
    Situation(
        "agent: programs run, whatever the API and monitoring say",
        beside(DEAD, says(Verdict.HEALTHY), SICK),
        Verdict.HEALTHY,
        Rung.WAIT,
        Sureness.WEAK,
        Witness.AGENT,
        contradictions=("READY and TIMEOUT, and the node's own tpuwatch calls it healthy",),
    ),
    Situation(
        "agent: programs ran a moment ago, and one answer was lost",
        beside(DEAD, fell_silent(20.0, tries=1)),
        Verdict.HEALTHY,
        Rung.WAIT,
        contradictions=("own tpuwatch calls it healthy",),
    ),
    Situation(
        "agent: announces a maintenance that the API does not know of",
        beside(DEAD, says(Verdict.MAINTENANCE, Rung.CHECKPOINT), SICK),
        Verdict.NODE_STUCK,
        Rung.ASK,
        missing=("Its own tpuwatch answers and calls it maintenance",),
    ),
    Situation(
        "agent: knows nothing, and monitoring confirms the API",
        beside(DEAD, says(Verdict.UNKNOWN, Rung.WAIT), SICK),
        Verdict.NODE_STUCK,
        Rung.RESTART_NODE,
    ),
    Situation(
        "agent: has not judged yet",
        beside(node(), heard(Agent(NOW - 5))),
        Verdict.HEALTHY,
        Rung.NOTHING,
    ),
    Situation(
        "agent: no program runs on a healthy node",
        beside(node(), says(Verdict.IDLE)),
        Verdict.IDLE,
        Rung.NOTHING,
        Sureness.CERTAIN,
        Witness.AGENT,
        says=("Its own tpuwatch says: So it is.",),
    ),
    Situation(
        "agent: the last program ended by its own fault",
        beside(node(), says(Verdict.IDLE, Rung.FIX_PROGRAM)),
        Verdict.IDLE,
        Rung.FIX_PROGRAM,
        remedy=("tpuwatch status",),
    ),
    Situation(
        "agent: answers, and the API cannot be asked",
        beside(silent(Problem.UNREACHABLE, last=node()), says(Verdict.COMPILING, Rung.WAIT)),
        Verdict.COMPILING,
        Rung.WAIT,
        Sureness.LIKELY,
        Witness.AGENT,
    ),
    Situation(
        "agent: calls for a restart, and the API cannot be asked",
        beside(silent(Problem.UNREACHABLE, last=DEAD), STUCK),
        Verdict.NODE_STUCK,
        Rung.ASK,
    ),
)
