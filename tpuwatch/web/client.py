"""The HTTP client with which commands read the documents of the daemon on this machine.

Over TLS the daemon is known by its certificate itself, which is in the file that the configuration names: what
authority it is from, and for which names, is for others.
"""

from __future__ import annotations

import http.client
import json
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tpuwatch import __version__
from tpuwatch.core import ConfigError, DocumentError, SystemClock, TpuwatchError, decode, printable, read_tokens
from tpuwatch.google import Connector, DeadlineSocket, TooLargeError, read_whole

if TYPE_CHECKING:
    import socket

    from tpuwatch.config import Config

D = TypeVar("D")

_FOOTER: Final = "-----END CERTIFICATE-----"
SECONDS = 10.0  # for one answer
MAX_BYTES: Final = 128 << 20  # of one answer: 10,000 nodes with all that can be said of them


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    """Where a daemon is asked, and how. As text: "host:port"."""

    listen: str
    certificate_file: str = ""  # what it proves itself by; "": it does not speak TLS
    token_file: str = ""  # what it wants a token of; "": it wants none

    def __str__(self) -> str:
        return self.listen

    def headers(self) -> dict[str, str]:
        """With which it is asked. Raises TpuwatchError if this user may not read its tokens."""
        if not self.token_file:
            return {}
        try:
            return {"Authorization": f"Bearer {read_tokens(Path(self.token_file))[0]}"}
        except ConfigError as error:
            raise TpuwatchError(f"the daemon at {self} wants a token: {error}; `sudo` may read it") from error

    def secured(self, plain: socket.socket) -> socket.socket:
        """The connection over TLS, to nobody else than the daemon. Raises OSError, and TpuwatchError."""
        import ssl  # seldom needed

        try:
            pem = Path(self.certificate_file).read_text()
            expected = ssl.PEM_cert_to_DER_cert(pem[pem.index(ssl.PEM_HEADER) :].partition(ssl.PEM_FOOTER)[0] + _FOOTER)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it holds no certificate"
            text = f"the daemon at {self} speaks TLS, and {self.certificate_file} cannot be read: {reason}"
            raise TpuwatchError(text) from error
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the whole certificate is compared
        connection = context.wrap_socket(plain)
        if connection.getpeercert(binary_form=True) != expected:
            connection.close()
            raise TpuwatchError(
                f"what answers at {self} has another certificate than {self.certificate_file}; if that is new, "
                "`journalctl -u tpuwatch` says why it is not in use"
            )
        return connection


def daemon_address(config: Config) -> DaemonAddress:
    """The address that the daemon wrote to its state directory, which differs with port 0; else the configured one."""
    from tpuwatch.model import ADDRESS_FILE

    listen, http = config.http.listen, config.http
    with suppress(OSError):
        listen = (config.state.dir / ADDRESS_FILE).read_text().strip() or listen
    return DaemonAddress(listen, http.certificate_file, http.token_file)


def ask_daemon(address: DaemonAddress | str, name: str, document: type[D], query: str = "") -> D:
    """The document /api/v1/`name`. Raises TpuwatchError, with what to do, if there is no such answer."""
    answer = ask_document(address, name, query)
    try:
        return decode(document, answer)
    except DocumentError as error:
        if not any(one.name in answer for one in fields(document)):  # type: ignore[arg-type] # a dataclass
            raise _no_daemon(address, "some other program does") from error
        raise TpuwatchError(
            f"the daemon at {address} sends a {name} that tpuwatch {__version__} does not understand "
            f"({printable(str(error))}): it may be of another version; `systemctl restart tpuwatch` makes both the same"
        ) from error


def ask_document(address: DaemonAddress | str, name: str, query: str = "") -> dict[str, Any]:
    """The same as it was sent, whatever version the daemon is of."""
    status, body = _ask(address, f"/api/v1/{name}{query}")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _no_daemon(address, "some other program does") from error
    if not isinstance(document, dict):
        raise _no_daemon(address, "some other program does")
    if status != http.client.OK:
        reason = printable(str(document.get("error", status)))
        raise TpuwatchError(f"the daemon at {address} cannot serve its {name}: {reason}")
    return document


def ask_metrics(address: DaemonAddress | str) -> str:
    """The daemon's metrics as Prometheus reads them. Raises TpuwatchError, with what to do, if there is no answer."""
    status, body = _ask(address, "/metrics")
    if status != http.client.OK:
        raise TpuwatchError(f"the daemon at {address} cannot serve its metrics: {status}")
    return body.decode("utf-8", "replace")


def _ask(address: DaemonAddress | str, target: str) -> tuple[int, bytes]:
    try:
        return _get(DaemonAddress(address) if isinstance(address, str) else address, target)
    except TimeoutError as error:
        raise TpuwatchError(
            f"nobody at {address} has answered for {SECONDS:.0f} s: the daemon hangs, or the machine is too busy; "
            "`journalctl -u tpuwatch` has details, `systemctl restart tpuwatch` restarts it"
        ) from error
    except (OSError, http.client.IncompleteRead) as error:
        raise _no_daemon(address, printable(str(error))) from error
    except (http.client.HTTPException, TooLargeError, ValueError) as error:
        raise _no_daemon(address, "some other program does") from error


def _get(address: DaemonAddress, target: str) -> tuple[int, bytes]:
    """Status and body of the answer; it has SECONDS and MAX_BYTES in all, however it comes."""
    clock = SystemClock()
    deadline = clock.monotonic() + SECONDS
    headers = address.headers()
    request = http.client.HTTPConnection(str(address))
    with Connector(clock).connection(request.host, request.port, deadline) as plain, ExitStack() as stack:
        connection = plain
        if address.certificate_file:
            connection = stack.enter_context(address.secured(plain))
        request.sock = DeadlineSocket(connection, deadline, clock, MAX_BYTES)  # has the methods used
        request.request("GET", target, headers=headers)
        with request.getresponse() as reply:
            return reply.status, read_whole(reply)


def _no_daemon(address: DaemonAddress | str, reason: str) -> TpuwatchError:
    return TpuwatchError(
        f"no daemon answers at {address} ({reason}); start it with `tpuwatch run` or `systemctl start tpuwatch`, "
        "or read what it left behind with `tpuwatch events`"
    )
