"""Restarts nodes for an operator, one after the other: each is reported, planned, confirmed, recorded and driven."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from tpuwatch.core import ConflictError, LedgerError, TpuwatchError, capital, clean, ended, length
from tpuwatch.model import TOUCHED, Action, Grounds, Lease, Phase, RestartResultDocument, ledger_down
from tpuwatch.restart.driver import Driver, NoRecordError, UnrecordedEndError, unrecorded_alarm
from tpuwatch.restart.ledger.codec import DamagedError
from tpuwatch.restart.ledger.opening import phase_limits
from tpuwatch.restart.ledger.owner import LeaseWatch, ThisMachine
from tpuwatch.restart.ledger.reading import read_ledger
from tpuwatch.restart.operator.follow import follow
from tpuwatch.restart.operator.headline import Headline, left, trouble
from tpuwatch.restart.operator.plan import RestartPlan
from tpuwatch.restart.policy.budgets import is_request
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.policy.situation import OF_THE_NODE
from tpuwatch.restart.starter import claim_budget
from tpuwatch.restart.wording import describe_local_action, words
from tpuwatch.restart.workflow import commands, step, workflow
from tpuwatch.restart.workflow.types import PresentEvidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.model import RestartRecord, Target, Use
    from tpuwatch.restart.cloud_api import CloudNodeApi
    from tpuwatch.restart.driver import Progress
    from tpuwatch.restart.ledger.base import Stored
    from tpuwatch.restart.operator.access import LedgerAccess
    from tpuwatch.restart.operator.report import NodeReport, NodeReporter
    from tpuwatch.restart.operator.targets import OwnNode
    from tpuwatch.restart.workflow.types import NodeObservation

# All others: 1.
_EXIT_CODES: Final = {"done": 0, "dry_run": 0, "misused": 2, "unknown": 3, "not_verified": 3, "interrupted": 130}
# After these the remaining nodes are skipped: the operator wants to stop, or they would fare no better.
_FINAL: Final = frozenset({"interrupted", "unknown", "held"})
SUCCESSOR_SECONDS: Final = 15.0  # a daemon on this machine takes over at its next turn, of which it does one in 5 s
_SUCCESSOR_LOOK_SECONDS: Final = 0.5
_MAX_NAMES: Final = 20
_LISTED_CHARS: Final = 400


class SessionDisplay(Protocol):
    """How a session shows its work to the operator, asks for confirmation, and waits."""

    def show_report(self, report: NodeReport, target: Target) -> None:
        """What is known of the node. What helps is shown after it: the plan, or why there is none."""

    def show_plan(self, steps: str, costs: Iterable[str], notes: Iterable[str]) -> None:
        """What will be done, what it costs, and what else the operator should know."""

    def show_headline(self, headline: Headline) -> None:
        """What a person has to know first, with the commands to copy."""

    def show_record(self, record: RestartRecord, now: float) -> None:
        """A restart in progress, which the session is about to continue."""

    def show_note(self, text: str, *, warning: bool = False) -> None:
        """One sentence."""

    def show_result(self, result: RestartResult) -> None:
        """What came of one node; nothing more is shown of it."""

    def confirm(self, target: Target, *, healthy: bool) -> bool:
        """Ask whether to restart it. Raises UsageError if there is no terminal to ask on."""

    def on_progress(self, progress: Progress, headline: Headline | None) -> None:
        """The driver did a step. `headline`: where the restart does not go as it should."""

    def on_refusal(self, message: str) -> None:
        """The API refused a call of the driver."""

    def wait(self, seconds: float) -> bool:
        """Wait; return whether the operator wants to stop."""

    def linger(self, seconds: float) -> None:
        """Wait after an interruption. Raises KeyboardInterrupt if the operator interrupts this too."""

    def driving(self, *, alone: bool = False) -> AbstractContextManager[None]:
        """Around everything that the operator may interrupt in an orderly way: `wait` then returns True.

        `alone`: after an interruption nobody continues the restart, as far as is known.
        """


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """What the operator requested of the nodes."""

    reason: str = ""
    confirmed: bool = False  # do not ask
    dry_run: bool = False
    forced_action: str = ""  # the value of an Action: also for the node that this machine belongs to


@dataclass(frozen=True, slots=True)
class RestartResult:
    """What came of the restart of one node."""

    target: Target
    # "done", "not_verified", "failed", "needs_operator", "cancelled": the phase in which the record ended; "held":
    # another driver drives it; "declined", "dry_run", "misused", "interrupted", "skipped"; "unknown": it could not be
    # found out.
    outcome: str
    note: str = ""  # a sentence
    record: RestartRecord | None = None
    headline: Headline | None = None  # what has to be known and done first
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code of a command that restarted this node alone."""
        return _EXIT_CODES.get(self.outcome, 1)

    @property
    def is_final(self) -> bool:
        """Whether to skip the remaining nodes; also if this one was stopped and is not healthy."""
        is_bad = self.exit_code != 0 and self.outcome != "not_verified"
        return self.outcome in _FINAL or (is_bad and self.record is not None and self.record.stops > 0)

    def document(self) -> RestartResultDocument:
        """It for JSON."""
        record = self.record
        return RestartResultDocument(
            **asdict(self.target),
            outcome=self.outcome,
            phase=record.phase if record is not None else None,
            operations=record.operations if record is not None else (),
            seconds=round(self.seconds, 3),
            note=f"{self.headline or ''} {self.note}".strip() or (record.note if record is not None else ""),
        )


