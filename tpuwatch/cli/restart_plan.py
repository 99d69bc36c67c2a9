"""What a restart of a node would do and what it costs, in words, before anything is done."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import WELL_HEALTH
from tpuwatch.health.verdict import Rung
from tpuwatch.health.words import clean, length
from tpuwatch.restart.machine import machine
from tpuwatch.restart.machine.sights import Call
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.settings import Settings
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.cli.restart_seen import Seen
    from tpuwatch.config import Config
    from tpuwatch.restart.machine.sights import Limits, Move, Sight
    from tpuwatch.restart.policy.decision import Use
    from tpuwatch.restart.record import Fleet, Record, Target

_UNBOUNDED: Final = 1_000_000  # nodes: their number is not known here, so the share of them bounds nothing
_MOST_RUNNING: Final = 5  # lines


@dataclass(frozen=True, slots=True)
class Plan:
    """What a driver would do first, found out by asking its own state machine."""

    record: Record  # as it would be written
    sight: Sight
    move: Move
    limits: Limits

    @property
    def hopeless(self) -> bool:
        """Whether only a person can help; the sentence says how."""
        return not self.move.record.open

    @property
    def well(self) -> bool:
        """Whether the cloud has nothing against the node."""
        return self.sight.state == "READY" and self.sight.health in WELL_HEALTH

    def steps(self) -> str:
        """What will be done, a sentence."""
        settle = f"then it is watched until it has been well for {length(self.limits.settle_seconds)}"
        if self.move.call is Call.STOP:
            return f"The node is stopped and started again; {settle}."
        if self.move.call is Call.START:
            return f"The node is STOPPED: it is started; {settle}."
        if self.move.call is Call.RESET:
            name = clean(self.sight.queued_resource, 100)
            return f"Its queued resource {name} is reset, which restarts all {self.sight.hosts} hosts; {settle}."
        return f"{self.move.sentence} Then the node is restarted; {settle}."


def plan(
    target: Target, sight: Sight, before: Record | None, *, reason: str, actor: str, now: float, limits: Limits
) -> Plan:
    """The plan for a node of which nothing is under way."""
    rung = Rung.RESET_QUEUED_RESOURCE if sight.hosts > 1 else Rung.RESTART_NODE
    record = machine.begin(target, before, rung, cause="operator", reason=reason, actor=actor, now=now)
    return Plan(record, sight, machine.advance(record, sight, now, limits), limits)


def with_evidence(plan: Plan, seen: Seen) -> Record:
    """The record to be written."""
    evidence = tuple(clean(one, 300) for one in seen.evidence[:10])
    reason = plan.record.reason or clean(f"An operator wants it. {seen.document['summary']}", 300)
    return replace(plan.record, evidence=evidence, reason=reason)


def advice(plan: Plan, seen: Seen) -> str:
    """What only a person can do, with what is known of the node in the commands."""
    cloud = seen.document["cloud"] or {}
    text = plan.move.record.note
    for word, known in (("TYPE", cloud.get("accelerator")), ("VERSION", cloud.get("runtime_version"))):
        if known:
            text = text.replace(f"={word}", f"={shlex.quote(clean(known, 100))}")
    return re.sub(r"(-version=[^ `]+)", r"\1 --spot", text) if plan.sight.spot else text


def costs(plan: Plan, seen: Seen, records: Sequence[Record], *, own: bool) -> Iterator[str]:
    """What it costs, a sentence or a line each."""
    if own:
        yield (
            "This machine belongs to the node, and goes down with it: nobody here is left to start it again. Be ready "
            "to run this command, or to start the node, from another machine."
        )
    if plan.sight.state != "STOPPED":
        yield "All that runs on the node ends; what its jobs have not written to a checkpoint is lost."
        yield from _jobs(seen)
    if plan.move.call is Call.RESET:
        yield "If the queued resource has made other nodes besides, they are restarted with it, and their jobs end."
        yield "The machines and their disks are kept, as far as is known."
    elif plan.move.call is Call.START:
        yield "If the zone has no capacity for it now, the start is tried until it has."
    else:
        yield (
            "A stop gives the capacity back. If somebody else takes it, the node stays stopped until there is some "
            "again, which may take hours; the start is tried until it succeeds."
        )
    yield _minutes(plan, records)


def _jobs(seen: Seen) -> Iterator[str]:
    if seen.running is None:
        yield "Which jobs those are cannot be seen from here."
    elif not seen.running:
        yield "No process is seen to hold the TPU of this host now."
    else:
        yield f"On this host the TPU is held by {'; '.join(seen.running[:_MOST_RUNNING])}."
        if len(seen.running) > _MOST_RUNNING:
            yield f"… and by {len(seen.running) - _MOST_RUNNING} more."


def _minutes(plan: Plan, records: Sequence[Record]) -> str:
    stops = plan.move.call is not Call.START
    took = [
        one.ended - one.began
        for record in records
        for one in record.history
        if one.phase is Phase.DONE
        and one.rung is plan.record.rung
        and bool(one.stops) is stops
        and one.ended > one.began
    ]
    limits = plan.limits
    patience = f"Only after {length(limits.stop_seconds + limits.start_seconds)} does it call for help"
    if plan.move.call in (Call.START, Call.RESET):
        patience = f"Only after {length(limits.start_seconds)} does it call for help"
    if not took:
        return f"It takes some minutes, usually 4 to 10. {patience}."
    if len(took) == 1:
        return f"The one that is recorded here took {length(took[0])}. {patience}."
    return f"The {len(took)} that are recorded here took {length(min(took))} to {length(max(took))}. {patience}."


def budget(
    config: Config, plan: Plan, cause: str, records: Sequence[Record], fleet: Fleet, now: float
) -> tuple[Use, list[str]]:
    """What is used of the budgets, and lines that tell it. They bind tpuwatch, and not its operators."""
    settings = Settings.of(config)
    books = budgets.Books({record.target.path: record for record in records}, fleet)
    record = plan.record
    use = budgets.use(books, record.target, _UNBOUNDED, settings, now)
    told = [
        f"Restarts of this node within {length(settings.node_window_seconds)}: {use.node} of {use.node_max}; of all "
        f"nodes within {length(settings.fleet_window_seconds)}: {use.fleet} of {use.fleet_max}."
    ]
    hold = budgets.hold(books, record.target, record.rung, cause, _UNBOUNDED, settings, now)
    if hold is not None:
        told.append(f"By itself tpuwatch would not do it now: {hold.sentence}. You may.")
    return use, told
