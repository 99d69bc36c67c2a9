"""The driver judges a node again before it takes it down: real judge, policy and driver, over a simulated cloud."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.health.scenes import NOW, node
from tests.unit.health.situations_peer import DEAD, STUCK, beside, peer_answer
from tests.unit.restart.policy_scenes import ALL_ON, TARGET, seen, situation
from tests.unit.restart.site import Site
from tests.unit.restart.test_driver import Watched
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.restart import Grounds, Phase, RestartRecord
from tpuwatch.model.verdict import Action, Verdict
from tpuwatch.restart.ledger.base import Stored
from tpuwatch.restart.policy.present import present_evidence
from tpuwatch.restart.workflow.types import PresentEvidence, Standing
from tpuwatch.sim.cloud.faults import InjectedFault

REFUSALS = ["RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "UNAVAILABLE"]


@pytest.fixture
def site(site: Site) -> Site:
    """A node that the policy has decided to restart: the cloud says TIMEOUT, its own tpuwatch that it is stuck."""
    decided = replace(
        site.record,
        cause="node_stuck",
        signals=("cloud", "peer"),
        grounds=Grounds("node_stuck", Action.RESTART_NODE, site.clock.time()),
    )
    site.ledger.write(decided, 1)
    return site


class Eyes:
    """What is seen of the node: the API's health as it is, and the word of its own tpuwatch."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.peer = STUCK
        self.asked = 0

    def __call__(self, record: RestartRecord) -> PresentEvidence:
        self.asked += 1
        health = str(self.site.node.health)
        judgement = judge_node(beside(DEAD if health == "TIMEOUT" else node(health=health), self.peer), JudgeLimits())
        view = situation(judgement, confirmation=seen(judgement), cloud=node(health=health), now=NOW)
        return present_evidence(replace(record, target=TARGET), judgement, view, ALL_ON, NOW)

    def recover(self) -> None:
        """As when the service has repaired the node."""
        self.site.node.health, self.site.node.hangs = "HEALTHY", False
        self.peer = peer_answer(Verdict.IDLE)


def on_wait(site: Site, do: Callable[[], None]) -> None:
    """Do that once, when the driver first waits."""
    left = [do]

    def ending(_: float) -> bool:
        if left:
            left.pop()()
        return False

    site.ending = ending


@pytest.mark.parametrize("code", REFUSALS)
def test_a_node_that_recovers_after_a_refused_stop_is_not_stopped(site: Site, code: str) -> None:
    eyes = Eyes(site)
    site.cloud.pass_time(600)
    site.cloud.world.faults.set(InjectedFault("StopNode", code=code, times=1))
    on_wait(site, eyes.recover)
    ended = site.driver(judge_again=eyes).drive()
    assert site.calls("StopNode") == [code]
    assert site.count("stop") == 0
    assert (ended.phase, ended.history) == (Phase.CANCELLED, ())
    assert "It was node_stuck when that was decided" in ended.note
    assert "It is idle now" in ended.note


@pytest.mark.parametrize("code", REFUSALS)
def test_a_node_that_stays_stuck_is_stopped_all_the_same(site: Site, code: str) -> None:
    site.cloud.pass_time(600)
    site.cloud.world.faults.set(InjectedFault("StopNode", code=code, times=1))
    assert site.driver(judge_again=Eyes(site)).drive().stops == 1
    assert site.calls("StopNode") == [code, "OK"]
    assert site.node.boots == 2


def test_what_recovers_while_the_intent_is_written_is_not_stopped_either(site: Site) -> None:
    eyes, watched = Eyes(site), Watched(site)
    site.cloud.pass_time(600)

    def recover(stored: Stored) -> None:
        if stored.record.phase is Phase.INTENT:
            eyes.recover()

    watched.after_write = recover
    assert watched.drive(judge_again=eyes).phase is Phase.CANCELLED
    assert site.calls("StopNode") == []


def test_what_the_api_calls_healthy_right_before_the_stop_is_not_stopped(site: Site) -> None:
    """The judge has not been told yet: its answer of the cloud is as old as its last poll."""
    watched, old = Watched(site), PresentEvidence(Standing.HOLDS, "It is node_stuck still.", ill=True)
    site.cloud.pass_time(600)

    def written(stored: Stored) -> None:
        if stored.record.phase is Phase.INTENT:
            site.node.health, site.node.hangs = "HEALTHY", False

    watched.after_write = written
    ended = watched.drive(judge_again=lambda _: old)
    assert (ended.phase, ended.history, site.calls("StopNode")) == (Phase.CANCELLED, (), [])


def test_a_driver_that_cannot_see_the_node_takes_nothing_down_that_a_policy_decided(site: Site) -> None:
    assert site.driver().drive().phase is Phase.CANCELLED
    assert site.calls("StopNode") == []


def test_a_driver_that_cannot_see_the_node_starts_it_all_the_same(site: Site) -> None:
    eyes = Eyes(site)
    site.cloud.pass_time(600)
    site.ending = lambda _: site.record.phase is Phase.STOPPING
    assert site.driver(judge_again=eyes).drive().open
    site.ending = lambda _: False
    site.driver().drive()
    assert (site.count("stop"), site.count("start"), site.node.boots) == (1, 1, 2)


def test_a_refused_start_is_called_again_at_once_by_the_next_driver(site: Site) -> None:
    eyes = Eyes(site)
    site.cloud.pass_time(600)
    site.cloud.world.faults.set(InjectedFault("StartNode", code="RESOURCE_EXHAUSTED", times=9))
    site.ending = lambda _: len(site.calls("StartNode")) == 9
    assert site.driver(judge_again=eyes).drive().tries == 9
    began, site.ending = site.clock.monotonic(), lambda _: site.calls("StartNode")[-1] == "OK"
    site.driver(judge_again=eyes).drive()
    assert site.clock.monotonic() - began < 10
