"""What the ledger holds, for people: what is under way, what was, and the two things that only a person may do."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.cli import options
from tpuwatch.cli.restart_place import Books, Here, books, here, targets
from tpuwatch.cli.restart_show import phase_words, standing, tell
from tpuwatch.clock import SystemClock
from tpuwatch.errors import TpuwatchError
from tpuwatch.export.paper import Paper
from tpuwatch.health.words import length
from tpuwatch.jsontext import times
from tpuwatch.restart.acts import read
from tpuwatch.restart.audit import Entry
from tpuwatch.restart.ledger.base import ConflictError
from tpuwatch.restart.ledger.owner import ThisMachine, told
from tpuwatch.restart.machine.machine import ended
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.settings import Settings
from tpuwatch.restart.record import Breaker, Lease, Phase, Target

if TYPE_CHECKING:
    import argparse

    from tpuwatch.config import Config
    from tpuwatch.restart.record import Attempt, Record

_DONE, _WRONG = 0, 1
_SHOWN: Final = 5  # restarts that have ended, where a person reads
_TRIES: Final = 5  # at a write that others are at, too
_UNBOUNDED: Final = 1_000_000  # nodes: their number is not known here, so the share of them bounds nothing


def run(args: argparse.Namespace, config: Config) -> int:
    """Do what was asked for; 1 where something needs a person, or could not be cancelled."""
    clock = SystemClock()
    place = books(config, clock)
    book = _Book(args, config, clock, place)
    try:
        if args.reset_breaker:
            return book.reset_breaker()
        wanted = _wanted(args, config, clock)
        if args.cancel:
            return max([book.cancel(target) for target in wanted])
        return book.history(wanted) if args.history else book.status(wanted)
    finally:
        place.ledger.close()


def _wanted(args: argparse.Namespace, config: Config, clock: SystemClock) -> list[Target]:
    placed = all(name.startswith("projects/") for name in args.nodes)
    this = Here({}) if placed else here(clock)
    return targets(args.nodes, args.zone, args.project, config, this)


class _Book:
    def __init__(self, args: argparse.Namespace, config: Config, clock: SystemClock, place: Books) -> None:
        self._args = args
        self._config = config
        self._clock = clock
        self._place = place
        self._paper = Paper(sys.stdout)
        self._machine = ThisMachine()

    # -- what is there

    def status(self, wanted: list[Target]) -> int:
        """What is under way, what ended last, budgets and breaker."""
        now = self._clock.time()
        records = self._records(wanted)
        fleet = self._place.ledger.fleet().fleet
        everything = [stored.record for stored in self._place.ledger.records()]
        settings = Settings.of(self._config)
        held = budgets.Books({record.target.path: record for record in everything}, fleet)
        trips = "" if fleet.breaker.opened is not None else budgets.trips(held, settings, now)
        under_way = [record for record in records if record.open]
        used = budgets.use(held, Target("", "", ""), _UNBOUNDED, settings, now).fleet
        wrong = fleet.breaker.opened is not None or bool(trips) or any(self._alone(record) for record in under_way)
        if self._args.json:
            document = {
                "breaker": {**times("opened", fleet.breaker.opened), "reason": fleet.breaker.reason},
                "restarts_in_window": used,
                "window_seconds": settings.fleet_window_seconds,
                "restarts_max": settings.fleet_max,
                "restarts": [self._document(record) for record in records],
            }
            options.print_json(document)
            return _WRONG if wrong else _DONE
        self._tell_breaker(fleet.breaker, trips, now)
        window = length(settings.fleet_window_seconds)
        self._line(
            f"Restarts of all nodes within {window}: {used}, of at most {settings.fleet_max} by tpuwatch itself."
        )
        self._line(f"The ledger is in {self._place.where}.", style="dim")
        self._tell_under_way(under_way, now)
        self._tell_ended([record for record in records if not record.open], now)
        return _WRONG if wrong else _DONE

    def history(self, wanted: list[Target]) -> int:
        """All restarts that have ended, the newest first."""
        past = [(record, one) for record in self._records(wanted) for one in budgets.attempts(record)]
        past.sort(key=lambda pair: -pair[1].ended)
        if self._args.json:
            for record, one in past:
                options.print_json(_attempt(record, one), indent=None)
            return _DONE
        for record, one in past:
            self._tell_attempt(record, one)
        if not past:
            self._line(f"No restart is recorded in {self._place.where}.")
        return _DONE

    def _records(self, wanted: list[Target]) -> list[Record]:
        records = [stored.record for stored in self._place.ledger.records()]
        return [record for record in records if not wanted or record.target in wanted]

    def _alone(self, record: Record) -> bool:
        """Whether nobody drives it, as far as can be seen from here, or it calls for a person."""
        owner = record.lease.owner
        untouched = budgets.is_request(record)
        return bool(record.note) or (not untouched and (not owner or self._machine.is_gone(owner)))

    # -- what only a person may do

    def cancel(self, target: Target) -> int:
        """Take a restart back to which nothing has been done."""
        for _ in range(_TRIES):
            stored = self._place.ledger.read(target)
            why = _uncancellable(target, stored.record if stored is not None else None)
            if why or stored is None:
                self._say(target, "not_cancelled", why, stored.record if stored is not None else None, "red")
                return _WRONG
            note = f"{self._place.actor} cancelled it before anything was done."
            try:
                record = ended(stored.record, Phase.CANCELLED, note, self._clock.time())
                self._place.ledger.write(replace(record, lease=Lease()), stored.version)
            except ConflictError:
                continue  # its driver has gone on: look again
            self._note(target, "cancel", "done", note)
            self._say(
                target, "cancelled", f"The restart of {target.node} is cancelled: nothing was done.", record, "green"
            )
            return _DONE
        raise TpuwatchError(f"the record of {target.node} is being written all the time: try again, or see --status")

    def reset_breaker(self) -> int:
        """Close the breaker: failures until now count no more."""
        for _ in range(_TRIES):
            reading, now, settings = read(self._place.ledger), self._clock.time(), Settings.of(self._config)
            was = reading.fleet.fleet.breaker
            if was.opened is None and not budgets.trips(reading.books, settings, now):
                self._tell_reset("closed", "The breaker is closed: nothing is to be done.", was)
                return _DONE
            fleet = budgets.closed(reading.books, self._place.actor, now)
            try:
                self._place.ledger.write_fleet(fleet, reading.fleet.version)
            except ConflictError:
                continue
            self._note(None, "reset_breaker", "done", was.reason)
            why = f" It had been opened because of this: {was.reason}" if was.reason else ""
            if ahead := budgets.trips(replace(reading.books, fleet=fleet), settings, now):
                why += f" But it opens again, for by this machine's clock some failed in the future: {ahead}"
            told = f"The breaker is closed; failures until now count no more.{why}"
            self._tell_reset("reset", told, fleet.breaker)
            return _WRONG if ahead else _DONE
        raise TpuwatchError("the ledger is being written all the time: try again")

    def _note(self, target: Target | None, decision: str, result: str, sentence: str) -> None:
        path = target.path if target is not None else ""
        entry = Entry(self._clock.time(), path, self._place.actor, decision, result, sentence=sentence)
        self._place.audit.note(entry)

    # -- words

    def _line(self, text: str = "", *, style: str = "", indent: int = 0, hang: int = 0) -> None:
        tell(self._paper, text, style=style, indent=indent, hang=hang)

    def _say(self, target: Target, outcome: str, sentence: str, record: Record | None, style: str) -> None:
        if self._args.json:
            phase = record.phase if record is not None else None
            document = {"node": target.node, "outcome": outcome, "phase": phase, "note": sentence}
            options.print_json(document, indent=None)
        else:
            self._line(sentence, style=style)

    def _tell_reset(self, outcome: str, sentence: str, breaker: Breaker) -> None:
        if self._args.json:
            document = {"outcome": outcome, **times("reset", breaker.reset_at or None), "by": breaker.reset_by}
            options.print_json(document, indent=None)
        else:
            self._line(sentence, style="green")

    def _tell_breaker(self, breaker: Breaker, trips: str, now: float) -> None:
        if breaker.opened is not None:
            text = f"The breaker is OPEN, for {length(now - breaker.opened)}: tpuwatch restarts nothing by itself. "
            text += f"{breaker.reason} When that is seen to: `tpuwatch restart --reset-breaker`."
            self._line(text, style="red")
        elif trips:
            text = f"The breaker opens at the next restart that tpuwatch would do by itself. {trips}"
            self._line(f"{text} When that is seen to: `tpuwatch restart --reset-breaker`.", style="red")
        else:
            self._line("The breaker is closed.", style="green")

    def _tell_under_way(self, records: list[Record], now: float) -> None:
        self._line()
        self._line("Under way" if records else "Nothing is under way.", style="bold")
        for record in records:
            style = "red" if self._alone(record) else ""
            phase = f"{phase_words(record.phase)} for {length(now - record.entered)}"
            self._line(f"{record.target.node} ({record.target.zone}): {phase}", indent=2, style=style)
            self._line(f"{record.actor} wanted it {length(now - record.requested)} ago: {record.reason}", indent=4)
            self._line(self._driver(record), indent=4)
            if record.note:
                self._line(record.note, indent=4, style="yellow")

    def _driver(self, record: Record) -> str:
        owner = record.lease.owner
        if owner and not self._machine.is_gone(owner):
            return f"{told(owner)} is at it, as far as is known."
        if budgets.is_request(record):
            return "The node's own daemon asks for it; nobody has taken it up yet."
        who = f"{told(owner)}, which was at it, is gone" if owner else "Nobody is at it"
        return f"{who}. {standing(record)} To go on: `tpuwatch restart {record.target.path}`"

    def _tell_ended(self, records: list[Record], now: float) -> None:
        if not records:
            return
        records.sort(key=lambda record: -record.entered)
        self._line()
        self._line("Ended last", style="bold")
        for record in records[:_SHOWN]:
            style = "" if record.phase in (Phase.DONE, Phase.CANCELLED) else "red"
            ago = length(now - record.entered)
            self._line(
                f"{record.target.node} ({record.target.zone}): {phase_words(record.phase)} {ago} ago",
                indent=2,
                style=style,
            )
            if record.note and record.phase is not Phase.DONE:
                self._line(record.note, indent=4, hang=0)
        if len(records) > _SHOWN:
            self._line(f"{len(records) - _SHOWN} more: `tpuwatch restart --history` lists all.", indent=2, style="dim")

    def _tell_attempt(self, record: Record, one: Attempt) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.began))
        style = "green" if one.phase is Phase.DONE else "" if one.phase is Phase.CANCELLED else "red"
        head = f"{when}  {record.target.node} ({record.target.zone}): {phase_words(one.phase)}"
        self._line(f"{head} after {length(one.ended - one.began)}", style=style)
        stops = "nothing was stopped" if not one.stops else "1 stop" if one.stops == 1 else f"{one.stops} stops"
        self._line(
            f"{one.rung.value.replace('_', ' ')}, {stops}; wanted by {one.actor}, cause: {one.cause}",
            indent=4,
            style="dim",
        )

    def _document(self, record: Record) -> dict[str, Any]:
        return {
            "node": record.target.node,
            "zone": record.target.zone,
            "project": record.target.project,
            "rung": record.rung,
            "phase": record.phase,
            "open": record.open,
            **times("entered", record.entered),
            **times("requested", record.requested),
            "actor": record.actor,
            "cause": record.cause,
            "reason": record.reason,
            "driver": told(record.lease.owner) if record.lease.owner else None,
            "alone": record.open and self._alone(record),
            "operations": record.operations,
            "stops": record.stops,
            "tries": record.tries,
            "note": record.note,
        }


def _uncancellable(target: Target, record: Record | None) -> str:
    """Why there is nothing to cancel, or it is too late, a sentence; "" if it can be cancelled."""
    if record is None:
        return f"No restart of {target.node} (zone {target.zone}, project {target.project}) is recorded here."
    if not record.open:
        return f"The restart of {target.node} is over ({phase_words(record.phase)}): there is nothing to cancel."
    if record.phase is not Phase.REQUESTED or record.stops:
        return (
            f"The restart of {target.node} cannot be cancelled any more: it is at {phase_words(record.phase)!r}. "
            f"{standing(record)} A node is never left half restarted: to bring it to its end, "
            f"`tpuwatch restart {target.path}`."
        )
    return ""


def _attempt(record: Record, one: Attempt) -> dict[str, Any]:
    return {
        "node": record.target.node,
        "zone": record.target.zone,
        "project": record.target.project,
        "rung": one.rung,
        "phase": one.phase,
        "cause": one.cause,
        "actor": one.actor,
        "stops": one.stops,
        **times("began", one.began),
        **times("ended", one.ended),
        "seconds": one.ended - one.began,
    }
