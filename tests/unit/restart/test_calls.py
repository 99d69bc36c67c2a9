"""How often the Cloud TPU API is called for a restart, at the default settings and the speed of the real service."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.restart.site import Site
from tpuwatch.config import Config
from tpuwatch.model.restart import Phase
from tpuwatch.restart.ledger.opening import phase_limits
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.world import Timing


@pytest.fixture
def site(site: Site) -> Site:
    """Its node takes a minute to stop, and three to start."""
    site.cloud.world.timing = Timing()
    began = site.clock.monotonic()
    site.ending = lambda _: site.clock.monotonic() - began >= 3600
    return site


def drive(site: Site) -> tuple[Phase, Counter[str]]:
    """Drive the restart for an hour at most: the phase that it reached, and the calls by their methods."""
    record = site.driver(limits=phase_limits(Config().restart)).drive()
    return record.phase, Counter(call.method for call in site.cloud.world.calls)


def test_operations_are_listed_before_the_stop_and_once_it_has_started(site: Site) -> None:
    phase, calls = drive(site)
    assert (phase, calls["ListOperations"], calls["StopNode"], calls["StartNode"]) == (Phase.DONE, 2, 1, 1)
    assert calls["GetNode"] <= 110
    methods = [call.method for call in site.cloud.world.calls]
    stop = methods.index("StopNode")
    assert methods[stop - 3 : stop] == [
        "GetNode",
        "ListOperations",
        "GetNode",
    ]  # the last one once the intent is written


def test_an_hour_without_capacity_takes_a_call_a_minute(site: Site) -> None:
    site.cloud.world.faults.set(InjectedFault("StartNode", code="RESOURCE_EXHAUSTED"))
    phase, calls = drive(site)
    assert (phase, calls["ListOperations"], calls["StopNode"], calls["StartNode"]) == (Phase.STOPPED, 1, 1, 11)
    assert calls["GetNode"] <= 60


@pytest.mark.slow
def test_starts_that_fail_are_looked_up_once_each(site: Site) -> None:
    site.cloud.world.faults.set(InjectedFault("StartNodeOperation", code="RESOURCE_EXHAUSTED"))
    phase, calls = drive(site)
    assert (phase, calls["StopNode"]) == (Phase.STOPPED, 1)
    assert calls["ListOperations"] == calls["StartNode"] + 1


def test_an_hour_of_a_stop_that_hangs_lists_nothing_more(site: Site) -> None:
    site.cloud.world.timing.stop = 1e6
    phase, calls = drive(site)
    assert (phase, calls["ListOperations"]) == (Phase.STOPPING, 1)
    assert calls["GetNode"] <= 240


def test_a_lost_answer_is_looked_for_among_the_operations(site: Site) -> None:
    site.cloud.world.faults.set(InjectedFault("StopNode", code="UNAVAILABLE", times=1))
    phase, calls = drive(site)
    assert (phase, calls["StopNode"], site.count("stop")) == (Phase.DONE, 2, 1)
    assert 10 <= calls["ListOperations"] <= 20


def test_a_node_that_may_not_be_stopped_yet_is_looked_at_alone(site: Site) -> None:
    site.node.state = "REPAIRING"
    assert drive(site) == (Phase.FAILED, Counter(GetNode=121))


@pytest.mark.parametrize("looks", ["GetNode", "*"], ids=["the node", "the operations too"])
@pytest.mark.parametrize("seconds", [150.0, 600.0])
def test_an_api_that_shows_what_was_leaves_no_node_stopped(site: Site, looks: str, seconds: float) -> None:
    """It shows the node READY for minutes after the stop, and after the start that finds no capacity."""
    site.cloud.world.faults.set(InjectedFault("StartNodeOperation", code="RESOURCE_EXHAUSTED", times=1))
    for look in ("GetNode",) if looks == "GetNode" else ("GetNode", "ListOperations", "ListNodes"):
        site.cloud.world.faults.set(InjectedFault(look, stale_seconds=seconds))
    _, calls = drive(site)
    assert (site.node.state, site.node.boots) == ("READY", 2)
    stops = [one.what for one in site.cloud.world.history if one.what == "stop"]
    assert (stops, calls["StopNode"]) == (["stop"], 1)


@pytest.mark.parametrize("seconds", [150.0, 600.0])
def test_a_lost_answer_of_an_api_that_shows_what_was_leaves_no_node_stopped(site: Site, seconds: float) -> None:
    site.cloud.world.faults.set(InjectedFault("StopNode", code="UNAVAILABLE", after_work=True, times=1))
    for look in ("GetNode", "ListOperations", "ListNodes"):
        site.cloud.world.faults.set(InjectedFault(look, stale_seconds=seconds))
    drive(site)
    assert (site.node.state, site.node.boots) == ("READY", 2)
    assert [one.what for one in site.cloud.world.history].count("stop") == 1
