"""The HTTP client with which commands read the documents of the daemon on this machine."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tpuwatch import __version__
from tpuwatch.core import TpuwatchError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.config import Config

SECONDS = 5.0  # for one answer


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
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request("GET", f"/api/v1/{name}{query}")
        reply = connection.getresponse()
        document = json.loads(reply.read())
    except TimeoutError as error:
        raise TpuwatchError(
            f"nobody at {address} has answered for {SECONDS:.0f} s: the daemon hangs, or the machine is too busy; "
            "`journalctl -u tpuwatch` has details, `systemctl restart tpuwatch` restarts it"
        ) from error
    except (OSError, http.client.IncompleteRead) as error:
        raise _no_daemon(address, printable(str(error))) from error
    except (http.client.HTTPException, ValueError, RecursionError) as error:
        raise _no_daemon(address, "some other program does") from error
    finally:
        connection.close()
    if not isinstance(document, dict) or (reply.status == http.client.OK and key not in document):
        raise _no_daemon(address, "some other program does")
    if reply.status != http.client.OK:
        reason = printable(str(document.get("error", reply.status)))
        raise TpuwatchError(f"the daemon at {address} cannot serve its {name}: {reason}")
    return document


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
