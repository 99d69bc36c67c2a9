"""The client of the metadata server: small GET requests, each limited in size and total time.

Standard library only, and never through a proxy, which would return the metadata of its own machine.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tpuwatch.core import TpuwatchError, parse_retry_after
from tpuwatch.google.http import MAX_REPLY_BYTES, Connector, DeadlineSocket, TooLargeError, read_whole
from tpuwatch.google.server_time import ServerTime
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.core import Clock

DEFAULT_HOST: Final = "metadata.google.internal"
TIMEOUT_SECONDS: Final = 5.0
METADATA_ROOT: Final = "/computeMetadata/v1/"
_FLAVOR: Final = ("Metadata-Flavor", "Google")  # sent and expected in the reply: otherwise it is another server
_NO_SERVER: Final = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)
_NO_SUCH_NAME: Final = tuple(getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name))


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
        self._clock = clock
        self._dialer = Connector(clock)
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
        self._dialer.close()

    def _request(self, path: str, seconds: float) -> tuple[str, str] | None:
        deadline = self._clock.monotonic() + seconds
        try:
            with self._dialer.connection(*_host_and_port(self.host), deadline) as connection:
                return self._exchange(DeadlineSocket(connection, deadline, self._clock, MAX_REPLY_BYTES), path)
        except TimeoutError as error:
            text = f"The metadata server {self.host} did not answer within {seconds:g} s."
            raise MetadataError(Problem.TIMEOUT, f"{text} It is tried again; if it lasts, restart the VM.") from error
        except socket.gaierror as error:
            raise self._lookup_failed(error) from error
        except TooLargeError as error:
            raise self._not_google(f"its reply is larger than {MAX_REPLY_BYTES} bytes") from error
        except http.client.RemoteDisconnected as error:
            raise self._connection_failed(
                ConnectionResetError(errno.ECONNRESET, "it was closed without a reply")
            ) from error
        except (http.client.HTTPException, ValueError) as error:
            raise self._not_google(f"its reply is not HTTP ({type(error).__name__})") from error
        except OSError as error:
            raise self._connection_failed(error) from error

    def _exchange(self, channel: DeadlineSocket, path: str) -> tuple[str, str] | None:
        connection = http.client.HTTPConnection(self.host)
        connection.sock = channel  # has the methods used
        connection.request("GET", METADATA_ROOT + path, headers={_FLAVOR[0]: _FLAVOR[1], "Connection": "close"})
        with connection.getresponse() as reply:
            return self._parse_reply(reply, path)

    def _parse_reply(self, reply: http.client.HTTPResponse, path: str) -> tuple[str, str] | None:
        if reply.headers.get(_FLAVOR[0]) != _FLAVOR[1]:
            raise self._not_google("its reply has no Metadata-Flavor header")
        self._server_time.on_answer(reply.headers.get("Date", ""))
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise self._refused(reply, path)
        return read_whole(reply).decode("utf-8", "replace"), reply.headers.get("ETag", "")

    def _refused(self, reply: http.client.HTTPResponse, path: str) -> MetadataError:
        where = f"The metadata server {self.host} answered {reply.status} to {path.partition('?')[0]}"
        after = parse_retry_after(reply.headers.get("Retry-After"))
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

    def _lookup_failed(self, error: socket.gaierror) -> MetadataError:
        if error.errno in _NO_SUCH_NAME:
            return _absent(f"There is no metadata server: the name {self.host} is unknown")
        text = f"The name {self.host} of the metadata server could not be looked up ({error.strerror}). Check the DNS."
        return MetadataError(Problem.UNREACHABLE, text)

    def _connection_failed(self, error: OSError) -> MetadataError:
        why = error.strerror or str(error)
        if error.errno in _NO_SERVER:
            return _absent(f"There is no metadata server at {self.host} ({why})")
        text = f"The connection to the metadata server {self.host} broke ({why}). It is tried again."
        return MetadataError(Problem.UNREACHABLE, text)


def _absent(what: str) -> MetadataError:
    text = f"{what}, so this is no Google Cloud VM. Set project and zone under [cloud]."
    return MetadataError(Problem.ABSENT, text)


def _host_and_port(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    if colon and port.isascii() and port.isdigit() and not (":" in name and not name.endswith("]")):
        return name.strip("[]"), int(port)
    return host.strip("[]"), 80
