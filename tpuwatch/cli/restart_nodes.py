"""Restarting nodes by hand: one after the other, each shown, asked for, recorded and driven to its end."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tpuwatch.cli import options, restart_plan
from tpuwatch.cli.restart_outcome import DONE, Outcome
from tpuwatch.cli.restart_place import Books, Here, MisuseError, books, here, targets
from tpuwatch.cli.restart_seen import Seen, see
from tpuwatch.cli.restart_show import Show, ToldApi, ask, begun_there, phase_words, standing
from tpuwatch.clock import SystemClock
from tpuwatch.export.paper import Paper
from tpuwatch.export.terminal import printable
from tpuwatch.health.words import length
from tpuwatch.restart.acts import claim
from tpuwatch.restart.audit import Entry
from tpuwatch.restart.cloud import CloudNodeApi
from tpuwatch.restart.executor import Driver
from tpuwatch.restart.ledger.base import ConflictError, LedgerError
from tpuwatch.restart.ledger.opening import limits
from tpuwatch.restart.ledger.owner import LeaseWatch, ThisMachine, told
from tpuwatch.restart.machine.machine import ended, relevant_since
from tpuwatch.restart.policy.budgets import is_request
from tpuwatch.restart.policy.settings import Settings
from tpuwatch.restart.policy.situation import OF_THE_NODE
from tpuwatch.restart.record import Lease, Phase

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from tpuwatch.cli.restart_plan import Plan
    from tpuwatch.config import Config
    from tpuwatch.restart.ledger.base import Stored
    from tpuwatch.restart.policy.decision import Use
    from tpuwatch.restart.record import Record, Target


def run(args: argparse.Namespace, config: Config) -> int:
    """Restart them; the exit code is that of the worst."""
    if not config.cloud.enabled:
        raise MisuseError(
            "`enabled` under [cloud] is false, so that nothing is asked of the Cloud TPU API: set it to true"
        )
    clock = SystemClock()
    this = here(clock)
    wanted = targets(args.nodes, args.zone, args.project, config, this)
    paper = Paper(sys.stderr if args.json else sys.stdout)
    command = _Command(args, config, clock, this, books(config, clock), Show(paper, clock))
    code = DONE
    try:
        for number, target in enumerate(wanted):
            if number:
                command.show.line()
            outcome = command.restart(target)
            code = max(code, outcome.code)
            if outcome.last and number + 1 < len(wanted):
                command.skip(wanted[number + 1 :])
                break
    finally:
        command.api.close()
        command.books.ledger.close()
    return code


@dataclass(slots=True)
class _Command:
    """The command at work."""

    args: argparse.Namespace
    config: Config
    clock: SystemClock
    this: Here
    books: Books
    show: Show
    api: CloudNodeApi = field(init=False)

    def __post_init__(self) -> None:
        self.api = CloudNodeApi(self.config.cloud, clock=self.clock)

    # -- one node

    def restart(self, target: Target) -> Outcome:
        """Restart one node, or carry on what is under way there, and tell what became of it."""
        began = self.clock.monotonic()
        try:
            outcome = self._restart(target)
        except KeyboardInterrupt:
            outcome = self._interrupted(target)
        except LedgerError as error:
            outcome = Outcome("unknown", _sentence(str(error)))
        self.show.end()
        if outcome.sentence:
            style = "green" if outcome.code == DONE else "red"
            self.show.line(outcome.sentence, style="" if outcome.what == "dry_run" else style, indent=3)
        self._json(target, outcome, self.clock.monotonic() - began)
        return outcome

    def skip(self, others: list[Target]) -> None:
        """Leave these alone, because of what became of the one before."""
        for target in others:
            self._json(target, Outcome("skipped"), 0.0)
        names = ", ".join(target.node for target in others)
        self.show.line(f"Left alone, for this one has to be seen to first: {names}.", style="yellow", indent=3)

    def _json(self, target: Target, outcome: Outcome, seconds: float) -> None:
        if self.args.json:
            options.print_json(outcome.document(target, seconds), indent=None)

    def _restart(self, target: Target) -> Outcome:
        stored = self.books.ledger.read(target)
        if stored is not None and stored.record.open and stored.record.rung in OF_THE_NODE:
            return self._carry_on(stored)
        return self._begin(target, stored)

    # -- a new restart

    def _begin(self, target: Target, before: Stored | None) -> Outcome:
        sight = self.api.look(target, since=self.clock.time() - 1)
        if not sight.shown:
            return Outcome("unknown", f"It could not be found out how the node is. {sight.fault}")
        seen = see(self.config, target, sight, self.clock)
        previous = before.record if before is not None else None
        if previous is not None and previous.open:
            note = f"{self.books.actor} restarts the node instead."
            previous = replace(ended(previous, Phase.FAILED, note, self.clock.time()), lease=Lease())
        plan = restart_plan.plan(
            target,
            sight,
            previous,
            reason=self.args.reason,
            actor=self.books.actor,
            now=self.clock.time(),
            limits=limits(self.config.restart),
        )
        self._tell_seen(seen, plan)
        if before is not None and before.record.open:
            self.show.line(begun_there(before.record, self.clock.time()), indent=3, style="yellow")
        if plan.hopeless:
            near = f" Is {seen.near} meant?" if sight.gone and seen.near else ""
            return self._refused(plan, seen, "needs_person", f"{restart_plan.advice(plan, seen)}{near}", None)
        records = [one.record for one in self.books.ledger.records()]
        fleet = self.books.ledger.fleet().fleet
        use, budget = restart_plan.budget(
            self.config, plan, seen.document["verdict"], records, fleet, self.clock.time()
        )
        own = self.this.is_of(target)
        self._tell_plan(plan, seen, restart_plan.costs(plan, seen, records, own=own), budget)
        if wrong := self._objection(target, plan, own=own):
            return self._refused(plan, seen, "misused", wrong, use)
        if self.args.dry_run:
            return Outcome("dry_run", "Nothing was done: this was a dry run.")
        if not self._agreed(target, well=self._well(plan, seen)):
            return self._refused(plan, seen, "declined", "Nothing was done.", use)
        return self._record_and_drive(target, before, previous, plan, seen, use)

    def _record_and_drive(
        self,
        target: Target,
        before: Stored | None,
        previous: Record | None,
        plan: Plan,
        seen: Seen,
        use: Use,
    ) -> Outcome:
        """From here on it is done. `previous`: the record before, at its end."""
        record = restart_plan.with_evidence(plan, seen)
        try:
            if before is not None and before.record.open:
                with self.show.driving():
                    before = self._superseded(before, previous)
                if before is None:
                    return self._interrupted(target)
            # Daemons count what operators do, so none may decide by what the ledger held before.
            claim(self.books.ledger, target, Settings.of(self.config), record.requested)
            self.books.ledger.write(record, before.version if before is not None else 0)
        except ConflictError:
            return self._refused(plan, seen, "held", _held(target), use)
        self._audit(plan, seen, "begun", record.reason, use)
        return self._drive(target)

    def _superseded(self, stored: Stored, over: Record | None) -> Stored | None:
        """Write that what the node's own tpuwatch has begun on it is `over`, once that one no longer renews its lease.

        None if somebody interrupts the wait. Raises ConflictError while it is alive.
        """
        leases, first = LeaseWatch(self.clock, ThisMachine().is_gone), stored.version
        while (left := leases.remaining(stored)) > 0:
            self.show.line(f"For {left:.0f} s it is seen whether that goes on.", indent=3)
            if self.show.wait(left):
                return None
            stored = self.books.ledger.read(stored.record.target) or stored
            if stored.version != first:
                raise ConflictError("it goes on")
        return self.books.ledger.write(over or stored.record, stored.version)

    @staticmethod
    def _well(plan: Plan, seen: Seen) -> bool:
        return plan.well and seen.well

    def _objection(self, target: Target, plan: Plan, *, own: bool) -> str:
        """Why it is wrong use to restart it so, a sentence; "" if it is not."""
        forced, rung = self.args.force_rung, plan.record.rung.value
        if forced and forced != rung:
            return f"{target.node} has {plan.sight.hosts} host(s), for which --force-rung can only be {rung}."
        if own and not forced:
            return (
                f"This machine belongs to {target.node}, and would go down with it. Run this command on another "
                f"machine; or force it with --force-rung {rung}."
            )
        if self.this.doubt and not forced:
            return (
                f"It could not be found out whether this machine belongs to {target.node}, and would go down with it. "
                f"{self.this.doubt} If it does not, give --force-rung {rung}."
            )
        return ""

    def _agreed(self, target: Target, *, well: bool) -> bool:
        """Ask. A node that may be well is not restarted by a key that was hit in haste: its name is to be typed.

        `--yes` is enough for both: the API calls many a node well whose runtime is dead.
        """
        if self.args.yes:
            return True
        if sys.stdin is None or not sys.stdin.isatty():
            raise MisuseError("there is no terminal to ask on: give --yes to agree to it")
        if well:
            question = "   Nothing is known to be wrong with it. Type its name to restart it all the same:"
            return ask(self.show.paper, question) == target.node
        return ask(self.show.paper, f"   Restart {target.node}? [y/N]") in ("y", "yes")

    def _refused(self, plan: Plan, seen: Seen, what: str, sentence: str, use: Use | None) -> Outcome:
        self._audit(plan, seen, what, sentence, use)
        return Outcome(what, sentence)

    def _audit(self, plan: Plan, seen: Seen, result: str, sentence: str, use: Use | None) -> None:
        if self.args.dry_run:
            return
        entry = Entry(
            at=self.clock.time(),
            node=plan.record.target.path,
            actor=self.books.actor,
            decision=plan.record.rung.value,
            result=result,
            verdict=seen.document["verdict"],
            evidence=seen.evidence,
            budget=use,
            sentence=sentence,
        )
        self.books.audit.note(entry)

    # -- one that is under way

    def _carry_on(self, stored: Stored) -> Outcome:
        record = stored.record
        target = record.target
        since = length(self.clock.time() - record.requested)
        self.show.line(_full_name(target), style="bold")
        self.show.line(
            f"A restart of it is under way, which {record.actor} wanted {since} ago ({record.reason.rstrip('.')}). It "
            f"is at {phase_words(record.phase)!r}.",
            indent=3,
        )
        if record.note:
            self.show.line(record.note, indent=3, style="yellow")
        if self.args.dry_run:
            return self._would_carry_on(record)
        if (self.this.is_of(target) or self.this.doubt) and not self.args.force_rung and not record.stops:
            return Outcome(
                "misused", f"This machine belongs, or may belong, to {target.node}: go on from another machine.", record
            )
        if record.phase is Phase.REQUESTED and not record.lease.owner and not self._agreed(target, well=False):
            self._audit_record(record, "declined")
            return Outcome("declined", "Nothing was done; the request stands.", record)
        if record.phase is Phase.REQUESTED and record.witnesses and not record.lease.owner:
            what = "a request of the node's own daemon" if is_request(record) else "what another daemon decided"
            self.show.line(f"It is {what}, which is taken up now.", indent=3)
            try:
                record = self._taken_up(stored)
            except ConflictError:
                self._audit_record(record, "held")
                return Outcome("held", _held(target))
        self._audit_record(record, "resumed")
        return self._drive(target)

    def _taken_up(self, stored: Stored) -> Record:
        """The request as the operator's own: if he leaves it before anything is done, no daemon goes on with it."""
        reason, now = self.args.reason or stored.record.reason, self.clock.time()
        record = replace(stored.record, actor=self.books.actor, reason=reason, requested=now, entered=now)
        record = replace(record, began=0.0, witnesses=())
        claim(self.books.ledger, record.target, Settings.of(self.config), now)
        return self.books.ledger.write(record, stored.version).record

    def _would_carry_on(self, record: Record) -> Outcome:
        sight = self.api.look(record.target, since=relevant_since(record))
        sentence = f"It would be carried on by whoever runs this command. {standing(record)}"
        if record.lease.owner and not ThisMachine().is_gone(record.lease.owner):
            sentence = f"{_capital(told(record.lease.owner))} is at it, as far as is known."
        shown = f" The API shows the node as {sight.shown}." if sight.shown else f" {sight.fault}"
        return Outcome("dry_run", f"{sentence}{printable(shown)} Nothing was done: this was a dry run.")

    def _drive(self, target: Target) -> Outcome:
        driver = Driver(
            self.books.ledger,
            ToldApi(self.api, self.show),
            target,
            clock=self.clock,
            wait=self.show.wait,
            limits=limits(self.config.restart),
            tell=self.show.tell,
            lease_seconds=self.config.ledger.lease_seconds,
        )
        with self.show.driving():
            try:
                record = driver.drive()
            except ConflictError as error:
                if (stands := self._record(target)) is not None:
                    self._audit_record(stands, "held")
                return Outcome("held", f"{_sentence(str(error))} See {_command('--status')}.", stands)
            except LedgerError as error:
                stands = self._record(target)
                return Outcome("unknown", f"{_sentence(str(error))} {self._how_to_go_on(target)}", stands)
        if record.open:
            return self._interrupted(target)
        self._audit_record(record, record.phase.value)
        return Outcome(record.phase.value, record=record)

    def _audit_record(self, record: Record, result: str) -> None:
        entry = Entry(
            at=self.clock.time(),
            node=record.target.path,
            actor=self.books.actor,
            decision=record.rung.value,
            result=result,
            verdict=record.cause,
            evidence=record.evidence,
            sentence=record.note or record.reason,
        )
        self.books.audit.note(entry)

    def _interrupted(self, target: Target) -> Outcome:
        record = self._record(target)
        if record is None or not record.open:
            return Outcome("interrupted", "Interrupted: nothing was done.")
        sentence = f"Interrupted. {standing(record)} {self._how_to_go_on(target)}"
        return Outcome("interrupted", sentence, record)

    def _how_to_go_on(self, target: Target) -> str:
        config = ["--config", str(self.args.config)] if self.args.config else []
        return f"The record stands. To go on: `{shlex.join(['tpuwatch', 'restart', *config, target.path])}`"

    def _record(self, target: Target) -> Record | None:
        try:
            stored = self.books.ledger.read(target)
        except LedgerError:
            return None
        return stored.record if stored is not None else None

    # -- words

    def _tell_seen(self, seen: Seen, plan: Plan) -> None:
        from tpuwatch.export.node_terminal import tell_node

        document = {**seen.document, "node": _full_name(plan.record.target)}
        if not plan.hopeless:
            document["remedy"] = []  # what would help is about to be done
        self.show.quietly(lambda: tell_node(self.show.paper, document, self.clock.time()))

    def _tell_plan(self, plan: Plan, seen: Seen, costs: Iterable[str], budget: Iterable[str]) -> None:
        known = (f"The verdict is by {seen.by}.", *budget, f"It is recorded in {self.books.where}.")
        for title, lines in (("What will be done", [plan.steps()]), ("What it costs", costs), ("Also", known)):
            self.show.line(f"{title}:", style="bold", indent=3)
            for line in lines:
                self.show.line(f"- {line}", indent=3, hang=2)


def _full_name(target: Target) -> str:
    return f"{target.node} (zone {target.zone}, project {target.project})"


def _held(target: Target) -> str:
    return f"Somebody else is at {target.node} now: see {_command('--status')}."


def _command(option: str) -> str:
    return f"`tpuwatch restart {option}`"


def _sentence(text: str) -> str:
    return f"{_capital(text)}{'' if text.endswith('.') else '.'}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
