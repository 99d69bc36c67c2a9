"""Tests of restarts whose bucket is changed past all leases: copies, older copies, refusals without a reason."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.standins.buckets import BUCKET, Machine, bucket_settings, storage_running
from tests.standins.storage import StorageServer
from tests.standins.storage_objects import Refusal
from tests.unit.restart.records import NOW, TARGET, record, written
from tests.unit.restart.site import Machine as OtherMachine
from tests.unit.restart.site import Site
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import Breaker, Fleet, Lease, Phase
from tpuwatch.restart.audit import Audit
from tpuwatch.restart.driver import LEASE_SECONDS
from tpuwatch.restart.ledger.codec import DamagedError
from tpuwatch.restart.ledger.gcs import GcsLedger
from tpuwatch.restart.ledger.owner import LeaseWatch
from tpuwatch.restart.ledger.reading import read_ledger, read_repaired, require_writable
from tpuwatch.restart.operator.access import LedgerAccess
from tpuwatch.restart.operator.restarts import cancel_restart, read_status, reset_breaker
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.sim.cloud.faults import InjectedFault

NAME = "tpuwatch/nodes/lab/us-east5-a/train-1.json"
FLEET = "tpuwatch/fleet.json"
BARE = InjectedFault(code="FAILED_PRECONDITION")
WRITES = 11  # of one restart, and some more


class Meddler:
    """Another client of the bucket: it does something right before some writes of an object."""

    def __init__(self, server: StorageServer, what: str, at: Callable[[int], bool], name: str = NAME) -> None:
        self.server, self.what, self.at, self.name = server, what, at, name
        self.seen: list[bytes] = []  # what was stored before each write
        self.number = -1  # of the write
        server.faults = self  # type: ignore[assignment]

    def take(self, method: str, resource: str) -> InjectedFault | None:
        if method != "InsertObject" or resource != f"{BUCKET}/{self.name}":
            return None
        self.number += 1
        with contextlib.suppress(Refusal):  # it was removed
            if (content := self.server.objects.get(BUCKET, self.name).content) not in self.seen:
                self.seen.append(content)
        if not self.at(self.number):
            return None
        if self.what == "bare 412":
            return BARE
        if self.what == "removed":
            self.server.objects.delete(BUCKET, self.name)
            return None
        put_back(
            self.server,
            {"copy": self.seen[-1], "older": self.seen[-2:][0], "oldest": self.seen[0]}[self.what],
            self.name,
        )
        return None


def put_back(server: StorageServer, content: bytes, name: str = NAME) -> None:
    server.objects.insert(BUCKET, name, content, "application/json", {})


@contextlib.contextmanager
def restarting(site: Site) -> Iterator[tuple[StorageServer, GcsLedger]]:
    """The site with an operator's request in a bucket."""
    with storage_running(site.clock) as server:
        settings = bucket_settings(server, timeout_seconds=10.0, lease_seconds=LEASE_SECONDS)
        ledger = GcsLedger(settings, site.clock, wait=site.wait, rng=random.Random(1))
        ledger.write(site.record, 0)
        site.clock.advance(1)
        yield server, ledger
        ledger.close()


@pytest.mark.parametrize("what", ["copy", "older", "oldest", "bare 412"])
@pytest.mark.parametrize("nth", [*range(WRITES), -1], ids=lambda nth: "all" if nth < 0 else str(nth))
def test_a_restart_is_driven_to_its_end_whatever_is_put_in_its_place(site: Site, what: str, nth: int) -> None:
    with restarting(site) as (server, ledger):
        Meddler(server, what, lambda number: number == nth or (nth < 0 and number % 2 == 0))
        ended = site.driver(ledger).drive()
        assert (ended.phase, site.node.state, ended.stops) == (Phase.DONE, "READY", 1)
        assert (site.count("stop"), site.count("start")) == (1, 1)
        assert not written(ledger).record.lease.owner


