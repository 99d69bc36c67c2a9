"""`python -m tests.proof.chaos.fleet`: a day of a thousand nodes in a minute, with random faults and an outage.

The judge, the policy, the budgets, the state machine and its drivers are the real ones. The cloud, the ledger and time
are reckoned in memory, for a day of real calls would take a day. Watchers are killed now and then. The same day is
lived three times: with people alone, with tpuwatch that only observes, and with tpuwatch that acts.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from tests.proof.chaos.fleet_cloud import STUCK, Ail, Cloud, Down, Weather
from tests.proof.chaos.fleet_inside import POLL_SECONDS, Fleet, Insides
from tests.proof.chaos.fleet_ledger import FleetLedger
from tests.proof.chaos.fleet_story import People, Story
from tests.proof.chaos.fleet_time import Agenda
from tests.proof.chaos.fleet_watch import Watcher
from tpuwatch.model.restart import Phase
from tpuwatch.model.verdict import DESTRUCTIVE
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.settings import SWITCHED, PolicySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HOUR: Final = 3600.0
EVENING_SECONDS: Final = 12 * HOUR  # after the day nothing new happens, and what is under way comes to its end
WATCHERS: Final = 2
KILLS: Final = 6  # of each watcher, in a day
# A node that has come back by itself is still shown as it was, and is asked for every 30 s only.
UNSEEN_SECONDS: Final = 90.0
ACT: Final = PolicySettings(act=True, allowed=frozenset(SWITCHED))
OBSERVE: Final = replace(ACT, act=False)


@dataclass(frozen=True)
class Plan:
    """What kind of day it is."""

    nodes: int = 1000
    hours: float = 24.0
    troubles: int = 150
    seed: int = 1
    notice_hours: float = 3.0
    asked_minutes: float = 30.0
    outage_hour: float | None = 13.0  # None: there is no outage
    ledger_fails: float = 0.01


@dataclass
class Account:
    """What came of a day."""

    lost: dict[str, float] = field(default_factory=dict)  # node-hours, by what had begun it
    availability: float = 0.0
    beside: float = 0.0  # the availability, had the outage not been
    counts: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    fixed: float = 0.0  # restarts for each trouble that they were for
    late: int = 0  # restarts of nodes that had come back by themselves moments before
    violations: list[str] = field(default_factory=list)


class Day:
    """One day with these watchers; none, where `settings` is None."""

    def __init__(self, plan: Plan, settings: PolicySettings | None) -> None:
        self._plan, self._settings = plan, settings
        self._agenda = Agenda()
        self._cloud = Cloud(self._agenda, self._rng("cloud"), Weather())
        self._ledger = FleetLedger(self._rng("ledger"), failing=plan.ledger_fails)
        self._people = People(
            self._agenda,
            self._cloud,
            self._ledger,
            self._rng("people"),
            notice_seconds=plan.notice_hours * HOUR,
            asked_seconds=plan.asked_minutes * 60.0,
        )

    def live(self) -> Account:
        """The day, and the evening after it."""
        plan, agenda = self._plan, self._agenda
        seconds, began = plan.hours * HOUR, agenda.now
        story = Story(agenda, self._cloud, self._rng("story"))
        story.nodes(plan.nodes)
        story.plan(seconds, plan.troubles, outage_at=None if plan.outage_hour is None else plan.outage_hour * HOUR)
        self._every(60.0, self._people.look_around)
        if self._settings is not None:
            self._watch(self._settings, seconds)
        agenda.run(began + seconds)
        lost = self._cloud.lost()
        beside = sum(lost.values()) - lost[Ail.OUTAGE.value]
        account = Account({why: node_seconds / HOUR for why, node_seconds in lost.items()})
        account.availability = 1 - sum(lost.values()) / (plan.nodes * seconds)
        account.beside = 1 - beside / (plan.nodes * seconds)
        while agenda.now < began + seconds + EVENING_SECONDS and not self._quiet():
            agenda.run(agenda.now + HOUR)
        agenda.close()
        self._judge(account)
        return account

    def _watch(self, settings: PolicySettings, seconds: float) -> None:
        rng = self._rng("kills")
        fleet = Fleet(self._agenda, self._cloud, self._ledger, self._people, settings)
        self._every(POLL_SECONDS, Insides(fleet).turn)
        for number in range(WATCHERS):
            watcher = Watcher(f"watcher-{number + 1}", fleet, self._rng(f"watcher {number}"))
            offset = POLL_SECONDS * number / WATCHERS
            self._agenda.after(offset, partial(self._every, POLL_SECONDS, watcher.turn))
            for _ in range(KILLS):
                self._agenda.after(rng.uniform(0, seconds), watcher.kill)

    def _quiet(self) -> bool:
        nodes = self._cloud.nodes.values()
        return all(one.works for one in nodes) and not any(budgets.under_way(one) for one in self._ledger.seen())

    def _every(self, seconds: float, do: Callable[[], object]) -> None:
        def again() -> None:
            do()
            self._agenda.after(seconds, again)

        again()

    def _rng(self, what: str) -> Random:
        return Random(f"{what} {self._plan.seed}")

    # -- what must hold

    def _judge(self, account: Account) -> None:
        cloud, wrong = self._cloud, account.violations
        account.counts, account.asked = cloud.counts, self._people.asked
        account.restarts = len(cloud.downs)
        for down in cloud.downs:
            if is_false(down):
                wrong.append(f"{_node(down.node)} was restarted for nothing: {_truth(down)}")
            account.late += down.ail not in STUCK and not is_false(down)
        per = Counter((down.node, down.episode) for down in cloud.downs if down.ail in STUCK)
        account.fixed = sum(per.values()) / len(per) if per else 0.0
        wrong += [
            f"{_node(node)} was restarted {count} times for one fault." for (node, _), count in per.items() if count > 1
        ]
        for node in cloud.nodes.values():
            if node.state not in ("READY", "PREEMPTED"):
                wrong.append(f"{node.target.node} is left {node.state}.")
        wrong += [
            f"{one.target.node}: its record is left {one.phase.value}."
            for one in self._ledger.seen()
            if budgets.under_way(one)
        ]
        if self._settings is not None:
            wrong += self._overruns(self._settings)
            if not self._settings.act and cloud.downs:
                wrong.append("It acted though it was only to observe.")

    def _overruns(self, settings: PolicySettings) -> list[str]:
        """Budgets by what the ledger holds in the end, over all windows."""
        begun: dict[str, list[float]] = {}
        for record in self._ledger.seen():
            tries = [one for one in budgets.attempts(record) if one.action in DESTRUCTIVE]
            begun[record.target.node] = [one.began for one in tries if one.phase is not Phase.CANCELLED]
        found = [
            f"{node} was restarted more often than {settings.node_max} times within its window."
            for node, times in begun.items()
            if most_within(times, settings.node_window_seconds) > settings.node_max
        ]
        allowed = budgets.allowance(self._plan.nodes, settings)
        most = most_within([at for times in begun.values() for at in times], settings.fleet_window_seconds)
        return (
            [*found, f"{most} restarts of all nodes within a window that allows {allowed}."]
            if most > allowed
            else found
        )


def is_false(down: Down) -> bool:
    """Whether a restart was for nothing: the node worked, or had what no restart mends and what ends by itself."""
    if down.ail is None or down.ail is Ail.LIE:
        return down.worked_for > UNSEEN_SECONDS
    return down.ail not in STUCK


def most_within(times: Iterable[float], seconds: float) -> int:
    """The most of these times in any window of that length."""
    ordered, first, most = sorted(times), 0, 0
    for number, at in enumerate(ordered):
        while ordered[first] <= at - seconds:
            first += 1
        most = max(most, number - first + 1)
    return most


def _node(path: str) -> str:
    return path.rpartition("/")[2]


def _truth(down: Down) -> str:
    return f"it had worked for {down.worked_for:.0f} s." if down.ail in (None, Ail.LIE) else f"{down.ail.value}."


# -- the table


def table(accounts: dict[str, Account]) -> str:
    """The days beside each other, for people."""
    names = list(accounts)
    every = list(accounts.values())
    counts = list(dict.fromkeys(key for one in every for key in sorted(one.counts)))
    losses = sorted({why for one in every for why in one.lost})
    reasons = sorted({key for one in every for key in one.asked})
    rows: list[tuple[str, list[str]]] = [
        ("availability", [f"{100 * one.availability:.3f} %" for one in every]),
        ("… the outage left out", [f"{100 * one.beside:.3f} %" for one in every]),
        *[(f"node-hours lost: {why}", [f"{one.lost.get(why, 0.0):.1f}" for one in every]) for why in losses],
        ("restarts by tpuwatch", [str(one.restarts) for one in every]),
        ("… for each fault", [f"{one.fixed:.2f}" if one.restarts else "" for one in every]),
        ("… of nodes just come back", [str(one.late) for one in every]),
        ("people asked", [str(sum(one.asked.values())) for one in every]),
        *[(f"… {why}", [str(one.asked[why] or "") for one in every]) for why in reasons],
        *[(_named(what), [str(one.counts[what] or "") for one in every]) for what in counts],
        ("violations", [str(len(one.violations)) for one in every]),
    ]
    head = f"{'':<34}" + "".join(f"{name:>18}" for name in names)
    return "\n".join([head, *(f"{name:<34}" + "".join(f"{value:>18}" for value in values) for name, values in rows)])


def _named(what: str) -> str:
    return f"trouble: {what}" if what in {ail.value for ail in Ail} else what


def main() -> int:
    """0 when nothing was violated; else 1, after an account of what was."""
    args = _arguments()
    outage_hour = Plan.outage_hour if args.outage else None
    plan = Plan(args.nodes, args.hours, args.troubles, args.seed, outage_hour=outage_hour)
    began, accounts = time.monotonic(), {}
    logging.getLogger("tpuwatch").setLevel(logging.CRITICAL)  # that much goes wrong is the point
    modes: dict[str, PolicySettings | None] = {"people alone": None, "it observes": OBSERVE, "it acts": ACT}
    for name, settings in modes.items():
        accounts[name] = Day(plan, settings).live()
    print(table(accounts))
    print(f"{'seconds':<34}{time.monotonic() - began:>18.0f}")
    violations = [f"{name}: {one}" for name, account in accounts.items() for one in account.violations]
    for one in violations:
        print(f"  {one}")
    return 1 if violations else 0


def _arguments() -> argparse.Namespace:
    usual = Plan()
    parser = argparse.ArgumentParser(prog="python -m tests.proof.chaos.fleet", description="A day of a fleet.")
    parser.add_argument("--nodes", type=int, default=usual.nodes)
    parser.add_argument("--hours", type=float, default=usual.hours, help="how long the day is (default 24)")
    parser.add_argument("--troubles", type=int, default=usual.troubles, help="besides the outage (default 150)")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--no-outage", dest="outage", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
