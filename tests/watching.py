"""The node side of a daemon over a simulated cloud, in the process of the tests."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node.machine import Machine
from tests.simulated import Site, simulated
from tpuwatch.clock import SystemClock
from tpuwatch.config import Config
from tpuwatch.daemon.nodewatch import NodeWatch
from tpuwatch.export.metrics import Metrics
from tpuwatch.health.evidence import Problem, Witness
from tpuwatch.health.verdict import Verdict
from tpuwatch.journal import Journal
from tpuwatch.model import Event
from tpuwatch.node import host

BLACK_HOLE = {"black_hole": True}


class AheadClock(SystemClock):
    """The machine's own clocks, and `ahead` seconds more."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Watching:
    """Makes node sides on one journal and one set of metrics, as the daemon does, and keeps what they hand on."""

    def __init__(self, site: Site, directory: Path) -> None:
        self.site = site
        self.clock = AheadClock()
        self.journal = Journal.open(directory, self.clock)
        self.metrics = Metrics(loops=[], refusals=[])
        self.events: list[Event] = []
        self.turns: list[str] = []
        self.made: list[NodeWatch] = []

    def new(self, **changes: dict[str, Any]) -> NodeWatch:
        """One by the site's configuration with these changes, not started."""
        watch = NodeWatch(
            Config.model_validate(self.site.tables(**changes)),
            journal=self.journal,
            metrics=self.metrics,
            clock=self.clock,
            boot_id="boot",
            put=self.events.append,
            progress=lambda name, _seconds: self.turns.append(name),
        )
        self.made.append(watch)
        return watch

    def start(self, **changes: dict[str, Any]) -> NodeWatch:
        watch = self.new(**changes)
        watch.start()
        return watch

    def up(self) -> dict[str, float]:
        """The witnesses that have a series, and whether they are up."""
        text = self.metrics.exposition()[0].decode()
        found = re.findall(r'^tpuwatch_witness_up\{witness="(\w+)"\} (\S+)$', text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def close(self) -> None:
        for watch in self.made:
            watch.stop()
        for watch in self.made:
            ended(watch)
        self.journal.close()


def ended(watch: NodeWatch) -> bool:
    """Whether all of its threads come to their end."""
    return all(loop.join(30) for loop, _ in watch._loops.values())


def wake(watch: NodeWatch, name: str) -> None:
    watch._loops[name][0].wake()


def problem(watch: NodeWatch, witness: Witness) -> Problem | None:
    """The problem of its latest attempt."""
    answer = watch.posted.answers()[witness]
    return answer.problem


def verdicts(watch: NodeWatch) -> dict[str, Verdict]:
    return {status.node: status.judgement.verdict for status in watch.nodes}


def under_way(site: Site, method: str) -> bool:
    """Whether a call of the method has come in and is not answered."""
    return any(call.method == method and not call.code for call in list(site.world.calls))


@contextmanager
def watched(directory: Path) -> Iterator[Watching]:
    """A simulated cloud, a made-up machine in it, and what makes node sides there."""
    with pytest.MonkeyPatch.context() as patch, simulated(directory / "sim") as site:
        for name, value in site.simulator.environment().items():
            patch.setenv(name, value)
        machine = Machine(directory / "machine")
        patch.setattr(host, "HostWitness", functools.partial(host.HostWitness, root=machine.root))
        watching = Watching(site, directory / "state")
        try:
            yield watching
        finally:
            watching.close()
