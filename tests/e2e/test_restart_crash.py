"""Tests that a driver may die at any step: the next one finishes, and no fault costs a second stop.

The drivers are real and talk to the simulated cloud by Google's own client. What they die of is raised at a step, and
from then on nothing of theirs is carried out any more, as after a SIGKILL. The simulator's own log is the signal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest

from tests.unit.restart.records import TARGET
from tests.unit.restart.site import LIMITS, Machine, Site, site_running
from tpuwatch.core.errors import ConflictError, LedgerError
from tpuwatch.model.restart import Phase, RestartRecord, Target
from tpuwatch.restart.ledger.base import Stored
from tpuwatch.restart.workflow.step import StepContext
from tpuwatch.restart.workflow.types import ApiCall, CallAnswer, NodeObservation
from tpuwatch.sim.cloud.faults import InjectedFault

T = TypeVar("T")
NEVER = 10_000
LOST_STOP = InjectedFault("StopNode", code="UNAVAILABLE", after_work=True, times=1)
LOST_START = InjectedFault("StartNode", code="UNAVAILABLE", after_work=True, times=1)
LOST_RESET = InjectedFault("ResetQueuedResource", code="UNAVAILABLE", after_work=True, times=1)
CLOUDS = {
    "well": (),
    "lost-stop": (LOST_STOP,),
    "lost-start": (LOST_START,),
    "lost-both": (LOST_STOP, LOST_START),
    "stop-not-heard": (InjectedFault("StopNode", code="UNAVAILABLE", times=1),),
    "start-not-heard": (InjectedFault("StartNode", code="UNAVAILABLE", times=2),),
    "no-capacity": (InjectedFault("StartNodeOperation", code="RESOURCE_EXHAUSTED", times=2),),
    "stale": (InjectedFault("*", stale_seconds=10),),
    "stale-half": (InjectedFault("*", stale_seconds=10, share=0.5),),
    "stale-nodes": (LOST_STOP, InjectedFault("GetNode", stale_seconds=10)),
    "stale-operations": (LOST_STOP, LOST_START, InjectedFault("ListOperations", stale_seconds=10)),
    "blind": (
        InjectedFault("GetNode", code="UNAVAILABLE", times=4),
        InjectedFault("ListOperations", code="INTERNAL", times=6),
    ),
}


class Killed(BaseException):
    """What a SIGKILL would do."""


@dataclass
class Mortal:
    """A driver's ledger, API and waiting. It dies at a step: before the step is carried out, or right after it."""

    site: Site
    dies_at: int = NEVER
    after: bool = False
    waits: bool = False  # whether waiting and looking are steps too
    steps: int = 0
    dead: bool = False
    acts: list[str] = field(default_factory=list)

    def step(self, act: str, do: Callable[[], T]) -> T:
        if self.dead:
            raise Killed
        self.acts.append(act)
        self.steps += 1
        dying = self.steps > self.dies_at
        if dying and not self.after:
            self.dead = True
            raise Killed
        result = do()
        if dying:
            self.dead = True
            raise Killed
        return result

    def minor(self, act: str, do: Callable[[], T]) -> T:
        if self.dead:
            raise Killed
        return self.step(act, do) if self.waits else do()

    def read(self, target: Target) -> Stored | None:
        return self.minor("read", lambda: self.site.ledger.read(target))

    def write(self, record: RestartRecord, version: int) -> Stored:
        return self.step(f"write {record.phase.value}", lambda: self.site.ledger.write(record, version))

    def look(self, target: Target, *, since: float | None) -> NodeObservation:
        return self.minor("look", lambda: self.site.api.look(target, since=since))

    def call(self, call: ApiCall, target: Target, queued_resource: str) -> CallAnswer:
        return self.step(f"call {call.value}", lambda: self.site.api.call(call, target, queued_resource))

    def wait(self, seconds: float) -> bool:
        return self.minor("wait", lambda: self.site.wait(seconds))

    def drive(self) -> RestartRecord | None:
        """The record at the end; None if this one died. Its process is then known to be gone."""
        fake: Any = self
        try:
            return self.site.driver(fake, fake, wait=self.wait).drive()
        except Killed:
            self.site.machine.gone.add(self.site.record.lease.owner)
            return None


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with site_running() as made:
        yield made


@pytest.fixture
def site(running: Site) -> Site:
    running.machine = Machine()
    return running


def begin(site: Site, faults: tuple[InjectedFault, ...] = (), **fields: Any) -> None:
    site.begin(**fields)
    for fault in faults:
        site.cloud.world.faults.set(fault)


def finish(site: Site, *, late: bool = False) -> None:
    """The next driver, and what must hold after it."""
    done = Mortal(site).drive()
    assert done is not None
    check(site, done, late=late)


