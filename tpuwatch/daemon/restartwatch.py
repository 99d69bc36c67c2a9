"""The restarting side of the daemon: a loop that decides about all watched nodes, and has it done.

A `RestartWatch` is made for one configuration. When that changes it is stopped, and another one takes its place and
finishes what it has begun. While nothing is wrong it only compares verdicts: the ledger is read when it starts, when a
node ceases to be well, and for as long as something is called for, under way, or held by the breaker.
"""

from __future__ import annotations

import logging
import math
import os
from typing import TYPE_CHECKING, Final

from tpuwatch.daemon.deciding import Deciding
from tpuwatch.daemon.loops import Loop
from tpuwatch.daemon.restarting import LEFT_SECONDS, Restarting
from tpuwatch.export.view import LoopStatus, RestartsStatus
from tpuwatch.health.limits import Limits
from tpuwatch.health.verdict import STUCK, Rung
from tpuwatch.restart.audit import FILE_NAME, Audit
from tpuwatch.restart.ledger.base import LedgerError
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.record import TOUCHED
from tpuwatch.restart.telling import Telling
from tpuwatch.restart.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.daemon.deciding import Called
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.export.view import NodeStatus
    from tpuwatch.node.board import Posted
    from tpuwatch.restart.acts import Reading
    from tpuwatch.restart.ledger.owner import ThisMachine
    from tpuwatch.restart.local.system import System
    from tpuwatch.restart.policy.budgets import Books
    from tpuwatch.restart.policy.decision import Decision
    from tpuwatch.restart.record import Record

NAME: Final = "restart"  # the loop's, in metrics and status
EVERY_SECONDS: Final = 5.0  # it is woken by each turn of the judge besides
# Between two readings of the ledger while something is called for: soon at first, rarely when nothing comes of it.
CALLED_SECONDS: Final = 2.0
LONG_CALLED_SECONDS: Final = 30.0
OPEN_SECONDS: Final = 15.0  # … while something is under way
BREAKER_SECONDS: Final = 60.0  # … while the breaker is open
MOST_ACTS: Final = 5  # begun in one turn
STOP_SECONDS: Final = 5.0  # how long the end may wait for drivers to give their leases back
SLACK_SECONDS: Final = 120.0  # a turn may take so long besides what the ledger takes
_READS: Final = 15  # times as long as one call a whole reading may take

_log = logging.getLogger(__name__)


