"""What the daemon does about nodes: it begins what was decided, and finishes what others have left half done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.daemon.deciding import may_be_own, target_of
from tpuwatch.health.verdict import STUCK, WELL, Rung
from tpuwatch.restart.acts import Acts, Begun, Reading, read
from tpuwatch.restart.crew import Crew
from tpuwatch.restart.executor import Driver
from tpuwatch.restart.ledger.opening import limits, open_ledger
from tpuwatch.restart.ledger.owner import LeaseWatch, ThisMachine, parse
from tpuwatch.restart.local.driver import LocalDriver, orphaned
from tpuwatch.restart.local.linux import Linux
from tpuwatch.restart.local.settings import LocalSettings
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.settings import Settings
from tpuwatch.restart.policy.situation import OF_THE_MACHINE, REQUEST_SECONDS
from tpuwatch.restart.record import TOUCHED, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.daemon.deciding import Called
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.export.view import NodeStatus
    from tpuwatch.health.evidence import Holder
    from tpuwatch.node.board import Posted
    from tpuwatch.restart.crew import Driven
    from tpuwatch.restart.executor import Keeper, Progress
    from tpuwatch.restart.ledger.base import Stored
    from tpuwatch.restart.local.system import System
    from tpuwatch.restart.policy.decision import Decision
    from tpuwatch.restart.record import Record
    from tpuwatch.restart.telling import Telling

LEFT_SECONDS: Final = 30.0  # a node is left alone after a driver gave up on it
_ENDED_BEFORE: Final = "Whoever had decided on it ended before anything was done."


class Restarting:
    """Used from the loop's thread."""

    def __init__(
        self,
        config: Config,
        *,
        metrics: Metrics,
        clock: Clock,
        host: str,
        wake: Callable[[], None],
        here: ThisMachine | None = None,
        system: System | None = None,
    ) -> None:
        """`host` is this machine's name. `wake` is called from any thread when a driver has news.

        Raises ConfigError if [ledger] does not say where the ledger is.
        """
        self.settings = Settings.of(config)
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._host = host
        self._here = here or ThisMachine()
        self._system = system
        self._crew = Crew(clock, news=wake)
        self._ledger = open_ledger(config, clock, wait=self._crew.wait, counted=metrics.api_request)
        self._leases = LeaseWatch(clock, self._here.is_gone)
        self.acts = Acts(self._ledger, self.settings, clock, f"tpuwatch@{host}")
        self._left: dict[Target, float] = {}  # nodes that are left alone until then, by the monotonic clock

    def read(self) -> Reading:
        """All that the ledger holds now. Raises LedgerError."""
        return read(self._ledger)

    @property
    def drives(self) -> bool:
        """Whether something is being done from here now."""
        return self._crew.is_busy

    @property
    def progress(self) -> list[Progress]:
        """How far each restart is that is driven from here."""
        return self._crew.progress

    def results(self) -> list[Driven]:
        """What was driven from here and has come to an end, since this was asked last."""
        results = self._crew.results()
        for driven in results:
            if driven.record is None or driven.record.open:
                self._left[driven.target] = self._clock.monotonic() + LEFT_SECONDS
        return results

    def stop(self) -> None:
        """Let all drivers leave their records as they stand; returns at once."""
        self._crew.stop()

    def close(self, seconds: float) -> None:
        """Wait for the drivers, at most so long, and let the ledger go if they have ended."""
        if self._crew.join(seconds):
            self._ledger.close()

    # -- what is decided here

    def begin(self, called: Called, decision: Decision, posted: Posted) -> Begun | None:
        """Begin what was decided, unless the ledger says otherwise by now; None where it has to wait.

        Raises LedgerError.
        """
        of_machine = decision.act in OF_THE_MACHINE
        if not self._crew.has_room or not (of_machine or self._may_act(called)):
            return None
        closing: list[Callable[[], None]] = []

        def make(decision: Decision) -> Keeper:
            driver, close = self._driver(called.target, decision.act or Rung.NOTHING, called.status, posted)
            closing.append(close)
            return driver

        begun = self.acts.begin(
            called.target,
            lambda books: called.decided(books, self.settings, self._clock.time()),
            make,
            summary=called.status.judgement.summary,
            boot_id=_boot_id(posted) if called.own else "",
        )
        if begun is None or begun.driver is None or begun.record is None:
            return begun
        self._metrics.restart_begun(begun.record.rung)
        self._crew.drive(called.target, begun.driver, closing[-1], free=begun.version)
        return begun

    def _may_act(self, called: Called) -> bool:
        """The last word on rungs of the node, whatever was decided: never on the own one."""
        return not called.own and called.placed and self._config.cloud.enabled

    def request(self, called: Called, decision: Decision, reading: Reading, posted: Posted) -> bool:
        """Ask those who watch the own node; whether that was written. Raises LedgerError."""
        summary = called.status.judgement.summary
        return called.placed and self.acts.request(called.target, decision, reading, summary, _boot_id(posted))

    # -- what others have begun

    def finish(self, reading: Reading, nodes: Sequence[NodeStatus], posted: Posted, telling: Telling) -> bool:
        """Finish what is half done and nobody drives any more; whether something was written. Raises LedgerError.

        It was begun, so that "observe" does not forbid it: a node is never left stopped.
        """
        standing = [one for one in reading.stored.values() if one.record.open]
        if not standing:
            return False
        own = next((one for one in nodes if one.own), None)
        placed = {target: one for one in nodes if (target := target_of(one)) is not None}
        watched = {target: one for target, one in placed.items() if not may_be_own(target, posted)}
        now = self._clock.monotonic()
        wrote = False
        for stored in standing:
            target = stored.record.target
            if self._crew.drives(target) or now < self._left.get(target, now) or not self._crew.has_room:
                continue
            if self._leases.remaining(stored) > 0:
                continue
            if stored.record.rung in OF_THE_MACHINE:
                wrote |= self._finish_local(stored, own, target in watched, posted, telling)
            elif own is not None and target == target_of(own):
                wrote |= self._withdraw_own(stored, own, telling)
            elif self._is_ours(stored.record, target in watched, posted):
                wrote |= self._finish_node(stored, watched.get(target), reading, posted, telling)
        return wrote

    def _finish_local(
        self, stored: Stored, own: NodeStatus | None, is_watched: bool, posted: Posted, telling: Telling
    ) -> bool:
        """An act on a machine is finished by the machine itself; one that does not is given up by its watchers."""
        record = stored.record
        if own is not None and record.target == (target_of(own) or self.nowhere):
            self._drive(stored, own, posted)
        elif is_watched and (over := orphaned(record, self._clock.time())) is not None:
            wrote = self.acts.put(over, stored.version)
            if wrote:
                telling.given_up(over, over.note)
            return wrote
        return False

    def _withdraw_own(self, stored: Stored, own: NodeStatus, telling: Telling) -> bool:
        """The own node is never restarted from here; but what was asked of others may have become wrong."""
        record = stored.record
        asked = budgets.is_request(record) and record.actor == self.acts.actor
        if not asked or own.judgement.verdict not in WELL:
            return False
        return self._withdraw(stored, "The node is well again: nobody has to restart it.", telling)

    def _finish_node(
        self, stored: Stored, node: NodeStatus | None, reading: Reading, posted: Posted, telling: Telling
    ) -> bool:
        """`node` is how it was judged here, if it is watched from here."""
        record = stored.record
        if record.phase in TOUCHED:
            telling.took_up(record)
            self._drive(stored, None, posted)
            return False
        if budgets.is_request(record):
            return False  # the policy decides on it
        is_young = -budgets.SKEW_SECONDS <= self._clock.time() - record.requested <= REQUEST_SECONDS
        if not record.witnesses:  # a person wanted it, and has to say so again
            why = "Whoever wanted it left before anything was done, and has not come back."
            return not is_young and self._withdraw(stored, why, telling)
        if node is None:  # nobody here would ever decide on it
            return not is_young and self._withdraw(stored, _ENDED_BEFORE, telling)
        # A watcher decided on it and ended before anything was done. What it decided on may have gone by.
        verdict, breaker = node.judgement.verdict, reading.fleet.fleet.breaker
        if verdict in WELL:
            return self._withdraw(stored, "The node is well again, and nothing was done.", telling)
        if not (is_young and self.settings.act and record.rung in self.settings.allowed) or breaker.opened is not None:
            return self._withdraw(stored, _ENDED_BEFORE, telling)
        if verdict in STUCK:  # else it is seen anew first
            self._drive(stored, None, posted)
        return False

    def _withdraw(self, stored: Stored, why: str, telling: Telling) -> bool:
        wrote = self.acts.withdraw(stored, why)
        if wrote:
            telling.given_up(stored.record, why)
        return wrote

    def _is_ours(self, record: Record, is_watched: bool, posted: Posted) -> bool:
        """Whether this daemon is one to finish it: it watches the node, or it was begun on this machine."""
        if not self._config.cloud.enabled or may_be_own(record.target, posted):
            return False
        owner = parse(record.lease.owner)
        # Who drives it tells it no more once the lease was given back; who wanted it still does.
        by_this_host = record.actor == self.acts.actor or (owner is not None and owner.host == self._host)
        begun_here = self._config.ledger.kind == "sqlite" or by_this_host
        return is_watched or begun_here

    # -- drivers

    @property
    def nowhere(self) -> Target:
        """Under which the acts on a machine are recorded that is of no node."""
        return Target("-", "-", self._host)

    def _drive(self, stored: Stored, own: NodeStatus | None, posted: Posted) -> None:
        record = stored.record
        driver, close = self._driver(record.target, record.rung, own, posted)
        self._crew.drive(record.target, driver, close, free=stored.version)

    def _driver(
        self, target: Target, rung: Rung, status: NodeStatus | None, posted: Posted
    ) -> tuple[Keeper, Callable[[], None]]:
        """Who drives such a record, and what is to be called after that."""
        restart, lease = self._config.restart, self._config.ledger.lease_seconds
        if rung in OF_THE_MACHINE:
            driver = LocalDriver(
                self._ledger,
                target,
                self._system or Linux(self._clock),
                clock=self._clock,
                wait=self._crew.wait,
                at_fault=_at_fault(status, rung, posted) if status is not None else (),
                settings=LocalSettings.of(restart),
                tell=self._crew.told,
                lease_seconds=lease,
                here=self._here,
            )
            return driver, _nothing
        from tpuwatch.restart.cloud import CloudNodeApi  # Google's packages

        api = CloudNodeApi(self._config.cloud, clock=self._clock, counted=self._metrics.api_request)
        return (
            Driver(
                self._ledger,
                api,
                target,
                clock=self._clock,
                wait=self._crew.wait,
                limits=limits(restart),
                tell=self._crew.told,
                lease_seconds=lease,
                here=self._here,
            ),
            api.close,
        )


def _at_fault(status: NodeStatus, rung: Rung, posted: Posted) -> tuple[Holder, ...]:
    """The holders that the verdict speaks of; a checkpoint is asked of all."""
    holders = posted.host.value.holders if posted.host.value is not None and posted.host.problem is None else ()
    if rung is Rung.CHECKPOINT:
        return tuple(holders)
    return tuple(one for one in holders if one.pid in status.judgement.pids)


def _boot_id(posted: Posted) -> str:
    return posted.host.value.boot_id if posted.host.value is not None else ""


def _nothing() -> None:
    """A driver on the machine holds nothing."""
