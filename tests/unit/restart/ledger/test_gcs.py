"""Tests of the ledger in a bucket: by Google's own client against a stand-in of Cloud Storage."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.standins.buckets import BUCKET, Machine, OwnClock, storage_running
from tests.standins.storage import StorageServer
from tests.unit.restart.ledger_contract import DAY, LedgerContract, Open
from tests.unit.restart.records import TARGET, full_record, record
from tpuwatch.config import Config
from tpuwatch.config.restart import LedgerConfig as Settings
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import ConfigError, LedgerError
from tpuwatch.google import storage
from tpuwatch.model.restart import Phase, Target
from tpuwatch.restart.ledger.codec import SCHEMA
from tpuwatch.restart.ledger.gcs import GcsLedger
from tpuwatch.restart.ledger.opening import open_ledger

NAME = "tpuwatch/nodes/lab/us-east5-a/train-1.json"


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    made: list[Machine] = []
    yield made
    for machine in made:
        machine.ledger.close()


@pytest.fixture
def opened(server: StorageServer, clock: ManualClock, machines: list[Machine]) -> Open:
    def opened() -> GcsLedger:
        machines.append(Machine(server, OwnClock(clock)))
        return machines[-1].ledger

    return opened


@pytest.fixture
def machine(opened: Open, machines: list[Machine]) -> Machine:
    opened()
    return machines[0]


def replaced(server: StorageServer, text: bytes) -> int:
    """What another client has written in the object's place."""
    return server.objects.insert(BUCKET, NAME, text, "application/json", {}).generation


class TestContract(LedgerContract):
    """A bucket as any other ledger."""


def test_an_object_is_small_json_with_the_record_in_it(server: StorageServer, machine: Machine) -> None:
    machine.ledger.write(full_record(), 0)
    found = server.objects.get(BUCKET, NAME)
    document = json.loads(found.content)
    assert (document["phase"], document["schema"]) == ("stopped", SCHEMA)
    assert found.content_type == "application/json"
    assert found.given["cacheControl"] == "no-store"
    assert len(found.content) < 4000


def test_names_cannot_leave_their_place(server: StorageServer, machine: Machine) -> None:
    odd = Target("example.com:lab", "us-east5-a", "../../fleet?x#é")
    stored = machine.ledger.write(record(target=odd), 0)
    assert machine.ledger.read(odd) == stored
    assert [one.record.target for one in machine.ledger.records()] == [odd]
    (name,) = (one.name for one in server.objects.page(BUCKET, "", "", 9)[0])
    assert name == "tpuwatch/nodes/example.com%3Alab/us-east5-a/..%2F..%2Ffleet%3Fx%23%C3%A9.json"


def test_ledgers_with_other_prefixes_do_not_see_each_other(server: StorageServer, clock: ManualClock) -> None:
    ours, theirs = (Machine(server, OwnClock(clock), prefix=prefix) for prefix in ("", "fleet/two/"))
    ours.ledger.write(record(), 0)
    assert theirs.ledger.read(TARGET) is None
    assert theirs.ledger.write(record(), 0).version
    assert len(ours.ledger.records()) == len(theirs.ledger.records()) == 1
    ours.ledger.close()
    theirs.ledger.close()


def test_a_ledger_that_is_not_asked_asks_nobody(server: StorageServer, machine: Machine) -> None:
    machine.clock.advance(DAY)
    machine.ledger.close()
    assert not server.counts


def test_a_request_is_one_request(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's client may ask for the bucket besides, in a thread of its own."""
    begun: list[str] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (begun.append(thread.name), start(thread))[1])
    machine.ledger.write(record("train-1"), 0)
    assert not [name for name in begun if "fetch" in name]


def test_a_list_reads_again_what_has_changed_and_no_more(server: StorageServer, opened: Open) -> None:
    ours, theirs = opened(), opened()
    versions = {f"train-{number}": ours.write(record(f"train-{number}"), 0).version for number in range(12)}
    server.counts.clear()
    assert len(theirs.records()) == 12
    assert server.counts == {"ListObjects": 1, "GetObject": 12}
    ours.write(record("train-3", phase=Phase.INTENT), versions["train-3"])
    server.counts.clear()
    assert [one.record.phase for one in theirs.records()].count(Phase.INTENT) == 1
    assert server.counts == {"ListObjects": 1, "GetObject": 1}
    assert theirs.records() == ours.records()
    assert server.counts == {"ListObjects": 3, "GetObject": 1}  # what is written by oneself is known


