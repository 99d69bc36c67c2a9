"""The client of the metadata server: small GET requests, each bounded in size and in time as a whole.

Standard library only, and never through a proxy: what a proxy says of its own machine would be taken for ours.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tpuwatch.errors import TpuwatchError
from tpuwatch.health.evidence import Problem
from tpuwatch.node.channel import Channel, Dialer, TooLargeError
from tpuwatch.node.pacing import parse_retry_after

if TYPE_CHECKING:
    from tpuwatch.clock import Clock

DEFAULT_HOST: Final = "metadata.google.internal"
TIMEOUT_SECONDS: Final = 5.0
MAX_REPLY_BYTES: Final = 1 << 20  # with the head
ROOT: Final = "/computeMetadata/v1/"
_PIECE_BYTES: Final = 1 << 16
_FLAVOR: Final = ("Metadata-Flavor", "Google")  # asked with it, answered with it: else it is another server
_NOBODY: Final = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)
_NO_SUCH_NAME: Final = tuple(getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name))


class MetadataError(TpuwatchError):
    """The metadata server gave no answer. `problem` says why, the message what to do."""

    def __init__(self, problem: Problem, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.retry_after = retry_after  # seconds, where the server said so


def default_host() -> str:
    """The server to ask: as GCE_METADATA_HOST says (a host, or "host:port"), else Google's name for it."""
    return os.environ.get("GCE_METADATA_HOST") or DEFAULT_HOST


class Metadata:
    """Asks one metadata server, "host" or "host:port". Safe from any thread."""

    def __init__(self, host: str, *, clock: Clock, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.host = host
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._dialer = Dialer(clock)

    def get(self, path: str) -> str | None:
        """The value at `path` under computeMetadata/v1, as "instance/zone"; None where there is none (404).

        Raises MetadataError within about `timeout_seconds`.
        """
        reply = self._ask(path, self.timeout_seconds)
        return None if reply is None else reply[0]

    def wait(self, path: str, last_etag: str, seconds: float) -> tuple[str, str]:
        """Wait until the value at `path` is another than that of `last_etag`, for `seconds` at most; value and etag.

        With an empty `last_etag`, or "0", it answers at once. Where there is no value, ("", "") comes at once. Raises
        MetadataError; `close`, called from another thread, ends it.
        """
        query = f"wait_for_change=true&last_etag={quote(last_etag or '0', safe='')}&timeout_sec={max(0, int(seconds))}"
        longest = self.timeout_seconds + (seconds if last_etag not in ("", "0") else 0.0)
        reply = self._ask(f"{path}{'&' if '?' in path else '?'}{query}", longest)
        return ("", "") if reply is None else reply

    def close(self) -> None:
        """End requests under way, and refuse others."""
        self._dialer.close()

    def _ask(self, path: str, seconds: float) -> tuple[str, str] | None:
        deadline = self._clock.monotonic() + seconds
        try:
            with self._dialer.connection(*_host_and_port(self.host), deadline) as connection:
                return self._exchange(Channel(connection, deadline, self._clock, MAX_REPLY_BYTES), path)
        except TimeoutError as error:
            text = f"The metadata server {self.host} did not answer within {seconds:g} s."
            raise MetadataError(Problem.TIMEOUT, f"{text} It is asked again; if that lasts, restart the VM.") from error
        except socket.gaierror as error:
            raise self._unnamed(error) from error
        except TooLargeError as error:
            raise self._foreign(f"its reply is larger than {MAX_REPLY_BYTES} bytes") from error
        except http.client.RemoteDisconnected as error:
            raise self._broken(ConnectionResetError(errno.ECONNRESET, "it was closed without a reply")) from error
        except (http.client.HTTPException, ValueError) as error:
            raise self._foreign(f"what it answers is no HTTP ({type(error).__name__})") from error
        except OSError as error:
            raise self._broken(error) from error

    def _exchange(self, channel: Channel, path: str) -> tuple[str, str] | None:
        connection = http.client.HTTPConnection(self.host)
        connection.sock = channel  # it has the three methods that are called
        connection.request("GET", ROOT + path, headers={_FLAVOR[0]: _FLAVOR[1], "Connection": "close"})
        with connection.getresponse() as reply:
            return self._judged(reply, path)

    def _judged(self, reply: http.client.HTTPResponse, path: str) -> tuple[str, str] | None:
        if reply.headers.get(_FLAVOR[0]) != _FLAVOR[1]:
            raise self._foreign("its reply has no Metadata-Flavor header")
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise self._refused(reply, path)
        # In pieces: a buffer for all would be as large as the reply says it is.
        body = b"".join(iter(lambda: reply.read(_PIECE_BYTES), b""))
        if reply.length:  # it ended before what it had said
            raise ConnectionResetError(errno.ECONNRESET, "the reply was cut off")
        return body.decode("utf-8", "replace"), reply.headers.get("ETag", "")

    def _refused(self, reply: http.client.HTTPResponse, path: str) -> MetadataError:
        where = f"The metadata server {self.host} answered {reply.status} to {path.partition('?')[0]}"
        if reply.status == 429:
            after = parse_retry_after(reply.headers.get("Retry-After"))
            return MetadataError(Problem.THROTTLED, f"{where}: it is asked too often.", retry_after=after)
        if reply.status in (401, 403):
            return MetadataError(
                Problem.DENIED,
                f"{where}: it does not serve this process. Allow it, or set project and zone under [cloud].",
            )
        if reply.status >= 500:
            after = parse_retry_after(reply.headers.get("Retry-After"))
            return MetadataError(Problem.SERVER, f"{where}, an error of its own. It is asked again.", retry_after=after)
        return MetadataError(Problem.INTERNAL, f"{where}: it does not take the request. Please report this.")

    def _foreign(self, why: str) -> MetadataError:
        return MetadataError(
            Problem.FOREIGN,
            f"What answers at {self.host} is not Google's metadata server: {why}. Check GCE_METADATA_HOST and the "
            "network; outside Google Cloud set project and zone under [cloud].",
        )

    def _unnamed(self, error: socket.gaierror) -> MetadataError:
        if error.errno in _NO_SUCH_NAME:
            return MetadataError(
                Problem.ABSENT,
                f"There is no metadata server: the name {self.host} is unknown, so this is no Google Cloud VM. Set "
                "project and zone under [cloud].",
            )
        text = f"The name {self.host} of the metadata server could not be looked up ({error.strerror}). Check the DNS."
        return MetadataError(Problem.UNREACHABLE, text)

    def _broken(self, error: OSError) -> MetadataError:
        why = error.strerror or str(error)
        if error.errno in _NOBODY:
            return MetadataError(
                Problem.ABSENT,
                f"There is no metadata server at {self.host} ({why}), so this is no Google Cloud VM. Set project and "
                "zone under [cloud].",
            )
        text = f"The connection to the metadata server {self.host} broke ({why}). It is asked again."
        return MetadataError(Problem.UNREACHABLE, text)


def _host_and_port(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    if colon and port.isascii() and port.isdigit() and not (":" in name and not name.endswith("]")):
        return name.strip("[]"), int(port)
    return host.strip("[]"), 80
