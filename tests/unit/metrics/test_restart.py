"""Metrics of restarts."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.unit.restart.records import NOW, record
from tpuwatch.metrics.registry import Metrics
from tpuwatch.metrics.restart import MAX_NODES
from tpuwatch.model.restart import Phase, Target
from tpuwatch.model.verdict import Action

LATER = NOW + 600


def scrape(metrics: Metrics) -> list[str]:
    return metrics.exposition()[0].decode().splitlines()


def test_series_of_nodes_are_bounded_and_go_when_the_restart_ends() -> None:
    metrics = Metrics(loops=[], refusals=[])
    many = [record(f"train-{number}", phase=Phase.STOPPED, tries=1) for number in range(MAX_NODES + 5)]
    strange = [record('a"b\n', phase=Phase.STOPPED), replace(many[0], target=Target("lab", "other-zone", "train-0"))]
    metrics.restart.set_state(records=[*strange, *many], breaker_open=True)
    lines = scrape(metrics)
    labelled = [line for line in lines if line.startswith("tpuwatch_restart_phase_timestamp_seconds{")]
    assert len(labelled) == MAX_NODES - 1  # and not the strange one
    twins = [line for line in labelled if '{node="train-0",' in line]
    assert sorted(re.findall('zone="([^"]+)"', " ".join(twins))) == ["other-zone", "us-east5-a"]
    assert len(set(labelled)) == len(labelled)
    assert f'tpuwatch_restarts_open{{phase="stopped"}} {MAX_NODES + 7}.0' in lines
    assert f"tpuwatch_restarts_waiting_for_capacity {MAX_NODES + 6}.0" in lines
    assert "tpuwatch_breaker_open 1.0" in lines
    metrics.restart.set_state(records=[replace(one, phase=Phase.DONE) for one in many], breaker_open=False)
    lines = scrape(metrics)
    assert not [line for line in lines if line.startswith("tpuwatch_restart_phase_timestamp_seconds{")]
    assert "tpuwatch_restarts_waiting_for_capacity 0.0" in lines


def test_what_is_no_act_of_tpuwatch_is_not_counted_under_a_new_label() -> None:
    metrics = Metrics(loops=[], refusals=[])
    before = len(scrape(metrics))
    metrics.restart.count_begun(Action.RECREATE)
    metrics.restart.count_ended(Action.NONE, Phase.CANCELLED)
    metrics.restart.count_ended(Action.RESTART_NODE, Phase.NEEDS_OPERATOR)
    assert len(scrape(metrics)) == before
    assert 'tpuwatch_restarts_total{action="restart_node",result="needs_operator"} 1.0' in scrape(metrics)
