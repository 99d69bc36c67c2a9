from __future__ import annotations

from tests.unit.metrics.test_registry import new, samples
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.signals import Peer


def test_each_peer_is_up_or_not_and_they_are_counted_by_how_they_are() -> None:
    metrics = new()
    assert not any(name[0].startswith("tpuwatch_peer") for name in samples(metrics))
    answers: dict[str, Answer[Peer]] = {
        "a": Answer(Peer(1.0), 1.0, None),
        "z/a": Answer(Peer(1.0), 1.0, None),
        "b": Answer(Peer(1.0, silent_since=2.0, tries=3), 1.0, None),
        "c": Answer(Peer(1.0, silent_since=2.0, tries=3, refuses=True), 1.0, None),
        "d": Answer(None, None, Problem.ABSENT),
        "e": Answer(Peer(1.0), 1.0, Problem.FOREIGN),
    }
    metrics.peers.set_answers(answers)
    exported = samples(metrics)
    up = {name[1:]: value for name, value in exported.items() if name[0] == "tpuwatch_peer_up"}
    assert up == {("a", ""): 1, ("a", "z"): 1, ("b", ""): 0, ("c", ""): 0, ("d", ""): 0, ("e", ""): 0}
    counted = {name[1]: value for name, value in exported.items() if name[0] == "tpuwatch_peers"}
    assert counted == {"answering": 2, "silent": 1, "refused": 1, "unheard": 1, "unclear": 1}
    metrics.peers.set_answers({})
    assert samples(metrics)["tpuwatch_peers", "silent"] == 0
    metrics.peers.set_answers(None)
    assert not any(name[0].startswith("tpuwatch_peer") for name in samples(metrics))
