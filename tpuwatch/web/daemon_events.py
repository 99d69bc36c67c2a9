"""The events of the daemon's store, asked for over HTTP by those who may not read its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from tpuwatch.model import EventsDocument
from tpuwatch.web.client import DaemonAddress, ask_daemon
from tpuwatch.web.routes import MAX_LIMIT

if TYPE_CHECKING:
    from tpuwatch.model import Cause, Event

_LAST: Final = "?limit=1"


class DaemonEvents:
    """Answers as the store does (tpuwatch.store), with at most MAX_LIMIT events, whose secrets are redacted.

    Every method raises TpuwatchError if the daemon does not answer, or not as this version understands.
    """

    def __init__(self, address: DaemonAddress | str) -> None:
        self._address = address

    def last_id(self) -> int:
        """The id of the event stored last, for `after_id`; 0 if there is none."""
        return self._ask(_LAST).last_id

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
        found = [one.event() for one in self._ask(f"?{urlencode(given)}").events]
        return found[::-1] if newest_first else found

    def _ask(self, query: str) -> EventsDocument:
        return ask_daemon(self._address, "events", EventsDocument, query)
