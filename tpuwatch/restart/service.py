"""The restart service: it decides on all watched nodes and begins what is decided.

Turns: the nodes that need an action, and the restarts that others left unfinished.
Every: 5 s, and when the judge reports verdicts or a driver enters another phase.
Owns: for one configuration: its loop, the threads of the drivers, its reading of the ledger, the webhook.
Never: restarts the node that it runs on, or acts without the ledger.
"""

from __future__ import annotations

import math
import os
import threading
from typing import TYPE_CHECKING, Final

from tpuwatch.config import SYSTEM_PATH
from tpuwatch.core import LedgerError, LoopGroup
from tpuwatch.health import JudgeLimits
from tpuwatch.model import STUCK, TOUCHED, Action, RestartsStatus
from tpuwatch.restart.audit import FILE_NAME, Audit
from tpuwatch.restart.candidates import Candidates, target_of
from tpuwatch.restart.clock_check import ClockCheck
from tpuwatch.restart.driver_pool import DriverPool
from tpuwatch.restart.ledger.opening import open_ledger
from tpuwatch.restart.ledger.owner import ThisMachine
from tpuwatch.restart.notify import Notifier
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.policy.situation import OF_THE_MACHINE
from tpuwatch.restart.sight import Sight
from tpuwatch.restart.starter import RestartStarter
from tpuwatch.restart.unfinished import UnfinishedRestarts
from tpuwatch.restart.watched_ledger import WatchedLedger
from tpuwatch.restart.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.config import Config
    from tpuwatch.core import Clock, LoopStatus
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import JudgedNode, Peer, RestartBudget, RestartDecision, RestartRecord, Snapshot
    from tpuwatch.restart.candidates import Candidate
    from tpuwatch.restart.ledger.reading import LedgerReading
    from tpuwatch.restart.policy.budgets import LedgerView
    from tpuwatch.restart.starter import Begun

NAME: Final = "restart"  # the loop's, in metrics and status
TURN_SECONDS: Final = 5.0  # the judge wakes it besides
# Seconds between two readings of the ledger …
MIN_CANDIDATE_SECONDS: Final = 2.0  # … while there are candidates: short at first, longer the longer they last
MAX_CANDIDATE_SECONDS: Final = 30.0
MAX_ACTS: Final = 5  # that begin in one turn
STOP_SECONDS: Final = 5.0  # how long `stop` waits for drivers to release their leases
SLACK_SECONDS: Final = 60.0  # how long a turn may take besides the ledger, and what each loop may
_READING_CALLS: Final = 15  # a reading may take as long as this many calls


