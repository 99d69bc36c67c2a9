"""The tuning side of a daemon for tests, with a log side that the test plays."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.tune.recorded import NOW
from tpuwatch.clock import ManualClock
from tpuwatch.config import Config
from tpuwatch.config.schema import State
from tpuwatch.config.tune import Tune
from tpuwatch.daemon import planning
from tpuwatch.daemon.tunewatch import AGAIN_SECONDS, NAME, SETTLE_SECONDS, TuneWatch
from tpuwatch.export.metrics import Metrics
from tpuwatch.health.evidence import Answer, Logs
from tpuwatch.journal import Journal
from tpuwatch.node.board import Posted
from tpuwatch.tune.model import SIZE, Host
from tpuwatch.tune.plan import read_plan

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tpuwatch.model import Event, Launch
    from tpuwatch.tune.record import Record

GIB = 1 << 30


def large_host(patch: pytest.MonkeyPatch) -> None:
    """A machine with memory for what is decided, whatever it is that the test runs on."""
    patch.setattr(planning, "read_host", lambda **_: Host("v5e", 400 * GIB, 300 * GIB))


class Side:
    """The tuning side of a daemon, with a log side that the test plays."""

    def __init__(self, root: Path, **tune: Any) -> None:
        self.root = root
        self.clock = ManualClock(NOW)
        self.journal = Journal.open(root / "state", self.clock)
        self.adopted: list[Record] = []
        self.put: list[Event] = []
        self.alive: tuple[Launch, ...] = ()
        self.metrics = Metrics(loops=[NAME], refusals=[])
        self.watch = self.made(**tune)

    def made(self, **tune: Any) -> TuneWatch:
        given = {"log_dir": self.root, **tune}
        return TuneWatch(
            Config(tune=Tune(**given), state=State(dir=self.root / "state")),
            journal=self.journal,
            metrics=self.metrics,
            clock=self.clock,
            posted=self.posted,
            adopt=self.adopted.append,
            put=self.put.append,
            progress=lambda *_: None,
        )

    def posted(self) -> Posted:
        logs = Logs(self.alive, (), frozenset(one.pid for one in self.alive))
        return Posted(logs=Answer(logs, self.clock.time()))

    def launched(self, *launches: Launch, records: tuple[Record, ...] = ()) -> None:
        """The log side has stored these."""
        self.journal.commit([], [], launches)
        self.watch.heard(launches, records)

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
            return [json.loads(line) for line in (self.root / "state" / planning.AUDIT_NAME).read_text().splitlines()]
        except FileNotFoundError:
            return []

    def files(self, suffix: str) -> list[str]:
        return sorted(path.name for path in (self.tune / "plans").glob(f"*{suffix}"))
