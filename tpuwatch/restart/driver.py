"""Drives a restart from wherever its record stands, whichever driver began it.

The order is what makes it safe to die at any point: look, decide, write, only then call, and write what came of it. A
write that finds another version ends the driver at once: another driver has the record. The lease keeps drivers apart
before it comes to that: it is renewed by every write, while waiting, and right before each call.

Only a node that may be down is worth more than its record: where that cannot be written the driver goes on unrecorded,
and tries to write at each turn. Until it succeeds it calls nothing but starts, of which a second one does no harm.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from tpuwatch.core import ConflictError, LedgerError
from tpuwatch.model import TOUCHED, Action, Lease, Phase, RestartRecord, Target
from tpuwatch.restart.ledger.base import Stored
from tpuwatch.restart.ledger.owner import LeaseWatch, ThisMachine, owner_words
from tpuwatch.restart.wording import DOWN, words
from tpuwatch.restart.workflow import commands, workflow
from tpuwatch.restart.workflow.types import ApiCall, PresentEvidence

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.core import Clock
    from tpuwatch.restart.cloud_api import CloudNodeApi
    from tpuwatch.restart.ledger.base import Ledger
    from tpuwatch.restart.workflow.types import PhaseLimits

IS_ALARM: Final = {"is_alarm": True}  # of a log record that says what the progress or the result has as well
LEASE_SECONDS: Final = 60.0  # three times what a look or a call may take
_PAUSE_SECONDS: Final = 0.5  # after a fault of the ledger; doubles
_DOWN_SHARE: Final = 6  # of a lease is how long a node that may be down waits for its ledger
_LOOK_SECONDS: Final = 2.0  # between two readings of a record that another driver holds

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a restart is. Reported at every step, whether or not anything has changed."""

    record: RestartRecord
    sentence: str
    elapsed: float  # seconds since this driver began
    unrecorded: str = ""  # why the record cannot be written while the driver goes on all the same; "" if it is written

    @property
    def phase(self) -> Phase:
        """How far the restart has come."""
        return self.record.phase

    @property
    def alarm(self) -> str:
        """What an operator has to know first while the restart goes on unrecorded, with the command; "" else."""
        return unrecorded_alarm(self.record) if self.unrecorded else ""


