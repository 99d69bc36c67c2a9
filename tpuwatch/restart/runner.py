"""Begins what was decided on this daemon's nodes, and finishes what others have left half done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import LedgerError
from tpuwatch.model import TOUCHED, WELL, Action, Phase, Target
from tpuwatch.restart.candidates import may_be_own, nowhere, target_of
from tpuwatch.restart.clock_check import ClockCheck
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.driver_pool import DriverPool
from tpuwatch.restart.ledger.opening import open_ledger, phase_limits
from tpuwatch.restart.ledger.owner import LeaseWatch, ThisMachine, parse
from tpuwatch.restart.ledger.reading import read_repaired, require_writable
from tpuwatch.restart.local.driver import LocalDriver, orphaned
from tpuwatch.restart.local.linux import Linux
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.policy.situation import OF_THE_MACHINE, REQUEST_SECONDS
from tpuwatch.restart.sight import Sight
from tpuwatch.restart.starter import RestartStarter
from tpuwatch.restart.workflow.types import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Holder, JudgedNode, Peer, RestartDecision, RestartRecord, Snapshot
    from tpuwatch.restart.candidates import Candidate
    from tpuwatch.restart.driver import LeasedDriver
    from tpuwatch.restart.driver_pool import DriveResult
    from tpuwatch.restart.ledger.base import Stored
    from tpuwatch.restart.ledger.reading import LedgerReading
    from tpuwatch.restart.local.system import System
    from tpuwatch.restart.notify import Notifier
    from tpuwatch.restart.policy.budgets import LedgerView
    from tpuwatch.restart.starter import Begun

LEFT_SECONDS: Final = 30.0  # a node is left alone after a driver gave up on it
_ENDED_BEFORE: Final = "The daemon that had decided on it ended, or was reloaded, before anything was done."


class RestartRunner:
    """Used from the loop's thread."""

    def __init__(
        self,
        config: Config,
        *,
        nodes: Callable[[], Sequence[JudgedNode]],
        snapshot: Callable[[], Snapshot],
        metrics: Metrics,
        clock: Clock,
        host: str,
        on_change: Callable[[], None],
        ask_peer: Callable[[str], Peer | None],
        here: ThisMachine | None = None,
        system: System | None = None,
    ) -> None:
        """`nodes` and `snapshot` return the judged nodes and the signals' answers, to any thread. `host` is this
        machine's name. `on_change` is called from any thread when a driver comes further. `ask_peer`
        asks the tpuwatch on the node of a label what it says now, and returns None where it cannot be asked.

        Raises ConfigError if [ledger] does not name the ledger.
        """
        self.settings = PolicySettings.of(config)
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._host = host
        self._here = here or ThisMachine()
        self._system = system
        self.drivers = DriverPool(clock, on_change=on_change)
        self.sight = Sight(
            nodes=nodes,
            snapshot=snapshot,
            settings=self.settings,
            clock=clock,
            is_stopping=self.drivers.is_stopping,
            ask_peer=ask_peer,
        )
        self._ledger = open_ledger(config, clock, wait=self.drivers.wait, counted=metrics.node.count_api_request)
        self._leases = LeaseWatch(clock, self._here.is_gone)
        self.starter = RestartStarter(self._ledger, self.settings, clock, f"tpuwatch@{host}")
        self._snapshot = snapshot
        servers = {"the ledger's server": self._ledger.server_time, "Google's servers": self._googles_time}
        self._clock_check = ClockCheck(clock, servers)
        self._left: dict[Target, float] = {}  # nodes that are left alone until then, by the monotonic clock

    def read(self) -> LedgerReading:
        """All that the ledger holds now. One that is damaged is set aside. Raises LedgerError."""
        return read_repaired(self._ledger)

    def stamp(self) -> object:
        """Something that differs after a write by any process; None where only a reading tells."""
        return self._ledger.stamp()

    def purge(self) -> None:
        """Remove what the ledger need not hold any more. Raises LedgerError."""
        self._ledger.purge()

    def require_writable(self, reading: LedgerReading) -> LedgerReading:
        """Raise LedgerError if the ledger cannot be written; what it holds after that was tried."""
        return require_writable(self._ledger, reading)

    def results(self) -> list[DriveResult]:
        """What was driven from here and has come to an end, since this was asked last."""
        results = self.drivers.results()
        for result in results:
            if result.record is None or result.record.open:
                self._left[result.target] = self._clock.monotonic() + LEFT_SECONDS
        return results

    def close(self, seconds: float) -> None:
        """Wait for the drivers, at most so long, and let the ledger go if they have ended."""
        if self.drivers.join(seconds):
            self._ledger.close()

    # -- what is decided here

    def decide(self, candidate: Candidate, view: LedgerView | None, problem: str = "") -> RestartDecision:
        """What to do about the node now, given what the ledger holds; None means that it cannot be used, and why."""
        clock = self._clock_check.problem(view)
        return candidate.decide(view, self.settings, self._clock.time(), clock_problem=clock, ledger_problem=problem)

    def begin(
        self, candidate: Candidate, decision: RestartDecision, reading: LedgerReading, snapshot: Snapshot
    ) -> Begun | None:
        """Begin what was decided from `reading`; None where it has to wait. Raises LedgerError."""
        on_machine = decision.act in OF_THE_MACHINE
        if not self.drivers.has_room or not (on_machine or self._may_act(candidate)):
            return None
        begun = self.starter.begin(
            candidate.target,
            decision,
            reading,
            decide=lambda view: self.decide(candidate, view),
            make_driver=lambda decision: self._driver(candidate.target, decision.wanted, candidate.judged, snapshot),
            summary=candidate.judged.judgement.summary,
            boot_id=_boot_id(snapshot) if candidate.own else _boot_before(candidate, reading),
        )
        if begun is not None and begun.driver is not None:
            self._metrics.restart.count_begun(begun.decision.wanted)
            self.drivers.drive(begun.driver, begun.decision.wanted, free=begun.version)
        return begun

    def _googles_time(self) -> float | None:
        epoch = self._snapshot().server_epoch
        return epoch + self._clock.monotonic() if epoch is not None else None

    def _may_act(self, candidate: Candidate) -> bool:
        """The last word on actions of the node, whatever was decided: never on the own one."""
        return not candidate.own and candidate.placed and self._config.cloud.enabled

    def request(
        self, candidate: Candidate, decision: RestartDecision, reading: LedgerReading, snapshot: Snapshot
    ) -> bool:
        """Ask those who watch the own node; whether that was written. Raises LedgerError."""
        summary = candidate.judged.judgement.summary
        return candidate.placed and self.starter.request(
            candidate.target, decision, reading, summary, _boot_id(snapshot)
        )

    # -- what others have begun

    def finish(
        self, reading: LedgerReading, nodes: Sequence[JudgedNode], snapshot: Snapshot, notifier: Notifier
    ) -> bool:
        """Finish what is half done and has no driver any more; whether something was written.

        It was begun, so that "observe" does not forbid it: a node is never left stopped. What cannot be written of one
        node holds up no other; LedgerError is raised at the end.
        """
        wrote, problem = False, None
        for stored in reading.stored.values():
            try:
                wrote |= stored.record.open and self._finish(stored, nodes, snapshot, notifier)
            except LedgerError as error:  # noqa: PERF203 (each may fail by itself)
                problem = error
        if problem is not None:
            raise problem
        return wrote

    def _finish(self, stored: Stored, nodes: Sequence[JudgedNode], snapshot: Snapshot, notifier: Notifier) -> bool:
        """Finish one record, if that is ours to do; whether something was written."""
        record, target, now = stored.record, stored.record.target, self._clock.monotonic()
        if self.drivers.drives(target) or now < self._left.get(target, now) or not self.drivers.has_room:
            return False
        own = next((one for one in nodes if one.own), None)
        on_machine = record.action in OF_THE_MACHINE
        if own is not None and target == target_of(own) and not on_machine:
            return self._withdraw_own(stored, own, notifier)
        if self._leases.remaining(stored) > 0:
            return False
        if self._ledger.read(target) != stored:
            return False  # the reading is old: somebody has gone on with it, or ended it, since
        is_watched = not may_be_own(target, snapshot) and any(target == target_of(one) for one in nodes)
        if on_machine:
            return self._finish_local(stored, own, is_watched, snapshot, notifier)
        return self._is_ours(record, is_watched, snapshot) and self._finish_node(stored, is_watched, snapshot, notifier)

    def _finish_local(
        self, stored: Stored, own: JudgedNode | None, is_watched: bool, snapshot: Snapshot, notifier: Notifier
    ) -> bool:
        """An act on a machine is finished by the machine itself; one that does not is given up by its watchers."""
        record = stored.record
        if own is not None and record.target == (target_of(own) or nowhere(self._host)):
            self._drive(stored, own, snapshot)
        elif is_watched and (ended := orphaned(record, self._clock.time())) is not None:
            wrote = self.starter.write(ended, stored.version)
            if wrote:
                notifier.notify_withdrawal(ended, ended.note)
            return wrote
        return False

    def _withdraw_own(self, stored: Stored, own: JudgedNode, notifier: Notifier) -> bool:
        """The own node is never restarted from here; but what was asked of others may have become wrong.

        Also once a watcher has taken it up: who writes first of the two decides, for nothing is called before that is
        written.
        """
        record = stored.record
        requester = record.actor if budgets.is_request(record) else record.grounds.requester
        is_mine = requester == self.starter.actor and record.phase is Phase.REQUESTED and bool(record.signals)
        if not is_mine or own.judgement.verdict not in WELL:
            return False
        return self._withdraw(stored, "The node is well again: no restart is needed.", notifier)

    def _finish_node(self, stored: Stored, is_watched: bool, snapshot: Snapshot, notifier: Notifier) -> bool:
        record = stored.record
        if record.phase in TOUCHED:
            notifier.notify_takeover(record)
            self._drive(stored, None, snapshot)
            return False
        if budgets.is_request(record):
            return False  # the policy decides on it
        is_young = -budgets.SKEW_SECONDS <= self._clock.time() - record.requested <= REQUEST_SECONDS
        if not record.signals:  # an operator wanted it, and has to ask again
            why = "The operator who wanted it left before anything was done."
            return not is_young and self._withdraw(stored, why, notifier)
        if not is_young:
            return self._withdraw(stored, _ENDED_BEFORE, notifier)
        # A watcher decided on it and ended before anything was done. What it decided on may have gone by.
        present = self.sight.judge_again(record)
        if is_watched and present.standing in (Standing.RECOVERED, Standing.LAPSED):
            return self._withdraw(stored, f"{_ENDED_BEFORE} {present.sentence}", notifier)
        if present.standing is Standing.HOLDS:
            self._drive(stored, None, snapshot)
        return False

    def _withdraw(self, stored: Stored, why: str, notifier: Notifier) -> bool:
        wrote = self.starter.withdraw(stored, why)
        if wrote:
            notifier.notify_withdrawal(stored.record, why)
        return wrote

    def _is_ours(self, record: RestartRecord, is_watched: bool, snapshot: Snapshot) -> bool:
        """Whether this daemon is one to finish it: it watches the node, or it was begun on this machine."""
        if not self._config.cloud.enabled or may_be_own(record.target, snapshot):
            return False
        owner = parse(record.lease.owner)
        # A released lease names no driver any more; the actor remains.
        by_this_host = record.actor == self.starter.actor or (owner is not None and owner.host == self._host)
        begun_here = self._config.ledger.kind == "sqlite" or by_this_host
        return is_watched or begun_here

    # -- drivers

    def _drive(self, stored: Stored, own: JudgedNode | None, snapshot: Snapshot) -> None:
        record = stored.record
        driver = self._driver(record.target, record.action, own, snapshot)
        self.drivers.drive(driver, record.action, free=stored.version)

    def _driver(self, target: Target, action: Action, judged: JudgedNode | None, snapshot: Snapshot) -> LeasedDriver:
        """Who drives such a record."""
        restart, lease = self._config.restart, self._config.ledger.lease_seconds
        if action in OF_THE_MACHINE:
            return LocalDriver(
                self._ledger,
                target,
                system=self._system or Linux(self._clock, self._config.host.root),
                clock=self._clock,
                wait=self.drivers.wait,
                at_fault=_at_fault(judged, action, snapshot) if judged is not None else (),
                settings=restart,
                on_progress=self.drivers.on_progress,
                lease_seconds=lease,
                here=self._here,
            )
        from tpuwatch.restart.cloud_api import CloudNodeApi  # Google's packages

        return Driver(
            self._ledger,
            target,
            api=CloudNodeApi(self._config.cloud, clock=self._clock, counted=self._metrics.node.count_api_request),
            clock=self._clock,
            wait=self.drivers.wait,
            limits=phase_limits(restart),
            judge_again=self.sight.confirm,
            on_progress=self.drivers.on_progress,
            lease_seconds=lease,
            here=self._here,
        )


def _at_fault(judged: JudgedNode, action: Action, snapshot: Snapshot) -> tuple[Holder, ...]:
    """The holders that the verdict speaks of; a checkpoint is asked of all."""
    holders = snapshot.host.value.holders if snapshot.host.value is not None and snapshot.host.problem is None else ()
    if action is Action.CHECKPOINT:
        return tuple(holders)
    return tuple(one for one in holders if one.pid in judged.judgement.pids)


def _boot_before(candidate: Candidate, reading: LedgerReading) -> str:
    """The boot of a node that is watched from here, as its own tpuwatch has reported it, or asked in it."""
    peer, request = candidate.judged.peer, reading.record(candidate.target)
    if peer is not None and peer.boot_id:
        return peer.boot_id
    return request.boot_id if request is not None and budgets.is_request(request) else ""


def _boot_id(snapshot: Snapshot) -> str:
    return snapshot.host.value.boot_id if snapshot.host.value is not None else ""
