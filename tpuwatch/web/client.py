"""The HTTP client with which commands read the documents of the daemon on this machine."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.core import SystemClock, TpuwatchError, printable
from tpuwatch.google import Connector, DeadlineSocket, TooLargeError, read_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.config import Config

SECONDS = 10.0  # for one answer
MAX_BYTES: Final = 128 << 20  # of one answer: 10,000 nodes with all that can be said of them


def daemon_address(config: Config) -> str:
    """The address that the daemon wrote to its state directory, which differs with port 0; else the configured one."""
    from tpuwatch.model import ADDRESS_FILE

    try:
        return (config.state.dir / ADDRESS_FILE).read_text().strip() or config.http.listen
    except OSError:
        return config.http.listen


def ask_daemon(address: str, name: str, key: str, query: str = "") -> Any:
    """The document /api/v1/`name`. It has `key`; an answer without it comes from some other program.

    Raises TpuwatchError, with what to do, if there is no such answer.
    """
    status, body = _ask(address, f"/api/v1/{name}{query}")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _no_daemon(address, "some other program does") from error
    if not isinstance(document, dict) or (status == http.client.OK and key not in document):
        raise _no_daemon(address, "some other program does")
    if status != http.client.OK:
        reason = printable(str(document.get("error", status)))
        raise TpuwatchError(f"the daemon at {address} cannot serve its {name}: {reason}")
    return document


def ask_metrics(address: str) -> str:
    """The daemon's metrics as Prometheus reads them. Raises TpuwatchError, with what to do, if there is no answer."""
    status, body = _ask(address, "/metrics")
    if status != http.client.OK:
        raise TpuwatchError(f"the daemon at {address} cannot serve its metrics: {status}")
    return body.decode("utf-8", "replace")


def _ask(address: str, target: str) -> tuple[int, bytes]:
    try:
        return _get(address, target)
    except TimeoutError as error:
        raise TpuwatchError(
            f"nobody at {address} has answered for {SECONDS:.0f} s: the daemon hangs, or the machine is too busy; "
            "`journalctl -u tpuwatch` has details, `systemctl restart tpuwatch` restarts it"
        ) from error
    except (OSError, http.client.IncompleteRead) as error:
        raise _no_daemon(address, printable(str(error))) from error
    except (http.client.HTTPException, TooLargeError, ValueError) as error:
        raise _no_daemon(address, "some other program does") from error


def _get(address: str, target: str) -> tuple[int, bytes]:
    """Status and body of the answer; it has SECONDS and MAX_BYTES in all, however it comes."""
    clock = SystemClock()
    deadline = clock.monotonic() + SECONDS
    request = http.client.HTTPConnection(address)
    with Connector(clock).connection(request.host, request.port, deadline) as plain:
        request.sock = DeadlineSocket(plain, deadline, clock, MAX_BYTES)  # has the methods used
        request.request("GET", target)
        with request.getresponse() as reply:
            return reply.status, read_whole(reply)


@contextmanager
def reading_documents(address: str) -> Iterator[None]:
    """A context for code that reads the daemon's documents: those of another version may have other keys.

    Raises TpuwatchError for a key that is missing or has another type.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise TpuwatchError(
            f"the daemon at {address} sends documents that tpuwatch {__version__} does not understand: it may be of "
            "another version; `systemctl restart tpuwatch` makes both the same"
        ) from error


def _no_daemon(address: str, reason: str) -> TpuwatchError:
    return TpuwatchError(
        f"no daemon answers at {address} ({reason}); start it with `tpuwatch run` or `systemctl start tpuwatch`, "
        "or read what it left behind with `tpuwatch events`"
    )
