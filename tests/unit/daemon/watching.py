"""The node side of a daemon over a simulated cloud, in the process of the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.standins.machine import Machine
from tests.standins.simulated import Site, simulated
from tpuwatch.config import Config
from tpuwatch.core.clock import SystemClock
from tpuwatch.daemon.node_services import NodeServices
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.events import Event
from tpuwatch.model.verdict import Verdict
from tpuwatch.store import EventStore

BLACK_HOLE = {"black_hole": True}


class AheadClock(SystemClock):
    """The machine's own clocks, and `ahead` seconds more."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Watching:
    """Makes node sides on one store and one set of metrics, as the daemon does, and keeps what they hand on."""

    def __init__(self, site: Site, machine: Machine, directory: Path) -> None:
        self.site = site
        self.machine = machine
        self.directory = directory
        self.clock = AheadClock()
        self.store = EventStore.open(directory, self.clock)
        self.metrics = Metrics(loops=[], refusals=[])
        self.events: list[Event] = []
        self.turns: list[str] = []
        self.made: list[NodeServices] = []

    def new(self, **changes: dict[str, Any]) -> NodeServices:
        """One by the site's configuration with these changes, not started."""
        watch = NodeServices(
            Config.model_validate(
                {
                    "state": {"dir": str(self.directory)},
                    **self.site.tables(**{"host": {"root": str(self.machine.root)}, **changes}),
                }
            ),
            store=self.store,
            metrics=self.metrics,
            clock=self.clock,
            boot_id="boot",
            on_event=self.events.append,
            on_turn=lambda name, _seconds: self.turns.append(name),
        )
        self.made.append(watch)
        return watch

    def start(self, **changes: dict[str, Any]) -> NodeServices:
        watch = self.new(**changes)
        watch.start()
        return watch

    def up(self) -> dict[str, float]:
        """The signals that have a series, and whether they are up."""
        text = self.metrics.exposition()[0].decode()
        found = re.findall(r'^tpuwatch_signal_up\{signal="(\w+)"\} (\S+)$', text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def close(self) -> None:
        for watch in self.made:
            watch.stop()
        for watch in self.made:
            ended(watch)
        self.store.close()


def ended(watch: NodeServices) -> bool:
    """Whether all of its threads come to their end."""
    return all(loop.join(30) for loop in watch.loops._loops.values())


def wake(watch: NodeServices, name: str) -> None:
    watch.loops.wake(name)


def problem(watch: NodeServices, signal: Signal) -> Problem | None:
    """The problem of its latest attempt."""
    answer = watch.signals.snapshot.answers()[signal]
    return answer.problem


def verdicts(watch: NodeServices) -> dict[str, Verdict]:
    return {status.node: status.judgement.verdict for status in watch.judge.nodes}


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
        watching = Watching(site, machine, directory / "state")
        try:
            yield watching
        finally:
            watching.close()
