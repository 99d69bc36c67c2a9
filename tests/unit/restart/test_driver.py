"""Tests of the driver of a restart, against the simulated cloud: its order, its lease, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from tests.standins.memory_ledger import MemoryLedger
from tests.unit.restart.records import TARGET, written
from tests.unit.restart.site import Machine, Site
from tpuwatch.core.errors import ConflictError, LedgerError
from tpuwatch.model.restart import Lease, Phase, RestartRecord, Target
from tpuwatch.restart.driver import LEASE_SECONDS
from tpuwatch.restart.ledger.base import Stored
from tpuwatch.restart.workflow.types import ApiCall, CallAnswer, NodeObservation
from tpuwatch.sim.cloud.faults import InjectedFault


class Watched:
    """A ledger and an API that write down what is asked of them, and do something else before it on request."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.seen: list[str] = []
        self.before_write: Callable[[RestartRecord], None] = lambda _: None
        self.after_write: Callable[[Stored], None] = lambda _: None
        self.before_call: Callable[[], None] = lambda: None
        self.after_look: Callable[[], None] = lambda: None

    def read(self, target: Target) -> Stored | None:
        return self.site.ledger.read(target)

    def write(self, record: RestartRecord, version: int) -> Stored:
        self.before_write(record)
        stored = self.site.ledger.write(record, version)
        self.seen.append(record.phase.value)
        self.after_write(stored)
        return stored

    def look(self, target: Target, *, since: float | None) -> NodeObservation:
        sight = self.site.api.look(target, since=since)
        self.seen.append("look")
        self.after_look()
        return sight

    def call(self, call: ApiCall, target: Target, queued_resource: str) -> CallAnswer:
        self.before_call()
        self.seen.append(f"{call.value}!")
        return self.site.api.call(call, target, queued_resource)

    def drive(self, **more: Any) -> RestartRecord:
        fake: Any = self
        return self.site.driver(fake, fake, **more).drive()


class Faulty(Watched):
    """Three writes from a number on end in an error, done or not."""

    def __init__(self, site: Site, number: int, *, done: bool) -> None:
        super().__init__(site)
        self.number, self.left = number, 3
        if done:
            self.after_write = self.fail
        else:
            self.before_write = self.fail

    def fail(self, _: object) -> None:
        self.number -= 1
        if self.number < 0 and self.left:
            self.left -= 1
            raise LedgerError("the disk is asleep")


def test_every_act_is_written_before_it_is_done_and_its_answer_before_anything_else(site: Site) -> None:
    watched, operations = Watched(site), []
    watched.after_write = lambda stored: operations.append(stored.record.operation)
    watched.drive()
    for act, before, after in (("stop!", "intent", "stopping"), ("start!", "stopped", "starting")):
        where = watched.seen.index(act)
        again = (
            ["look"] if act == "stop!" else []
        )  # what takes it down is called on a look that is newer than the intent
        around = ["look", before, *again, act, after]
        assert watched.seen[where + 2 - len(around) : where + 2] == around
        written = [one for one in watched.seen[: where + 2] if one not in ("look", "stop!", "start!")]
        assert operations[len(written) - 1]  # the operation's name, before it is waited for


def test_a_call_that_ends_the_restart_is_reported(site: Site) -> None:
    site.cloud.world.faults.set(InjectedFault("StopNode", code="PERMISSION_DENIED"))
    assert site.driver().drive().phase is Phase.FAILED
    last = site.reported[-1]
    assert (last.phase, last.sentence) == (Phase.FAILED, site.record.note)


def test_a_lease_is_renewed_while_nothing_else_is_written(site: Site) -> None:
    watched, written = Watched(site), [site.clock.monotonic()]
    watched.after_write = lambda _: written.append(site.clock.monotonic())
    site.cloud.world.timing.stop = 1000
    watched.drive()
    assert max(b - a for a, b in pairwise(written)) <= LEASE_SECONDS / 3 + 0.001
    assert site.count("stop") == 1