def test_a_list_of_many_pages_is_whole(
    server: StorageServer, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuwatch.google.storage.PAGE_SIZE", 5)
    machine.ledger.write_fleet(machine.ledger.fleet().fleet, 0)
    for number in range(23):
        machine.ledger.write(record(f"train-{number}"), 0)
    server.counts.clear()
    assert len(machine.ledger.records()) == 23
    assert server.counts["ListObjects"] == 5
    monkeypatch.setattr("tpuwatch.restart.ledger.gcs.MAX_PAGES", 4)
    with pytest.raises(LedgerError, match="does not come to an end"):
        machine.ledger.records()


def test_what_was_removed_is_listed_no_more(server: StorageServer, opened: Open) -> None:
    ours = opened()
    ours.write(record(), 0)
    assert len(ours.records()) == 1
    server.objects.delete(BUCKET, NAME)
    assert ours.records() == []
    assert ours.read(TARGET) is None


def test_reading_and_writing_remove_nothing(server: StorageServer, machine: Machine, clock: ManualClock) -> None:
    machine.ledger.write(record("ended", phase=Phase.DONE), 0)
    clock.advance(91 * DAY)
    assert len(machine.ledger.records()) == 1
    assert machine.ledger.purge() == 0
    assert not server.counts["DeleteObject"]


def test_one_object_is_written_once_a_second_at_most(clock: ManualClock) -> None:
    with storage_running(clock, write_seconds=1.0) as server:  # it counts by the same clock
        machine = Machine(server, clock)
        version = 0
        for tries in range(5):
            version = machine.ledger.write(record(tries=tries), version).version
        machine.ledger.write(record("train-2"), 0)
        assert machine.waits == [1.0] * 4
        assert machine.counts == {("storage.objects.insert", "OK"): 6}
        machine.wants_end = True  # then nothing is held up: it is tried, and refused
        with pytest.raises(LedgerError, match="gets too many requests"):
            machine.ledger.write(record(), version)
        machine.ledger.close()


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"null", b'{"schema":1}', b'{"write":"x"}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_record_is_refused(server: StorageServer, machine: Machine, text: bytes) -> None:
    machine.ledger.write(record(), 0)
    replaced(server, text)
    for action in (lambda: machine.ledger.read(TARGET), machine.ledger.records):
        with pytest.raises(LedgerError, match="damaged"):
            action()


def test_a_record_in_the_place_of_another_is_refused(server: StorageServer, machine: Machine) -> None:
    machine.ledger.write(record("train-2"), 0)
    content = server.objects.get(BUCKET, NAME.replace("-1", "-2")).content
    replaced(server, content)
    with pytest.raises(LedgerError, match="is the record of projects/lab/locations/us-east5-a/nodes/train-2"):
        machine.ledger.read(TARGET)


def test_what_is_too_large_is_not_taken_in(
    server: StorageServer, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "MAX_BYTES", 256 << 10)
    replaced(server, b"x" * (257 << 10))
    with pytest.raises(LedgerError, match=r"cannot be read: .*more than 262144 bytes"):
        machine.ledger.read(TARGET)


def test_a_call_ends_within_a_third_of_a_lease() -> None:
    settings = Settings(kind="gcs", bucket=BUCKET, timeout_seconds=60.0, lease_seconds=30.0)
    assert GcsLedger(settings, ManualClock()).seconds == 10.0


def test_the_configuration_opens_it(clock: ManualClock) -> None:
    ledger = open_ledger(Config.model_validate({"ledger": {"kind": "gcs", "bucket": "ours"}}), clock)
    assert isinstance(ledger, GcsLedger)
    assert ledger.where == "gs://ours/tpuwatch/"
    with pytest.raises(ConfigError, match=r"ledger\.bucket is not set"):
        open_ledger(Config.model_validate({"ledger": {"kind": "gcs"}}), clock)


def test_without_the_extra_it_says_what_to_install(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    monkeypatch.delitem(sys.modules, "tpuwatch.google.storage", raising=False)
    monkeypatch.delattr("google.cloud.storage", raising=False)
    monkeypatch.delattr("tpuwatch.google.storage", raising=False)
    ledger = GcsLedger(Settings(kind="gcs", bucket=BUCKET), clock)
    for action in (lambda: ledger.read(TARGET), lambda: ledger.write(record(), 0), ledger.records, ledger.fleet):
        with pytest.raises(LedgerError, match=r"pip install 'tpuwatch\[gcs\]'"):
            action()


def test_googles_packages_wait_for_the_first_call() -> None:
    program = """
import sys
from tpuwatch.core.clock import SystemClock
from tpuwatch.config.schema import Config
from tpuwatch.restart.ledger.opening import open_ledger
open_ledger(Config.model_validate({"ledger": {"kind": "gcs", "bucket": "ours"}}), SystemClock()).close()
assert not [name for name in sys.modules if name.startswith(("google.cloud", "google.auth", "grpc", "requests"))]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
