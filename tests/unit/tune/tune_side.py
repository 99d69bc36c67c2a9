"""The tuning side of a daemon for tests, with a log side that the test plays."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.unit.tune.recorded import NOW
from tpuwatch.config import Config
from tpuwatch.config.schema import StateConfig
from tpuwatch.config.tune import TuneConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer
from tpuwatch.model.signals import Logs, Snapshot
from tpuwatch.model.tune import SIZE, TuneHost
from tpuwatch.store import EventStore
from tpuwatch.tune import planner
from tpuwatch.tune.plan import read_plan
from tpuwatch.tune.service import AGAIN_SECONDS, NAME, SETTLE_SECONDS, TuneService

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tpuwatch.launches.exec_records import ExecRecord
    from tpuwatch.model.events import Event
    from tpuwatch.model.launches import Launch

GIB = 1 << 30


def large_host(patch: pytest.MonkeyPatch) -> None:
    """A machine with memory for what is decided, whatever it is that the test runs on."""
    patch.setattr(planner, "read_host", lambda **_: TuneHost("v5e", 300 * GIB))


class Side:
    """The tuning side of a daemon, with a log side that the test plays."""

    def __init__(self, root: Path, **tune: Any) -> None:
        self.root = root
        self.clock = ManualClock(NOW)
        self.store = EventStore.open(root / "state", self.clock)
        self.records: list[ExecRecord] = []
        self.events: list[Event] = []
        self.alive: tuple[Launch, ...] = ()
        self.metrics = Metrics(loops=[NAME], refusals=[])
        self.watch = self.made(**tune)

    def made(self, **tune: Any) -> TuneService:
        given = {"log_dir": self.root, **tune}
        return TuneService(
            Config(tune=TuneConfig(**given), state=StateConfig(dir=self.root / "state")),
            store=self.store,
            metrics=self.metrics,
            clock=self.clock,
            snapshot=self.snapshot,
            add_record=self.records.append,
            add_event=self.events.append,
            progress=lambda *_: None,
        )

    def snapshot(self) -> Snapshot:
        logs = Logs(self.alive, (), frozenset(one.pid for one in self.alive))
        return Snapshot(logs=Answer(logs, self.clock.time()))

    def launched(self, *launches: Launch, records: tuple[ExecRecord, ...] = ()) -> None:
        """The log side has stored these."""
        self.store.commit([], [], launches)
        self.watch.on_launches(launches, records)

    def settle(self) -> None:
        """Turn until what has changed is decided."""
        self.watch.turn()
        self.clock.advance(AGAIN_SECONDS + SETTLE_SECONDS)
        self.watch.turn()

    @property
    def tune(self) -> Path:
        return self.root / "state" / "tune"

    def size(self, workload: str = "train") -> int | None:
        plan = read_plan(self.tune, workload)
        assert plan is not None
        found = [int(one.value) for one in plan.settings if one.name == SIZE]
        return found[0] if found else None

    def metric(self, series: str) -> float:
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics.exposition()[0].decode(), re.MULTILINE)
        assert found is not None, series
        return float(found[1])

    def audited(self) -> list[Any]:
        try:
            return [json.loads(line) for line in (self.root / "state" / planner.AUDIT_NAME).read_text().splitlines()]
        except FileNotFoundError:
            return []

    def files(self, suffix: str) -> list[str]:
        return sorted(path.name for path in (self.tune / "plans").glob(f"*{suffix}"))
