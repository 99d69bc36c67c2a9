"""Tests of the stand-in for Cloud Storage: by Google's own client as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core.exceptions import (
    BadRequest,
    Forbidden,
    NotFound,
    PreconditionFailed,
    ServiceUnavailable,
    TooManyRequests,
)
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.standins.buckets import BUCKET, storage_running
from tests.standins.storage import StorageServer
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
    blob.upload_from_string(b"\r\n--one\r\n", content_type="application/json", checksum="md5", retry=None)
    assert (blob.generation, blob.size) == (int(clock.time() * 1e6), 9)
    again = bucket.blob("a/b c%2F.json")
    assert again.download_as_bytes(checksum="md5", retry=None) == b"\r\n--one\r\n"
    assert again.generation == blob.generation
    clock.advance(1)
    blob.delete(retry=None)
    with pytest.raises(NotFound, match="No such object: ledger/a/b"):
        blob.download_as_bytes(retry=None)


def test_what_is_damaged_on_its_way_is_not_stored(bucket: Any) -> None:
    blob = bucket.blob("one")
    blob.md5_hash = "AAAA"
    with pytest.raises(BadRequest, match="md5Hash does not match"):
        blob.upload_from_string("one", checksum=None, retry=None)
    with pytest.raises(NotFound):
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
    clock.advance(1)
    clock.wall -= 60  # its clock may be set back: generations go on
    bucket.blob("one").delete(if_generation_match=blob.generation, retry=None)
    clock.advance(1)
    again = bucket.blob("one")
    again.upload_from_string("third", if_generation_match=0, retry=None)
    assert again.generation > blob.generation


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


def test_a_bucket_that_is_not_there(bucket: Any) -> None:
    other = bucket.client.bucket("other")
    for call in (
        lambda: other.blob("x").download_as_bytes(retry=None),
        lambda: other.blob("x").upload_from_string("x", retry=None),
        lambda: list(other.list_blobs(retry=None)),
        lambda: other.blob("x").delete(retry=None),
    ):
        with pytest.raises(NotFound, match="The specified bucket does not exist"):
            call()


def test_one_object_is_written_once_a_second(bucket: Any, clock: ManualClock) -> None:
    blob = bucket.blob("one")
    blob.upload_from_string("x", retry=None)
    clock.advance(0.75)
    for call in (lambda: blob.upload_from_string("y", retry=None), lambda: blob.delete(retry=None)):
        with pytest.raises(TooManyRequests, match="exceeded the rate limit"):
            call()
    bucket.blob("two").upload_from_string("x", retry=None)
    clock.advance(0.25)
    blob.upload_from_string("y", retry=None)


def test_faults_strike_what_they_name(bucket: Any, server: StorageServer) -> None:
    server.faults.set(InjectedFault(method="InsertObject", code="RESOURCE_EXHAUSTED", retry_after_seconds=7, times=1))
    with pytest.raises(TooManyRequests) as caught:
        bucket.blob("one").upload_from_string("x", retry=None)
    assert caught.value.response.headers["Retry-After"] == "7"
    bucket.blob("one").upload_from_string("x", retry=None)
    server.faults.set(
        InjectedFault(method="GetObject", code="PERMISSION_DENIED", message="Not yours.", resource="ledger/one")
    )
    with pytest.raises(Forbidden, match="Not yours"):
        bucket.blob("one").download_as_bytes(retry=None)
    with pytest.raises(NotFound):
        bucket.blob("two").download_as_bytes(retry=None)
    server.faults.set(InjectedFault(method="ListObjects", latency_seconds=0.01))
    assert len(list(bucket.list_blobs(retry=None))) == 1


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
