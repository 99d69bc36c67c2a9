"""The tpuwatch of simulated workers, by the client that a daemon asks others with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standins.simulated import Site, simulated
from tpuwatch.core.clock import SystemClock
from tpuwatch.core.http import HttpClient
from tpuwatch.model.answers import Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.verdict import Verdict
from tpuwatch.signals.peer_calls import PeerError, PeerReply, ask
from tpuwatch.sim.cloud.metadata_tree import address
from tpuwatch.sim.cloud.nodes import SimNode, WorkloadPhase


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    nodes = [{"name": "train-1", "accelerator": "v5litepod-16", "played": True, "phase": "training"}]
    with simulated(tmp_path_factory.mktemp("sim"), nodes=nodes) as site:
        yield site


def node(site: Site) -> SimNode:
    return next(iter(site.world.nodes.values()))


def reply(site: Site, worker: int, seconds: float = 5.0) -> PeerReply:
    assert site.simulator.workers is not None
    url = f"http://{address(node(site), worker)}:{site.simulator.workers.port}"
    return ask(url, HttpClient(SystemClock()), seconds=seconds)


@pytest.mark.parametrize(
    ("phase", "verdict"),
    [
        (WorkloadPhase.TRAINING, Verdict.HEALTHY),
        (WorkloadPhase.STUCK, Verdict.JOB_STUCK),
        (WorkloadPhase.NONE, Verdict.IDLE),
    ],
)
def test_each_answers_of_itself(site: Site, phase: WorkloadPhase, verdict: Verdict) -> None:
    site.do("workload", worker=2, phase=phase.value)
    told = reply(site, 2)
    assert (told.node, told.worker, told.boot_id) == ("train-1", "2", "train-1-2-1")
    assert told.verdict is not None
    assert (told.verdict.verdict, told.verdict.failed) == (verdict, None)


def test_what_went_wrong_there_is_told_with_its_age(site: Site) -> None:
    site.do("workload", worker=1, cause="core_halted", for_seconds=90.0)
    word = reply(site, 1).verdict
    assert word is not None
    assert word.failed is Cause.CORE_HALTED
    assert 90 <= word.failed_age < 120
    assert word.verdict is Verdict.HEALTHY  # its phase did not change
    site.do("workload", worker=1, cause="")
    assert reply(site, 1).verdict.failed is None  # type: ignore[union-attr] # it was there before


@pytest.mark.parametrize(
    ("play", "problem", "refused"),
    [("silent", Problem.TIMEOUT, False), ("slow", Problem.TIMEOUT, False), ("refuses", Problem.UNREACHABLE, True)],
)
def test_one_that_does_not_answer(site: Site, play: str, problem: Problem, refused: bool) -> None:
    site.do("workload", worker=3, tpuwatch=play)
    with pytest.raises(PeerError) as caught:
        reply(site, 3, 0.5)
    assert (caught.value.problem, caught.value.refused, caught.value.silent) == (problem, refused, not refused)
    site.do("workload", worker=3, tpuwatch="answers")
    assert reply(site, 3).worker == "3"


def test_a_machine_that_is_down_is_silent_and_this_one_is_not_played(site: Site) -> None:
    with pytest.raises(PeerError) as caught:
        reply(site, 0)
    assert caught.value.refused
    site.do("hang")
    with pytest.raises(PeerError) as caught:
        reply(site, 1, 0.5)
    assert caught.value.silent


def test_the_api_lists_as_many_endpoints_as_it_is_told_to(site: Site) -> None:
    site.do("set", endpoints=2)
    assert node(site).endpoints == 2
    assert site.simulator.settings()["peers"]["port"] == site.simulator.workers.port  # type: ignore[union-attr] # it plays