@dataclass(eq=False)
class LeasedDriver(ABC):
    """Holds the lease of one node's record, and drives it on by turns. Used from one thread, once.

    Subclasses define a turn and the actions that they drive.
    """

    actions: ClassVar[frozenset[Action]]  # whose records it drives: those of others are left alone

    ledger: Ledger
    target: Target
    _: KW_ONLY
    clock: Clock
    # Waits so many seconds, or until a stop is requested, and returns whether it is, as threading.Event.wait does.
    wait: Callable[[float], bool]
    on_progress: Callable[[Progress], None] = lambda _: None  # called often, and should not take long
    lease_seconds: float = LEASE_SECONDS
    here: ThisMachine = field(default_factory=ThisMachine)

    def __post_init__(self) -> None:
        self.lease = Lease(str(self.here.new_owner()), self.lease_seconds)  # for a record that only it may drive
        self._leases = LeaseWatch(self.clock, self.here.is_gone)
        self._began = self.clock.monotonic()
        self._renewed = self._tried = self._began  # when the lease was renewed last, and when that was tried
        self._stop_requested = False
        self.has_held = False  # whether it ever had the record: else another driver does what is done
        self.unrecorded = ""  # why the record could not be written, while it is driven on all the same

    @property
    def record(self) -> RestartRecord:
        """As it is stored, or, while it cannot be, as it is known here."""
        return self._stored.record

    def drive(self, *, free: int = 0) -> RestartRecord:
        """Drive the node's record until it has ended, or `wait` reports that a stop is requested.

        `free` is a version that may be taken at once: it was written for this driver, or its lease was seen to run out.
        Returns the record as it then stands: an open one is for the next driver, here or elsewhere. Raises
        ConflictError, which names the driver, when another one drives it; LedgerError when there is no record, or it
        could neither be read nor written for as long as a lease holds. Where the node may be down it is driven on
        while it cannot be written.
        """
        self._stored = self._retry(self._read, self.lease.seconds)
        try:
            self._take(free)
            while self.record.open and not self._stop_requested:
                self._turn()
        finally:
            self._release()
        return self.record

    @abstractmethod
    def close(self) -> None:
        """Let go of what it works with."""

    # -- the lease

    def _take(self, free: int) -> None:
        """Wait until the record is free, and take it."""
        first = self._stored
        while self.record.open and not self._stop_requested:
            if self.record.action not in self.actions:
                raise ConflictError(_not_ours(self.record))
            if self._is_free(free):
                try:
                    self._write(self._taken(self.record))
                except ConflictError:
                    self._stored = self._retry(self._read, self.lease.seconds)
                    if self.record.open and not self._is_free(free):
                        raise
                    self._stop_requested = self.wait(_PAUSE_SECONDS)  # no driver has it: a copy was put back
                    continue
                self.has_held = True
                return
            left = self._leases.remaining(self._stored)
            holder = owner_words(self.record.lease.owner)
            if self._stored.version != first.version:
                raise ConflictError(
                    f"the restart of node {self.target.node} is driven by {holder}: leave it to that one"
                )
            self.report(
                f"This restart is driven by {holder}. If that one does nothing for {left:.0f} s, this one takes over."
            )
            self._stop_requested = self.wait(min(left, _LOOK_SECONDS))
            self._stored = self._retry(self._read, self.lease.seconds)

    def _is_free(self, version: int) -> bool:
        """Whether the record may be taken now: it has that version, this driver's own lease, or none that holds."""
        is_own = self.record.lease.owner == self.lease.owner
        return self._stored.version == version or is_own or self._leases.remaining(self._stored) <= 0

    def _taken(self, record: RestartRecord) -> RestartRecord:
        """The record as this driver begins with it."""
        return record

    def _release(self) -> None:
        """Let the next driver begin at once. If that fails, it begins when the lease has run out."""
        record = self.record
        if record.lease.owner == self.lease.owner:
            try:
                self._stored = self.ledger.write(replace(record, lease=Lease()), self._stored.version)
            except LedgerError as error:
                _log.info("The lease of node %s could not be given back: %s", self.target.node, error)
                if self.unrecorded:
                    alarm = unrecorded_alarm(self.record)
                    _log.error("%s Nobody goes on with it from here, and it is not recorded.", alarm, extra=IS_ALARM)

    def pause(self, seconds: float) -> None:
        """Wait, and keep the lease meanwhile."""
        end, now = self.clock.monotonic() + seconds, self.clock.monotonic()
        while True:
            due = self._tried + self.lease.seconds / 3
            self._stop_requested = self.wait(max(0.0, min(end, due) - now))
            now = self.clock.monotonic()
            if now >= due:
                self._write(self.record)
            if self._stop_requested or now >= end:
                return

    @abstractmethod
    def _turn(self) -> None:
        """One step of the record that is stored."""

    def report(self, sentence: str) -> None:
        """Report progress."""
        self.on_progress(Progress(self.record, sentence, self.clock.monotonic() - self._began, self.unrecorded))

    # -- the ledger

    def _read(self) -> Stored:
        stored = self.ledger.read(self.target)
        if stored is None:
            raise self._nothing()
        return stored

    def _nothing(self) -> NoRecordError:
        return NoRecordError(f"no restart of node {self.target.node} is recorded: there is nothing to carry on")

    def _write(self, record: RestartRecord) -> None:
        """Store the record with this driver's lease, or without one if it has ended."""
        record = replace(record, lease=self.lease if record.open else Lease())
        goes_on = self._goes_on_unrecorded(record)
        patience = 0.0 if self.unrecorded else self.lease.seconds / _DOWN_SHARE
        try:
            self._stored = self._retry(lambda: self._written(record), patience if goes_on else self.lease.seconds)
        except (ConflictError, NoRecordError):
            raise
        except LedgerError as error:
            if not goes_on:
                raise _unrecorded(record, error) from error
            self._stored = Stored(record, self._stored.version)
            if not self.unrecorded:
                _log.error("%s %s", unrecorded_alarm(record), error, extra=IS_ALARM)
            self.unrecorded = str(error)
        else:
            if self.unrecorded:
                _log.warning("The restart of node %s is recorded again.", self.target.node)
            self.unrecorded = ""

    def _goes_on_unrecorded(self, record: RestartRecord) -> bool:  # noqa: ARG002
        """Whether it is driven on from this record though that cannot be written."""
        return False

    def _written(self, record: RestartRecord) -> Stored:
        began = self._tried = self.clock.monotonic()
        try:
            stored = self.ledger.write(record, self._stored.version)
        except ConflictError as error:
            stored = self._written_over(record, error)
        self._renewed = began
        return stored

    def _written_over(self, record: RestartRecord, error: ConflictError) -> Stored:
        """Write the record over what was found in place of this driver's last one, if that is no other driver's.

        Raises ConflictError, which names the other driver; LedgerError if the record changed again.
        """
        found = self.ledger.read(self.target)
        if found is not None and found.record == record:
            return found  # an earlier call wrote it, and its answer was lost
        if not self._is_still_held(found):
            if found is None:
                raise self._nothing() from error
            raise ConflictError(_taken_over(found.record)) from error
        _log.warning("The ledger has lost how far the restart of node %s is: it is written again.", self.target.node)
        try:
            return self.ledger.write(record, found.version if found is not None else 0)
        except ConflictError as again:
            raise LedgerError(f"the record of node {self.target.node} is rewritten again and again") from again

    def _is_still_held(self, found: Stored | None) -> bool:
        """Whether this driver drives on though the ledger holds something else than its last record.

        Others change the ledger past all leases: they remove it, put back a copy of it, or copy objects of a bucket. To
        give up then could leave the node stopped, with nobody to know of it.

        - Its own lease: an older record of this driver. A driver that takes a record writes its own lease into it.
        - No record, or a copy from before this driver took it. While the lease holds no other driver has gone on but
          from such a copy. Later only a record that lacks this driver's stops is known to be one.
        - Another driver that has gone on from the copy, and has called something or may have: that one finishes it.
        - What nothing was done about yet ends with its record, unless the copy waits for a driver.

        No second stop follows, even where another driver takes an older copy (from before the stop) once the lease has
        run out, or this one writes over it:
        - Each write replaces the version that was read. Of two drivers one finds the other's lease at its next write,
          and each call follows a write.
        - A stop is called in one step alone: the intent is written after a look that is at most half a lease old, and
          the call follows another look. Both have to show the node READY, with no operation on it under way. The first
          stop shows as the node's state, as an operation under way or, once the node runs again, as an operation since
          the request that is not the record's own: with that the workflow only verifies. So however old the record is
          from which a driver goes on, it is the API that shows whether there was a stop.
        """
        if found is not None and found.record.lease.owner == self.lease.owner:
            return True
        mine = self.record
        if mine.lease.owner != self.lease.owner:
            return False
        if mine.phase not in TOUCHED:
            return found is not None and _waits_for_driver(found.record, mine)
        holds = self.clock.monotonic() - self._renewed < self.lease.seconds
        if found is None:
            return holds or self._goes_on_unrecorded(mine)
        if self._is_done_by_another(found):
            return False
        return holds or _is_older(found.record, mine) or (bool(self.unrecorded) and not _is_later(found.record, mine))

    def _is_done_by_another(self, found: Stored) -> bool:
        """Whether another driver has gone on from a copy, and has called something or may have."""
        if found.record.phase in TOUCHED:
            return self._leases.remaining(found) > 0
        has_called = bool(found.record.stops or found.record.operations)
        return not found.record.open and has_called and found.record.requested >= self.record.requested

    def _retry(self, do: Callable[[], _T], seconds: float) -> _T:
        """Do it again after faults of the ledger, for so long."""
        give_up, pause = self.clock.monotonic() + seconds, _PAUSE_SECONDS
        while True:
            try:
                return do()
            except LedgerError as error:  # noqa: PERF203 (it is the loop's purpose)
                final = isinstance(error, (ConflictError, NoRecordError))
                if final or self.clock.monotonic() + pause > give_up or self.wait(pause):
                    raise
                _log.warning("The restart of node %s waits for its ledger: %s", self.target.node, error)
                pause *= 2


