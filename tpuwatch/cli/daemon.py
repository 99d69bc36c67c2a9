"""How a command asks the daemon on this machine."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from tpuwatch.errors import TpuwatchError

if TYPE_CHECKING:
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
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _silence(address, str(error)) from error
    finally:
        connection.close()
    if not isinstance(document, dict) or (reply.status == http.client.OK and key not in document):
        raise _silence(address, "some other program does")
    if reply.status != http.client.OK:
        raise TpuwatchError(f"the daemon at {address} cannot tell its {name}: {document.get('error', reply.status)}")
    return document


def _silence(address: str, reason: str) -> TpuwatchError:
    return TpuwatchError(
        f"no daemon answers at {address} ({reason}); start it with `tpuwatch run` or `systemctl start tpuwatch`, "
        "or read what it left behind with `tpuwatch events`"
    )
