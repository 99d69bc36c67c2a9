"""A client of one bucket of Google Cloud Storage: each request has a deadline, no hidden retries, and its fault is
explained.

Imports Google's packages; google-cloud-storage is only installed with the extra `gcs`. Import it only if the ledger is
in a bucket.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tpuwatch import __version__
from tpuwatch.core import parse_retry_after
from tpuwatch.google.errors import SCOPE, ApiFault, PreconditionError, RequestContext, StorageError, explain, quote
from tpuwatch.google.server_time import ServerTime
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpuwatch.config import LedgerConfig
    from tpuwatch.core import Clock


with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    import requests
    from google.api_core.client_info import ClientInfo
    from google.api_core.exceptions import GoogleAPICallError, NotFound, PreconditionFailed
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    from tpuwatch.google.credentials import Tokens


# Otherwise the client requests the bucket for traces, in a thread of its own, with retries and without our deadline.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
logging.getLogger("google.auth").setLevel(logging.ERROR)  # each failed attempt would be a warning

T = TypeVar("T")
GOOGLE: Final = "storage.googleapis.com"
PAGE_SIZE: Final = 1000  # the most that the service gives
MAX_BYTES: Final = 4 << 20  # of one reply; a full page of a list has some hundred thousand
CONNECTIONS: Final = 16
ROLE: Final = "roles/storage.objectUser"
_CHUNK: Final = 1 << 14
_KIND: Final = "application/json"
_PASSING: Final = (Problem.THROTTLED, Problem.TIMEOUT, Problem.UNREACHABLE, Problem.SERVER)
_LOST: Final = (Problem.TIMEOUT, Problem.UNREACHABLE)  # the connections may be half-open
_NO_OBJECT: Final = "No such object"
_PERMISSIONS: Final = {
    "read": "storage.objects.get",
    "written": "storage.objects.create and storage.objects.delete",
    "listed": "storage.objects.list",
    "tidied": "storage.objects.delete",
    "tested": "storage.buckets.get",
}
# These replace the general ones, which are about nodes and zones.
_SENTENCES: Final = {
    Problem.NOT_FOUND: (
        "there is no bucket {bucket}, or none that the caller may see. Check `bucket` under [ledger], or create it: "
        "`gcloud storage buckets create gs://{bucket} --location=REGION --uniform-bucket-level-access`. "
        "REGION is the nodes' zone without its last letter."
    ),
    Problem.DENIED: (
        "the caller needs the permission {permission} on bucket {bucket}. Grant it a role that has it: `gcloud storage "
        "buckets add-iam-policy-binding gs://{bucket} --member=serviceAccount:ACCOUNT --role={role}`; `tpuwatch "
        "doctor` names ACCOUNT. A bucket with a retention policy or with holds cannot keep a ledger."
    ),
    Problem.THROTTLED: (
        "bucket {bucket} gets too many requests. tpuwatch tries again; if it lasts, check what else uses this bucket."
    ),
}


class Bucket:
    """The bucket that [ledger] names. Connects at the first request. Safe from any thread."""

    def __init__(self, ledger: LedgerConfig, clock: Clock, on_call: Callable[[str, str], None]) -> None:
        """`on_call` gets the method, as the JSON API names it, and the code of each request."""
        self.name = ledger.bucket
        self._endpoint = ledger.endpoint
        self._insecure = ledger.insecure
        self._clock = clock
        self._on_call = on_call
        self._lock = threading.Lock()
        self._client: Any = None
        self._session: _Session | None = None
        self._server_time = ServerTime(clock)

    @property
    def server_time(self) -> float | None:
        """The time by the service; None before its first answer."""
        return self._server_time.now

    def get(self, name: str, seconds: float) -> StoredObject | None:
        """The current object; None if there is none."""

        def download(bucket: Any) -> StoredObject | None:
            blob = bucket.blob(name)
            try:
                content = blob.download_as_bytes(retry=None, timeout=seconds, checksum="md5")
            except NotFound as error:
                if _NO_OBJECT in str(error):  # else there is no bucket, or another server answers
                    return None
                raise
            return StoredObject(int(blob.generation), content)

        return self._request("storage.objects.get", "read", seconds, download)

    def put(self, name: str, content: bytes, generation: int, seconds: float) -> int:
        """Replace that generation of the object (0: there must be none); returns the new generation.

        Raises PreconditionError if there is another one, which may be the result of an earlier try of this write.
        """

        def upload(bucket: Any) -> int:
            blob = bucket.blob(name)
            blob.cache_control = "no-store"  # no proxy may answer with an old version
            options = {"retry": None, "timeout": seconds, "checksum": "md5", "if_generation_match": generation}
            blob.upload_from_string(content, content_type=_KIND, **options)
            return int(blob.generation)

        return self._request("storage.objects.insert", "written", seconds, upload)

    def page(self, prefix: str, token: str, seconds: float) -> tuple[dict[str, int], str]:
        """The generations of some objects by their names, and the token of the next page, "" after the last."""

        def list_page(bucket: Any) -> tuple[dict[str, int], str]:
            blobs = bucket.client.list_blobs(
                bucket,
                prefix=prefix,
                page_token=token or None,
                page_size=PAGE_SIZE,
                fields="items(name,generation),nextPageToken",
                retry=None,
                timeout=seconds,
            )
            page = next(blobs.pages, ())
            return {str(blob.name): int(blob.generation) for blob in page}, str(blobs.next_page_token or "")

        return self._request("storage.objects.list", "listed", seconds, list_page)

    def delete(self, name: str, generation: int, seconds: float) -> None:
        """Delete the object if it still has that generation."""

        def remove(bucket: Any) -> None:
            bucket.blob(name).delete(retry=None, timeout=seconds, if_generation_match=generation)

        self._request("storage.objects.delete", "tidied", seconds, remove)

    def held(self, permissions: Sequence[str], seconds: float) -> frozenset[str]:
        """Those of these permissions that the caller has on the bucket. It takes none to ask."""

        def tested(bucket: Any) -> frozenset[str]:
            return frozenset(bucket.test_iam_permissions(list(permissions), retry=None, timeout=seconds))

        return self._request("storage.buckets.testIamPermissions", "tested", seconds, tested) & frozenset(permissions)

    def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        with self._lock:
            session, self._session, self._client = self._session, None, None
        if session is not None:
            session.close()

    def _request(self, method: str, what: str, seconds: float, request: Callable[[Any], T]) -> T:
        try:
            answer = request(self._bucket())
        except PreconditionFailed as error:
            self._on_call(method, "FAILED_PRECONDITION")
            raise PreconditionError("the object is of another generation", passing=False) from error
        except Exception as error:  # every exception of Google's packages is explained
            fault = self._explain(error, what, seconds)
            self._on_call(method, fault.code)
            if fault.problem in _LOST or fault.problem is Problem.CREDENTIALS:
                self.close()
            sentence = f"the ledger in bucket {self.name} cannot be {what}: {fault.sentence}"
            headers = getattr(getattr(error, "response", None), "headers", {})
            after = parse_retry_after(headers.get("Retry-After"))
            passing = fault.problem in _PASSING
            raise StorageError(sentence, passing=passing, problem=fault.problem, retry_after=after) from error
        self._on_call(method, "OK")
        return answer

    def _bucket(self) -> Any:
        with self._lock:
            if self._client is None:
                tokens = None if self._insecure else Tokens([SCOPE], self._clock)
                scheme = "http" if self._insecure else "https"
                self._session = _Session(tokens, self._clock, self._server_time.on_answer)
                # The session has the credentials. With them the client would request their universe from the
                # metadata server without a deadline.
                self._client = storage.Client(
                    project=None,
                    credentials=AnonymousCredentials(),
                    _http=self._session,
                    client_info=ClientInfo(user_agent=f"tpuwatch/{__version__}"),
                    client_options={"api_endpoint": f"{scheme}://{self._endpoint or GOOGLE}"},
                )
            return self._client.bucket(self.name)

    def _explain(self, error: BaseException, what: str, seconds: float) -> ApiFault:
        context = RequestContext(
            what="what the ledger holds",
            place=f"bucket {self.name}",
            project="PROJECT",
            server=self._endpoint or GOOGLE,
            seconds=seconds,
            api="Cloud Storage API",
            service="storage.googleapis.com",
            permission=_PERMISSIONS[what],
            role=ROLE,
            table="ledger",
        )
        fault = explain(_as_builtin(error), context)
        words = _SENTENCES.get(fault.problem)
        if words is None:
            return fault
        sentence = words.format(bucket=self.name, permission=context.permission, role=ROLE)
        reply = quote(str(getattr(error, "message", error)))
        return replace(fault, sentence=sentence + reply)


class _Session(requests.Session):
    """HTTP with one deadline for the whole request, including its token, and a limit on the size of the reply."""

    is_mtls = False  # required by Google's client

    def __init__(self, tokens: Tokens | None, clock: Clock, on_answer: Callable[[str], None] = lambda _: None) -> None:
        super().__init__()
        self._on_answer = on_answer
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self.trust_env = tokens is not None  # no proxy for a stand-in
        for scheme in ("https://", "http://"):
            self.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS))

    def request(  # type: ignore[override] # as Google's client calls it
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, timeout: float, **more: Any
    ) -> requests.Response:
        """Make the request. Raises what google.auth and requests raise."""
        deadline = self._clock.monotonic() + timeout
        headers = self._authorized(dict(headers or {}), timeout)
        left = max(0.001, deadline - self._clock.monotonic())
        more = {**more, "stream": True, "allow_redirects": False, "timeout": left}
        response = super().request(method, url, headers=headers, **more)
        content = bytearray()
        with response:
            for chunk in response.iter_content(_CHUNK):
                content += chunk
                if self._clock.monotonic() > deadline:
                    raise requests.exceptions.ReadTimeout("the reply did not end in time")
                if len(content) > MAX_BYTES:
                    raise requests.exceptions.ContentDecodingError(f"the reply has more than {MAX_BYTES} bytes")
        self._on_answer(response.headers.get("Date", ""))
        response._content = bytes(content)  # noqa: SLF001 (there is no public way)
        return response

    def _authorized(self, headers: dict[str, str], seconds: float) -> dict[str, str]:
        """The headers with a valid token."""
        if self._tokens is not None:
            with self._lock:  # one token for all threads
                self._tokens.renew(seconds).apply(headers)
        return headers


def _as_builtin(error: BaseException) -> BaseException:
    """The error, or the builtin one with the same meaning."""
    if isinstance(error, requests.exceptions.Timeout):
        return TimeoutError(str(error))
    if isinstance(error, GoogleAPICallError) and error.code == 408:
        return TimeoutError(str(error))
    return error


@dataclass(frozen=True, slots=True)
class StoredObject:
    generation: int
    content: bytes
