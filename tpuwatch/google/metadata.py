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
_VM: Final = ", so this is no Google Cloud VM. Set project and zone under [cloud]."
_UNKNOWN: Final = (Problem.ABSENT, f"There is no metadata server: the name {{host}} is unknown{_VM}")
_NOBODY: Final = (Problem.ABSENT, f"There is no metadata server at {{host}} ({{why}}){_VM}")
_FOREIGN: Final = (
    "What answers at {host} is not Google's metadata server: {why}. Check GCE_METADATA_HOST and the "
    "network; outside Google Cloud set project and zone under [cloud]."
)
_FAULTS: Final = {
    HttpFault.TIMEOUT: (
        Problem.TIMEOUT,
        "The metadata server {host} did not answer within {why}. It is tried again; if it lasts, restart the VM.",
    ),
    HttpFault.NO_NAME: _UNKNOWN,
    HttpFault.ADDRESS: _UNKNOWN,
    HttpFault.LOOKUP: (
        Problem.UNREACHABLE,
        "The name {host} of the metadata server could not be looked up ({why}). Check the DNS.",
    ),
    HttpFault.REFUSED: _NOBODY,
    HttpFault.NO_ROUTE: _NOBODY,
    HttpFault.NETWORK: _NOBODY,
    HttpFault.TOO_LARGE: (Problem.FOREIGN, _FOREIGN.replace("{why}", "its reply is {why}")),
    HttpFault.NOT_HTTP: (Problem.FOREIGN, _FOREIGN.replace("{why}", "its reply is not HTTP ({why})")),
}
_BROKEN: Final = (
    Problem.UNREACHABLE,
    "The connection to the metadata server {host} broke ({why}). It is tried again.",
)


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
            problem, text = _FAULTS.get(error.fault, _BROKEN)
            raise MetadataError(problem, text.format(host=self.host, why=error.detail)) from error
        return self._parse_reply(reply, path)

    def _parse_reply(self, reply: HttpReply, path: str) -> tuple[str, str] | None:
        if reply.headers.get("metadata-flavor") != FLAVOR["Metadata-Flavor"]:
            text = _FOREIGN.format(host=self.host, why="its reply has no Metadata-Flavor header")
            raise MetadataError(Problem.FOREIGN, text)
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


def metadata_url(host: str) -> str:
    """The address of all values of a server, "host" or "host:port"."""
    place = f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
    return f"http://{place}/computeMetadata/v1/"
