"""The events of the daemon's store, asked for over HTTP by those who may not read its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from tpuwatch.model import Cause, Event, Place
from tpuwatch.web.client import DaemonAddress, ask_daemon
from tpuwatch.web.routes import MAX_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

_LAST: Final = "?limit=1"


class DaemonEvents:
    """Answers as the store does (tpuwatch.store), with at most MAX_LIMIT events, whose secrets are redacted.

    Every method raises TpuwatchError if the daemon does not answer, and LookupError, TypeError or ValueError for a
    document that is not one of this version's daemon.
    """

    def __init__(self, address: DaemonAddress | str) -> None:
        self._address = address

    def last_id(self) -> int:
        """The id of the event stored last, for `after_id`; 0 if there is none."""
        return int(self._ask(_LAST)["last_id"])

    def events(
        self,
        *,
        since: float | None = None,
        cause: Cause | None = None,
        history: bool | None = None,
        after_id: int | None = None,
        limit: int = MAX_LIMIT,
        newest_first: bool = False,
    ) -> list[Event]:
        """The newest events, or the first ones after an id, as `StoreReads.events` orders them."""
        query = {
            "since": since,
            "cause": cause.value if cause is not None else None,
            "history": int(history) if history is not None else None,
            "after": after_id,
            "limit": min(limit, MAX_LIMIT),
        }
        given = {name: value for name, value in query.items() if value is not None}
        found = [_event(one) for one in self._ask(f"?{urlencode(given)}")["events"]]
        return found[::-1] if newest_first else found

    def _ask(self, query: str) -> Mapping[str, Any]:
        document: Mapping[str, Any] = ask_daemon(self._address, "events", "events", query)
        return document


def _event(document: Mapping[str, Any]) -> Event:
    return Event(
        key=bytes.fromhex(document["key"]),
        rule=document["rule"],
        cause=Cause(document["cause"]),
        observed=document["observed_epoch"],
        time=document["time_epoch"],
        severity=document["severity"],
        pid=document["pid"],
        file=document["file"],
        offset=document["offset"],
        text=document["text"],
        details=document["details"],
        history=document["history"],
        id=document["id"],
        repeats=document["repeats"],
        since=document["since_epoch"],
        spread=document["spread"],
        places=tuple(
            Place(b"", one["file"], one["offset"], one["time_epoch"], one["severity"]) for one in document["places"]
        ),
    )
