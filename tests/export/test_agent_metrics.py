from __future__ import annotations

from tests.export.test_metrics import new, samples
from tpuwatch.health.evidence import Agent, Answer, Problem


def test_each_agent_is_up_or_not_and_they_are_counted_by_how_they_are() -> None:
    metrics = new()
    assert not any(name[0].startswith("tpuwatch_agent") for name in samples(metrics))
    answers: dict[str, Answer[Agent]] = {
        "a": Answer(Agent(1.0), 1.0, None),
        "z/a": Answer(Agent(1.0), 1.0, None),
        "b": Answer(Agent(1.0, silent_since=2.0, tries=1), 1.0, None),
        "c": Answer(Agent(1.0, silent_since=2.0, tries=1, refuses=True), 1.0, None),
        "d": Answer(None, None, Problem.ABSENT),
        "e": Answer(Agent(1.0), 1.0, Problem.FOREIGN),
    }
    metrics.agents(answers)
    told = samples(metrics)
    up = {name[1]: value for name, value in told.items() if name[0] == "tpuwatch_agent_up"}
    assert up == {"a": 1, "z/a": 1, "b": 0, "c": 0, "d": 0, "e": 0}
    counted = {name[1]: value for name, value in told.items() if name[0] == "tpuwatch_agents"}
    assert counted == {"answering": 2, "silent": 1, "refused": 1, "unheard": 1, "unclear": 1}
    metrics.agents({})
    assert samples(metrics)["tpuwatch_agents", "silent"] == 0
    metrics.agents(None)
    assert not any(name[0].startswith("tpuwatch_agent") for name in samples(metrics))
