"""Access tokens by Google's library: requests have a deadline, and from the metadata server a size limit.

Imports Google's packages: import it only when tokens are needed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuwatch.core import HttpClient, HttpError, HttpFault
from tpuwatch.google.errors import TokenTimeout
from tpuwatch.google.metadata import MAX_REPLY_BYTES

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    import google.auth
    import google.auth.transport.requests
    import requests.exceptions
    from google.auth.exceptions import RefreshError, TransportError
    from requests.structures import CaseInsensitiveDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpuwatch.core import Clock


@dataclass(frozen=True, slots=True)
class _Reply:
    """A response as google.auth expects it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class BoundedRequest(google.auth.transport.requests.Request):  # type: ignore[misc]
    """Google's HTTP transport, with one deadline for all attempts. Raises TokenTimeout when one of them hangs.

    Requests without TLS, which go to the metadata server, use tpuwatch's own client: anybody may answer there, so a
    reply is limited in size and total time, and no proxy is used.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self._clock = clock
        self._deadline = clock.monotonic() + seconds

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **more: Any,
    ) -> Any:
        left = max(0.001, self._left)
        seconds = min(timeout or left, left)
        try:
            if url.startswith("http://"):
                return self._plain(url, method, body, headers or {}, seconds)
            return super().__call__(url, method, body, headers, timeout=seconds, **more)
        except TransportError as error:
            # A server that accepts the request exists: google.auth must not conclude that there is none.
            cause = error.__cause__
            hangs = isinstance(cause, requests.exceptions.ReadTimeout) or (
                isinstance(cause, HttpError) and cause.fault is HttpFault.TIMEOUT and cause.connected
            )
            if self._left > 0 and not hangs:
                raise
            # Converted, because google.auth retries after a TransportError, with pauses.
            text = f"{url.partition('?')[0]} did not answer in time"
            raise TokenTimeout(text) from error

    def _plain(self, url: str, method: str, body: Any, headers: Mapping[str, str], seconds: float) -> _Reply:
        try:
            reply = HttpClient(self._clock).request(
                url, seconds=seconds, max_bytes=MAX_REPLY_BYTES, method=method, headers=headers, body=body
            )
        except HttpError as error:
            raise TransportError(str(error)) from error
        return _Reply(reply.status, CaseInsensitiveDict(reply.headers), reply.body)

    @property
    def _left(self) -> float:
        return self._deadline - self._clock.monotonic()


class Tokens:
    """Application Default Credentials with a valid token. For one thread."""

    def __init__(self, scopes: Sequence[str], clock: Clock) -> None:
        self._scopes = scopes
        self._clock = clock
        self._credentials: Any = None  # once found

    def renew(self, seconds: float) -> Any:
        """The credentials with a valid token. Raises the errors of google.auth, and TokenTimeout.

        Finding credentials and requesting a token take `seconds` at most.
        """
        if self._credentials is not None and self._credentials.valid:
            return self._credentials
        request = BoundedRequest(self._clock, seconds)
        try:
            if self._credentials is None:
                self._credentials, _ = google.auth.default(scopes=self._scopes, request=request)
            if not self._credentials.valid:
                self._credentials.refresh(request)
        except (KeyError, TypeError, AttributeError) as error:  # google.auth does not validate replies
            text = f"the server that should issue access tokens gives none ({type(error).__name__})"
            raise RefreshError(text) from error
        return self._credentials

    def forget(self) -> None:
        """Find credentials again the next time: they may have changed."""
        self._credentials = None
