"""Budgets, back-off, cool-down and the breaker, computed from the ledger. Pure.

What was done is counted by when it began, in windows that slide. Who did it does not matter: what operators do takes
its share too. A node that was created again under its name is another one: what was done to the old one counts for all
nodes together, and not for the new one. Times are of the writers' clocks; one in the future counts, so that a wrong
clock makes it wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tpuwatch.core import counted, doubled, length, listed
from tpuwatch.model import (
    DESTRUCTIVE,
    ENDED,
    Action,
    Attempt,
    Blocked,
    Breaker,
    Claim,
    Fleet,
    Phase,
    RestartBudget,
    Target,
    Use,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.model import RestartRecord
    from tpuwatch.restart.policy.settings import PolicySettings

SKEW_SECONDS: Final = 120.0  # between the clocks of those who write records
UNKNOWN_FLEET_SIZE: Final = 1_000_000  # nodes: a command does not know their number, so a share of them limits nothing
_NAMED: Final = 5  # nodes, in a sentence


@dataclass(frozen=True)  # no slots: what is reckoned from it is kept with it
class LedgerView:
    """What the ledger holds now: the records by their nodes' paths, and what concerns all of them.

    `fleet` has to be read first: a claim may be dropped from it as soon as the records show what became of it.
    One serves many decisions, until something is written.
    """

    records: Mapping[str, RestartRecord] = field(default_factory=dict)
    fleet: Fleet = field(default_factory=Fleet)

    @cached_property
    def begun(self) -> list[tuple[str, float]]:
        """Every restart by its node and when it began. What was cancelled before anything was done is none."""
        begun = [(claim.target.path, claim.began) for claim in self.unrecorded]
        begun += [(path, one.began) for path, one in self._past if one.phase is not Phase.CANCELLED]
        return begun + [(path, _began(record)) for path, record in self.active if record.action in DESTRUCTIVE]

    @cached_property
    def active(self) -> list[tuple[str, RestartRecord]]:
        """Records of which something is being done."""
        return [(path, record) for path, record in self.records.items() if under_way(record)]

    @cached_property
    def over(self) -> list[tuple[float, str, bool]]:
        """Every restart that was done, the latest first: when it ended, its node, whether it made nothing better."""
        done = [(one.ended, path, _failed(one)) for path, one in self._past if _failed(one) or one.phase is Phase.DONE]
        return sorted(done, reverse=True)

    @cached_property
    def newest(self) -> float:
        """When the latest was written that is known of any restart."""
        times = [max(record.entered, record.requested) for record in self.records.values()]
        return max([*times, *(claim.began for claim in self.fleet.claims)], default=-math.inf)

    @cached_property
    def unrecorded(self) -> list[Claim]:
        """Claims of which the records do not show yet what became of them."""
        return [one for one in self.fleet.claims if one.began > _recorded(self.records.get(one.target.path))]

    @cached_property
    def _past(self) -> list[tuple[str, Attempt]]:
        return [(path, one) for path, record in self.records.items() for one in _destructive(record)]


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a budget does not allow it. `until` is when that is over by itself; None is never."""

    blocked: Blocked
    sentence: str
    until: float | None = None
    opens_breaker: str = ""


def attempts(record: RestartRecord) -> list[Attempt]:
    """What was done to the node and has ended, the newest first: the history, and the record itself if it has."""
    past = sorted(record.history, key=lambda one: -one.ended)
    if record.phase not in ENDED or (past and past[0].ended >= record.entered):
        return past
    return [Attempt.of(record), *past]


def is_request(record: RestartRecord) -> bool:
    """Whether the record is a request by the node's own daemon that no watcher has taken up."""
    untouched = record.phase is Phase.REQUESTED and not record.began and not record.lease.owner
    return untouched and bool(record.signals)


def under_way(record: RestartRecord | None) -> bool:
    """Whether something is being done, or about to be. What a daemon asks others for is not."""
    return record is not None and record.open and not is_request(record)


def hold(
    view: LedgerView,
    target: Target,
    action: Action,
    cause: str,
    watched: int,
    settings: PolicySettings,
    now: float,
    created: float | None = None,
) -> Hold | None:
    """The first reason not to interrupt what runs on the node now; None if there is none.

    `watched` is how many nodes there are. `created` is when the node was created, by the API; None is not known. It
    never raises, whatever the ledger holds.
    """
    past = _of_this_node(_destructive(view.records.get(target.path)), created)
    return (
        breaker_hold(view, settings, now)
        or _called_an_operator(past, settings, now)
        or _same_cause(past, cause, settings, now)
        or _no_capacity(view, target, action)
        or _backoff(past, settings, now)
        or _cooldown(past, settings, now)
        or _used_up(view, target, watched, settings, now, created)
    )


