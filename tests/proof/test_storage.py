"""Tests of the stand-in for Cloud Storage: by Google's own client as it comes, and by a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core.exceptions import (
    NotFound,
    PreconditionFailed,
    ServiceUnavailable,
)
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.standins.buckets import BUCKET, storage_running
from tests.standins.storage import StorageServer
from tests.standins.storage_objects import Conditions, Objects, Refusal
from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.cloud.faults import InjectedFault


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[StorageServer]:
    with storage_running(clock, write_seconds=1.0) as running:
        yield running


@pytest.fixture
def bucket(server: StorageServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # Otherwise a thread of the client requests the bucket again and again, for minutes after the test. Its random waits
    # change the state of `random`, which Hypothesis reports as an error of whatever test it runs then.
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    client = storage.Client(
        project="lab",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": f"http://{server.address}"},
    )
    yield client.bucket(BUCKET)
    client.close()


def test_what_the_client_writes_it_reads(bucket: Any, clock: ManualClock) -> None:
    blob = bucket.blob("a/b c%2F.json")
    blob.upload_from_string(b"\r\n--one\r\n", content_type="application/json", retry=None)
    assert (blob.generation, blob.size) == (int(clock.time() * 1e6), 9)
    again = bucket.blob("a/b c%2F.json")
    assert again.download_as_bytes(retry=None) == b"\r\n--one\r\n"
    assert again.generation == blob.generation
    clock.advance(1)
    blob.delete(retry=None)
    with pytest.raises(NotFound, match="No such object: ledger/a/b"):
        blob.download_as_bytes(retry=None)


def test_preconditions_hold(bucket: Any, clock: ManualClock) -> None:
    blob = bucket.blob("one")
    with pytest.raises(PreconditionFailed):
        blob.upload_from_string("x", if_generation_match=7, retry=None)
    blob.upload_from_string("first", if_generation_match=0, retry=None)
    first = blob.generation
    with pytest.raises(PreconditionFailed, match="pre-conditions you specified did not hold"):
        blob.upload_from_string("second", if_generation_match=0, retry=None)
    clock.advance(1)
    blob.upload_from_string("second", if_generation_match=first, retry=None)
    with pytest.raises(PreconditionFailed):
        bucket.blob("one").delete(if_generation_match=first, retry=None)
    with pytest.raises(PreconditionFailed):
        bucket.blob("one").download_as_bytes(if_generation_match=first, retry=None)
    clock.advance(1)
    bucket.blob("one").delete(if_generation_match=blob.generation, retry=None)


def test_a_name_that_comes_back_has_a_new_generation(bucket: Any, clock: ManualClock) -> None:
    seen = set()
    for _ in range(3):
        blob = bucket.blob("one")
        blob.upload_from_string("x", if_generation_match=0, retry=None)
        seen.add(blob.generation)
        clock.advance(1)
        blob.delete(retry=None)
        clock.advance(1)
        clock.wall -= 60  # its clock may be set back: generations go on
    assert len(seen) == 3


def test_lists_come_in_pages(bucket: Any, server: StorageServer) -> None:
    names = [f"nodes/{number:03}" for number in range(25)]
    for name in (*names, "fleet", "nodes"):
        bucket.blob(name).upload_from_string(name, retry=None)
    blobs = bucket.client.list_blobs(bucket, prefix="nodes/", page_size=10, retry=None)
    assert [[blob.name for blob in page] for page in blobs.pages] == [names[:10], names[10:20], names[20:]]
    assert server.counts["ListObjects"] == 3
    some = list(bucket.list_blobs(prefix="f", fields="items(name,generation),nextPageToken", retry=None))
    assert [(blob.name, blob.size) for blob in some] == [("fleet", None)]
    assert list(bucket.list_blobs(prefix="other/", retry=None)) == []


@pytest.mark.parametrize("fault", [InjectedFault(code="UNAVAILABLE"), InjectedFault(drop=("answer",))])
@pytest.mark.parametrize("after_work", [False, True])
def test_a_lost_answer_may_be_that_of_a_write_that_was_done(
    bucket: Any, server: StorageServer, fault: InjectedFault, after_work: bool
) -> None:
    server.faults.set(
        InjectedFault(method="InsertObject", code=fault.code, drop=fault.drop, after_work=after_work, times=1)
    )
    with pytest.raises((ServiceUnavailable, OSError)):
        bucket.blob("one").upload_from_string("x", if_generation_match=0, retry=None)
    assert [change.name for change in server.objects.changes] == ["one"] * after_work


_names = st.sampled_from(["a", "b"])
_generations = st.sampled_from([None, 0, -1, 1])  # none, absent, the one before, the one that is there


def _done(call: Callable[[], Any]) -> tuple[int, Any]:
    """The status of what was asked for, and its answer."""
    try:
        return 200, call()
    except Refusal as refusal:
        return refusal.status, None


class Preconditions(RuleBasedStateMachine):
    """The objects against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = Objects(ManualClock(), buckets=(BUCKET,))
        self.live: dict[str, tuple[int, bytes]] = {}
        self.used: list[int] = []

    def _meant(self, name: str, which: int | None) -> int | None:
        there = self._there(name)
        return {None: None, 0: 0, 1: there, -1: there - 1}[which]

    def _there(self, name: str) -> int:
        return self.live.get(name, (0, b""))[0]

    @rule(name=_names, content=st.binary(max_size=3), match=_generations)
    def insert(self, name: str, content: bytes, match: int | None) -> None:
        match, there = self._meant(name, match), self._there(name)
        status, made = _done(lambda: self.objects.insert(BUCKET, name, content, "", {}, Conditions(match)))
        assert status == (200 if match in (None, there) else 412)
        if made is not None:
            assert made.generation not in self.used
            self.used.append(made.generation)
            self.live[name] = (made.generation, content)

    @rule(name=_names, match=_generations)
    def delete(self, name: str, match: int | None) -> None:
        match, there = self._meant(name, match), self._there(name)
        status, _ = _done(lambda: self.objects.delete(BUCKET, name, Conditions(match)))
        assert status == (404 if not there else 200 if match in (None, there) else 412)
        if status == 200:
            del self.live[name]

    @rule(name=_names, match=_generations)
    def get(self, name: str, match: int | None) -> None:
        match, there = self._meant(name, match), self._there(name)
        status, found = _done(lambda: self.objects.get(BUCKET, name, Conditions(match)))
        assert status == (404 if not there else 200 if match in (None, there) else 412)
        if found is not None:
            assert (found.generation, found.content) == self.live[name]

    @invariant()
    def what_is_listed_is_what_is_live(self) -> None:
        listed, more = self.objects.page(BUCKET, "", "", 10)
        assert {one.name: (one.generation, one.content) for one in listed} == self.live
        assert more == ""


TestPreconditions = Preconditions.TestCase
