"""Finishes the restarts that others have begun, and that no driver carries on any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import LedgerError
from tpuwatch.model import TOUCHED, WELL, Phase
from tpuwatch.restart.candidates import may_be_own, nowhere, target_of
from tpuwatch.restart.ledger.owner import LeaseWatch, parse
from tpuwatch.restart.local.driver import orphaned
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.situation import OF_THE_MACHINE, REQUEST_SECONDS
from tpuwatch.restart.workflow.types import Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.model import JudgedNode, RestartRecord, Snapshot, Target
    from tpuwatch.restart.driver_pool import DriverPool
    from tpuwatch.restart.ledger.base import Ledger, Stored
    from tpuwatch.restart.ledger.owner import ThisMachine
    from tpuwatch.restart.ledger.reading import LedgerReading
    from tpuwatch.restart.notify import Notifier
    from tpuwatch.restart.sight import Sight
    from tpuwatch.restart.starter import RestartStarter

LEFT_SECONDS: Final = 30.0  # a node is left alone after a driver gave up on it
_ENDED_BEFORE: Final = "The daemon that had decided on it ended, or was reloaded, before anything was done."


class UnfinishedRestarts:
    """Used from the loop's thread."""

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        *,
        starter: RestartStarter,
        drivers: DriverPool,
        sight: Sight,
        notifier: Notifier,
        clock: Clock,
        host: str,
        here: ThisMachine,
    ) -> None:
        """`host` is this machine's name."""
        self._config = config
        self._ledger = ledger
        self._starter = starter
        self._drivers = drivers
        self._sight = sight
        self._notifier = notifier
        self._clock = clock
        self._host = host
        self._leases = LeaseWatch(clock, here.is_gone)
        self._left: dict[Target, float] = {}  # nodes that are left alone until then, by the monotonic clock

    def leave(self, target: Target) -> None:
        """A driver gave up on the node: leave it alone for a while."""
        self._left[target] = self._clock.monotonic() + LEFT_SECONDS

    def finish(self, reading: LedgerReading, nodes: Sequence[JudgedNode], snapshot: Snapshot) -> bool:
        """Finish what is half done and has no driver any more; whether something was written.

        It was begun, so that "observe" does not forbid it: a node is never left stopped. What cannot be written of one
        node holds up no other; LedgerError is raised at the end.
        """
        wrote, problem = False, None
        for stored in reading.stored.values():
            try:
                wrote |= stored.record.open and self._finish(stored, nodes, snapshot)
            except LedgerError as error:  # noqa: PERF203 (each may fail by itself)
                problem = error
        if problem is not None:
            raise problem
        return wrote

    def _finish(self, stored: Stored, nodes: Sequence[JudgedNode], snapshot: Snapshot) -> bool:
        """Finish one record, if that is ours to do; whether something was written."""
        record, target, now = stored.record, stored.record.target, self._clock.monotonic()
        if self._drivers.drives(target) or now < self._left.get(target, now) or not self._drivers.has_room:
            return False
        own = next((one for one in nodes if one.own), None)
        on_machine = record.action in OF_THE_MACHINE
        if own is not None and target == target_of(own) and not on_machine:
            return self._withdraw_own(stored, own)
        if self._leases.remaining(stored) > 0:
            return False
        if self._ledger.read(target) != stored:
            return False  # the reading is old: somebody has gone on with it, or ended it, since
        is_watched = not may_be_own(target, snapshot) and any(target == target_of(one) for one in nodes)
        if on_machine:
            return self._finish_local(stored, own, is_watched, snapshot)
        return self._is_ours(record, is_watched, snapshot) and self._finish_node(stored, is_watched, snapshot)

    def _finish_local(self, stored: Stored, own: JudgedNode | None, is_watched: bool, snapshot: Snapshot) -> bool:
        """An act on a machine is finished by the machine itself; one that does not is given up by its watchers."""
        record = stored.record
        if own is not None and record.target == (target_of(own) or nowhere(self._host)):
            self._drive(stored, own, snapshot)
        elif is_watched and (ended := orphaned(record, self._clock.time())) is not None:
            wrote = self._starter.write(ended, stored.version)
            if wrote:
                self._notifier.notify_withdrawal(ended, ended.note)
            return wrote
        return False

    def _withdraw_own(self, stored: Stored, own: JudgedNode) -> bool:
        """The own node is never restarted from here; but what was asked of others may have become wrong.

        Also once a watcher has taken it up: who writes first of the two decides, for nothing is called before that is
        written.
        """
        record = stored.record
        requester = record.actor if budgets.is_request(record) else record.grounds.requester
        is_mine = requester == self._starter.actor and record.phase is Phase.REQUESTED and bool(record.signals)
        if not is_mine or own.judgement.verdict not in WELL:
            return False
        return self._withdraw(stored, "The node is well again: no restart is needed.")

    def _finish_node(self, stored: Stored, is_watched: bool, snapshot: Snapshot) -> bool:
        record = stored.record
        if record.phase in TOUCHED:
            self._notifier.notify_takeover(record)
            self._drive(stored, None, snapshot)
            return False
        if budgets.is_request(record):
            return False  # the policy decides on it
        is_young = -budgets.SKEW_SECONDS <= self._clock.time() - record.requested <= REQUEST_SECONDS
        if not record.signals:  # an operator wanted it, and has to ask again
            why = "The operator who wanted it left before anything was done."
            return not is_young and self._withdraw(stored, why)
        if not is_young:
            return self._withdraw(stored, _ENDED_BEFORE)
        # A watcher decided on it and ended before anything was done. What it decided on may have gone by.
        present = self._sight.judge_again(record)
        if is_watched and present.standing in (Standing.RECOVERED, Standing.LAPSED):
            return self._withdraw(stored, f"{_ENDED_BEFORE} {present.sentence}")
        if present.standing is Standing.HOLDS:
            self._drive(stored, None, snapshot)
        return False

    def _withdraw(self, stored: Stored, why: str) -> bool:
        wrote = self._starter.withdraw(stored, why)
        if wrote:
            self._notifier.notify_withdrawal(stored.record, why)
        return wrote

    def _is_ours(self, record: RestartRecord, is_watched: bool, snapshot: Snapshot) -> bool:
        """Whether this daemon is one to finish it: it watches the node, or it was begun on this machine."""
        if not self._config.cloud.enabled or may_be_own(record.target, snapshot):
            return False
        owner = parse(record.lease.owner)
        # A released lease names no driver any more; the actor remains.
        by_this_host = record.actor == self._starter.actor or (owner is not None and owner.host == self._host)
        begun_here = self._config.ledger.kind == "sqlite" or by_this_host
        return is_watched or begun_here

    def _drive(self, stored: Stored, own: JudgedNode | None, snapshot: Snapshot) -> None:
        record = stored.record
        driver = self._drivers.make(record.target, record.action, own, snapshot)
        self._drivers.drive(driver, record.action, free=stored.version)