@pytest.mark.parametrize("nth", range(WRITES))
def test_an_object_that_is_removed_leaves_no_node_stopped(site: Site, nth: int) -> None:
    with restarting(site) as (server, ledger):
        Meddler(server, "removed", lambda number: number == nth)
        try:
            site.driver(ledger).drive()
        except LedgerError:
            assert site.count("stop") == 0  # what nothing was done about ends with its record
        assert (site.node.state, site.count("stop") <= 1) == ("READY", True)


def test_a_refusal_that_stays_is_told_after_the_call_and_names_no_driver(site: Site) -> None:
    with restarting(site) as (server, ledger):
        Meddler(server, "bare 412", lambda _: True)
        began = site.clock.monotonic()
        with pytest.raises(LedgerError, match=r"refuses the write of .*train-1\.json \(412\), although nobody") as told:
            site.driver(ledger).drive()
        assert "taken over" not in str(told.value)
        assert site.clock.monotonic() - began <= LEASE_SECONDS + ledger.seconds
        assert site.count("stop") == 0


def test_a_job_that_rewrites_the_bucket_holds_no_lease_of_a_dead_driver(site: Site) -> None:
    with restarting(site) as (server, ledger):
        dead = Lease("elsewhere/b/1/2/r", LEASE_SECONDS)
        ledger.write(replace(site.record, phase=Phase.STOPPED, stops=1, lease=dead), written(ledger).version)
        site.node.state = "STOPPED"

        def rewrite(_: float) -> bool:
            put_back(server, server.objects.get(BUCKET, NAME).content)
            return False

        site.ending = rewrite
        began = site.clock.monotonic()
        assert site.driver(ledger).drive().phase is Phase.DONE
        assert site.clock.monotonic() - began < 3 * LEASE_SECONDS


def test_a_copy_has_the_version_of_what_it_copies(site: Site) -> None:
    with restarting(site) as (server, ledger):
        first = written(ledger)
        leases = LeaseWatch(site.clock, lambda _: False)
        put_back(server, server.objects.get(BUCKET, NAME).content)
        assert written(ledger) == first
        assert [one.version for one in ledger.records()] == [first.version]
        assert leases.remaining(first) == 0
        other = ledger.write(record(phase=Phase.INTENT), first.version)
        assert other.version != first.version


def test_a_driver_finds_its_own_lease_before_it_has_begun(site: Site) -> None:
    """The record is written with the driver's lease, and an older copy with it is there when the driver begins."""
    with restarting(site) as (server, ledger):
        driver = site.driver(ledger)
        stored = ledger.write(replace(site.record, lease=driver.lease), written(ledger).version)
        copy = server.objects.get(BUCKET, NAME).content
        ledger.write(replace(stored.record, reason="Renewed."), stored.version)
        put_back(server, copy)
        assert driver.drive(free=stored.version).phase is Phase.DONE
        assert not any("driven by" in one.sentence for one in site.reported)


# -- what concerns all nodes


@pytest.fixture
def machine(server: StorageServer, clock: ManualClock) -> Iterator[Machine]:
    made = Machine(server, clock)
    yield made
    made.ledger.close()


@pytest.mark.parametrize("what", ["copy", "bare 412"])
def test_the_fleets_object_is_written_all_the_same(server: StorageServer, machine: Machine, what: str) -> None:
    stored = machine.ledger.write_fleet(Fleet(), 0)
    Meddler(server, what, lambda number: number == 0, FLEET)
    opened = Fleet(Breaker(opened=5.0))
    assert machine.ledger.write_fleet(opened, stored.version).fleet == machine.ledger.fleet().fleet == opened
    assert require_writable(machine.ledger, read_ledger(machine.ledger)).fleet.fleet == opened


def test_a_damaged_object_is_kept_and_the_breaker_opened(server: StorageServer, machine: Machine) -> None:
    ledger = machine.ledger
    ledger.write(record(), 0)
    ledger.write(record("fleet", phase=Phase.DONE), 0)
    put_back(server, b"What is this?")
    with pytest.raises(DamagedError, match=r"gs://ledger/tpuwatch/nodes/.*train-1\.json is damaged .*reset-breaker"):
        read_ledger(ledger)
    found = read_repaired(ledger)
    assert [one.node for one in (stored.record.target for stored in found.stored.values())] == ["fleet"]
    assert found.fleet.fleet.breaker.opened == machine.clock.time()
    (kept,) = server.objects.page(BUCKET, "tpuwatch/damaged/", "", 9)[0]
    assert (kept.content, kept.name.rpartition("/nodes/")[2]) == (b"What is this?", "lab/us-east5-a/train-1.json")
    assert kept.name.rpartition("/nodes/")[0] in found.fleet.fleet.breaker.reason
    assert ledger.read(TARGET) is None
    assert ledger.write(record(), 0).version
    assert not ledger.set_aside()


