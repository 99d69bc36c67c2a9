"""What befalls a fleet in a day, and the people who mend what tpuwatch does not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from tests.proof.chaos.fleet_cloud import STUCK, Ail, Node
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import Target
from tpuwatch.model.signals import Maintenance
from tpuwatch.restart.ledger.reading import read_ledger
from tpuwatch.restart.policy.budgets import closed
from tpuwatch.restart.workflow.types import ApiCall

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from tests.proof.chaos.fleet_cloud import Cloud
    from tests.proof.chaos.fleet_ledger import FleetLedger
    from tests.proof.chaos.fleet_time import Agenda

ZONES: Final = ("us-central2-b", "us-east5-a", "us-east5-b", "europe-west4-b")
OUT: Final = "us-east5-a"  # has the outage
OUT_SECONDS: Final = 2 * 3600.0
OUT_SHARE: Final = 0.8  # of the zone's nodes are struck by it, within
RAMP_SECONDS: Final = 300.0
# How often which, among all troubles.
MIX: Final = {
    Ail.HANGS: 45,
    Ail.DEAD: 15,
    Ail.PASSES: 15,
    Ail.LIE: 8,
    Ail.SICK: 6,
    Ail.MAINTENANCE: 5,
    Ail.BROKEN: 4,
    Ail.TAKEN: 2,
}
CREATE_SECONDS: Final = 600.0
TWICE_SECONDS: Final = 1800.0  # two watchers call for the same
LOOKS_SECONDS: Final = 1800.0  # between a person's looks at what is being done already


class Story:
    """The same rng, the same day: whether or not somebody watches."""

    def __init__(self, agenda: Agenda, cloud: Cloud, rng: Random) -> None:
        self._agenda, self._cloud, self._rng = agenda, cloud, rng

    def nodes(self, count: int) -> None:
        """Put nodes into all zones; one in ten has several hosts, one in twenty is a spot node."""
        for number in range(count):
            target = Target("lab", ZONES[number % len(ZONES)], f"train-{number + 1}")
            several = number % 10 == 7
            queued = f"queue-{number + 1}" if several else ""
            self._cloud.add(Node(target, hosts=4 if several else 1, queued_resource=queued, spot=number % 20 == 3))

    def plan(self, seconds: float, troubles: int, *, outage_at: float | None) -> None:
        """Choose what will happen, and when."""
        kinds, weights = list(MIX), list(MIX.values())
        paths = list(self._cloud.nodes)
        for _ in range(troubles):
            at, ail = self._rng.uniform(0, seconds), self._rng.choices(kinds, weights)[0]
            path, lasts, shown = self._rng.choice(paths), self._rng.random(), self._rng.uniform(30.0, 240.0)
            self._later(at, path, ail, lasts, shown)
        for zone in ZONES:  # without capacity, for half an hour, twice a day
            for _ in range(2):
                at = self._rng.uniform(0, seconds)
                self._agenda.after(at, lambda zone=zone: self._cloud.full.add(zone))
                self._agenda.after(at + 1800.0, lambda zone=zone: self._cloud.full.discard(zone))
        if outage_at is not None:
            self._agenda.after(outage_at, self._outage)

    def _later(self, at: float, path: str, ail: Ail, lasts: float, shown: float) -> None:
        self._agenda.after(at, lambda: self._befall(self._cloud.nodes[path], ail, lasts, shown))

    def _befall(self, node: Node, ail: Ail, lasts: float, shown: float) -> None:
        """It befalls the node, if that works and nothing is being done to it."""
        if not node.works or node.ail is not None or node.operation is not None or node.target.zone in self._cloud.out:
            return
        if ail is Ail.TAKEN:
            node.spot = True
            self._cloud.ails(node, ail)
            self._cloud.change(node, state="PREEMPTED")
            self._cloud.counts[ail.value] += 1
            return
        if ail is Ail.MAINTENANCE:
            self._maintenance(node, 600.0 + 3000.0 * lasts)
            return
        self._cloud.hang(node, ail, shown)
        episode = node.episode
        if ail in (Ail.PASSES, Ail.LIE):
            self._agenda.after(120.0 + 1500.0 * lasts, lambda: self._cloud.well(node, episode))

    def _maintenance(self, node: Node, seconds: float) -> None:
        now = self._agenda.now
        self._cloud.ails(node, Ail.MAINTENANCE)
        node.maintenance = Maintenance("UNSCHEDULED", "ONGOING", now, now + seconds)
        self._cloud.change(node, health="UNHEALTHY_MAINTENANCE")
        self._cloud.counts[Ail.MAINTENANCE.value] += 1

        def over() -> None:
            node.maintenance = None
            self._cloud.boot(node)

        self._agenda.after(seconds, over)

    def _outage(self) -> None:
        self._cloud.out.add(OUT)
        struck = [one for one in self._cloud.nodes.values() if one.target.zone == OUT]
        for node in struck:
            if self._rng.random() < OUT_SHARE:
                delay, shown = self._rng.uniform(0, RAMP_SECONDS), self._rng.uniform(0, 120.0)
                self._agenda.after(delay, lambda node=node, shown=shown: self._struck(node, shown))
        self._agenda.after(OUT_SECONDS, lambda: self._cloud.out.discard(OUT))

    def _struck(self, node: Node, shown: float) -> None:
        if not node.works or node.operation is not None:
            return
        self._cloud.hang(node, Ail.OUTAGE, shown)
        episode = node.episode
        self._agenda.after(OUT_SECONDS + self._rng.uniform(0, 600.0), lambda: self._cloud.well(node, episode))


class People:
    """Those who are on duty: they come when they are asked, and later of their own accord."""

    def __init__(
        self,
        agenda: Agenda,
        cloud: Cloud,
        ledger: FleetLedger,
        rng: Random,
        *,
        notice_seconds: float,
        asked_seconds: float,
    ) -> None:
        """`notice_seconds`: until a person sees by himself that a node is bad, on average. `asked_seconds`: how long
        one who is asked takes to come."""
        self._agenda, self._cloud, self._ledger, self._rng = agenda, cloud, ledger, rng
        self._notice_seconds, self._asked_seconds = notice_seconds, asked_seconds
        self._last: dict[tuple[str, str], float] = {}
        self._noticed: set[tuple[str, int]] = set()
        self.asked: Counter[str] = Counter()
        self.busy: set[str] = set()  # paths of nodes that tpuwatch is at, as the ledger says

    def look_around(self) -> None:
        """Once a minute: what has begun will be noticed at some time."""
        for node in self._cloud.nodes.values():
            if node.ail is not None and (node.target.path, node.episode) not in self._noticed:
                self._noticed.add((node.target.path, node.episode))
                seconds = 300.0 + self._rng.expovariate(1 / self._notice_seconds)
                self._come(node, node.episode, seconds)

    def called(self, document: Mapping[str, Any]) -> None:
        """Somebody is called, with what the webhook would send."""
        blocked = document.get("blocked")
        why = getattr(blocked, "value", None) or document["event"]
        if document["event"] == "breaker_opened":
            self._close_breaker()
        path = f"projects/{document['project']}/locations/{document['zone']}/nodes/{document['node']}"
        last = self._last.get((path, why), float("-inf"))
        if self._agenda.now - last < TWICE_SECONDS:
            return  # another watcher's call for the same
        self._last[path, why] = self._agenda.now
        self.asked[why] += 1
        node = self._cloud.nodes.get(path)
        if node is not None:
            self._come(node, node.episode, self._rng.uniform(0.3, 1.7) * self._asked_seconds)

    def _close_breaker(self) -> None:
        """He who is called because it is open looks, and closes it."""

        def reset() -> None:
            try:
                reading = read_ledger(self._ledger)
                fleet = closed(reading.view, "person", self._agenda.now)
                self._ledger.write_fleet(fleet, reading.fleet.version)
            except LedgerError:
                self._agenda.after(60.0, reset)

        self._agenda.after(self._asked_seconds, reset)

    def _come(self, node: Node, episode: int, seconds: float) -> None:
        self._agenda.after(seconds, lambda: self._mend(node, episode))

    def _mend(self, node: Node, episode: int) -> None:
        """Do by hand what helps, unless it is over, or tpuwatch is at it."""
        if node.episode != episode or node.ail not in STUCK | {Ail.TAKEN}:
            return
        if node.target.path in self.busy or node.operation is not None or node.state not in ("READY", "PREEMPTED"):
            self._come(node, episode, LOOKS_SECONDS)
        elif node.spot or node.ail in (Ail.SICK, Ail.BROKEN):
            self._replace(node)
        elif node.hosts > 1:
            self._cloud.begin(ApiCall.RESET, node, "person")
        else:
            self._cloud.begin(ApiCall.STOP, node, "person")
            self._start(node)

    def _start(self, node: Node) -> None:
        if node.state == "STOPPED" and node.operation is None:
            self._cloud.begin(ApiCall.START, node, "person")
        if node.state != "READY":
            self._agenda.after(30.0, lambda: self._start(node))

    def _replace(self, node: Node) -> None:
        self._cloud.counts["recreated by person"] += 1
        self._cloud.change(node, state="CREATING")

        def made() -> None:
            node.spot = False
            self._cloud.ails(node, None)
            self._cloud.boot(node)

        self._agenda.after(CREATE_SECONDS, made)