def hold_checkpoint(
    record: RestartRecord | None, settings: PolicySettings, now: float, created: float | None = None
) -> Hold | None:
    """The reason not to ask for a checkpoint now: one was asked for a moment ago."""
    past = [one for one in attempts(record) if one.action is Action.CHECKPOINT] if record is not None else []
    past = _of_this_node(past, created)
    if past and (left := past[0].ended + settings.backoff_seconds - now) > 0:
        sentence = f"the last checkpoint was asked for a moment ago, and the next waits for {length(left)}"
        return Hold(Blocked.BACKOFF, sentence, now + left)
    return None


def use(
    view: LedgerView,
    target: Target,
    watched: int,
    settings: PolicySettings,
    now: float,
    created: float | None = None,
) -> Use:
    """How much of the two budgets is used."""
    mine, since = target.path, now - settings.node_window_seconds
    return Use(
        node=sum(began > since and path == mine and not _is_former(began, created) for path, began in view.begun),
        node_max=settings.node_max,
        fleet=_of_fleet(view, now - settings.fleet_window_seconds),
        fleet_max=allowance(watched, settings),
    )


def fleet_budget(view: LedgerView, settings: PolicySettings, now: float) -> RestartBudget:
    """What is used of the budget of all nodes, and what opens the breaker."""
    return RestartBudget(
        restarts=use(view, Target("", "", ""), UNKNOWN_FLEET_SIZE, settings, now).fleet,
        max_restarts=settings.fleet_max,
        window_seconds=settings.fleet_window_seconds,
        node_window_seconds=settings.node_window_seconds,
        breaker_opens="" if view.fleet.breaker.opened is not None else trips(view, settings, now),
    )


def claimed(view: LedgerView, target: Target, settings: PolicySettings, now: float) -> Fleet:
    """What is written for all nodes before a restart is recorded, so that no one else can use the same share."""
    since = now - max(settings.node_window_seconds, settings.fleet_window_seconds)
    kept = tuple(one for one in view.unrecorded if one.began > since)
    return replace(view.fleet, claims=(Claim(target, now), *kept))


def opened(fleet: Fleet, why: str, now: float) -> Fleet:
    """With the breaker open. One that is open keeps its reason."""
    if fleet.breaker.opened is not None:
        return fleet
    return replace(fleet, breaker=replace(fleet.breaker, opened=now, reason=why))


def closed(view: LedgerView, by: str, now: float) -> Fleet:
    """With the breaker closed by an operator; what failed until now counts no more, by another's clock or by this one.

    What is dated further ahead than clocks may differ counts still: else nothing would count until then.
    """
    latest = max((ended for ended, _, failed in view.over if failed and ended <= now + SKEW_SECONDS), default=now)
    return replace(view.fleet, breaker=Breaker(reset_at=max(now, latest), reset_by=by))


def allowance(watched: int, settings: PolicySettings) -> int:
    """How many restarts the fleet's window allows: the smaller of number and share, and at least one."""
    return max(1, min(settings.fleet_max, math.floor(watched * settings.fleet_percent / 100 + 1e-9)))


def backoff_seconds(done: int, settings: PolicySettings) -> float:
    """How long a node is left alone after so many restarts within its window (one or more)."""
    longest = max(settings.backoff_seconds, settings.max_backoff_seconds)
    return doubled(settings.backoff_seconds, max(done - 1, 0), longest)


def trips(view: LedgerView, settings: PolicySettings, now: float) -> str:
    """Why the breaker has to be open, as a sentence, if so many of the latest restarts have failed; else ""."""
    since = max(now - settings.breaker_window_seconds, view.fleet.breaker.reset_at)
    latest = view.over[: max(settings.breaker_window_restarts, settings.breaker_failures)]
    failed = [path for ended, path, has_failed in latest if has_failed and ended > since]
    if len(failed) < settings.breaker_failures:
        return ""
    nodes = sorted({path.rpartition("/")[2] for path in failed})
    named = listed([*nodes[:_NAMED], *([f"{len(nodes) - _NAMED} more"] if len(nodes) > _NAMED else [])])
    have = "restart has" if len(failed) == 1 else "restarts have"
    return f"{len(failed)} {have} failed within {length(settings.breaker_window_seconds)}: of {named}."


def _failed(one: Attempt) -> bool:
    """Whether a restart was carried out, and made nothing better.

    One that was refused has shown nothing. One that ended with a call for an operator shows what others did: the node
    was deleted, preempted, terminated or stopped by them.
    """
    return one.phase is Phase.FAILED and one.stops > 0


def _of_this_node(past: list[Attempt], created: float | None) -> list[Attempt]:
    """Those that were not done to a former node of the same name."""
    return [one for one in past if not _is_former(one.began, created)]


def _is_former(began: float, created: float | None) -> bool:
    """Whether what began then was done to a former node of the same name."""
    return created is not None and began < created


