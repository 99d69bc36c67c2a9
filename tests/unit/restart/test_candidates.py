"""Which nodes the candidates of a restart are counted among."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.restart_side import NOW, Side, cloud, turned
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.signals import HERE
from tpuwatch.model.verdict import Action, Unseen, Verdict
from tpuwatch.restart.candidates import Candidates
from tpuwatch.restart.policy.mass_failure import BadCount


@pytest.mark.parametrize("name", [HERE, "gke-pool-1"])
def test_the_machine_of_no_node_that_watches_is_not_counted_among_the_nodes(side: Side, name: str) -> None:
    side.judge("train-1")
    side.stuck("train-2")
    side.judge("watcher", Verdict.UNKNOWN)
    nodes = [*side.nodes.values()]
    nodes[-1] = replace(nodes[-1], node=name, own=True, cloud=None, in_api=False)
    candidates, _ = Candidates(cloud_seconds=60, watching_since=NOW, host="vm").update(nodes, side.posted, NOW)
    assert [one.situation.bad_counts.fleet for one in candidates] == [BadCount(watched=2, bad=1)]


def test_what_is_listed_in_its_queued_resource_is_spared_though_nobody_watches_it(side: Side) -> None:
    queued = {"hosts": 4, "queued_resource": "q"}
    shown = cloud("train-1", health="TIMEOUT", **queued)
    side.judge("train-1", Verdict.NODE_STUCK, Action.RESET_QUEUED_RESOURCE, Signal.CLOUD, Signal.RUNTIME, shown=shown)
    others = {
        "train-2": cloud("train-2", **queued),
        "train-3": cloud("train-3", health="TIMEOUT", **queued),
        "train-4": cloud("train-4", "STOPPED", "", **queued),
        "train-5": cloud("train-5", hosts=4, queued_resource="another"),
    }
    side.posted = replace(side.posted, beside=tuple(others.values()))
    made = side.watch(reset_queued_resource=True)
    turned(made)
    assert (side.driven, side.audited()[-1]) == ([], ("reset_queued_resource", "blocked", "hosts"))
    ((_, decision),) = made.status.decisions
    assert "train-2 (READY, HEALTHY) and train-4 (STOPPED)" in decision.sentence
    side.posted = replace(side.posted, beside=(others["train-3"], others["train-5"]))
    turned(made)
    assert side.driven == [("train-1", Action.RESET_QUEUED_RESOURCE)]


def test_a_node_that_is_out_of_sight_is_no_candidate_and_is_spared(side: Side) -> None:
    """Its queued resource is not reset either on the word of another node: it may be well by now."""
    for name in ("train-1", "train-2"):
        shown = cloud(name, health="TIMEOUT", queued_resource="q")
        side.judge(name, Verdict.NODE_STUCK, Action.RESET_QUEUED_RESOURCE, Signal.CLOUD, shown=shown)
    seen, lost = side.nodes.values()
    unseen = Unseen(Signal.CLOUD, Problem.DENIED, "The account may not list the nodes.")
    blind = replace(lost, judgement=replace(lost.judgement, unseen=unseen))
    candidates = Candidates(cloud_seconds=60, watching_since=NOW, host="vm")
    both, _ = candidates.update([seen, lost], side.posted, NOW)
    assert [one.situation.spared for one in both] == [(), ()]
    (one,), _ = candidates.update([seen, blind], side.posted, NOW)
    assert (one.target.node, one.situation.spared) == ("train-1", ("train-2 (not known now)",))
