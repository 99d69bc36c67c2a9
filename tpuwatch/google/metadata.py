"""The client of the metadata server: small GET requests, each limited in size and total time.

Never through a proxy, which would return the metadata of its own machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tpuwatch.core import HttpClient, HttpError, HttpFault, TpuwatchError
from tpuwatch.google.server_time import ServerTime
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.core import Clock, HttpReply

DEFAULT_HOST: Final = "metadata.google.internal"
TIMEOUT_SECONDS: Final = 5.0
FLAVOR: Final = {"Metadata-Flavor": "Google"}  # sent and expected in the reply: otherwise it is another server
MAX_REPLY_BYTES: Final = 1 << 20  # with the head
_ABSENT: Final = (HttpFault.REFUSED, HttpFault.NO_ROUTE, HttpFault.NETWORK)


class MetadataError(TpuwatchError):
    """The metadata server gave no answer: `problem` is the reason, the message says what to do."""

    def __init__(self, problem: Problem, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.retry_after = retry_after  # seconds, if the server gave it


def metadata_host(configured: str, environ: Mapping[str, str] = os.environ) -> str:
    """The server (a host, or "host:port"): the configured one, else that of GCE_METADATA_HOST, else Google's."""
    return configured or environ.get("GCE_METADATA_HOST") or DEFAULT_HOST


class MetadataClient:
    """A client of one metadata server, "host" or "host:port". Thread-safe."""

    def __init__(self, host: str, *, clock: Clock, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.host = host
        self.timeout_seconds = timeout_seconds
        self._http = HttpClient(clock)
        self._server_time = ServerTime(clock)

    @property
    def server_epoch(self) -> float | None:
        """The server's time at the zero of the monotonic clock; None before its first answer."""
        return self._server_time.epoch

    def get(self, path: str) -> str | None:
        """The value at `path` under computeMetadata/v1, as "instance/zone"; None if there is none (404).

        Raises MetadataError within about `timeout_seconds`.
        """
        reply = self._request(path, self.timeout_seconds)
        return None if reply is None else reply[0]

    def wait(self, path: str, last_etag: str, seconds: float) -> tuple[str, str]:
        """Wait up to `seconds` for a value at `path` other than that of `last_etag`; returns value and etag.

        Returns immediately if `last_etag` is empty or "0", and ("", "") if there is no value. Raises MetadataError;
        `close` from another thread ends it.
        """
        query = f"wait_for_change=true&last_etag={quote(last_etag or '0', safe='')}&timeout_sec={max(0, int(seconds))}"
        timeout = self.timeout_seconds + (seconds if last_etag not in ("", "0") else 0.0)
        reply = self._request(f"{path}{'&' if '?' in path else '?'}{query}", timeout)
        return ("", "") if reply is None else reply

    def close(self) -> None:
        """End pending requests, and refuse new ones."""
        self._http.close()

    def _request(self, path: str, seconds: float) -> tuple[str, str] | None:
        url = f"{metadata_url(self.host)}{path}"
        try:
            reply = self._http.request(url, seconds=seconds, max_bytes=MAX_REPLY_BYTES, headers=FLAVOR)
        except HttpError as error:
            raise self._failed(error, seconds) from error
        return self._parse_reply(reply, path)

    def _parse_reply(self, reply: HttpReply, path: str) -> tuple[str, str] | None:
        if reply.headers.get("metadata-flavor") != FLAVOR["Metadata-Flavor"]:
            raise self._not_google("its reply has no Metadata-Flavor header")
        self._server_time.on_answer(reply.headers.get("date", ""))
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise self._refused(reply, path)
        return reply.text, reply.headers.get("etag", "")

    def _refused(self, reply: HttpReply, path: str) -> MetadataError:
        where = f"The metadata server {self.host} answered {reply.status} to {path.partition('?')[0]}"
        after = reply.retry_after
        if reply.status == 429:
            return MetadataError(Problem.THROTTLED, f"{where}: it gets too many requests.", retry_after=after)
        if reply.status in (401, 403):
            return MetadataError(
                Problem.DENIED,
                f"{where}: it does not serve this process. Allow it, or set project and zone under [cloud].",
            )
        if reply.status >= 500:
            return MetadataError(Problem.SERVER, f"{where}, a server error. It is tried again.", retry_after=after)
        return MetadataError(Problem.INTERNAL, f"{where}: it rejected the request. Please report this.")

    def _not_google(self, why: str) -> MetadataError:
        return MetadataError(
            Problem.FOREIGN,
            f"What answers at {self.host} is not Google's metadata server: {why}. Check GCE_METADATA_HOST and the "
            "network; outside Google Cloud set project and zone under [cloud].",
        )

    def _failed(self, error: HttpError, seconds: float) -> MetadataError:
        if error.fault is HttpFault.TIMEOUT:
            text = f"The metadata server {self.host} did not answer within {seconds:g} s."
            return MetadataError(Problem.TIMEOUT, f"{text} It is tried again; if it lasts, restart the VM.")
        if error.fault in (HttpFault.NO_NAME, HttpFault.ADDRESS):
            return _absent(f"There is no metadata server: the name {self.host} is unknown")
        if error.fault is HttpFault.LOOKUP:
            text = (
                f"The name {self.host} of the metadata server could not be looked up ({error.detail}). Check the DNS."
            )
            return MetadataError(Problem.UNREACHABLE, text)
        if error.fault in _ABSENT:
            return _absent(f"There is no metadata server at {self.host} ({error.detail})")
        if error.fault is HttpFault.TOO_LARGE:
            return self._not_google(f"its reply is larger than {MAX_REPLY_BYTES} bytes")
        if error.fault is HttpFault.NOT_HTTP:
            return self._not_google(f"its reply is not HTTP ({error.detail})")
        text = f"The connection to the metadata server {self.host} broke ({error.detail}). It is tried again."
        return MetadataError(Problem.UNREACHABLE, text)


def _absent(what: str) -> MetadataError:
    text = f"{what}, so this is no Google Cloud VM. Set project and zone under [cloud]."
    return MetadataError(Problem.ABSENT, text)


def metadata_url(host: str) -> str:
    """The address of all values of a server, "host" or "host:port"."""
    place = f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
    return f"http://{place}/computeMetadata/v1/"
