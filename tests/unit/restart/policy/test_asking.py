"""A node that dies, from the first bad word on: who is asked when, by the real judge over what its signals show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.unit.health import scenes
from tests.unit.restart.policy_scenes import ALL_ON, NOW, situation
from tpuwatch.health.judge import following, judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Answer
from tpuwatch.model.restart import RestartDecision
from tpuwatch.model.signals import Runtime
from tpuwatch.model.verdict import Action, Judgement
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.policy.situation import REQUEST_SECONDS, Confirmation, confirm

STEP_SECONDS = 10
Story = Callable[[float], Answer[Runtime]]  # what its runtime answers, so long after the cloud called it bad


def life(story: Story, settings: PolicySettings) -> list[tuple[int, Judgement, RestartDecision]]:
    """What its own daemon judges and decides, step by step, while the cloud calls the node bad."""
    reported: list[tuple[int, Judgement, RestartDecision]] = []
    seen: Confirmation | None = None
    before: Judgement | None = None
    machine = scenes.host(scenes.holder(0.3))
    for since in range(0, 3600, STEP_SECONDS):
        bad = scenes.answered(scenes.node(health="TIMEOUT", held=since))
        made = judge_node(scenes.job(story(since), 0.3, host=machine, cloud=bad), JudgeLimits())
        now = NOW + since
        reasons = tuple(replace(one, at=now - 5) for one in made.reasons)
        before = following(before, replace(made, at=now, reasons=reasons))
        seen = confirm(seen, before)
        view = situation(before, confirmation=seen, now=now, own=True)
        reported.append((since, before, decide(view, settings)))
    return reported


def test_nobody_is_asked_before_the_watchers_are() -> None:
    reported = life(scenes.hung, ALL_ON)
    for_person = [since for since, judgement, _ in reported if judgement.action is Action.MANUAL]
    assert for_person[-1] - for_person[0] > ALL_ON.confirm_seconds, "it does not wait for its second signal"
    requested = [since for since, _, decision in reported if decision.request]
    asked = [since for since, _, decision in reported if decision.needs_operator]
    assert asked[0] - requested[0] == REQUEST_SECONDS


def test_a_second_signal_that_never_speaks_is_waited_for_once() -> None:
    reported = life(lambda _: scenes.idle(300), ALL_ON)
    asked = [since for since, _, decision in reported if decision.needs_operator]
    # Its own daemon runs, which contradicts the cloud: it has to hold for twice as long.
    assert asked[0] == JudgeLimits().settle_seconds + 2 * ALL_ON.confirm_seconds + ALL_ON.signal_seconds
    assert not [since for since, _, decision in reported if decision.request]


def test_the_watchers_are_not_asked_because_nothing_runs() -> None:
    reported = life(scenes.idle, ALL_ON)
    assert not [since for since, _, decision in reported if decision.request]


def test_who_may_do_nothing_waits_for_nobody() -> None:
    reported = life(lambda _: scenes.idle(300), PolicySettings())
    asked = [since for since, _, decision in reported if decision.needs_operator]
    assert asked[0] == JudgeLimits().settle_seconds + 2 * PolicySettings().confirm_seconds
