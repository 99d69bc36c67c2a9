"""The other nodes' tpuwatch as a witness, over real connections."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

from tests.node.agent_server import agent_server, status
from tests.node.test_agents import NOW, node
from tpuwatch.clock import SystemClock
from tpuwatch.config.schema import Agents
from tpuwatch.health.evidence import Answer
from tpuwatch.health.verdict import Verdict
from tpuwatch.node.agents import AgentsWitness


def test_it_is_closed_while_one_hangs() -> None:
    with agent_server() as server:
        server.reply = None
        config = Agents.model_validate({"addresses": {"train-2": server.url}, "timeout_seconds": 60.0})
        witness = AgentsWitness(config, clock=SystemClock(), dice=random.Random(5))
        witness.follow({"train-2": Answer(node(2), NOW, None, "", NOW)}, "train-1")
        thread = threading.Thread(target=witness.ask)
        thread.start()
        server.wait(1)
        witness.close()
        thread.join(30)
        assert not thread.is_alive()


def test_a_real_answer_and_a_real_silence() -> None:
    with agent_server() as server:
        server.reply = status("train-2", "idle")
        there = replace(node(2), project="sim-project", zone="us-central2-b")
        config = Agents.model_validate({"addresses": {"train-2": server.url}, "timeout_seconds": 0.1})
        clock = SystemClock()
        witness = AgentsWitness(config, clock=clock, dice=random.Random(5))
        witness.follow({"train-2": Answer(there, NOW, None, "", NOW)}, "train-1")
        while witness.ask().problem is not None:  # a machine under load may take longer than that
            witness._known["train-2"].pacing.hasten()
        agent = witness.answers["train-2"].value
        assert agent is not None
        assert agent.word is not None
        assert agent.word.verdict is Verdict.IDLE
        server.reply = None
        witness._known["train-2"].pacing.hasten()
        witness.ask()
        agent = witness.answers["train-2"].value
        assert agent is not None
        assert (agent.tries, agent.refuses) == (1, False)
        witness.close()
