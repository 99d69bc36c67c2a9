"""Tests of the ledger in a bucket when Cloud Storage, or the way there, fails: above all when answers are lost."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Callable, Iterator
from itertools import product

import google.auth.exceptions
import pytest
from google.oauth2.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.standins.buckets import BUCKET, Machine, OwnClock, bucket_settings, storage_running
from tests.standins.storage import StorageServer
from tests.unit.restart.records import NOW, TARGET, record
from tests.unit.restart.site import Site
from tpuwatch.config.restart import LedgerConfig as Settings
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import ConflictError, LedgerError
from tpuwatch.google import storage
from tpuwatch.google.credentials import BoundedRequest, Tokens
from tpuwatch.google.errors import SCOPE
from tpuwatch.model.restart import Lease, Phase
from tpuwatch.restart.ledger.gcs import GcsLedger, _version
from tpuwatch.sim.cloud.faults import InjectedFault

NAME = "tpuwatch/nodes/lab/us-east5-a/train-1.json"
REFUSED = InjectedFault(code="UNAVAILABLE")
THROTTLED = InjectedFault(code="RESOURCE_EXHAUSTED")
CUT = InjectedFault(drop=("answer",))
FAILED_LATE = InjectedFault(code="UNAVAILABLE", after_work=True)
LOST = InjectedFault(drop=("answer",), after_work=True)
FAULTS = (REFUSED, THROTTLED, CUT, FAILED_LATE, LOST)
REQUESTS = 12  # of one restart that goes well


class Planned:
    """Faults for one request after the other, whatever they ask; all others go well."""

    def __init__(self, *plan: InjectedFault | None) -> None:
        self.plan = list(plan)

    def take(self, *_: str) -> InjectedFault | None:
        return self.plan.pop(0) if self.plan else None


@pytest.fixture
def machines(server: StorageServer, clock: ManualClock) -> Iterator[Callable[..., Machine]]:
    """Makes machines, each with its ledger."""
    with contextlib.ExitStack() as made:

        def make(**settings: float) -> Machine:
            machine = Machine(server, OwnClock(clock), **settings)
            made.callback(machine.ledger.close)
            return machine

        yield make


@pytest.fixture
def machine(machines: Callable[..., Machine]) -> Machine:
    return machines()


def plan(server: StorageServer, *faults: InjectedFault | None) -> None:
    server.faults = Planned(*faults)  # type: ignore[assignment]


def version(server: StorageServer) -> int:
    """Of what is stored, by the mark of the write that made it."""
    return _version(json.loads(server.objects.get(BUCKET, NAME).content)["write"])


@pytest.mark.parametrize("faults", [*product(FAULTS), *product(FAULTS, FAULTS)])
def test_a_write_is_done_once_whatever_is_lost(
    server: StorageServer, machine: Machine, faults: tuple[InjectedFault, ...]
) -> None:
    first = machine.ledger.write(record(), 0)
    plan(server, *faults)
    second = machine.ledger.write(record(phase=Phase.INTENT), first.version)
    assert second.version == version(server)
    assert len(server.objects.changes) == 2
    assert machine.ledger.read(TARGET) == second


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_write_of_a_node_too(server: StorageServer, machine: Machine, fault: InjectedFault) -> None:
    plan(server, fault)
    assert machine.ledger.write(record(), 0).version == version(server)
    plan(server, fault)
    assert machine.ledger.write_fleet(machine.ledger.fleet().fleet, 0).version
    assert len(server.objects.changes) == 2


@pytest.mark.parametrize("fault", [LOST, FAILED_LATE, None])
def test_a_refusal_is_somebody_elses_write_even_if_it_says_the_same(
    server: StorageServer, machine: Machine, machines: Callable[..., Machine], fault: InjectedFault | None
) -> None:
    theirs = machines()
    stored = theirs.ledger.write(record(), 0)
    plan(server, fault, fault)
    with pytest.raises(ConflictError, match="has another writer"):
        machine.ledger.write(record(), 0)
    assert version(server) == stored.version


def test_a_write_that_was_done_and_written_over_is_a_conflict(
    server: StorageServer, machine: Machine, machines: Callable[..., Machine]
) -> None:
    theirs = machines()
    plan(server, LOST)
    took_over = []

    def take_over(seconds: float) -> bool:
        found = theirs.ledger.read(TARGET)
        if found is not None and not took_over:
            took_over.append(theirs.ledger.write(record(lease=Lease("other")), found.version))
        machine.clock.advance(seconds)
        return False

    machine.ledger._wait = take_over
    with pytest.raises(ConflictError):
        machine.ledger.write(record(lease=Lease("we")), 0)
    assert machine.ledger.read(TARGET) == took_over[0]


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from((*FAULTS, None)), max_size=12), st.integers(1, 4))
def test_every_answer_of_the_ledger_is_true(faults: list[InjectedFault | None], writes: int) -> None:
    clock = ManualClock(NOW)
    with storage_running(clock, write_seconds=1.0) as server:
        machine = Machine(server, clock)
        plan(server, *faults)
        named, unsure = 0, False
        for tries in range(writes):
            done = len(server.objects.changes)
            try:
                stored = machine.ledger.write(record(tries=tries), named)
            except ConflictError:
                assert unsure  # the write before is done, and was not reported
            except LedgerError:
                unsure = True
                assert len(server.objects.changes) <= done + 1
            else:
                assert (stored.version, len(server.objects.changes)) == (version(server), done + 1)
                named, unsure = stored.version, False
        machine.ledger.close()


def test_faults_that_stay_end_the_call_in_time(server: StorageServer, machine: Machine) -> None:
    server.faults.set(REFUSED)
    for call in (
        lambda: machine.ledger.read(TARGET),
        lambda: machine.ledger.write(record(), 0),
        machine.ledger.fleet,
    ):
        began = machine.clock.monotonic()
        with pytest.raises(LedgerError, match=r"in bucket ledger cannot be (read|written): .*error of the server"):
            call()
        assert machine.clock.monotonic() - began <= machine.ledger.seconds
    assert len(machine.waits) > 6
    with pytest.raises(LedgerError, match="cannot be listed"):
        machine.ledger.records()


def test_pauses_grow_and_are_spread_at_random(server: StorageServer, machines: Callable[..., Machine]) -> None:
    machine = machines(timeout_seconds=5.0)
    server.faults.set(REFUSED)
    for _ in range(60):
        with pytest.raises(LedgerError):
            machine.ledger.read(TARGET)
    assert min(machine.waits) < 0.05
    assert 1.0 < max(machine.waits) <= 4.0
    assert len({round(wait, 3) for wait in machine.waits}) > 100


def test_a_throttled_call_waits_as_the_service_requests(server: StorageServer, machine: Machine) -> None:
    plan(server, InjectedFault(code="RESOURCE_EXHAUSTED", retry_after_seconds=3.0))
    assert machine.ledger.read(TARGET) is None
    assert [3.0 <= wait <= 3.25 for wait in machine.waits] == [True]
    plan(server, InjectedFault(code="RESOURCE_EXHAUSTED", retry_after_seconds=60.0))
    with pytest.raises(LedgerError, match="bucket ledger gets too many requests"):
        machine.ledger.read(TARGET)
    assert len(machine.waits) == 1  # it would take too long


def test_who_wants_an_end_is_not_held_up(server: StorageServer, machine: Machine) -> None:
    machine.wants_end = True
    server.faults.set(REFUSED)
    with pytest.raises(LedgerError):
        machine.ledger.read(TARGET)
    assert len(machine.waits) == 1
    assert server.counts["GetObject"] == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            InjectedFault(code="PERMISSION_DENIED", message="x@y does not have storage.objects.get access"),
            r"storage\.objects\.get on bucket ledger.*gcloud storage buckets add-iam-policy-binding gs://ledger .*"
            r"roles/storage\.objectUser.*x@y does not have",
        ),
        (
            InjectedFault(code="PERMISSION_DENIED", message="Request had insufficient authentication scopes."),
            "lacks the scope https://www.googleapis.com/auth/cloud-platform",
        ),
        (
            InjectedFault(code="NOT_FOUND", message="The specified bucket does not exist."),
            "there is no bucket ledger.*gcloud storage buckets create gs://ledger",
        ),
        (InjectedFault(code="NOT_FOUND", message="This is another web server."), "there is no bucket ledger"),
        (InjectedFault(code="UNAUTHENTICATED", message="Invalid Credentials"), "no valid credentials"),
    ],
)
def test_what_a_person_must_change_is_reported_and_not_tried_again(
    server: StorageServer, machine: Machine, fault: InjectedFault, words: str
) -> None:
    server.faults.set(fault)
    with pytest.raises(LedgerError, match=words):
        machine.ledger.read(TARGET)
    for call in (lambda: machine.ledger.write(record(), 0), machine.ledger.records, machine.ledger.fleet):
        with pytest.raises(LedgerError):
            call()
    assert sum(server.counts.values()) == 4
    assert machine.waits == []


def test_one_request_that_hangs_does_not_cost_the_call(
    server: StorageServer, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = storage.Bucket.put
    hangs = [0.2]  # real seconds, for all of its time by the clock

    def hang(bucket: storage.Bucket, name: str, content: bytes, generation: int, seconds: float) -> int:
        if not hangs:
            return put(bucket, name, content, generation, seconds)
        try:
            return put(bucket, name, content, generation, hangs.pop())
        finally:
            machine.clock.advance(seconds)

    monkeypatch.setattr(storage.Bucket, "put", hang)
    plan(server, InjectedFault(black_hole=True, after_work=True))
    assert machine.ledger.write(record(), 0).version == version(server)
    assert len(server.objects.changes) == 1


def test_an_address_without_a_server_is_reported(clock: ManualClock) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # no server listens there
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        ledger = GcsLedger(Settings(kind="gcs", bucket=BUCKET, endpoint=endpoint, insecure=True), clock, wait=bool)
        with pytest.raises(LedgerError, match=f"no connection to the Cloud Storage API at {endpoint}"):
            ledger.read(TARGET)
        ledger.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            google.auth.exceptions.DefaultCredentialsError("none were found"),
            r"gcloud auth application-default login.*none were found",
        ),
        # google.auth takes what is in a reply on trust
        (KeyError("access_token"), r"credentials.*the server that should issue access tokens gives none"),
    ],
)
def test_no_credentials_are_no_empty_ledger(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def default(**_: object) -> None:
        raise error

    monkeypatch.setattr("google.auth.default", default)
    with pytest.raises(LedgerError, match=words):
        GcsLedger(Settings(kind="gcs", bucket=BUCKET), clock).read(TARGET)


def test_credentials_are_asked_for_within_the_deadline_and_sent(
    server: StorageServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def found(*, request: object, **_: object) -> tuple[Credentials, str]:
        asked.append(request)
        return Credentials("a-token"), "lab"

    monkeypatch.setattr("google.auth.default", found)
    session = storage._Session(Tokens([SCOPE], clock), clock)
    url = f"http://{server.address}/storage/v1/b/{BUCKET}/o"
    for _ in range(2):
        answer = session.request("GET", url, timeout=10.0)
        assert (answer.status_code, answer.json()) == (200, {})
        assert answer.request.headers["Authorization"] == "Bearer a-token"
    assert [type(request) for request in asked] == [BoundedRequest]
    session.close()
    ledger = GcsLedger(Settings(kind="gcs", bucket=BUCKET, endpoint=server.address), clock, wait=bool)
    with pytest.raises(LedgerError, match="no connection"):  # a token is never sent without TLS
        ledger.read(TARGET)
    assert server.counts == {"ListObjects": 2}
    ledger.close()


def test_a_list_goes_on_where_a_fault_broke_it_off(
    server: StorageServer, machine: Machine, machines: Callable[..., Machine]
) -> None:
    for number in range(20):
        machine.ledger.write(record(f"train-{number}"), 0)
    other = machines()
    server.faults.set(InjectedFault(method="GetObject", code="PERMISSION_DENIED", resource="*/train-7.json"))
    with pytest.raises(LedgerError):
        other.ledger.records()
    server.faults.clear()
    server.counts.clear()
    assert len(other.ledger.records()) == 20
    assert server.counts["GetObject"] < 20


# -- restarts


@contextlib.contextmanager
def restarting(site: Site) -> Iterator[tuple[StorageServer, GcsLedger]]:
    """The site with a request in a bucket, which keeps the service's limit of writes."""
    with storage_running(site.clock, write_seconds=1.0) as server:
        ledger = GcsLedger(bucket_settings(server), site.clock, wait=site.wait, rng=random.Random(1))
        ledger.write(site.record, 0)
        site.clock.advance(1)
        yield server, ledger
        ledger.close()


