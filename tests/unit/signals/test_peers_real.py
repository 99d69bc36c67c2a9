"""The other nodes' tpuwatch as a signal, over real connections."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

from tests.standins.peer_server import peer_server, status
from tests.unit.signals.test_peers import NOW, node
from tpuwatch.config.schema import PeersConfig
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.signals import Answer
from tpuwatch.model.verdict import Verdict
from tpuwatch.signals.peers import PeersSignal


def test_it_is_closed_while_one_hangs() -> None:
    with peer_server() as server:
        server.reply = None
        config = PeersConfig.model_validate({"addresses": {"train-2": server.url}, "timeout_seconds": 60.0})
        signal = PeersSignal(config, clock=SystemClock(), rng=random.Random(5))
        signal.follow({"train-2": Answer(node(2), NOW, None, "", NOW)}, "train-1")
        thread = threading.Thread(target=signal.ask)
        thread.start()
        server.wait(1)
        signal.close()
        thread.join(30)
        assert not thread.is_alive()


def test_a_real_answer_and_a_real_silence() -> None:
    with peer_server() as server:
        server.reply = status("train-2", "idle")
        there = replace(node(2), project="sim-project", zone="us-central2-b")
        config = PeersConfig.model_validate({"addresses": {"train-2": server.url}, "timeout_seconds": 0.1})
        clock = SystemClock()
        signal = PeersSignal(config, clock=clock, rng=random.Random(5))
        signal.follow({"train-2": Answer(there, NOW, None, "", NOW)}, "train-1")
        while signal.ask().problem is not None:  # a machine under load may take longer than that
            signal._known["train-2"].pacing.hasten()
        peer = signal.answers["train-2"].value
        assert peer is not None
        assert peer.verdict is not None
        assert peer.verdict.verdict is Verdict.IDLE
        server.reply = None
        signal._known["train-2"].pacing.hasten()
        signal.ask()
        peer = signal.answers["train-2"].value
        assert peer is not None
        assert (peer.tries, peer.refuses) == (1, False)
        signal.close()
