"""Real processes that are killed while they drive restarts: the chaos test in small."""

from __future__ import annotations

from pathlib import Path

from tests.proof.chaos.restarts import KILLS, RestartChaos


def test_no_node_is_lost_and_none_is_stopped_twice(tmp_path: Path) -> None:
    tally = RestartChaos(tmp_path, kills=4, seed=11).run()
    assert tally.faults == [], tally.counts
    assert tally.counts[KILLS] >= 4
    assert tally.counts["restarted"] + tally.counts["not touched"] == tally.counts["faults"] > 0
