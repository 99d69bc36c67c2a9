"""The HTTP client with which commands read the documents of the daemon on this machine.

Over TLS the daemon is known by its certificate itself, which is in the file that the configuration names: what
authority it is from, and for which names, is for others.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tpuwatch import __version__
from tpuwatch.core import (
    ConfigError,
    DocumentError,
    HttpClient,
    HttpError,
    HttpFault,
    SystemClock,
    Tls,
    TpuwatchError,
    decode,
    printable,
    read_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.config import Config
    from tpuwatch.core import HttpReply

D = TypeVar("D")

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

    def get(self, path: str, request: Callable[..., HttpReply]) -> HttpReply:
        """The answer of the daemon, and of nobody else, by `request` of an HttpClient.

        Raises HttpError, and TpuwatchError if this user may not read the files, or if it is not the daemon.
        """
        scheme, tls = ("https", self._tls()) if self.certificate_file else ("http", None)
        try:
            return request(f"{scheme}://{self}{path}", max_bytes=MAX_BYTES, headers=self._headers(), tls=tls)
        except HttpError as error:
            if error.fault is not HttpFault.CERTIFICATE:
                raise
            raise TpuwatchError(
                f"what answers at {self} has another certificate than {self.certificate_file}; if that is new, "
                "`journalctl -u tpuwatch` says why it is not in use"
            ) from error

    def _headers(self) -> dict[str, str]:
        if not self.token_file:
            return {}
        try:
            return {"Authorization": f"Bearer {read_tokens(Path(self.token_file))[0]}"}
        except ConfigError as error:
            raise TpuwatchError(f"the daemon at {self} wants a token: {error}; `sudo` may read it") from error

    def _tls(self) -> Tls:
        try:
            return Tls.pinned(self.certificate_file)
        except ConfigError as error:
            raise TpuwatchError(f"the daemon at {self} speaks TLS, and {error}") from error


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
    reply = _ask(address, f"/api/v1/{name}{query}")
    try:
        document = reply.json()
    except HttpError as error:
        raise _no_daemon(address, "some other program does") from error
    if not isinstance(document, dict):
        raise _no_daemon(address, "some other program does")
    if reply.status != HTTPStatus.OK:
        reason = printable(str(document.get("error", reply.status)))
        raise TpuwatchError(f"the daemon at {address} cannot serve its {name}: {reason}")
    return document


def ask_metrics(address: DaemonAddress | str) -> str:
    """The daemon's metrics as Prometheus reads them. Raises TpuwatchError, with what to do, if there is no answer."""
    reply = _ask(address, "/metrics")
    if reply.status != HTTPStatus.OK:
        raise TpuwatchError(f"the daemon at {address} cannot serve its metrics: {reply.status}")
    return reply.text


def _ask(address: DaemonAddress | str, path: str) -> HttpReply:
    asked = DaemonAddress(address) if isinstance(address, str) else address
    request = HttpClient(SystemClock()).request
    try:
        return asked.get(path, partial(request, seconds=SECONDS))
    except HttpError as error:
        if error.fault is HttpFault.TIMEOUT:
            raise TpuwatchError(
                f"nobody at {address} has answered for {SECONDS:.0f} s: the daemon hangs, or the machine is too busy; "
                "`journalctl -u tpuwatch` has details, `systemctl restart tpuwatch` restarts it"
            ) from error
        other = error.fault in (HttpFault.NOT_HTTP, HttpFault.TOO_LARGE)
        raise _no_daemon(address, "some other program does" if other else printable(error.detail)) from error


def _no_daemon(address: DaemonAddress | str, reason: str) -> TpuwatchError:
    return TpuwatchError(
        f"no daemon answers at {address} ({reason}); start it with `tpuwatch run` or `systemctl start tpuwatch`, "
        "or read what it left behind with `tpuwatch events`"
    )
