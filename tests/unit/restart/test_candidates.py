"""Which nodes the candidates of a restart are counted among."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.restart.restart_side import NOW, Side
from tpuwatch.model.signals import HERE
from tpuwatch.model.verdict import Verdict
from tpuwatch.restart.candidates import Candidates
from tpuwatch.restart.policy.mass_failure import BadCount


@pytest.mark.parametrize("name", [HERE, "gke-pool-1"])
def test_the_machine_of_no_node_that_watches_is_not_counted_among_the_nodes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side(tmp_path, monkeypatch)
    side.judge("train-1")
    side.stuck("train-2")
    side.judge("watcher", Verdict.UNKNOWN)
    nodes = [*side.nodes.values()]
    nodes[-1] = replace(nodes[-1], node=name, own=True, cloud=None, in_api=False)
    candidates, _ = Candidates(cloud_seconds=60, watching_since=NOW, host="vm").update(nodes, side.posted, NOW)
    assert [one.situation.bad_counts.fleet for one in candidates] == [BadCount(watched=2, bad=1)]