class RestartService:
    """Made and used by the daemon's thread."""

    def __init__(
        self,
        config: Config,
        *,
        nodes: Callable[[], Sequence[JudgedNode]],
        snapshot: Callable[[], Snapshot],
        metrics: Metrics,
        clock: Clock,
        watching_since: float,
        progress: Callable[[str, float], None],
        ask_peer: Callable[[str], Peer | None],
        here: ThisMachine | None = None,
    ) -> None:
        """`nodes` and `snapshot` return the judged nodes and the signals' answers; `watching_since` is when tpuwatch
        began. `progress` is called after each turn, from the loop's thread; `ask_peer`, from any, asks the
        tpuwatch on the node of a label what it says now, and returns None where it cannot be asked.

        Raises ConfigError if [ledger] does not name the ledger.
        """
        self._nodes = nodes
        self._snapshot = snapshot
        self._metrics = metrics
        self._clock = clock
        self._acts_on_nodes = config.cloud.enabled
        self._settings = PolicySettings.of(config)
        host, here, stopping = os.uname().nodename, here or ThisMachine(), threading.Event()
        self._sight = Sight(
            nodes=nodes,
            snapshot=snapshot,
            settings=self._settings,
            clock=clock,
            is_stopping=stopping.is_set,
            ask_peer=ask_peer,
        )
        ledger = open_ledger(config, clock, wait=stopping.wait, counted=metrics.node.count_api_request)
        self._ledger = WatchedLedger(ledger, clock, metrics)
        self._starter = RestartStarter(ledger, self._settings, clock, f"tpuwatch@{host}")
        self._drivers = DriverPool(
            config,
            ledger,
            sight=self._sight,
            metrics=metrics,
            clock=clock,
            here=here,
            stopping=stopping,
            on_change=self.on_verdicts,
        )
        servers = {"the ledger's server": ledger.server_time, "Google's servers": self._googles_time}
        self._clock_check = ClockCheck(clock, servers)
        url = config.restart.webhook_url
        self._notifier = Notifier(
            metrics=metrics,
            audit=Audit(config.state.dir / FILE_NAME, self._starter.actor, clock),
            clock=clock,
            webhook=Webhook(url, counted=metrics.restart.count_webhook_message) if url else None,
            config=str(config.source) if config.source not in (None, SYSTEM_PATH) else "",
        )
        self._unfinished = UnfinishedRestarts(
            config,
            ledger,
            starter=self._starter,
            drivers=self._drivers,
            sight=self._sight,
            notifier=self._notifier,
            clock=clock,
            host=host,
            here=here,
        )
        cloud_seconds = JudgeLimits(config).cloud_seconds
        self._candidates = Candidates(cloud_seconds=cloud_seconds, watching_since=watching_since, host=host)
        self._acts_left = MAX_ACTS
        self.status = RestartsStatus(acts=self._settings.act)  # replaced at each turn, never changed
        self._loops = LoopGroup(clock=clock, on_turn=progress)
        calls = _READING_CALLS * (1 + MAX_ACTS) * config.ledger.timeout_seconds + SLACK_SECONDS
        self._loops.add(NAME, self.turn, TURN_SECONDS, calls)

    # -- for the daemon

    def start(self) -> None:
        """Let the loop begin."""
        self._loops.start()

    def on_verdicts(self) -> None:
        """The nodes were judged: decide again soon. May be called from any thread."""
        self._loops.wake(NAME)

    def stop(self) -> None:
        """Stop. Restarts that are under way stay as they stand; the next service finishes them."""
        self._loops.stop()
        self._drivers.stop()
        self._notifier.close()
        until = self._clock.monotonic() + STOP_SECONDS
        if self._loops.join(NAME, STOP_SECONDS):
            if self._drivers.join(max(0.0, until - self._clock.monotonic())):
                self._ledger.close()
            self._collect_results()  # of drivers that have ended since the last turn

    @property
    def drives(self) -> bool:
        """Whether a restart is under way from here or half done, so that the ledger must not be replaced."""
        reading = self._ledger.latest
        half_done = reading is not None and any(one.record.phase in TOUCHED for one in reading.stored.values())
        return half_done or self._drivers.is_busy

    @property
    def is_unrecorded(self) -> bool:
        """Whether a restart under way from here cannot be recorded, so that none but its driver knows of it."""
        return any(progress.unrecorded for progress in self._drivers.progress)

    def limits(self) -> dict[str, float]:
        """How long the loop may go without success, in seconds."""
        return self._loops.limits()

    def loops(self) -> list[LoopStatus]:
        """How the loop is."""
        return self._loops.status()

    # -- the loop

    def turn(self) -> float:
        """Decide on all nodes once; the seconds until the next turn, unless woken before."""
        nodes, snapshot = self._nodes(), self._snapshot()
        self._collect_results()
        candidates, has_new = self._candidates.update(nodes, snapshot, self._clock.time())
        pace = _pace(candidates, self._clock.time())
        if self._ledger.is_due(pace, has_new=has_new):
            self._ledger.read()
        reading = self._ledger.usable
        self._sight.update(candidates, reading.view if reading is not None else None)
        self._finish(nodes, snapshot)
        self._ledger.purge()
        self._acts_left = MAX_ACTS
        undone = [one for one in candidates if not self._is_done_unseen(one)]
        decisions = [made for one in undone if (made := self._decide(one, snapshot)) is not None]
        unseen = {node.label for node in nodes if node.judgement.is_last_known}
        decisions += [one for one in self.status.decisions if one[0] in unseen]  # they stand until they are made anew
        self._notifier.end_turn({one.judged.label for one in candidates} | unseen)
        self._show(decisions)
        return min(TURN_SECONDS, pace)

    def _collect_results(self) -> None:
        """Report the drivers that have ended, and the notes of those that run."""
        judged = {target: one for one in self._nodes() if (target := target_of(one)) is not None}
        for result in self._drivers.results():
            self._ledger.expire()
            if result.record is None or result.record.open:
                self._unfinished.leave(result.target)
            else:
                self._notifier.notify_end(result.record, result.action, judged.get(result.target))
        for progress in self._drivers.progress:
            record = progress.record
            self._notifier.notify_note(record, judged.get(record.target))
            if progress.unrecorded:
                self._notifier.notify_unrecorded(progress, judged.get(record.target))
                if not self._ledger.problem:
                    self._ledger.on_write_error(LedgerError(progress.unrecorded))

    # -- deciding and acting

    def _finish(self, nodes: Sequence[JudgedNode], snapshot: Snapshot) -> None:
        """A ledger that cannot be written shows still which nodes are down."""
        reading = self._ledger.latest if self._ledger.unwritable else self._ledger.usable
        if reading is None:
            return
        try:
            if self._unfinished.finish(reading, nodes, snapshot):
                self._ledger.read()
        except LedgerError as error:
            self._ledger.on_write_error(error)

    def _is_done_unseen(self, candidate: Candidate) -> bool:
        """Whether a restart of it is under way from here, though the ledger cannot say so."""
        return self._ledger.usable is None and self._drivers.drives(candidate.target)

    def _decide(self, candidate: Candidate, snapshot: Snapshot) -> tuple[str, RestartDecision] | None:
        """Decide on a candidate, begin what was decided, and report it; None where nothing is decided now."""
        label, reading = candidate.judged.label, self._ledger.usable
        view = reading.view if reading is not None else None
        decision = self._decision(candidate, view, self._ledger.problem)
        record = reading.record(candidate.target) if reading is not None else None
        if decision.act is None and decision.blocked is None and budgets.under_way(record):
            return None  # an operator would be called for what is being done
        if record is not None and not record.open and self._is_past(record) and _is_older(candidate, record.entered):
            return None  # the cloud has not been asked since
        has_begun = False
        try:
            if reading is None:
                pass  # nothing is written without the ledger
            elif decision.act is not None:
                if not self._acts_left:
                    return None  # at the next turn
                self._acts_left -= 1
                begun = self._begin(candidate, decision, reading, snapshot)
                self._ledger.read()
                if begun is None:
                    return None
                decision, has_begun = begun.decision, begun.driver is not None
            elif decision.opens_breaker and self._settings.act:
                self._open_breaker(reading, decision.opens_breaker)
            elif decision.request:
                self._request(candidate, decision, reading, snapshot)
        except LedgerError as error:
            self._ledger.on_write_error(error)
            decision = self._decision(candidate, None, self._ledger.problem)
        self._notifier.notify_decision(
            label, candidate.target, decision, judged=candidate.judged, record=record, begun=has_begun
        )
        return label, decision

    def _decision(self, candidate: Candidate, view: LedgerView | None, problem: str = "") -> RestartDecision:
        """What to do about the node now, given what the ledger holds; None means that it cannot be used, and why."""
        clock = self._clock_check.problem(view)
        return candidate.decide(view, self._settings, self._clock.time(), clock_problem=clock, ledger_problem=problem)

    def _begin(
        self, candidate: Candidate, decision: RestartDecision, reading: LedgerReading, snapshot: Snapshot
    ) -> Begun | None:
        """Begin what was decided from `reading`; None where it has to wait. Raises LedgerError."""
        on_machine = decision.act in OF_THE_MACHINE
        if not self._drivers.has_room or not (on_machine or self._may_act(candidate)):
            return None
        begun = self._starter.begin(
            candidate.target,
            decision,
            reading,
            decide=lambda view: self._decision(candidate, view),
            make_driver=lambda decision: self._drivers.make(
                candidate.target, decision.wanted, candidate.judged, snapshot
            ),
            summary=candidate.judged.judgement.summary,
            boot_id=_boot_id(snapshot) if candidate.own else _boot_before(candidate, reading),
        )
        if begun is not None and begun.driver is not None:
            self._metrics.restart.count_begun(begun.decision.wanted)
            self._drivers.drive(begun.driver, begun.decision.wanted, free=begun.version)
        return begun

    def _googles_time(self) -> float | None:
        epoch = self._snapshot().server_epoch
        return epoch + self._clock.monotonic() if epoch is not None else None

    def _may_act(self, candidate: Candidate) -> bool:
        """The last word on actions of the node, whatever was decided: never on the own one."""
        return not candidate.own and candidate.placed and self._acts_on_nodes

    def _is_past(self, record: RestartRecord) -> bool:
        """Whether it ended by now. A record of a wrong clock may end hours ahead: it does not hold up decisions."""
        return record.entered <= self._clock.time() + budgets.SKEW_SECONDS

    def _open_breaker(self, reading: LedgerReading, why: str) -> None:
        if self._starter.open_breaker(reading, why):
            self._notifier.notify_breaker_opened(why)
        self._ledger.read()

    def _request(
        self, candidate: Candidate, decision: RestartDecision, reading: LedgerReading, snapshot: Snapshot
    ) -> None:
        """Ask those who watch the own node."""
        before, summary = reading.record(candidate.target), candidate.judged.judgement.summary
        if candidate.placed and self._starter.request(candidate.target, decision, reading, summary, _boot_id(snapshot)):
            if before is None or not budgets.is_request(before) or before.cause != decision.verdict:
                self._notifier.notify_request(candidate.target, decision)
            self._ledger.read()

    # -- what is shown

    def _show(self, decisions: list[tuple[str, RestartDecision]]) -> None:
        fleet = self._ledger.latest.fleet.fleet if self._ledger.latest is not None else None
        records = self._records()
        self._metrics.restart.set_state(
            records=records, breaker_open=fleet is not None and fleet.breaker.opened is not None
        )
        alarms = tuple(one.alarm for one in self._drivers.progress if one.unrecorded)
        self._metrics.restart.set_unrecorded(len(alarms))
        self._metrics.restart.set_operators_needed([label for label, one in decisions if one.needs_operator])
        self.status = RestartsStatus(
            acts=self._settings.act,
            read=self._ledger.read_time,
            problem=self._ledger.problem,
            alarms=alarms,
            breaker=fleet.breaker if fleet is not None else None,
            budget=self._budget(),
            records=records,
            decisions=decisions,
        )

    def _budget(self) -> RestartBudget | None:
        if self._ledger.latest is None:
            return None
        return budgets.fleet_budget(self._ledger.latest.view, self._settings, self._clock.time())

    def _records(self) -> tuple[RestartRecord, ...]:
        """The records of the ledger, the open ones first; those driven from here as they are now."""
        records = dict(self._ledger.latest.view.records) if self._ledger.latest is not None else {}
        for progress in self._drivers.progress:
            known = records.get(progress.record.target.path)
            if known is None or known.open:
                records[progress.record.target.path] = progress.record
        return tuple(sorted(records.values(), key=lambda one: (not one.open, one.target.path)))