def _destructive(record: RestartRecord | None) -> list[Attempt]:
    return [one for one in attempts(record) if one.action in DESTRUCTIVE] if record is not None else []


def _recorded(record: RestartRecord | None) -> float:
    """When the latest restart began that the record knows of; without end while one is under way."""
    if under_way(record):
        return math.inf
    if record is not None and record.phase is Phase.CANCELLED:  # of it nothing was done, so it has no attempt
        return record.requested
    return max((one.began for one in _destructive(record)), default=-math.inf)


def _of_fleet(view: LedgerView, since: float) -> int:
    """Those of the fleet's window, and what is still under way, however long ago it began."""
    long_ago = [one for _, one in view.active if one.action in DESTRUCTIVE and _began(one) <= since]
    return sum(began > since for _, began in view.begun) + len(long_ago)


def _began(record: RestartRecord) -> float:
    return record.began or record.requested


def _called_an_operator(past: list[Attempt], settings: PolicySettings, now: float) -> Hold | None:
    if not past or past[0].phase is not Phase.NEEDS_OPERATOR:
        return None
    until = past[0].ended + settings.node_window_seconds
    if now >= until:
        return None
    return Hold(Blocked.NEEDS_OPERATOR, "the last restart of the node ended with a call for an operator", until)


def breaker_hold(view: LedgerView, settings: PolicySettings, now: float) -> Hold | None:
    """The breaker is open, or opens."""
    breaker = view.fleet.breaker
    if breaker.opened is not None:
        why = breaker.reason.rstrip(".") or "restarts have failed"
        return Hold(Blocked.BREAKER, f"the breaker is open until `tpuwatch restarts reset-breaker`: {why}")
    if why := trips(view, settings, now):
        return Hold(Blocked.BREAKER, f"the breaker opens: {why.rstrip('.')}", opens_breaker=why)
    return None


def _same_cause(past: list[Attempt], cause: str, settings: PolicySettings, now: float) -> Hold | None:
    # Whether one helped is not known where that is not verified, or where it was refused.
    past = [one for one in past if one.phase is not Phase.NOT_VERIFIED and (one.phase is not Phase.FAILED or one.stops)]
    if not past or past[0].cause != cause:
        return None
    until = past[0].ended + settings.same_cause_seconds
    if now >= until:
        return None
    if past[0].phase is Phase.CANCELLED:
        sentence = f"a restart for the same fault ({cause}) was cancelled {length(now - past[0].ended)} ago"
    else:
        ago = length(now - past[0].ended)
        sentence = f"the same fault ({cause}) is back {ago} after a restart, which would not help a second time either"
    return Hold(Blocked.SAME_CAUSE, sentence, until)


def _no_capacity(view: LedgerView, target: Target, action: Action) -> Hold | None:
    """A stop gives capacity back: not where another node has just not got its own again."""
    if action is not Action.RESTART_NODE:
        return None
    for _, record in view.active:
        there = (record.target.project, record.target.zone) == (target.project, target.zone)
        if there and record.waits_for_capacity:
            sentence = f"{record.target.node} in the same zone waits for capacity to start, and a stop gives it back"
            return Hold(Blocked.NO_CAPACITY, sentence)
    return None


def _backoff(past: list[Attempt], settings: PolicySettings, now: float) -> Hold | None:
    since = now - settings.node_window_seconds
    done = sum(one.ended > since for one in past)
    if not past:
        return None
    until = past[0].ended + backoff_seconds(done, settings)
    if now >= until:
        return None
    sentence = (
        f"the node was restarted {length(now - past[0].ended)} ago, and is left alone for {length(until - now)} more"
    )
    return Hold(Blocked.BACKOFF, sentence, until)


def _cooldown(past: list[Attempt], settings: PolicySettings, now: float) -> Hold | None:
    helped = next((one.ended for one in past if one.phase is Phase.DONE), None)
    if helped is None or now >= (until := helped + settings.cooldown_seconds):
        return None
    sentence = f"a restart helped {length(now - helped)} ago, and the node is left alone for {length(until - now)} more"
    return Hold(Blocked.COOLDOWN, sentence, until)


def _used_up(
    view: LedgerView, target: Target, watched: int, settings: PolicySettings, now: float, created: float | None
) -> Hold | None:
    used = use(view, target, watched, settings, now, created)
    if used.node >= used.node_max:
        window = length(settings.node_window_seconds)
        return Hold(
            Blocked.NODE_BUDGET,
            f"the node has used {used.node} of its {counted(used.node_max, 'restart')} within {window}",
        )
    if used.fleet >= used.fleet_max:
        window = length(settings.fleet_window_seconds)
        return Hold(
            Blocked.FLEET_BUDGET,
            f"{counted(used.fleet, 'restart')} within {window} {'is' if used.fleet == 1 else 'are'} as many as are "
            f"allowed to {counted(watched, 'node')}",
        )
    return None
