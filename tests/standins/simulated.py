"""A simulated cloud for tests of the node signals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpuwatch.sim.directory import SimulatorDirectory
from tpuwatch.sim.scenario import actions
from tpuwatch.sim.scenario.file import Scenario
from tpuwatch.sim.simulator import Simulator, toml_text

PROJECT, ZONE, OTHER_ZONE = "sim-project", "us-central2-b", "us-east5-b"
SCENARIO: dict[str, Any] = {
    "title": "A test",
    "nodes": [{"name": "train-{number}", "count": 3, "phase": "training"}],
    "zones": [{"name": OTHER_ZONE}],
}
NOBODY = "127.0.0.1:9"  # no test ever asks the real metadata server


class Site:
    """A running simulator and the tpuwatch configuration for it. This machine is node train-1, in phase training."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.world = simulator.world

    def do(self, what: str, node: str = "train-1", **more: Any) -> None:
        """Execute an action with the keys of a scenario step."""
        on = {"node": node} if what in actions.ON_NODES else {}
        self.simulator.executor.execute(actions.ADAPTER.validate_python({"do": what, **on, **more}))

    def finish(self) -> None:
        """Make all scheduled steps of the cloud due now."""
        with self.world.lock:
            now = self.world.clock.time()
            self.world._steps = [(min(due, now), order, step) for due, order, step in sorted(self.world._steps)]

    def tables(self, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return configuration tables for this simulator, with short poll intervals, updated by `changes`."""
        own = self.simulator.settings()
        # Each test says by its environment whether its tpuwatch is on the simulated machine.
        cloud = {key: value for key, value in own["cloud"].items() if key != "metadata_server"}
        tables: dict[str, dict[str, Any]] = {
            "cloud": {**cloud, "nodes": ["train-2"], "poll_seconds": 1.0, "timeout_seconds": 5.0},
            "runtime": {**own["runtime"], "poll_seconds": 1.0},
            "monitoring": {"endpoint": own["monitoring"]["endpoint"]},
            # The machine that the tests run on may have been started a moment ago.
            "health": {"boot_grace_seconds": 0.0},
        }
        for table, keys in changes.items():
            tables[table] = {**tables.get(table, {}), **keys}
        return tables

    def toml(self, **changes: dict[str, Any]) -> str:
        """Return the tables as TOML."""
        return toml_text(self.tables(**changes))


@contextmanager
def simulated(directory: Path, **scenario: Any) -> Iterator[Site]:
    """Run a simulator with SCENARIO, updated by `scenario`, in real time."""
    directory.mkdir(mode=0o700, exist_ok=True)
    with (
        SimulatorDirectory(directory) as sim_directory,
        Simulator(Scenario.model_validate({**SCENARIO, **scenario}), sim_directory) as simulator,
    ):
        simulator.start()
        yield Site(simulator)