def check(site: Site, done: RestartRecord, *, late: bool = False) -> None:
    """One restart; or none, where it came too `late` for a node that was not touched, or could not find out in time."""
    story = [one.what for one in site.cloud.world.history]
    if late and done.phase is Phase.FAILED:
        assert (site.node.state, site.node.boots, {*story} - {"hang", "timeout"}) == ("READY", 1, set())
        return
    assert done.phase is Phase.DONE, (done.note, story)
    assert site.node.state == "READY", story
    assert (site.node.boots, site.node.hangs) == (2, False), story
    assert site.count("stop") + site.count("reset") == 1, story
    assert site.count("start") == site.count("stop") + site.count("failed"), story  # as many as were necessary
    assert done.lease.owner == ""


def die_everywhere(site: Site, faults: tuple[InjectedFault, ...], *, after: bool, **fields: Any) -> int:
    """A driver dies at each step, and the next one finishes; how many steps there were."""
    for number in range(NEVER):
        begin(site, faults, **fields)
        if Mortal(site, number, after).drive() is not None:
            return number
        finish(site)
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("weather", CLOUDS)
def test_a_driver_may_die_at_every_write_and_call(site: Site, weather: str, after: bool) -> None:
    begin(site, CLOUDS[weather])
    whole = Mortal(site)
    check(site, whole.drive() or site.record)
    assert {"call stop", "call start", "write intent", "write stopped", "write done"} <= set(whole.acts)
    assert die_everywhere(site, CLOUDS[weather], after=after) >= 8


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("faults", [(), (LOST_RESET,)], ids=["well", "lost-reset"])
def test_so_it_may_while_it_resets_a_queued_resource(
    site: Site, faults: tuple[InjectedFault, ...], after: bool
) -> None:
    assert die_everywhere(site, faults, after=after, hosts=4, queued_resource="queue-1") >= 5


@pytest.mark.parametrize("seed", range(20))
def test_many_drivers_may_die_one_after_the_other_at_any_time(site: Site, seed: int) -> None:
    """Also while they look and wait; and the next one comes at once, later, or when all is long over."""
    rng = random.Random(seed)
    weather = rng.choice(list(CLOUDS))
    begin(site, CLOUDS[weather])
    late = weather == "blind"
    for _ in range(rng.randint(1, 6)):
        done = Mortal(site, rng.randint(0, 30), rng.random() < 0.5, waits=True).drive()
        if done is not None:
            check(site, done, late=late)
            return
        away = rng.choice([0, 1, 5, 15, 40, 600, 7200])
        late |= away > LIMITS.wait_seconds
        site.cloud.pass_time(away)
    finish(site, late=late)


@pytest.mark.parametrize("seed", range(14))
def test_drivers_that_die_and_do_not_seem_to_are_waited_for(site: Site, seed: int) -> None:
    """They ran on other machines: that they are gone shows by their leases alone."""
    rng = random.Random(seed)
    weather = rng.choice(list(CLOUDS))
    begin(site, CLOUDS[weather])
    for _ in range(3):
        done = Mortal(site, rng.randint(0, 30), rng.random() < 0.5, waits=True).drive()
        site.machine.gone.clear()
        if done is not None:
            check(site, done, late=weather == "blind")
            return
    finish(site, late=weather == "blind")


@pytest.mark.parametrize("seed", range(14))
def test_drivers_that_are_at_it_together_are_as_good_as_one(site: Site, seed: int) -> None:
    """While one waits or writes, another one may come, from another machine, and be let in when time has passed."""
    rng = random.Random(seed)
    begin(site, CLOUDS[rng.choice(list(CLOUDS))])
    depth = 0

    def intrude(_: float) -> bool:
        nonlocal depth
        if depth < 2 and rng.random() < 0.15:
            depth += 1
            site.cloud.pass_time(rng.choice([0, 30, 90]))  # the one that is under way is frozen for so long
            drive_or_give_up(site)
            depth -= 1
        return False

    site.ending = intrude
    try:
        drive_or_give_up(site)
        site.ending = lambda _: False
        finish(site)
    finally:
        site.ending = lambda _: False


@pytest.mark.parametrize("trusting", [False, True])
@pytest.mark.parametrize("stale", ["GetNode", "ListOperations", "*"])
def test_old_looks_cost_no_second_stop_though_somebody_starts_the_node(
    site: Site, stale: str, trusting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop's answer is lost. Nor does it to one who takes each look for the truth, and heeds no start of
    somebody else's: what is refused while the node goes down, or starts, is never taken for a stop that was not made.
    """
    if trusting:
        monkeypatch.setattr(StepContext, "restarted_by_another", False)
    begin(site, (InjectedFault(stale, stale_seconds=25), LOST_STOP))

    def start(_: float) -> bool:
        if site.node.state == "STOPPED":
            site.api.call(ApiCall.START, TARGET, "")
        return False

    site.ending = start
    limits = replace(LIMITS, stale_seconds=0, call_seconds=0) if trusting else replace(LIMITS, stale_seconds=25)
    try:
        done = site.driver(limits=limits).drive()
    finally:
        site.ending = lambda _: False
    assert not done.open
    assert site.node.state == "READY"
    assert site.count("stop") == 1


def drive_or_give_up(site: Site) -> None:
    try:
        site.driver().drive()
    except ConflictError:
        pass  # somebody else has it
    except LedgerError as error:
        raise AssertionError from error