def restarts_once(site: Site, ledger: GcsLedger) -> bool:
    ended = site.driver(ledger).drive()
    return (ended.phase, site.node.state, site.count("stop"), ended.stops) == (Phase.DONE, "READY", 1, 1)


def test_a_restart_is_driven_by_records_in_a_bucket(site: Site) -> None:
    with restarting(site) as (server, ledger):
        assert restarts_once(site, ledger)
        assert server.counts["InsertObject"] == len(server.objects.changes)  # none was throttled
        assert sum(server.counts.values()) <= REQUESTS


@pytest.mark.slow
@pytest.mark.parametrize("fault", [LOST, FAILED_LATE, CUT, THROTTLED])
@pytest.mark.parametrize("nth", range(REQUESTS))
def test_a_restart_survives_a_fault_of_any_request(site: Site, fault: InjectedFault, nth: int) -> None:
    with restarting(site) as (server, ledger):
        plan(server, *[None] * nth, fault)
        assert restarts_once(site, ledger)


def test_a_restart_survives_a_storage_that_fails_every_third_time(site: Site) -> None:
    with restarting(site) as (server, ledger):
        for fault in (LOST, REFUSED):
            server.faults.set(InjectedFault(code=fault.code, drop=fault.drop, after_work=fault.after_work, share=0.2))
        assert restarts_once(site, ledger)
