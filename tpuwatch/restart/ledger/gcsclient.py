"""One bucket of Google Cloud Storage by Google's own client: a deadline on each request, no hidden retries, every fault
explained.

Imports Google's packages, and google-cloud-storage is there with the extra `gcs` alone: import it only when the ledger
is in a bucket.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.health.evidence import Problem
from tpuwatch.node.apifaults import SCOPE, Asked, Fault, cleaned, explain
from tpuwatch.node.pacing import parse_retry_after
from tpuwatch.restart.ledger.bucket import Found, PreconditionError, StorageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    import requests
    from google.api_core.client_info import ClientInfo
    from google.api_core.exceptions import GoogleAPICallError, NotFound, PreconditionFailed
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    from tpuwatch.node.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.config.restart import Ledger

# Else the client asks for the bucket itself in a thread of its own, for traces, with retries and without our deadline.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
logging.getLogger("google.auth").setLevel(logging.ERROR)  # each failed attempt would be a warning

GOOGLE: Final = "storage.googleapis.com"
PAGE_SIZE: Final = 1000  # the most that the service gives
MAX_BYTES: Final = 4 << 20  # of one answer: a full page of a list has some hundred thousand
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
}
# In place of the general ones, which speak of nodes and zones.
_SENTENCES: Final = {
    Problem.NOT_FOUND: (
        "there is no bucket {bucket}, or none that the caller may see. Check `bucket` under [ledger], or make it: "
        "`gcloud storage buckets create gs://{bucket} --location=REGION --uniform-bucket-level-access`."
    ),
    Problem.DENIED: (
        "the caller needs the permission {permission} on bucket {bucket}. Grant it a role that has it: `gcloud storage "
        "buckets add-iam-policy-binding gs://{bucket} --member=serviceAccount:EMAIL --role={role}`. A bucket with a "
        "retention policy or with holds cannot keep a ledger."
    ),
    Problem.THROTTLED: (
        "too much is asked of bucket {bucket}. tpuwatch tries again; if it lasts, see what else uses this bucket."
    ),
}


class Bucket:
    """The bucket that [ledger] names. Connects at the first request. Safe from any thread."""

    def __init__(self, ledger: Ledger, clock: Clock, counted: Callable[[str, str], None]) -> None:
        """`counted` is told the method, as the JSON API calls it, and the code of each request."""
        self.name = ledger.bucket
        self._endpoint = ledger.endpoint
        self._insecure = ledger.insecure
        self._clock = clock
        self._counted = counted
        self._lock = threading.Lock()
        self._client: Any = None
        self._session: _Session | None = None

    def get(self, name: str, seconds: float) -> Found | None:
        """The object as it is now; None if there is none."""

        def download(bucket: Any) -> Found | None:
            blob = bucket.blob(name)
            try:
                content = blob.download_as_bytes(retry=None, timeout=seconds, checksum="md5")
            except NotFound as error:
                if _NO_OBJECT in str(error):  # else there is no bucket, or it is not Cloud Storage that answers
                    return None
                raise
            return Found(int(blob.generation), content)

        found: Found | None = self._ask("storage.objects.get", "read", seconds, download)
        return found

    def put(self, name: str, content: bytes, generation: int, seconds: float) -> int:
        """Write the object in the place of that generation (0: there must be none); its own generation.

        Raises PreconditionError if there is another one, which may be what an earlier try of the same has written.
        """

        def upload(bucket: Any) -> int:
            blob = bucket.blob(name)
            blob.cache_control = "no-store"  # nobody on the way may answer with what it was
            options = {"retry": None, "timeout": seconds, "checksum": "md5", "if_generation_match": generation}
            blob.upload_from_string(content, content_type=_KIND, **options)
            return int(blob.generation)

        made: int = self._ask("storage.objects.insert", "written", seconds, upload)
        return made

    def page(self, prefix: str, token: str, seconds: float) -> tuple[dict[str, int], str]:
        """The generations of some objects by their names, and the token of the next page, "" after the last."""

        def listed(bucket: Any) -> tuple[dict[str, int], str]:
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

        found: tuple[dict[str, int], str] = self._ask("storage.objects.list", "listed", seconds, listed)
        return found

    def delete(self, name: str, generation: int, seconds: float) -> None:
        """Remove the object if it still is of that generation."""

        def removed(bucket: Any) -> None:
            bucket.blob(name).delete(retry=None, timeout=seconds, if_generation_match=generation)

        self._ask("storage.objects.delete", "tidied", seconds, removed)

    def close(self) -> None:
        """Let go of the connections. The next request makes new ones."""
        with self._lock:
            session, self._session, self._client = self._session, None, None
        if session is not None:
            session.close()

    def _ask(self, method: str, what: str, seconds: float, request: Callable[[Any], Any]) -> Any:
        try:
            answer = request(self._bucket())
        except PreconditionFailed as error:
            self._counted(method, "FAILED_PRECONDITION")
            raise PreconditionError("the object is of another generation", passing=False) from error
        except Exception as error:  # whatever Google's packages raise is explained and told
            fault = self._explained(error, what, seconds)
            self._counted(method, fault.code)
            if fault.problem in _LOST or fault.problem is Problem.CREDENTIALS:
                self.close()
            sentence = f"the ledger in bucket {self.name} cannot be {what}: {fault.sentence}"
            headers = getattr(getattr(error, "response", None), "headers", {})
            after = parse_retry_after(headers.get("Retry-After"))
            raise StorageError(sentence, passing=fault.problem in _PASSING, retry_after=after) from error
        self._counted(method, "OK")
        return answer

    def _bucket(self) -> Any:
        with self._lock:
            if self._client is None:
                tokens = None if self._insecure else Tokens([SCOPE], self._clock)
                scheme = "http" if self._insecure else "https"
                self._session = _Session(tokens, self._clock)
                # The session has the credentials. With them the client would ask the metadata server for their
                # universe, without a deadline.
                self._client = storage.Client(
                    project=None,
                    credentials=AnonymousCredentials(),
                    _http=self._session,
                    client_info=ClientInfo(user_agent=f"tpuwatch/{__version__}"),
                    client_options={"api_endpoint": f"{scheme}://{self._endpoint or GOOGLE}"},
                )
            return self._client.bucket(self.name)

    def _explained(self, error: BaseException, what: str, seconds: float) -> Fault:
        asked = Asked(
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
        fault = explain(_plain(error), asked)
        words = _SENTENCES.get(fault.problem)
        if words is None:
            return fault
        said = cleaned(getattr(error, "message", error))
        told = words.format(bucket=self.name, permission=asked.permission, role=ROLE)
        return Fault(fault.problem, fault.code, f'{told} It was said: "{said}".', fault.retry_after)


class _Session(requests.Session):
    """HTTP with one deadline for a whole request, its token included, and a bound on what an answer may take."""

    is_mtls = False  # what Google's client asks of a session

    def __init__(self, tokens: Tokens | None, clock: Clock) -> None:
        super().__init__()
        self._tokens = tokens
        self._clock = clock
        self._lock = threading.Lock()
        self.trust_env = tokens is not None  # a stand-in is not to be asked through a proxy
        for scheme in ("https://", "http://"):
            self.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS))

    def request(  # type: ignore[override] # Google's client gives no more
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
                    raise requests.exceptions.ReadTimeout("the answer did not end in time")
                if len(content) > MAX_BYTES:
                    raise requests.exceptions.ContentDecodingError(f"the answer has more than {MAX_BYTES} bytes")
        response._content = bytes(content)  # noqa: SLF001 (there is no public way)
        return response

    def _authorized(self, headers: dict[str, str], seconds: float) -> dict[str, str]:
        """The headers with a token that is good for this request."""
        if self._tokens is not None:
            with self._lock:  # one token for all threads
                self._tokens.renew(seconds).apply(headers)
        return headers


def _plain(error: BaseException) -> BaseException:
    """The error, or the builtin one that says the same of it."""
    if isinstance(error, requests.exceptions.Timeout):
        return TimeoutError(str(error))
    if isinstance(error, GoogleAPICallError) and error.code == 408:
        return TimeoutError(str(error))
    return error
