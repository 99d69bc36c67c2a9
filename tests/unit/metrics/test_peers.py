from __future__ import annotations

from dataclasses import replace

from tests.unit.metrics.test_registry import new, samples
from tests.unit.web import samples as given
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.signals import Peer
from tpuwatch.model.slices import PeerState, Worker


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


def test_the_workers_of_a_slice_are_counted_and_the_silent_ones_and_the_culprit_are_named() -> None:
    metrics = new()
    whole = given.slice_of_four()
    metrics.node.set_nodes(
        [replace(given.node(), slice=whole), replace(given.node("x"), slice=replace(whole, workers=()))]
    )
    exported = {name: value for name, value in samples(metrics).items() if name[0].startswith("tpuwatch_slice")}
    states = {name[2]: value for name, value in exported.items() if name[0] == "tpuwatch_slice_workers"}
    assert states == {"answering": 2, "silent": 1, "refused": 0, "unheard": 1, "unclear": 0}
    assert {name[1:]: value for name, value in exported.items() if name[0] != "tpuwatch_slice_workers"} == {
        ("train-1", "2", "us-central2-b"): given.NOW - 90,
        ("train-1", "1", "us-central2-b"): 1,
    }
    many = replace(whole, workers=tuple(Worker(one, PeerState.SILENT, 1.0, 2.0) for one in range(2000)), culprit=None)
    metrics.node.set_nodes([replace(given.node(), slice=many)])
    named = [name for name in samples(metrics) if name[0] == "tpuwatch_slice_worker_silent_timestamp_seconds"]
    assert len(named) == 16
