"""How a command asks the daemon on this machine."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tpuwatch import __version__
from tpuwatch.errors import TpuwatchError
from tpuwatch.logsetup import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.config import Config

SECONDS = 5.0  # for one answer


def address(config: Config) -> str:
    """Where the daemon serves: it leaves a note in its state directory, for port 0; else as configured."""
    from tpuwatch.export.view import ADDRESS_FILE

    try:
        return (config.state.dir / ADDRESS_FILE).read_text().strip() or config.http.listen
    except OSError:
        return config.http.listen


def ask(address: str, name: str, key: str, query: str = "") -> Any:
    """The document /api/v1/`name`, which has this key; else it is some other program that answers.

    Raises TpuwatchError with what to do when there is no such answer.
    """
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request("GET", f"/api/v1/{name}{query}")
        reply = connection.getresponse()
        document = json.loads(reply.read())
    except TimeoutError as error:
        raise TpuwatchError(
            f"nobody at {address} has answered for {SECONDS:.0f} s: the daemon hangs, or the machine is too busy; "
            "`journalctl -u tpuwatch` tells more, `systemctl restart tpuwatch` starts it anew"
        ) from error
    except (OSError, http.client.IncompleteRead) as error:
        raise _silence(address, one_line(str(error))) from error
    except (http.client.HTTPException, ValueError, RecursionError) as error:
        raise _silence(address, "some other program does") from error
    finally:
        connection.close()
    if not isinstance(document, dict) or (reply.status == http.client.OK and key not in document):
        raise _silence(address, "some other program does")
    if reply.status != http.client.OK:
        reason = one_line(str(document.get("error", reply.status)))
        raise TpuwatchError(f"the daemon at {address} cannot tell its {name}: {reason}")
    return document


@contextmanager
def understood(address: str) -> Iterator[None]:
    """Whatever reads the daemon's documents does so in here: those of another version may be put otherwise.

    Raises TpuwatchError for what is not there, or is something else than it should be.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise TpuwatchError(
            f"the daemon at {address} answers otherwise than tpuwatch {__version__} understands: it may be of another "
            "version; `systemctl restart tpuwatch` makes both the same"
        ) from error


def _silence(address: str, reason: str) -> TpuwatchError:
    return TpuwatchError(
        f"no daemon answers at {address} ({reason}); start it with `tpuwatch run` or `systemctl start tpuwatch`, "
        "or read what it left behind with `tpuwatch events`"
    )