@dataclass(eq=False)
class Driver(LeasedDriver):
    """Drives the restart of a node through the Cloud TPU API. Several may be at work in one process."""

    actions = frozenset({Action.RESTART_NODE, Action.RESET_QUEUED_RESOURCE})

    _: KW_ONLY
    api: CloudNodeApi
    limits: PhaseLimits
    by_operator: bool = False  # who wants the node restarted whatever is known of it
    # What is known now of what the restart was decided on. Without it nothing that a policy decided is taken down.
    judge_again: Callable[[RestartRecord], PresentEvidence] = lambda _: PresentEvidence()
    on_refusal: Callable[[str], None] = lambda _: None  # called with what the API says of a call that it refused

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epoch = self.clock.time() - self.clock.monotonic()

    def close(self) -> None:
        self.api.close()

    @property
    def _now(self) -> float:
        """Wall time, which does not jump while this driver is at it: no wait may seem to be over that is not."""
        return self._epoch + self.clock.monotonic()

    def _taken(self, record: RestartRecord) -> RestartRecord:
        return workflow.resumed(record, self._now, self.limits, by_operator=self.by_operator)

    def _turn(self) -> None:
        """Look, decide, write; then call or wait."""
        record, looked = self.record, self.clock.monotonic()
        present = self.judge_again(record)
        step = workflow.advance(record, self.api.look(self.target, since=None), self._now, self.limits, present)
        if step.needs_operations:
            looked = self.clock.monotonic()
            observation = self.api.look(self.target, since=workflow.relevant_since(record))
            step = workflow.advance(record, observation, self._now, self.limits, self.judge_again(record))
        if step.record != record or step.call is not None or self.unrecorded:
            self._write(step.record)
        self.report(step.sentence)
        if step.call is None:
            if step.record.open:
                self.pause(step.again_in)
        elif not self._may_call(step.call):
            _log.info("The %s of node %s is put off, and it is looked at again.", step.call.value, self.target.node)
        elif self.unrecorded and not workflow.may_call_unrecorded(step.call):
            raise LedgerError(self.unrecorded)
        elif self.clock.monotonic() - looked <= self.lease.seconds / 2:
            self._call(step.call)
        elif step.call is ApiCall.START:  # however old the look: a second start does no harm
            self._write(self.record)  # but where another driver has taken over it is left to that one
            self._call(step.call)
        else:  # what was seen is too old to act upon, and the lease may run out in the call
            _log.warning(
                "The %s of node %s is put off: from the look at it to the record that was written, %.0f s passed. It "
                "is looked at again.",
                *(step.call.value, self.target.node, self.clock.monotonic() - looked),
            )

    def _may_call(self, call: ApiCall) -> bool:
        """Right before the call: the node may have become well while the intent was written."""
        if call is ApiCall.START:
            return True
        present = self.judge_again(self.record)
        return workflow.may_call(self.record, call, self.api.look(self.target, since=None), present)

    def _goes_on_unrecorded(self, record: RestartRecord) -> bool:
        return workflow.goes_on_unrecorded(self.record, record)

    def _call(self, call: ApiCall) -> None:
        record = self.record
        answer = self.api.call(call, self.target, record.queued_resource)
        if answer.message:
            self.on_refusal(answer.message)
        after = workflow.answered(record, call, answer, self._now, self.limits)
        if after != record:
            self._write(after)
        if not after.open:
            self.report(after.note)


