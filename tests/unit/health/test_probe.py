"""A probe as evidence: beside the cloud it proves a fault, alone it proves nothing, and it can clear a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.health.scenes import ABSENT, HOUR, MINUTE, NOW, host, node, own, training
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.probe import Probe, ProbeVerdict
from tpuwatch.model.signals import CloudNode, Evidence
from tpuwatch.model.verdict import DESTRUCTIVE, Action, Source, Verdict

LIMITS = JudgeLimits()
DEAD = node(health="TIMEOUT")
FAILED = Probe("1", NOW - 4 * MINUTE, NOW - MINUTE, "boot-1", ProbeVerdict.TPU_FAULT, "It failed in 'initialise'.")
WORKED = replace(FAILED, verdict=ProbeVerdict.WORKS, summary="The TPU works.")


def scene(probe: Probe, cloud: CloudNode = DEAD) -> Evidence:
    """A free machine after a probe."""
    return own(cloud=cloud, runtime=ABSENT, host=host(probe=probe))


def test_with_the_cloud_a_probe_that_failed_calls_for_a_restart() -> None:
    judgement = judge_node(scene(FAILED), LIMITS)
    assert (judgement.verdict, judgement.action) == (Verdict.NODE_STUCK, Action.RESTART_NODE)
    assert judgement.sources == {Source.CLOUD, Source.PROBE}
    assert any("A probe failed on the TPU 1 min ago" in one.text for one in judgement.reasons), judgement.reasons


@pytest.mark.parametrize(
    "probe",
    [
        replace(FAILED, objection="Others can change it."),
        replace(FAILED, boot_id="boot-0"),
        replace(FAILED, boot_id=""),
        replace(FAILED, began=NOW - HOUR, ended=NOW - HOUR + MINUTE),
        replace(FAILED, began=NOW - HOUR),
        replace(FAILED, ended=NOW - 5 * MINUTE),
        replace(FAILED, began=float("nan")),
        *(replace(FAILED, verdict=one) for one in ProbeVerdict if one is not ProbeVerdict.TPU_FAULT),
    ],
)
def test_one_that_is_no_evidence_adds_nothing_to_the_clouds_word(probe: Probe) -> None:
    assert judge_node(scene(probe), LIMITS).action not in DESTRUCTIVE


def test_alone_it_ends_nothing() -> None:
    judgement = judge_node(scene(FAILED, node()), LIMITS)
    assert judgement.action not in DESTRUCTIVE
    assert judge_node(training(host=host(probe=FAILED)), LIMITS).verdict is Verdict.HEALTHY


def test_a_tpu_that_has_computed_right_since_then_is_not_stuck() -> None:
    judgement = judge_node(scene(WORKED), LIMITS)
    assert (judgement.verdict, judgement.action) == (Verdict.HEALTHY, Action.MANUAL)
    assert "works by a probe, though the API says READY and TIMEOUT" in judgement.summary


def test_one_from_before_the_cloud_called_it_bad_clears_nothing() -> None:
    late = replace(DEAD, changed=NOW - 3 * MINUTE)
    assert judge_node(scene(WORKED, late), LIMITS).verdict is Verdict.NODE_STUCK