class RestartWatch:
    """Made and used by the daemon's thread."""

    def __init__(
        self,
        config: Config,
        *,
        nodes: Callable[[], Sequence[NodeStatus]],
        posted: Callable[[], Posted],
        metrics: Metrics,
        clock: Clock,
        watching_since: float,
        progress: Callable[[str, float], None],
        here: ThisMachine | None = None,
        system: System | None = None,
    ) -> None:
        """`nodes` and `posted` tell how the nodes were judged and what the witnesses said, `watching_since` when
        tpuwatch began. `progress` is told of each turn of the loop, from its thread.

        Raises ConfigError if [ledger] does not say where the ledger is.
        """
        self._nodes = nodes
        self._posted = posted
        self._metrics = metrics
        self._clock = clock
        self._progress = progress
        host = os.uname().nodename
        self._restarting = Restarting(
            config, metrics=metrics, clock=clock, host=host, wake=self.wake, here=here, system=system
        )
        self._settings = self._restarting.settings
        url = config.restart.webhook_url
        self._webhook = Webhook(url, counted=metrics.webhook) if url else None
        self._telling = Telling(
            metrics=metrics,
            audit=Audit(config.state.dir / FILE_NAME),
            clock=clock,
            actor=self._restarting.acts.actor,
            call=self._webhook.send if self._webhook is not None else lambda _: None,
        )
        cloud_seconds = Limits(cloud_poll_seconds=config.cloud.poll_seconds).cloud_seconds
        self._deciding = Deciding(cloud_seconds=cloud_seconds, watching_since=watching_since, host=host)
        self._reading: Reading | None = None
        self._read_at = float("-inf")  # by the monotonic clock
        self._read_time: float | None = None
        self._pace = math.inf  # seconds between two readings of it, for what is called for now
        self._acts_left = MOST_ACTS
        self._trouble = ""  # why the ledger could not be used, if it could not
        self.status = RestartsStatus(acts=self._settings.act)  # replaced at each turn, never changed
        self._last_success: float | None = None
        self._began_at = clock.time()
        turn = 3 * EVERY_SECONDS + _READS * (1 + MOST_ACTS) * config.ledger.timeout_seconds
        self._limit = turn + SLACK_SECONDS
        self._loop = Loop(NAME, self.turn, clock=clock, done=self._done)

    # -- for the daemon

    def start(self) -> None:
        """Let the loop begin."""
        self._loop.start()

    def wake(self) -> None:
        """The nodes were judged, or a driver has ended. May be called from any thread."""
        self._loop.wake()

    def stop(self) -> None:
        """End. What is under way is left as it stands, for whoever comes next."""
        self._loop.stop()
        self._restarting.stop()
        if self._webhook is not None:
            self._webhook.close()
        until = self._clock.monotonic() + STOP_SECONDS
        if self._loop.join(STOP_SECONDS):
            self._restarting.close(max(0.0, until - self._clock.monotonic()))
            self._hear()  # what has come to its end since the last turn is noted all the same

    @property
    def drives(self) -> bool:
        """Whether something is being done from here, or is half done, of which the ledger must not be taken away."""
        reading = self._reading
        half_done = reading is not None and any(one.record.phase in TOUCHED for one in reading.stored.values())
        return half_done or self._restarting.drives

    def limits(self) -> dict[str, float]:
        """How long the loop may go without success, in seconds."""
        return {NAME: self._limit}

    def loops(self) -> list[LoopStatus]:
        """How the loop is. One that has not finished its first turn is fresh for as long as a turn may take."""
        last = self._last_success
        age = self._clock.time() - (self._began_at if last is None else last)
        return [LoopStatus(NAME, last, age < self._limit)]

    # -- the loop

    def turn(self) -> float:
        """Look at all nodes once; returns the seconds until it should be done again though nobody wakes it."""
        nodes, posted = self._nodes(), self._posted()
        self._hear()
        called, fallen = self._deciding.look(nodes, posted, self._clock.time())
        self._pace = _pace(called, self._clock.time())
        if self._is_due(fallen=fallen):
            self._read()
        self._finish(nodes, posted)
        self._acts_left = MOST_ACTS
        decisions = [made for one in called if (made := self._decided(one, posted)) is not None]
        self._telling.end_turn({one.status.node for one in called})
        self._show(decisions)
        return min(EVERY_SECONDS, self._pace)

    def _done(self, name: str, seconds: float) -> None:
        self._last_success = self._clock.time()
        self._progress(name, seconds)

    def _hear(self) -> None:
        """What became of what is driven from here."""
        for driven in self._restarting.results():
            self._read_at = float("-inf")
            if driven.record is not None and not driven.record.open:
                self._telling.over(driven.record)
        for progress in self._restarting.progress:
            self._telling.noted(progress.record)

    # -- the ledger

    @property
    def _books(self) -> Books | None:
        """What the ledger held when it was read last; None where it cannot be used."""
        return self._reading.books if self._reading is not None and not self._trouble else None

    def _is_due(self, *, fallen: bool) -> bool:
        """Whether there is a reason to read the ledger now."""
        age = self._clock.monotonic() - self._read_at
        if math.isinf(age):
            return True
        if self._reading is None or self._trouble:
            return age >= LEFT_SECONDS
        is_open = any(record.open for record in self._reading.books.records.values())
        broken = self._reading.fleet.fleet.breaker.opened is not None
        return fallen or age >= self._pace or (is_open and age >= OPEN_SECONDS) or (broken and age >= BREAKER_SECONDS)

    def _read(self) -> None:
        try:
            self._reading = self._restarting.read()
        except LedgerError as error:
            self._failed(error)
        else:
            if self._trouble:
                _log.info("The ledger of restarts can be used again.")
            self._trouble, self._read_time = "", self._clock.time()
            self._metrics.ledger(works=True)
        self._read_at = self._clock.monotonic()

    def _failed(self, error: LedgerError) -> None:
        if str(error) != self._trouble:
            _log.warning("%s", error)
        self._trouble, self._read_at = str(error), self._clock.monotonic()
        self._metrics.ledger(works=False)

    # -- deciding and doing

    def _finish(self, nodes: Sequence[NodeStatus], posted: Posted) -> None:
        if self._reading is None or self._trouble:
            return
        try:
            if self._restarting.finish(self._reading, nodes, posted, self._telling):
                self._read()
        except LedgerError as error:
            self._failed(error)

    def _decided(self, called: Called, posted: Posted) -> tuple[str, Decision] | None:
        """What is decided on a node for which something is called for; it is done, and told."""
        label, books = called.status.node, self._books
        decision = called.decided(books, self._settings, self._clock.time())
        record = books.records.get(called.target.path) if books is not None else None
        if decision.act is None and decision.blocked is None and budgets.under_way(record):
            return None  # a person would be asked for what is being done
        if record is not None and not record.open and self._is_past(record) and _is_older(called, record.entered):
            return None  # the cloud has not been asked since
        begun = False
        try:
            if decision.act is not None:
                if not self._acts_left:
                    return None  # at the next turn
                self._acts_left -= 1
                made = self._restarting.begin(called, decision, posted)
                self._read()
                if made is None:
                    return None
                decision, begun = made.decision, made.driver is not None
            elif decision.opens_breaker and self._settings.act:
                self._open_breaker(called)
            elif decision.request:
                self._request(called, posted)
        except LedgerError as error:
            self._failed(error)
            decision = called.decided(None, self._settings, self._clock.time())
        self._telling.decided(label, called.target, decision, begun=begun)
        return label, decision

    def _is_past(self, record: Record) -> bool:
        """Whether it ended by now. By a clock that was wrong it may be hours ahead: then it is decided as ever."""
        return record.entered <= self._clock.time() + budgets.SKEW_SECONDS

    def _open_breaker(self, called: Called) -> None:
        """Open it, if that is still called for by what the ledger holds now."""
        self._read()
        if self._reading is None or self._trouble:
            return
        why = called.decided(self._books, self._settings, self._clock.time()).opens_breaker
        if why and self._restarting.acts.open_breaker(self._reading, why):
            self._telling.breaker_opened(why)
            self._read()

    def _request(self, called: Called, posted: Posted) -> None:
        """Ask those who watch the own node, by what the ledger holds."""
        if self._reading is None:
            return
        decision = called.decided(self._books, self._settings, self._clock.time())
        before = self._reading.record(called.target)
        if self._restarting.request(called, decision, self._reading, posted):
            if before is None or not budgets.is_request(before) or before.cause != decision.verdict:
                self._telling.asked_others(called.target, decision)
            self._read()

    # -- what is shown

    def _show(self, decisions: list[tuple[str, Decision]]) -> None:
        fleet = self._reading.fleet.fleet if self._reading is not None else None
        records = self._records()
        self._metrics.restart_state(
            records=records, breaker_open=fleet is not None and fleet.breaker.opened is not None
        )
        self._metrics.restart_persons(sum(decision.ask for _, decision in decisions))
        self.status = RestartsStatus(
            acts=self._settings.act,
            read=self._read_time,
            problem=self._trouble,
            breaker=fleet.breaker if fleet is not None else None,
            records=records,
            decisions=decisions,
        )

    def _records(self) -> tuple[Record, ...]:
        """Those of the ledger, the open ones first; what is driven from here as it is now."""
        records = dict(self._reading.books.records) if self._reading is not None else {}
        for progress in self._restarting.progress:
            known = records.get(progress.record.target.path)
            if known is None or known.open:
                records[progress.record.target.path] = progress.record
        return tuple(sorted(records.values(), key=lambda one: (not one.open, one.target.path)))


def _is_older(called: Called, when: float) -> bool:
    """Whether all that is said of the node is of that time or before."""
    told = [reason.at for reason in called.status.judgement.reasons if reason.at is not None]
    return bool(told) and max(told) <= when


def _pace(called: Sequence[Called], now: float) -> float:
    """How soon the ledger is to be read again for what is called for, or for what a node's own daemon may ask for."""
    wanted = [one.status.judgement for one in called]
    since = [
        one.at if one.since is None else one.since for one in wanted if one.rung is not Rung.ASK or one.verdict in STUCK
    ]
    if not since:
        return math.inf
    return min(max(CALLED_SECONDS, (now - max(since)) / 20), LONG_CALLED_SECONDS)
