"""A simulated cloud for the node side to watch, and the machine and the time that a daemon under test may be given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuwatch.sim import actions
from tpuwatch.sim.place import Place
from tpuwatch.sim.scenario_file import Scenario
from tpuwatch.sim.simulator import Simulator, toml_text

PROJECT, ZONE, OTHER_ZONE = "sim-project", "us-central2-b", "us-east5-b"
SCENARIO: dict[str, Any] = {
    "title": "A test",
    "nodes": [{"name": "train-{number}", "count": 3, "phase": "training"}],
    "zones": [{"name": OTHER_ZONE}],
}
NOBODY = "127.0.0.1:9"  # no test ever asks the real metadata server


class Site:
    """A simulator, and what tpuwatch is told of it. This machine is train-1, which trains."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.world = simulator.world

    def do(self, what: str, node: str = "train-1", **more: Any) -> None:
        """Let something happen, in the words of a time line."""
        on = {"node": node} if what in actions.ON_NODES else {}
        self.simulator.director.do(actions.ADAPTER.validate_python({"do": what, **on, **more}))

    def finish(self) -> None:
        """Let all that takes time in the cloud come to its end now."""
        with self.world.lock:
            now = self.world.clock.time()
            self.world._steps = [(min(due, now), order, step) for due, order, step in sorted(self.world._steps)]

    def tables(self, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """A configuration's tables that lead here, with quick polls; `changes` are further keys, or others."""
        own = self.simulator.settings()
        tables: dict[str, dict[str, Any]] = {
            "cloud": {**own["cloud"], "nodes": ["train-2"], "poll_seconds": 1.0, "timeout_seconds": 5.0},
            "runtime": {**own["runtime"], "poll_seconds": 1.0},
            "monitoring": dict(own["monitoring"]),
            # The machine that the tests run on may have been started a moment ago.
            "health": {"boot_grace_seconds": 0.0},
        }
        for table, keys in changes.items():
            tables[table] = {**tables.get(table, {}), **keys}
        return tables

    def toml(self, **changes: dict[str, Any]) -> str:
        """The same as text."""
        return toml_text(self.tables(**changes))


@contextmanager
def simulated(directory: Path, **scenario: Any) -> Iterator[Site]:
    """A simulator that plays a scenario, SCENARIO with changes, in real time."""
    directory.mkdir(mode=0o700, exist_ok=True)
    with Place(directory) as place, Simulator(Scenario.model_validate({**SCENARIO, **scenario}), place) as simulator:
        simulator.start()
        yield Site(simulator)