@dataclass(frozen=True, slots=True)
class RestartSession:
    """Restarts nodes as one operator requested it."""

    request: RestartRequest
    config: Config
    clock: Clock
    access: LedgerAccess
    api: CloudNodeApi
    own_node: OwnNode
    reporter: NodeReporter
    display: SessionDisplay

    def close(self) -> None:
        """Close the connections to the API and to the ledger."""
        self.api.close()
        self.access.ledger.close()

    def restart_all(self, targets: Sequence[Target]) -> Iterator[RestartResult]:
        """Restart them one after the other; a result for each."""
        for number, target in enumerate(targets):
            if number:
                self.display.show_note("")
            result = self.restart(target)
            yield result
            rest = targets[number + 1 :]
            if result.is_final and rest:
                names = ", ".join(other.node for other in rest)
                self.display.show_note(f"Skipped, because {target.node} needs attention first: {names}.", warning=True)
                for other in rest:
                    yield RestartResult(other, "skipped")
                return

    def restart(self, target: Target) -> RestartResult:
        """Restart one node, or continue the restart that is in progress there."""
        began = self.clock.monotonic()
        try:
            result = self._restart(target)
        except KeyboardInterrupt:  # at the question, or the second one
            result = self._interrupted(target, self._record(target))
        except LedgerError as error:
            result = RestartResult(target, "unknown", _sentence(error), headline=self._stopped(target))
        result = replace(result, seconds=self.clock.monotonic() - began)
        self.display.show_result(result)
        return result

    def _restart(self, target: Target) -> RestartResult:
        try:
            stored = self.access.ledger.read(target)
        except DamagedError as error:
            if self.request.dry_run or not self.access.ledger.set_aside():
                raise
            note = (
                f"{capital(str(error))}. It is kept under another name, and a new one has begun, with its breaker "
                "open. Nothing was done: a process that drives a restart records it again within "
                f"{self.config.ledger.lease_seconds:g} s. See `{self.access.command('restarts')}` then, and ask again."
            )
            return RestartResult(target, "unknown", note, headline=self._stopped(target))
        if stored is not None and _is_restart(stored.record):
            return self._continue(stored)
        return self._begin(target, stored)

    # -- a new restart

    def _begin(self, target: Target, stored: Stored | None) -> RestartResult:
        """`stored` is the node's record so far: of a restart that ended, or of an action of the node's own daemon."""
        observation = self.api.look(target, since=self.clock.time() - 1)
        if not observation.shown:
            return RestartResult(target, "unknown", f"The node's state could not be found out. {observation.fault}")
        local = stored.record if stored is not None and stored.record.open else None
        plan = self._plan(target, observation, stored.record if stored is not None else None)
        if observation.gone and stored is None and not plan.report.document.cloud:
            return self._refuse(plan, "misused", self._no_such_node(target), None)
        self.display.show_report(plan.report, target)
        if local is not None:
            self.display.show_note(describe_local_action(local, self.clock.time()), warning=True)
        if plan.impossible:
            return self._refuse(plan, "needs_operator", plan.advice(), None)
        use = self._show_plan(plan)
        if objection := self._objection(plan):
            return self._refuse(plan, "misused", objection, use)
        if self.request.dry_run:
            return RestartResult(target, "dry_run", "Nothing was done: this was a dry run.")
        if not self._is_confirmed(target, healthy=plan.healthy):
            return self._refuse(plan, "declined", "Nothing was done.", use)
        return self._record_and_drive(plan, stored, use)

    def _no_such_node(self, target: Target) -> str:
        """That the API knows no such node, and neither the ledger nor the daemon has known one: a wrong name, likely.

        So no command is offered, neither against another node nor to create this one.
        """
        text = f"There is no node {target.node} in zone {target.zone} of project {target.project}."
        try:
            names = self.reporter.nodes_near(target)
        except TpuwatchError as error:
            return f"{text} The nodes there could not be listed: {clean(ended(str(error)), _LISTED_CHARS)}"
        if not names:
            return f"{text} The zone has no nodes: check --zone and --project."
        more = len(names) - _MAX_NAMES
        listed = ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
        return f"{text} Nodes there: {listed}."

    def _plan(self, target: Target, observation: NodeObservation, previous: RestartRecord | None) -> RestartPlan:
        """`previous` is the node's record so far; if it is open, the restart ends it."""
        report = self.reporter.report(target, observation)
        now, limits = self.clock.time(), phase_limits(self.config.restart)
        record = step.begin(
            target,
            self._superseded(previous) if previous is not None and previous.open else previous,
            Action.RESET_QUEUED_RESOURCE if observation.hosts > 1 else Action.RESTART_NODE,
            cause="operator",
            reason=self.request.reason or f"An operator requested it. {report.document.summary}",
            actor=self.access.actor,
            now=now,
            evidence=report.evidence,
            sources=report.document.sources,
            grounds=Grounds(report.verdict, at=now),
        )
        record = replace(record, boot_id=report.boot_id)
        first = workflow.advance(record, observation, now, limits, PresentEvidence())
        return RestartPlan(record, observation, report, first, limits)

    def _record_and_drive(self, plan: RestartPlan, stored: Stored | None, use: Use) -> RestartResult:
        target = plan.record.target
        try:
            if stored is not None and stored.record.open:
                stored = self._end_local_action(stored)
                if stored is None:
                    return self._interrupted(target, self._record(target))
            # Daemons count what operators do, so none may decide by what the ledger held before.
            claim_budget(self.access.ledger, target, PolicySettings.of(self.config), plan.record.requested)
            self.access.ledger.write(plan.record, stored.version if stored is not None else 0)
        except ConflictError:
            stored = self.access.ledger.read(target)
            if stored is not None and _is_restart(stored.record):
                return self._continue(stored)
            return self._refuse(plan, "held", self._held(stored), use)
        self._audit_plan(plan, "begun", plan.record.reason, use)
        return self._drive(target)

    def _show_plan(self, plan: RestartPlan) -> Use:
        """Show what it does and costs; what is used of the budgets."""
        view, target = read_ledger(self.access.ledger).view, plan.record.target
        use, budget = plan.budget(self.config, view, self.clock.time())
        costs = plan.costs(view.records.values(), own_node=self.own_node.matches(target))
        notes = (f"The verdict is from {plan.report.source}.", *budget, f"The ledger is in {self.access.location}.")
        self.display.show_plan(plan.steps(), costs, notes)
        return use

    def _objection(self, plan: RestartPlan) -> str:
        """Why the command is wrong for this node, a sentence; "" if it is not."""
        forced, action, node = self.request.forced_action, plan.record.action.value, plan.record.target.node
        beside = _objection_beside(plan.record, plan.observation)
        if forced and forced != action:
            return f"{node} has {plan.observation.hosts} host(s), for which --force-action can only be {action}."
        if forced:
            return ""
        if self.own_node.matches(plan.record.target):
            return (
                f"{beside} This machine belongs to {node} and would go down with it. Run this command on another "
                f"machine, or force it with --force-action {action}."
            ).lstrip()
        if self.own_node.problem:
            return (
                f"{beside} This machine may belong to {node} and go down with it: that could not be found out. "
                f"{self.own_node.problem} If it does not belong to it, give --force-action {action}."
            ).lstrip()
        return _unless_forced(beside, plan.record.action) if beside else ""

    def _is_confirmed(self, target: Target, *, healthy: bool) -> bool:
        """`--yes` is enough for a healthy node too: the API calls many a node healthy whose runtime is dead."""
        return self.request.confirmed or self.display.confirm(target, healthy=healthy)

    def _end_local_action(self, stored: Stored) -> Stored | None:
        """End the record of what the node's own daemon began, once that daemon no longer renews its lease.

        None if the operator interrupts the wait. Raises ConflictError while the daemon is alive.
        """
        leases, first = LeaseWatch(self.clock, ThisMachine().is_gone), stored.version
        with self.display.driving():
            while (left := leases.remaining(stored)) > 0:
                self.display.show_note(f"Waiting up to {left:.0f} s to see whether that action goes on.")
                if self.display.wait(left):
                    return None
                stored = self.access.ledger.read(stored.record.target) or stored
                if stored.version != first:
                    raise ConflictError("it goes on")
            return self.access.ledger.write(self._superseded(stored.record), stored.version)

    def _superseded(self, record: RestartRecord) -> RestartRecord:
        """The record of an action of the node's own daemon, which the restart ends."""
        note = f"{self.access.actor} restarts the node instead."
        return replace(step.ended(record, Phase.FAILED, note, self.clock.time()), lease=Lease())

    # -- a restart in progress

    def _continue(self, stored: Stored) -> RestartResult:
        record, target = stored.record, stored.record.target
        self.display.show_record(record, self.clock.time())
        if self.request.dry_run:
            return self._dry_run(record)
        may_be_own = self.own_node.matches(target) or bool(self.own_node.problem)
        if may_be_own and not self.request.forced_action and not record.stops:
            note = f"This machine belongs, or may belong, to {target.node}: continue from another machine."
            return RestartResult(target, "misused", note, record)
        return self._see_through(stored)

    def _see_through(self, stored: Stored) -> RestartResult:
        """Follow the restart while another process drives it, and drive it where none does."""
        target = stored.record.target
        with self.display.driving():
            followed = follow(
                stored,
                self.access.ledger,
                clock=self.clock,
                wait=self.display.wait,
                on_driver=self._show_driver,
                on_progress=self._on_progress,
            )
        if followed is None:
            return self._interrupted(target, self._after_interruption(target))
        record = followed.record
        if not record.open:
            return RestartResult(target, record.phase.value, record=record)
        if record.phase is Phase.REQUESTED:
            if record.action is Action.RESET_QUEUED_RESOURCE and not self.request.forced_action:
                observation = self.api.look(target, since=self.clock.time() - 1)
                if beside := _objection_beside(record, observation):
                    note = _unless_forced(beside, record.action)
                    self._audit_record(record, "misused")
                    return RestartResult(target, "misused", note, record)
            if not self._is_confirmed(target, healthy=False):
                self._audit_record(record, "declined")
                return RestartResult(target, "declined", "Nothing was done; the request remains.", record)
            if record.signals:
                source = "The node's own daemon requested it" if is_request(record) else "Another daemon decided it"
                self.display.show_note(f"{source}; this command takes it over.")
                try:
                    followed = self._take_over(followed)
                except ConflictError:
                    return self._after_conflict(target)
        self._audit_record(followed.record, "resumed")
        return self._drive(target, free=followed.version)

    def _after_conflict(self, target: Target) -> RestartResult:
        """Another process has written the record: if it restarts the node, that is followed."""
        stored = self.access.ledger.read(target)
        if stored is not None and _is_restart(stored.record):
            return self._see_through(stored)
        record = stored.record if stored is not None else None
        if record is not None and not record.open:
            return RestartResult(target, record.phase.value, record.note, record)
        if record is not None:
            self._audit_record(record, "held")
        return RestartResult(target, "held", self._held(stored), record)

    def _show_driver(self, driver: str) -> None:
        self.display.show_note(
            f"{capital(driver)} drives it, as far as is known. This command follows it to its end, and continues it if "
            "that process does not."
        )

    def _take_over(self, stored: Stored) -> Stored:
        """Make the request the operator's own: if they leave it before anything is done, no daemon continues it."""
        now = self.clock.time()
        record = replace(
            stored.record,
            actor=self.access.actor,
            reason=self.request.reason or stored.record.reason,
            requested=now,
            entered=now,
            began=0.0,
            signals=(),
        )
        claim_budget(self.access.ledger, record.target, PolicySettings.of(self.config), now)
        return self.access.ledger.write(record, stored.version)

    def _dry_run(self, record: RestartRecord) -> RestartResult:
        observation = self.api.look(record.target, since=None)
        if driver := ThisMachine().driver_of(record):
            note = f"{capital(driver)} drives it, as far as is known. This command would follow it."
        else:
            note = "This command would continue it."
        state = f"The API shows the node as {observation.shown}." if observation.shown else observation.fault
        note = f"{note} {clean(state)} Nothing was done: this was a dry run."
        return RestartResult(record.target, "dry_run", note)

    # -- driving

    def _drive(self, target: Target, *, free: int = 0) -> RestartResult:
        """`free` is the version of the record that may be taken at once, if one is known."""
        driver = Driver(
            self.access.ledger,
            target,
            api=self.api,
            clock=self.clock,
            wait=self.display.wait,
            limits=phase_limits(self.config.restart),
            by_operator=True,
            judge_again=self.reporter.judge_again,
            on_progress=self._on_progress,
            on_refusal=self.display.on_refusal,
            lease_seconds=self.config.ledger.lease_seconds,
        )
        with self.display.driving(alone=not self.reporter.daemon_answers()):
            try:
                record = driver.drive(free=free)
            except ConflictError:  # another process has it
                record = None
            except UnrecordedEndError as error:
                return self._ended_unrecorded(error)
            except LedgerError as error:
                current = self._record(target)
                headline = self._left(current) or self._stopped(target)
                return RestartResult(target, "unknown", _sentence(error), current, headline=headline)
        if record is None:
            return self._after_conflict(target)
        if record.open and driver.unrecorded:
            note = f"Interrupted. {capital(ended(driver.unrecorded))}"
            return RestartResult(target, "interrupted", note, record, headline=Headline(unrecorded_alarm(record)))
        if record.open:
            return self._interrupted(target, self._after_interruption(target))
        if driver.has_held:  # else the audit of the one that had it says so
            self._audit_record(record, record.phase.value)
        return RestartResult(target, record.phase.value, record=record)

    def _ended_unrecorded(self, error: UnrecordedEndError) -> RestartResult:
        record = error.record
        ending = words(record.phase)
        text = f"The restart of {record.target.node} has ended ({ending}), and that is not recorded. {record.note}"
        return RestartResult(record.target, "unknown", ledger_down(error.why), record, headline=Headline(text))

    def _on_progress(self, progress: Progress) -> None:
        if progress.alarm:
            headline: Headline | None = Headline(progress.alarm)
        else:
            headline = trouble(progress.record, self.clock.time(), phase_limits(self.config.restart))
        self.display.on_progress(progress, headline)

    def _interrupted(self, target: Target, record: RestartRecord | None) -> RestartResult:
        if record is None or not record.open:
            return RestartResult(target, "interrupted", "Interrupted: nothing was done.")
        note = f"Interrupted; its record is in the ledger, in {self.access.location}."
        if self.access.is_shared and record.phase in TOUCHED:
            note += f" A tpuwatch on another machine that uses this ledger and watches {target.node} continues it too."
        return RestartResult(target, "interrupted", note, record, headline=self._left(record))

    def _after_interruption(self, target: Target) -> RestartRecord | None:
        """The record once it is known who continues it: a daemon on this machine takes it over at its next turn."""
        record = self._record(target)
        if record is None or record.phase not in TOUCHED or ThisMachine().driver_of(record):
            return record
        if not self.reporter.daemon_answers():
            return record
        self.display.show_note(
            f"Interrupted. Waiting up to {length(SUCCESSOR_SECONDS)} for the daemon on this machine to continue the "
            "restart; Ctrl-C ends the wait."
        )
        end = self.clock.monotonic() + SUCCESSOR_SECONDS
        with self.display.driving(), suppress(KeyboardInterrupt):
            while record.open and not ThisMachine().driver_of(record) and self.clock.monotonic() < end:
                self.display.linger(_SUCCESSOR_LOOK_SECONDS)
                record = self._record(target) or record
        return record

    def _left(self, record: RestartRecord | None) -> Headline | None:
        """Who continues an unfinished restart, and the command that follows it or continues it."""
        if record is None or not record.open:
            return None
        return left(record, ThisMachine().driver_of(record), self.access.command("restart", record.target.path))

    def _stopped(self, target: Target) -> Headline | None:
        """What has to be known first of a node that is stopped, where the ledger does not say why."""
        if self.api.look(target, since=None).shown != "STOPPED":
            return None
        return Headline(f"{target.node} IS STOPPED. Start it:", (commands.plain(commands.start(target)),))

    def _held(self, stored: Stored | None) -> str:
        """Why the restart was not begun, or not continued: the record is another process's."""
        see = f"To see what it does: `{self.access.command('restarts')}`"
        if stored is None or not stored.record.open:
            return f"Another process has written the node's record meanwhile. {see}"
        record = stored.record
        driver = capital(ThisMachine().driver_of(record) or "The node's own tpuwatch")
        return (
            f"{driver} is at work on the node itself ({words(record.action)}), which a restart would cut off. "
            f"Ask again when that has ended. {see}"
        )

    def _record(self, target: Target) -> RestartRecord | None:
        try:
            stored = self.access.ledger.read(target)
        except LedgerError:
            return None
        return stored.record if stored is not None else None

    # -- the audit

    def _refuse(self, plan: RestartPlan, outcome: str, note: str, use: Use | None) -> RestartResult:
        self._audit_plan(plan, outcome, note, use)
        return RestartResult(plan.record.target, outcome, note)

    def _audit_plan(self, plan: RestartPlan, result: str, sentence: str, use: Use | None) -> None:
        if self.request.dry_run:
            return
        action, report = plan.record.action, plan.report
        self.access.audit.note(
            plan.record.target, action.value, result, sentence, report.verdict, report.evidence, budget=use
        )

    def _audit_record(self, record: RestartRecord, result: str) -> None:
        self.access.audit.note_record(record, result, record.note or record.reason)


def _is_restart(record: RestartRecord) -> bool:
    """Whether a restart of the node is in progress, which any process can follow or continue."""
    return record.open and record.action in OF_THE_NODE


def _objection_beside(record: RestartRecord, observation: NodeObservation) -> str:
    """What speaks against a reset, for the other nodes that it restarts; "" if nothing does."""
    if record.action is not Action.RESET_QUEUED_RESOURCE or observation.state != "READY":
        return ""
    if observation.beside is None:
        return f"Which nodes a reset would restart too could not be found out. {observation.beside_fault}".rstrip()
    well = [f"{node.name} ({node.said})" for node in observation.beside if not node.ill]
    return f"A reset restarts other nodes too, which are not known to be bad: {', '.join(well)}." if well else ""


def _unless_forced(beside: str, action: Action) -> str:
    return f"{beside} To restart them all the same, give --force-action {action.value}."


def _sentence(error: LedgerError) -> str:
    is_down = not isinstance(error, (ConflictError, NoRecordError))
    return ledger_down(str(error)) if is_down else capital(ended(str(error)))
