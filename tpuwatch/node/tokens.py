"""How Google's library asks for access tokens: bounded in time, and from the metadata server in size too.

Imports Google's packages: import it only when tokens are to be asked for.
"""

from __future__ import annotations

import errno
import http.client
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tpuwatch.node.apifaults import TokenTimeout
from tpuwatch.node.channel import Channel, Dialer, TooLargeError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    import google.auth
    import google.auth.transport.requests
    import requests.exceptions
    from google.auth.exceptions import RefreshError, TransportError
    from requests.structures import CaseInsensitiveDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpuwatch.clock import Clock

MAX_REPLY_BYTES: Final = 1 << 20  # with the head
_PIECE_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class _Reply:
    """What google.auth takes for a response."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class BoundedRequest(google.auth.transport.requests.Request):  # type: ignore[misc]
    """Google's HTTP transport, with one deadline for all attempts. Raises TokenTimeout when one of them hangs.

    Without TLS, which is how the metadata server is asked, it is tpuwatch's own: anybody may answer there, so a reply
    is bounded in size and in time as a whole, and comes through no proxy.
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
            # One that takes the request and does not answer is there: google.auth must not find that it is not.
            hangs = isinstance(error.__cause__, (requests.exceptions.ReadTimeout, _Unanswered))
            if self._left > 0 and not hangs:
                raise
            # Not passed on as it is: google.auth tries again after those, with pauses.
            text = f"{url.partition('?')[0]} did not answer in time"
            raise TokenTimeout(text) from error

    def _plain(self, url: str, method: str, body: Any, headers: Mapping[str, str], seconds: float) -> _Reply:
        parts = urlsplit(url)
        deadline = self._clock.monotonic() + seconds
        try:
            with Dialer(self._clock).connection(parts.hostname or "", parts.port or 80, deadline) as connection:
                request = http.client.HTTPConnection(parts.netloc)
                request.sock = Channel(connection, deadline, self._clock, MAX_REPLY_BYTES)  # it has what is called
                path = parts._replace(scheme="", netloc="").geturl()
                return _exchange(request, method, path, body, {**headers, "Connection": "close"})
        except TooLargeError as error:
            raise TransportError(f"the reply of {parts.netloc} is larger than {MAX_REPLY_BYTES} bytes") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TransportError(f"{parts.netloc}: {error or type(error).__name__}") from error

    @property
    def _left(self) -> float:
        return self._deadline - self._clock.monotonic()


class Tokens:
    """Application Default Credentials with a token that is good now. For one thread."""

    def __init__(self, scopes: Sequence[str], clock: Clock) -> None:
        self._scopes = scopes
        self._clock = clock
        self._credentials: Any = None  # once they were found

    def renew(self, seconds: float) -> Any:
        """The credentials, with a token that is good for a call. Raises what google.auth raises, and TokenTimeout.

        Finding credentials and asking for a token take `seconds` at most.
        """
        if self._credentials is not None and self._credentials.valid:
            return self._credentials
        request = BoundedRequest(self._clock, seconds)
        try:
            if self._credentials is None:
                self._credentials, _ = google.auth.default(scopes=self._scopes, request=request)
            if not self._credentials.valid:
                self._credentials.refresh(request)
        except (KeyError, TypeError, AttributeError) as error:  # google.auth takes what is in a reply on trust
            text = f"what answers where access tokens are given out gives none ({type(error).__name__})"
            raise RefreshError(text) from error
        return self._credentials

    def forget(self) -> None:
        """Find credentials anew the next time: there may be others by then."""
        self._credentials = None


class _Unanswered(TimeoutError):  # noqa: N818 # named as the builtin one is
    """The connection was made, and then nothing came."""


def _exchange(
    request: http.client.HTTPConnection, method: str, path: str, body: Any, headers: Mapping[str, str]
) -> _Reply:
    try:
        request.request(method, path, body, headers)
        with request.getresponse() as reply:
            # In pieces: a buffer for all would be as large as the reply says it is.
            data = b"".join(iter(lambda: reply.read(_PIECE_BYTES), b""))
            if reply.length:  # it ended before what it had said
                raise ConnectionResetError(errno.ECONNRESET, "the reply was cut off")
            return _Reply(reply.status, CaseInsensitiveDict(reply.headers.items()), data)
    except TimeoutError as error:
        raise _Unanswered(*error.args) from error