def _is_older(candidate: Candidate, when: float) -> bool:
    """Whether all reasons of the verdict are of that time or before."""
    times = [reason.at for reason in candidate.judged.judgement.reasons if reason.at is not None]
    return bool(times) and max(times) <= when


def _pace(candidates: Sequence[Candidate], now: float) -> float:
    """Seconds between two readings of the ledger for these candidates, and for requests by a node's own daemon."""
    wanted = [one.judged.judgement for one in candidates]
    since = [
        one.at if one.since is None else one.since
        for one in wanted
        if one.action is not Action.MANUAL or one.verdict in STUCK
    ]
    if not since:
        return math.inf
    return min(max(MIN_CANDIDATE_SECONDS, (now - max(since)) / 20), MAX_CANDIDATE_SECONDS)


def _boot_before(candidate: Candidate, reading: LedgerReading) -> str:
    """The boot of a node that is watched from here, as its own tpuwatch has reported it, or asked in it."""
    peer, request = candidate.judged.peer, reading.record(candidate.target)
    if peer is not None and peer.boot_id:
        return peer.boot_id
    return request.boot_id if request is not None and budgets.is_request(request) else ""


def _boot_id(snapshot: Snapshot) -> str:
    return snapshot.host.value.boot_id if snapshot.host.value is not None else ""
