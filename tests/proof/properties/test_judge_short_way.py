"""The short way to a verdict, for nodes that are well, comes to what all of the rules come to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.proof.properties.test_judge import (
    EVIDENCE,
    SIGNALS,
    VALUES,
    answers,
    healths,
    maintenances,
    maybe_times,
    states,
    symptoms,
    times,
)
from tests.unit.health.scenes import NOW
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.health.rules import cloud
from tpuwatch.model.signals import OFF, Answer, CloudNode, Evidence
from tpuwatch.model.verdict import Verdict

WELL = Evidence(
    node="trainer",
    now=NOW,
    cloud=Answer(
        CloudNode("acme", "zone", "trainer", "READY", "HEALTHY", changed=NOW - 50), NOW - 3, None, "", NOW - 3
    ),
    monitoring=OFF,
)


@st.composite
def from_elsewhere(draw: st.DrawFn) -> Evidence:
    """A node that is watched from elsewhere: as WELL, but for a thing or two."""
    of_node: dict[str, st.SearchStrategy[object]] = {
        "state": states,
        "health": healths,
        "symptoms": st.lists(symptoms, min_size=1, max_size=2).map(tuple),
        "maintenance": maintenances,
        "changed": maybe_times,
        "created": maybe_times,
        "hosts": st.just(4),
        "spot": st.just(True),
    }
    other = {name: draw(of_node[name]) for name in draw(st.lists(st.sampled_from(sorted(of_node)), max_size=2))}
    assert WELL.cloud.value is not None
    node = replace(WELL.cloud.value, **other)  # type: ignore[arg-type] # as the fields are
    evidence = replace(WELL, cloud=Answer(node, draw(times), None, "", NOW - 3))
    for name in draw(st.lists(st.sampled_from(SIGNALS), max_size=1)):
        evidence = replace(evidence, **{name: draw(answers(st.just(node) if name == "cloud" else VALUES[name]))})
    return evidence


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(evidence=EVIDENCE | from_elsewhere() | from_elsewhere())
def test_the_short_way_to_healthy_comes_to_what_all_rules_come_to(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgement = judge_node(evidence, JudgeLimits())
    with monkeypatch.context() as patch:
        patch.setattr(cloud, "undisputed", lambda _: False)
        assert judge_node(evidence, JudgeLimits()) == judgement


def test_a_node_that_is_well_is_judged_by_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.health.judge.RULES", ())
    assert judge_node(WELL, JudgeLimits()).verdict is Verdict.HEALTHY
    assert judge_node(replace(WELL, own=True), JudgeLimits()).verdict is Verdict.UNKNOWN