def test_a_node_without_a_record_is_not_touched(site: Site) -> None:
    site.ledger = MemoryLedger()
    with pytest.raises(LedgerError, match="nothing to carry on"):
        site.driver().drive()
    assert site.cloud.happened() == ["hang"]


def test_a_record_that_has_ended_stays_as_it_is(site: Site) -> None:
    site.driver().drive()
    before = site.ledger.read(TARGET)
    late = site.driver()
    assert late.drive().phase is Phase.DONE
    assert (site.ledger.read(TARGET), late.has_held) == (before, False)


def test_a_driver_knows_whether_it_ever_held_the_record(site: Site) -> None:
    first = site.driver()

    def finished(_: float) -> bool:
        if not first.has_held:
            first.drive()
        return False

    held = Lease("vm-9/boot/4711/7/x")
    site.ledger.write(replace(site.record, lease=held), 1)
    site.machine.gone.add(held.owner)
    beside = site.driver(wait=finished, here=Machine())
    assert beside.drive().phase is Phase.DONE
    assert (first.has_held, beside.has_held) == (True, False)


def test_the_live_driver_of_a_record_is_named_and_left_alone(site: Site) -> None:
    def renew(_: float) -> bool:
        found = written(site.ledger)
        site.ledger.write(found.record, found.version)
        return False

    site.ledger.write(replace(site.record, lease=Lease("vm-9/boot/4711/7/x")), 1)
    site.ending = renew
    with pytest.raises(ConflictError, match="process 4711 on vm-9"):
        site.driver().drive()
    assert site.record.lease.owner == "vm-9/boot/4711/7/x"
    assert site.cloud.happened() == ["hang"]
    assert "process 4711 on vm-9" in site.reported[0].sentence


def test_a_silent_driver_is_waited_for_as_long_as_its_lease_holds(site: Site) -> None:
    site.ledger.write(replace(site.record, lease=Lease("vm-9/boot/4711/7/x", 45.0)), 1)
    began = site.clock.monotonic()
    watched, taken = Watched(site), []
    watched.after_write = lambda _: taken.append(site.clock.monotonic())
    assert watched.drive().phase is Phase.DONE
    assert taken[0] - began == pytest.approx(45)


def test_a_dead_driver_of_this_machine_is_not_waited_for(site: Site) -> None:
    site.ledger.write(replace(site.record, lease=Lease("vm-1/boot/4711/7/x")), 1)
    site.machine.gone.add("vm-1/boot/4711/7/x")
    began = site.clock.monotonic()
    watched, taken = Watched(site), []
    watched.after_write = lambda _: taken.append(site.clock.monotonic())
    watched.drive()
    assert taken[0] == began


@pytest.mark.parametrize("phase", ["requested", "intent", "stopping", "stopped", "starting", "verifying"])
def test_an_interrupted_restart_is_finished_by_the_next_driver(site: Site, phase: str) -> None:
    site.ending = lambda _: bool(site.reported) and site.record.phase.value == phase
    stood = site.driver().drive()
    if stood.open:
        assert stood.phase.value == phase
        assert stood.lease == Lease()  # the next one need not wait
    site.ending = lambda _: False
    began = site.clock.monotonic()
    assert site.driver().drive().phase is Phase.DONE
    assert (site.count("stop"), site.count("start"), site.node.boots) == (1, 1, 2)
    assert site.clock.monotonic() - began < 300


def test_a_driver_that_is_overtaken_while_it_looks_does_nothing_more(site: Site) -> None:
    watched = Watched(site)

    def overtake() -> None:
        found = written(site.ledger)
        site.ledger.write(replace(found.record, lease=Lease("vm-9/boot/4711/7/x")), found.version)

    watched.after_look = overtake
    with pytest.raises(ConflictError, match="taken over by process 4711 on vm-9"):
        watched.drive()
    assert site.cloud.happened() == ["hang"]
    assert site.record.lease.owner == "vm-9/boot/4711/7/x"


