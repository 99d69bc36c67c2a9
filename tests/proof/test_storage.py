"""Tests of the stand-in for Cloud Storage: by Google's own client as it comes, by plain HTTP, and by a model."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core.exceptions import (
    BadRequest,
    Forbidden,
    GoogleAPICallError,
    NotFound,
    PreconditionFailed,
    ServiceUnavailable,
    TooManyRequests,
)
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.standins.buckets import BUCKET, storage_running
from tests.standins.storage import StorageServer
from tests.standins.storage_objects import Conditions, Objects, Refusal, crc32c
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


def asked(server: StorageServer, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, bytes]:
    """The status, the headers and the body of an answer to plain HTTP."""
    connection = http.client.HTTPConnection(server.address, timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_what_the_client_writes_it_reads(bucket: Any, clock: ManualClock) -> None:
    blob = bucket.blob("a/b c%2F.json")
    blob.metadata = {"by": "me"}
    blob.upload_from_string(b"\r\n--one\r\n", content_type="application/json", retry=None)
    assert (blob.generation, blob.metageneration, blob.size) == (int(clock.time() * 1e6), 1, 9)
    again = bucket.blob("a/b c%2F.json")
    assert again.download_as_bytes(retry=None) == b"\r\n--one\r\n"
    assert again.generation == blob.generation
    assert bucket.get_blob("a/b c%2F.json", retry=None).metadata == {"by": "me"}
    assert bucket.get_blob("a/b", retry=None) is None
    clock.advance(1)
    blob.delete(retry=None)
    with pytest.raises(NotFound, match="No such object: ledger/a/b"):
        blob.download_as_bytes(retry=None)


def test_the_client_checks_what_it_reads_and_the_service_what_is_written(bucket: Any, server: StorageServer) -> None:
    blob = bucket.blob("one")
    blob.upload_from_string("one", checksum="crc32c", retry=None)  # refused if the two did not agree
    assert blob.download_as_bytes(checksum="crc32c", retry=None) == b"one"
    assert crc32c(b"123456789") == base64.b64encode((0xE3069283).to_bytes(4, "big")).decode()
    two = bucket.blob("two")
    two.md5_hash = crc32c(b"")
    with pytest.raises(BadRequest, match="md5Hash does not match"):
        two.upload_from_string("two", checksum=None, retry=None)
    with pytest.raises(Refusal, match="No such object"):
        server.objects.get(BUCKET, "two", Conditions())


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
    for options in ({"if_generation_match": first}, {"if_generation_not_match": blob.generation}):
        with pytest.raises(PreconditionFailed):
            bucket.blob("one").delete(retry=None, **options)
    with pytest.raises(PreconditionFailed):
        bucket.blob("one").download_as_bytes(if_generation_match=first, retry=None)
    with pytest.raises(GoogleAPICallError) as caught:
        bucket.blob("one").download_as_bytes(if_generation_not_match=blob.generation, retry=None)
    assert caught.value.code == 304
    assert bucket.blob("one").download_as_bytes(if_generation_not_match=first, retry=None) == b"second"
    with pytest.raises(PreconditionFailed):
        blob.upload_from_string("third", if_metageneration_match=2, retry=None)
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
    status, _, body = asked(server, "GET", f"/storage/v1/b/{BUCKET}/o?maxResults=0")
    assert (status, json.loads(body)["error"]["errors"][0]["reason"]) == (400, "invalid")


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
    assert (bucket.get_blob("one", retry=None) is not None) is after_work


def test_a_black_hole_ends_with_the_server(clock: ManualClock) -> None:
    with storage_running(clock) as server:
        server.faults.set(InjectedFault(black_hole=True, after_work=True))
        connection = http.client.HTTPConnection(server.address, timeout=20)
        connection.request("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=x", b"x")
        ended = threading.Event()

        def wait() -> None:
            with pytest.raises((http.client.HTTPException, OSError)):
                connection.getresponse()
            ended.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not server.counts:  # it has taken the request
            assert not ended.is_set()
    waiting.join()
    connection.close()
    assert ended.is_set()


def test_a_simple_upload(server: StorageServer) -> None:
    path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=a%2Fb&ifGenerationMatch=0"
    status, _, body = asked(server, "POST", path, b"text", **{"Content-Type": "text/plain"})
    assert (status, json.loads(body)["name"], json.loads(body)["contentType"]) == (200, "a/b", "text/plain")
    assert asked(server, "POST", path, b"text")[0] == 412
    status, headers, body = asked(server, "GET", f"/storage/v1/b/{BUCKET}/o/a%2Fb?alt=media")
    assert (status, body) == (200, b"text")
    path = f"/storage/v1/b/{BUCKET}/o/a%2Fb?ifGenerationNotMatch={headers['X-Goog-Generation']}"
    assert asked(server, "GET", path)[0] == 304


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status"),
    [
        ("GET", "/", b"", "", 404),
        ("GET", "/storage/v1/b/ledger", b"", "", 404),
        ("DELETE", "/storage/v1/b/ledger/o", b"", "", 405),
        ("POST", "/storage/v1/b/ledger/o", b"x", "", 405),
        ("POST", "/upload/storage/v1/b/ledger/o?uploadType=resumable&name=x", b"x", "", 400),
        ("POST", "/upload/storage/v1/b/ledger/o?uploadType=media", b"x", "", 400),
        ("POST", f"/upload/storage/v1/b/ledger/o?uploadType=media&name={'x' * 1025}", b"x", "", 400),
        ("POST", "/upload/storage/v1/b/ledger/o?uploadType=media&name=x&ifGenerationMatch=one", b"x", "", 400),
        ("POST", "/upload/storage/v1/b/ledger/o?uploadType=multipart", b"x", "text/plain", 400),
        ("POST", "/upload/storage/v1/b/ledger/o?uploadType=multipart", b"x", "multipart/related; boundary=b", 400),
        (
            "POST",
            "/upload/storage/v1/b/ledger/o?uploadType=multipart",
            b"--b\r\n\r\nno json\r\n--b\r\n\r\nx\r\n--b--",
            "multipart/related; boundary=b",
            400,
        ),
    ],
)
def test_what_it_does_not_understand_it_refuses(
    server: StorageServer, method: str, path: str, body: bytes, kind: str, status: int
) -> None:
    assert asked(server, method, path, body, **{"Content-Type": kind})[0] == status
    assert server.objects.changes == []


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

    @rule(name=_names, content=st.binary(max_size=3), match=_generations, unlike=_generations)
    def insert(self, name: str, content: bytes, match: int | None, unlike: int | None) -> None:
        match, unlike, there = self._meant(name, match), self._meant(name, unlike), self._there(name)
        status, made = _done(lambda: self.objects.insert(BUCKET, name, content, "", {}, Conditions(match, unlike)))
        assert status == (200 if match in (None, there) and unlike != there else 412)
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

    @rule(name=_names, match=_generations, unlike=_generations)
    def get(self, name: str, match: int | None, unlike: int | None) -> None:
        match, unlike, there = self._meant(name, match), self._meant(name, unlike), self._there(name)
        status, found = _done(lambda: self.objects.get(BUCKET, name, Conditions(match, unlike)))
        if not there:
            assert status == 404
        else:
            assert status == (412 if match not in (None, there) else 304 if unlike == there else 200)
        if found is not None:
            assert (found.generation, found.content) == self.live[name]

    @invariant()
    def what_is_listed_is_what_is_live(self) -> None:
        listed, more = self.objects.page(BUCKET, "", "", 10)
        assert {one.name: (one.generation, one.content) for one in listed} == self.live
        assert more == ""


TestPreconditions = Preconditions.TestCase
