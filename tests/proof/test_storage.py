"""Tests of the stand-in for Cloud Storage: by Google's own client as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core.exceptions import (
    PreconditionFailed,
    ServiceUnavailable,
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