@pytest.mark.parametrize("act", ["stop", "start"])
def test_a_driver_that_was_frozen_before_its_call_does_nothing_more_once_another_has_taken_over(
    site: Site, act: str
) -> None:
    """It thaws after the other one has finished, with a decision to call in its hands."""
    watched, wanted = Watched(site), {"stop": Phase.INTENT, "start": Phase.STOPPED}[act]

    def freeze(stored: Stored) -> None:
        if stored.record.phase is wanted and not others:
            others.append(site.driver().drive())  # waits for the lease to run out

    others: list[RestartRecord] = []
    watched.after_write = freeze
    with pytest.raises(ConflictError):
        watched.drive()
    assert others[0].phase is Phase.DONE
    assert f"{act}!" not in watched.seen
    assert (site.count("stop"), site.count("start"), site.node.boots) == (1, 1, 2)


def test_what_was_seen_too_long_ago_is_looked_at_again(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    watched, slow = Watched(site), [True]

    def dawdle(stored: Stored) -> None:
        if stored.record.phase is Phase.INTENT and slow:
            slow.clear()
            site.cloud.pass_time(LEASE_SECONDS / 2 + 1)  # a flush that takes half a minute

    watched.after_write = dawdle
    assert watched.drive().phase is Phase.DONE
    assert site.count("stop") == 1
    assert "The stop of node train-1 is put off" in caplog.text


@pytest.mark.parametrize("done", [True, False])
def test_faults_of_the_ledger_are_waited_out_and_lost_answers_found(site: Site, done: bool) -> None:
    """At every write in turn, carried out or not, three faults in a row."""
    for number in range(100):
        site.begin()
        faulty = Faulty(site, number, done=done)
        assert faulty.drive().phase is Phase.DONE
        assert (site.count("stop"), site.count("start")) == (1, 1)
        if faulty.left:
            assert number >= 8  # so many writes there are, at least
            return


def test_a_ledger_that_stays_away_ends_the_driver_before_it_acts(site: Site) -> None:
    watched = Watched(site)

    def refuse(record: RestartRecord) -> None:
        if record.phase is Phase.INTENT:
            raise LedgerError("there is no room")

    watched.before_write = refuse
    began = site.clock.monotonic()
    with pytest.raises(LedgerError, match="no room"):
        watched.drive()
    assert site.clock.monotonic() - began <= LEASE_SECONDS + 10
    assert site.cloud.happened() == ["hang"]
    assert site.record.lease == Lease()
    assert site.driver().drive().phase is Phase.DONE


@dataclass
class Ahead:
    """A clock whose wall time is some seconds ahead of the cloud's."""

    site: Site
    seconds: float = 0.0

    def time(self) -> float:
        return self.site.clock.time() + self.seconds

    def monotonic(self) -> float:
        return self.site.clock.monotonic()


@pytest.mark.parametrize("handed_over", [False, True])
def test_no_clock_makes_a_stop_seem_to_have_come_to_nothing(site: Site, handed_over: bool) -> None:
    """The answer is lost, what is shown is old, another client starts the node, and the clock is set 100 s ahead."""
    site.cloud.world.faults.set(InjectedFault("*", stale_seconds=10))
    site.cloud.world.faults.set(InjectedFault("StopNode", code="UNAVAILABLE", after_work=True, times=1))
    clock, ending = Ahead(site), handed_over

    def strange(_: float) -> bool:
        nonlocal ending
        if site.node.state == "STOPPED":
            site.api.call(ApiCall.START, TARGET, "")
        if site.record.phase is not Phase.INTENT:
            return False
        clock.seconds, ended, ending = 100.0, ending, False
        return ended

    site.ending = strange
    stood = site.driver(clock=clock).drive()
    assert stood.open is handed_over
    done = site.driver(clock=clock).drive()
    assert (done.phase, site.node.state, site.count("stop")) == (Phase.DONE, "READY", 1)
