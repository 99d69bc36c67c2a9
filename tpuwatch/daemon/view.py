"""The daemon's data for other threads: a snapshot of its status, and the contents of its store."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.core import printable
from tpuwatch.daemon.targets import scrape_targets
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.goodput import stored_goodput
from tpuwatch.logs import Rule
from tpuwatch.model import FINDING_SECONDS, GOODPUT_SECONDS, Cause
from tpuwatch.tune import with_plans

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tpuwatch.config import PeersConfig
    from tpuwatch.core import Clock
    from tpuwatch.logs import Catalogue
    from tpuwatch.model import DaemonStatus, Event, Finding, Goodput, JudgedNode, Launch, ScrapeTarget
    from tpuwatch.store import EventStore

_FINDING_EVENTS = 5000


class DaemonView:
    """Implements tpuwatch.model.status.View. `update` and what can be set are for the daemon's thread."""

    def __init__(
        self, store: EventStore, catalogue: Catalogue, clock: Clock, status: DaemonStatus, peers: PeersConfig
    ) -> None:
        self._current: tuple[DaemonStatus, Sequence[JudgedNode]] = (status, ())
        self.catalogue = catalogue
        self.peers = peers
        self.serves = ("", 0)  # where the daemon listens
        self.scheme = "http"  # and how it is asked there
        self._store = store
        self._clock = clock
        self._folded: tuple[object, float, list[Finding]] | None = None  # what they follow from, time, findings

    def update(self, status: DaemonStatus, nodes: Sequence[JudgedNode]) -> None:
        self._current = (status, nodes)

    def status(self) -> DaemonStatus:
        return self._current[0]

    def nodes(self) -> Sequence[JudgedNode]:
        return self._current[1]

    def events(
        self,
        *,
        since: float | None = None,
        cause: Cause | None = None,
        history: bool | None = None,
        after_id: int | None = None,
        limit: int = 100,
    ) -> Sequence[Event]:
        newest = after_id is None
        found = self._store.events(
            since=since, cause=cause, history=history, after_id=after_id, limit=limit, newest_first=newest
        )
        return found[::-1] if newest else found

    def last_event_id(self) -> int:
        return self._store.last_id()

    def findings(self) -> Sequence[Finding]:
        now, status = self._clock.time(), self.status()
        known, held = _known(status), _held(status)
        basis = (self._store.last_id(), known, held)
        if self._folded is None or self._folded[0] != basis or not 0 <= now - self._folded[1] < 60:
            seconds = max(FINDING_SECONDS, status.finding_seconds)
            events = self._store.events(since=now - seconds, history=False, limit=_FINDING_EVENTS, newest_first=True)
            self._folded = (basis, now, findings_of(reversed(events), self.catalogue, known, held))
        return self._with_plans(self._folded[2])

    def launches(self, limit: int = 100) -> Sequence[Launch]:
        return self._store.launches(limit)

    def goodput(self, *, since: float | None = None, workload: str = "") -> Goodput:
        now = self._clock.time()
        return stored_goodput(
            self._store, since=now - GOODPUT_SECONDS if since is None else since, now=now, workload=workload
        )

    def targets(self) -> Sequence[ScrapeTarget]:
        status, nodes = self._current
        worker = status.identity.worker.value if status.identity is not None else ""
        return scrape_targets(nodes, self.peers, serves=self.serves, scheme=self.scheme, worker=worker)

    def _with_plans(self, findings: list[Finding]) -> Sequence[Finding]:
        """The findings with the sizes that are decided by now."""
        tuned = self.status().tune
        if tuned is None or all(finding.cause is not Cause.PREMAPPED_EXHAUSTED for finding in findings):
            return findings
        return with_plans(findings, self.launches(), [one.plan for one in tuned.workloads])


def _known(status: DaemonStatus) -> dict[str, str]:
    """What remedies need to know of this machine, as a shell takes it."""
    identity = status.identity
    if identity is None:
        return {}
    known = {
        "NODE": identity.node.value or identity.kubernetes.value,
        "ZONE": identity.zone.value,
        "PROJECT": identity.project.value,
        "TYPE": identity.accelerator.value,
    }
    return {word: shlex.quote(printable(value)) for word, value in known.items() if value}


def _held(status: DaemonStatus) -> frozenset[int]:
    return frozenset(holder.pid for holder in status.host.holders) if status.host is not None else frozenset()


def findings_of(
    events: Iterable[Event],
    catalogue: Catalogue,
    known_words: Mapping[str, str] | None = None,
    pids: Collection[int] = (),
) -> list[Finding]:
    """The findings of stored events. Events that are no faults, or whose rule no longer exists, are left out.

    So is a failure that no rule explains: a job may print an exception and go on, and it is not known what to do.

    `known_words` and `pids` as for `fold`.
    """
    known = {rule.id: rule for rule in catalogue.rules}
    of_exec: dict[tuple[str, Cause], Rule] = {}

    def rule_of(event: Event) -> Rule | None:
        if not event.is_from_exec:
            return known.get(event.rule)
        key = (event.rule, event.cause)
        if key not in of_exec:
            of_exec[key] = _rule_of_exec(known.get(event.rule), event)
        return of_exec[key]

    faults = ((rule_of(event), event) for event in events if event.cause.is_known_fault)
    records = (RecognisedRecord(rule, event, event.details) for rule, event in faults if rule is not None)
    return fold(records, known_words, pids, of_job=True)


def _rule_of_exec(known: Rule | None, event: Event) -> Rule:
    """The rule of a finding of `tpuwatch exec`, which has seen the whole text: there a rule that needs it counted.

    Where the daemon has no such rule of that cause, as `exec` had others, the cause is all that is known.
    """
    if known is not None and known.cause is event.cause:
        return replace(known, any_program=False, general=False, whole_text=False)
    return Rule(
        id=event.rule,
        cause=event.cause,
        mark=None,
        summary=f"`tpuwatch exec` found {event.cause.value} by a rule that the daemon does not have ({event.rule}). "
        "Give both the same version and the same [logs] rules to see its summary and remedy.",
        match=(),
        unless=(),
        capture=(),
        anchors=(),
    )
