"""From what the tpuwatch on a watched node says, or that it is silent, through judge and policy to what is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.health.scenes import MINUTE, NOW, Situation
from tests.health.situations_agent import DEAD, NEVER, SITUATIONS, STUCK, beside, fell_silent
from tests.restart.policy_scenes import ALL_ON, said, seen, situation
from tpuwatch.health.evidence import Agent, CloudNode, Evidence, Witness
from tpuwatch.health.judge import judge
from tpuwatch.health.limits import Limits
from tpuwatch.health.verdict import DESTRUCTIVE, Rung
from tpuwatch.restart.policy.confirm import Confirmation, confirm
from tpuwatch.restart.policy.decision import Blocked, Decision
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.storm import crowds

OF_THE_NODE = (Rung.RESTART_NODE, Rung.RESET_QUEUED_RESOURCE)


def decided(evidence: Evidence) -> Decision:
    """What is done about a node that has been seen so for an hour."""
    judgement, cloud = judge(evidence, Limits()), evidence.cloud
    heard = cloud.current(NOW, Limits().cloud_seconds)
    return decide(situation(judgement, cloud=heard, confirmation=seen(judgement)), ALL_ON)


@pytest.mark.parametrize("scene", SITUATIONS, ids=lambda scene: scene.name)
def test_what_the_judge_advises_the_policy_takes_as_it_is(scene: Situation) -> None:
    decision = decided(scene.evidence)
    if scene.rung in OF_THE_NODE:
        assert (decision.act, decision.blocked) == (scene.rung, None), decision.sentence
        assert len(decision.witnesses) >= 2
        assert "cloud" in decision.witnesses
    else:
        assert decision.act is None
        assert scene.rung in DESTRUCTIVE or decision.ask == (scene.rung is Rung.ASK)


def test_a_dead_host_that_can_ask_nobody_is_restarted_by_the_clouds_word_and_its_silence() -> None:
    decision = decided(beside(DEAD, fell_silent()))
    assert (decision.act, decision.witnesses) == (Rung.RESTART_NODE, ("agent", "cloud"))
    assert any(one.startswith("agent: Its own tpuwatch, which answered until") for one in decision.evidence)
    assert decided(beside(DEAD, NEVER)).act is None


def test_silence_is_nothing_without_the_cloud_whatever_else_is_said() -> None:
    for reasons in (said(Witness.AGENT), said(Witness.AGENT, Witness.MONITORING), said(Witness.AGENT, Witness.LOGS)):
        judgement = replace(judge(beside(DEAD, STUCK), Limits()), reasons=reasons)
        assert decide(situation(judgement, confirmation=seen(judgement)), ALL_ON).blocked is Blocked.ONE_WITNESS


def test_from_the_first_lost_answer_it_takes_its_time() -> None:
    """The node dies at 0, and the cloud knows it after a minute. Both are asked each 30 s."""
    settings, limits = ALL_ON, Limits()
    seen_so_far: Confirmation | None = None
    done: list[tuple[float, Rung | None]] = []
    for second in range(0, 600, 30):
        now = NOW + second
        cloud = replace(DEAD, changed=NOW + 60) if second >= 60 else replace(DEAD, health="HEALTHY", changed=NOW - 9e4)
        agent = Agent(NOW - 10, None, NOW + 10, tries=second // 20)
        evidence = at(now, cloud, agent)
        judgement = judge(evidence, limits)
        seen_so_far = confirm(seen_so_far, judgement)
        view = situation(judgement, cloud=cloud, confirmation=seen_so_far, now=now, up_since=NOW - 9e4)
        done.append((second, decide(view, settings).act))
    first = next(second for second, act in done if act is Rung.RESTART_NODE)
    # One minute until the cloud knows, two until it counts, two of confirmation.
    assert first == 5 * MINUTE
    assert all(act is None for second, act in done if second < first)


def test_many_nodes_that_are_bad_at_once_are_a_storm_for_the_policy_too() -> None:
    judgement = judge(beside(DEAD, fell_silent()), Limits())
    everywhere = crowds([("z", judgement, DEAD)] * 3)
    assert decide(situation(judgement, confirmation=seen(judgement), crowds=everywhere["z"]), ALL_ON).blocked is (
        Blocked.STORM
    )


def at(now: float, cloud: CloudNode, agent: Agent) -> Evidence:
    """The two at that time, each heard just now."""
    evidence = beside(cloud, fell_silent())
    told = {"cloud": replace(evidence.cloud, at=now - 2), "agent": replace(evidence.agent, at=now - 1, value=agent)}
    return replace(evidence, now=now, **told)
