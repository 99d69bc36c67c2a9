"""From what the tpuwatch on a watched node says, or that it is silent, through judge and policy to what is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.health.scenes import MINUTE, NOW, Situation
from tests.unit.health.situations_peer import DEAD, NEVER, SITUATIONS, STUCK, beside, fell_silent
from tests.unit.restart.policy_scenes import ALL_ON, reasons_from, seen, situation
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Signal
from tpuwatch.model.restart import Blocked, RestartDecision
from tpuwatch.model.signals import CloudNode, Evidence, Peer
from tpuwatch.model.verdict import DESTRUCTIVE, Action
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.situation import Confirmation, confirm

OF_THE_NODE = (Action.RESTART_NODE, Action.RESET_QUEUED_RESOURCE)


def decided(evidence: Evidence) -> RestartDecision:
    """What is done about a node that has been seen so for an hour."""
    judgement, cloud = judge_node(evidence, JudgeLimits()), evidence.cloud
    received = cloud.current(NOW, JudgeLimits().cloud_seconds)
    return decide(situation(judgement, cloud=received, confirmation=seen(judgement)), ALL_ON)


@pytest.mark.parametrize("scene", SITUATIONS, ids=lambda scene: scene.name)
def test_what_the_judge_advises_the_policy_takes_as_it_is(scene: Situation) -> None:
    decision = decided(scene.evidence)
    if scene.action in OF_THE_NODE:
        assert (decision.act, decision.blocked) == (scene.action, None), decision.sentence
        assert len(decision.signals) >= 2
        assert "cloud" in decision.signals
    else:
        assert decision.act is None
        assert scene.action in DESTRUCTIVE or decision.needs_operator == (scene.action is Action.MANUAL)


def test_a_dead_host_that_can_ask_nobody_is_restarted_by_the_clouds_word_and_its_silence() -> None:
    decision = decided(beside(DEAD, fell_silent()))
    assert (decision.act, decision.signals) == (Action.RESTART_NODE, ("cloud", "peer"))
    assert any(one.startswith("peer: Its own tpuwatch, which answered until") for one in decision.evidence)
    assert decided(beside(DEAD, NEVER)).act is None


def test_silence_is_nothing_without_the_cloud_whatever_users_write() -> None:
    for others in ((), (Signal.LOGS,)):
        judgement = replace(judge_node(beside(DEAD, STUCK), JudgeLimits()), reasons=reasons_from(Signal.PEER, *others))
        assert decide(situation(judgement, confirmation=seen(judgement)), ALL_ON).blocked is Blocked.ONE_SOURCE


def test_from_the_first_lost_answer_it_takes_its_time() -> None:
    """The node dies at 0, and the cloud knows it after a minute. Both are asked each 30 s."""
    settings, limits = ALL_ON, JudgeLimits()
    seen_so_far: Confirmation | None = None
    done: list[tuple[float, Action | None]] = []
    for second in range(0, 600, 30):
        now = NOW + second
        cloud = replace(DEAD, changed=NOW + 60) if second >= 60 else replace(DEAD, health="HEALTHY", changed=NOW - 9e4)
        peer = Peer(NOW - 10, None, NOW + 10, tries=second // 20)
        evidence = at(now, cloud, peer)
        judgement = judge_node(evidence, limits)
        seen_so_far = confirm(seen_so_far, judgement)
        view = situation(judgement, cloud=cloud, confirmation=seen_so_far, now=now, up_since=NOW - 9e4)
        done.append((second, decide(view, settings).act))
    first = next(second for second, act in done if act is Action.RESTART_NODE)
    # One minute until the cloud knows, two until it counts, two of confirmation.
    assert first == 5 * MINUTE
    assert all(act is None for second, act in done if second < first)


def at(now: float, cloud: CloudNode, peer: Peer) -> Evidence:
    """The two at that time, each seen just now."""
    evidence = beside(cloud, fell_silent())
    reported = {"cloud": replace(evidence.cloud, at=now - 2), "peer": replace(evidence.peer, at=now - 1, value=peer)}
    return replace(evidence, now=now, **reported)
