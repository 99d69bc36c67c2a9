"""A node that dies, from the first bad word on: who is asked when, by the real judge over what its witnesses show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.health import scenes
from tests.restart.policy_scenes import ALL_ON, NOW, situation
from tpuwatch.health.evidence import Answer, Runtime
from tpuwatch.health.judge import following, judge
from tpuwatch.health.limits import Limits
from tpuwatch.health.verdict import Judgement, Rung
from tpuwatch.restart.policy.confirm import Confirmation, confirm
from tpuwatch.restart.policy.decision import Decision
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import Settings
from tpuwatch.restart.policy.situation import REQUEST_SECONDS

STEP_SECONDS = 10
Story = Callable[[float], Answer[Runtime]]  # what its runtime answers, so long after the cloud called it bad


def life(story: Story, settings: Settings) -> list[tuple[int, Judgement, Decision]]:
    """What its own daemon judges and decides, step by step, while the cloud calls the node bad."""
    told: list[tuple[int, Judgement, Decision]] = []
    seen: Confirmation | None = None
    before: Judgement | None = None
    machine = scenes.host(scenes.holder(0.3), cpu_busy=None)
    for since in range(0, 3600, STEP_SECONDS):
        bad = scenes.heard(scenes.node(health="TIMEOUT", held=since))
        made = judge(scenes.job(story(since), 0.3, host=machine, cloud=bad), Limits())
        now = NOW + since
        reasons = tuple(replace(one, at=now - 5) for one in made.reasons)
        before = following(before, replace(made, at=now, reasons=reasons))
        seen = confirm(seen, before)
        view = situation(before, confirmation=seen, now=now, own=True)
        told.append((since, before, decide(view, settings)))
    return told


@pytest.mark.parametrize("story", [scenes.hung, scenes.idle], ids=["hung", "idle"])
def test_nobody_is_asked_before_the_watchers_are(story: Story) -> None:
    told = life(story, ALL_ON)
    for_person = [since for since, judgement, _ in told if judgement.rung is Rung.ASK]
    assert for_person[-1] - for_person[0] > ALL_ON.confirm_seconds, "it does not wait for its second witness"
    requested = [since for since, _, decision in told if decision.request]
    asked = [since for since, _, decision in told if decision.ask]
    assert asked[0] - requested[0] == REQUEST_SECONDS


def test_a_second_witness_that_never_speaks_is_waited_for_once() -> None:
    told = life(lambda _: scenes.idle(300), ALL_ON)
    asked = [since for since, _, decision in told if decision.ask]
    # Its own daemon runs, which contradicts the cloud: it has to hold for twice as long.
    assert asked[0] == Limits().settle_seconds + 2 * ALL_ON.confirm_seconds + ALL_ON.witness_seconds
    assert not [since for since, _, decision in told if decision.request]


def test_who_may_do_nothing_waits_for_nobody() -> None:
    told = life(lambda _: scenes.idle(300), Settings())
    asked = [since for since, _, decision in told if decision.ask]
    assert asked[0] == Limits().settle_seconds + 2 * Settings().confirm_seconds
