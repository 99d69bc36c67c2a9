"""What the daemon shows to other threads: a snapshot of itself, and what its journal holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.diagnose import Seen, fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.export.view import NodeStatus, Status
    from tpuwatch.journal import Journal
    from tpuwatch.logs.catalogue import Catalogue
    from tpuwatch.model import Cause, Event, Finding, Launch

FINDING_SECONDS = 86_400.0  # what is older is told by the events alone
_FINDING_EVENTS = 5000


class LiveView:
    """Implements tpuwatch.export.view.View. The daemon's thread calls `show` and sets `catalogue`; any thread asks."""

    def __init__(self, journal: Journal, catalogue: Catalogue, clock: Clock, status: Status) -> None:
        self._shown: tuple[Status, Sequence[NodeStatus]] = (status, ())
        self.catalogue = catalogue
        self._journal = journal
        self._clock = clock
        self._folded: tuple[int, float, list[Finding]] | None = None  # last event, time, findings

    def show(self, status: Status, nodes: Sequence[NodeStatus]) -> None:
        """From now on this is how things are."""
        self._shown = (status, nodes)

    def status(self) -> Status:
        return self._shown[0]

    def nodes(self) -> Sequence[NodeStatus]:
        return self._shown[1]

    def events(
        self, *, since: float | None = None, cause: Cause | None = None, after_id: int | None = None, limit: int = 100
    ) -> Sequence[Event]:
        newest = after_id is None
        found = self._journal.events(since=since, cause=cause, after_id=after_id, limit=limit, newest_first=newest)
        return found[::-1] if newest else found

    def findings(self) -> Sequence[Finding]:
        now, last = self._clock.time(), self._journal.last_id()
        if self._folded is None or self._folded[0] != last or not 0 <= now - self._folded[1] < 60:
            events = self._journal.events(
                since=now - FINDING_SECONDS, history=False, limit=_FINDING_EVENTS, newest_first=True
            )
            self._folded = (last, now, findings_of(reversed(events), self.catalogue))
        return self._folded[2]

    def launches(self, limit: int = 100) -> Sequence[Launch]:
        return self._journal.launches(limit)


def findings_of(events: Iterable[Event], catalogue: Catalogue) -> list[Finding]:
    """The findings of journalled events. Those that are no faults are none, nor those of rules that are gone."""
    known = {rule.id: rule for rule in catalogue.rules}
    faults = (event for event in events if event.cause.is_fault and event.rule in known)
    return fold(Seen(known[event.rule], event, event.details) for event in faults)
