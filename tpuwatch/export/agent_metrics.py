"""What tpuwatch tells Prometheus of the other nodes' tpuwatch. Labels hold names of watched nodes alone."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Final

from prometheus_client import Metric

from tpuwatch.export.families import Families, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpuwatch.health.evidence import Agent, Answer

STATES: Final = ("answering", "silent", "refused", "unheard", "unclear")


class AgentMetrics:
    """The part of `Metrics` that is about the other nodes' tpuwatch."""

    def _add_agents(self, new: Families) -> None:
        self._agents: Mapping[str, Answer[Agent]] | None = None
        new.registry.register(Snapshot(self._agent_families))

    def agents(self, answers: Mapping[str, Answer[Agent]] | None) -> None:
        """What each of them answered last, by its node's label; None where they are not asked, which has no series."""
        self._agents = answers

    def _agent_families(self) -> Iterator[Metric]:
        up = Metric(
            "tpuwatch_agent_up", "1 if the tpuwatch on a watched node answered the latest question, 0 if not.", "gauge"
        )
        count = Metric(
            "tpuwatch_agents",
            "Watched nodes by how it stands with their own tpuwatch: answering; silent or refused since it answered; "
            "unheard as yet; unclear.",
            "gauge",
        )
        if self._agents is not None:
            states = {label: _state(answer) for label, answer in self._agents.items()}
            for label, state in states.items():
                up.add_sample(up.name, {"node": label}, 1 if state == "answering" else 0)
            tally = Tally(states.values())
            for state in STATES:
                count.add_sample(count.name, {"state": state}, tally[state])
        yield from (up, count)


def _state(answer: Answer[Agent]) -> str:
    agent = answer.value
    if agent is None:
        return "unheard"
    if agent.silent_since is not None:
        return "refused" if agent.refuses else "silent"
    return "unclear" if answer.problem else "answering"