class NoRecordError(LedgerError):
    """The node has no record."""


class UnrecordedEndError(LedgerError):
    """A restart has ended, which could not be recorded."""

    def __init__(self, record: RestartRecord, error: LedgerError) -> None:
        how = f"the restart of node {record.target.node} has ended ({words(record.phase)})"
        super().__init__(f"{how}, and that could not be recorded: {error}")
        self.record = record  # as it was to be written
        self.why = str(error)


def unrecorded_alarm(record: RestartRecord) -> str:
    """What an operator has to know first of a restart that cannot be recorded: how the node is, and what starts it."""
    node = record.target.node
    if record.phase is Phase.VERIFYING and record.shown == "READY":
        return f"Node {node} runs again, and its restart cannot be recorded."
    state = "IS STOPPED" if record.shown == "STOPPED" else DOWN.get(record.phase, "IS DOWN")
    return (
        f"NODE {state}: the restart of {node} cannot be recorded, and tpuwatch starts it as long as this process "
        f"runs. By hand: {commands.start(record.target)}."
    )


def _unrecorded(record: RestartRecord, error: LedgerError) -> LedgerError:
    if record.open:
        return error
    return UnrecordedEndError(record, error)


def _taken_over(record: RestartRecord) -> str:
    node, owner = record.target.node, record.lease.owner
    if owner:
        return f"the restart of node {node} was taken over by {owner_words(owner)}: leave it to that one"
    return f"the record of node {node} was changed by another writer: it is {record.phase.value} now"


def _waits_for_driver(record: RestartRecord, mine: RestartRecord) -> bool:
    """Whether it is of the same restart, and may be taken by any driver."""
    return record.open and not record.lease.owner and record.requested == mine.requested


def _is_older(record: RestartRecord, mine: RestartRecord) -> bool:
    """Whether it is of an earlier restart, or lacks a stop of this one: who goes on from a record carries its stops."""
    return record.requested < mine.requested or (record.requested == mine.requested and record.stops < mine.stops)


def _is_later(record: RestartRecord, mine: RestartRecord) -> bool:
    """Whether it is of a later restart."""
    return record.requested > mine.requested


def _not_ours(record: RestartRecord) -> str:
    what = f"what is under way about node {record.target.node} ({record.action.value})"
    if record.action in Driver.actions:
        return f"{what} is done through the Cloud TPU API, by another machine: leave it to that one"
    return f"{what} is done on that machine itself, by its own tpuwatch: leave it to that one"