def test_a_damaged_object_of_the_fleet_too(server: StorageServer, machine: Machine) -> None:
    ledger = machine.ledger
    ledger.write(record(), 0)
    ledger.write_fleet(Fleet(), 0)
    put_back(server, b"{}", FLEET)
    found = read_repaired(ledger)
    assert found.fleet.fleet.breaker.opened
    assert len(found.stored) == 1
    assert ledger.write_fleet(Fleet(), found.fleet.version).version


def test_a_record_of_another_version_is_no_damage(server: StorageServer, machine: Machine) -> None:
    machine.ledger.write(record(), 0)
    document = json.loads(server.objects.get(BUCKET, NAME).content)
    put_back(server, json.dumps({**document, "schema": 99}).encode())
    with pytest.raises(LedgerError, match="another version of tpuwatch"):
        read_repaired(machine.ledger)
    assert not machine.ledger.set_aside()


def test_a_damaged_record_under_a_driver_leaves_no_node_stopped(site: Site) -> None:
    with restarting(site) as (server, ledger):
        done: list[float] = []

        def spoil(_: float) -> bool:
            if site.node.state == "STOPPING" and not done:
                put_back(server, b"What is this?")
                done.append(site.clock.time())
            elif done and site.node.state == "READY" and written_or_damaged(ledger):
                assert ledger.set_aside()
            return False

        site.ending = spoil
        ended = site.driver(ledger, here=OtherMachine()).drive()
        assert (ended.phase, site.node.state, site.count("stop")) == (Phase.DONE, "READY", 1)
        assert written(ledger).record.phase is Phase.DONE


def written_or_damaged(ledger: GcsLedger) -> bool:
    """Whether it is damaged."""
    try:
        ledger.read(TARGET)
    except DamagedError:
        return True
    return False


# -- operators


@pytest.fixture
def access(machine: Machine, tmp_path: Path) -> LedgerAccess:
    return LedgerAccess(machine.ledger, Audit(tmp_path / "audit.jsonl", "alice@desk", machine.clock), "gs://ledger/")


@pytest.mark.parametrize("what", ["copy", "bare 412"])
def test_an_operators_commands_are_carried_out_all_the_same(
    server: StorageServer, access: LedgerAccess, what: str
) -> None:
    access.ledger.write(record(), 0)
    access.ledger.write_fleet(Fleet(Breaker(opened=NOW)), 0)
    Meddler(server, what, lambda number: number == 0)
    assert cancel_restart(access, TARGET, NOW).outcome == "cancelled"
    Meddler(server, what, lambda number: number == 0, FLEET)
    assert reset_breaker(access, PolicySettings(), NOW).document.outcome == "reset"
    assert access.ledger.fleet().fleet.breaker.opened is None


def test_a_damaged_bucket_is_set_aside_by_the_reset_of_the_breaker(server: StorageServer, access: LedgerAccess) -> None:
    access.ledger.write(record(), 0)
    put_back(server, b"What is this?")
    for action in (lambda: cancel_restart(access, TARGET, NOW), lambda: read_status(access, (), PolicySettings(), NOW)):
        with pytest.raises(DamagedError, match="tpuwatch restarts reset-breaker"):
            action()
    with pytest.raises(LedgerError, match="is set aside now"):
        reset_breaker(access, PolicySettings(), NOW)
    assert read_status(access, (), PolicySettings(), NOW).breaker.opened
    assert reset_breaker(access, PolicySettings(), NOW).document.outcome == "reset"
    assert not read_status(access, (), PolicySettings(), NOW).needs_attention
