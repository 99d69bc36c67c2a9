"""What others may read of the state directory, through which they get to the plans: those, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.restart.records import NOW, record
from tests.unit.store.make import event
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.tune import SizeDecision, SizeStep, TunePlan
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.store import EventStore
from tpuwatch.tune.plan import write_plan

PLAN = TunePlan("bert", NOW, (), SizeDecision(SizeStep.KEEP, None, None, ()))
NOBODY = 65534
AS_NOBODY = """
import json, os, sys
from pathlib import Path
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
readable = []
for name in sys.argv[2:]:
    try:
        Path(sys.argv[1], name).read_bytes()
        readable.append(name)
    except PermissionError:
        pass
try:
    os.listdir(sys.argv[1])
    readable.append(".")
except PermissionError:
    pass
print(json.dumps(readable))
"""


@pytest.fixture
def state(open_place: Path) -> Path:
    """A directory as systemd makes it, in a place that everybody gets to."""
    found = open_place / "state"
    found.mkdir()
    found.chmod(0o711)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be somebody else")
@pytest.mark.parametrize("mask", [0o077, 0o022], ids=["as the unit has it", "as a shell has it"])
def test_others_get_to_the_plans_and_to_nothing_else(state: Path, mask: int) -> None:
    clock, before = ManualClock(NOW), os.umask(mask)
    try:
        with closing(EventStore.open(state, clock)) as store:
            store.commit([event("a")], [])
            SqliteLedger(state, clock).write(record(), 0)
            write_plan(state / "tune", PLAN)
            names = sorted(str(path.relative_to(state)) for path in state.rglob("*") if path.is_file())
            done = subprocess.run(
                [sys.executable, "-I", "-c", AS_NOBODY, str(state), *names],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
    finally:
        os.umask(before)
    assert {"store.db", "store.db-wal", "ledger.db", "tune/plans/bert.json"} <= set(names)
    assert set(json.loads(done.stdout)) == {"tune/plans/bert.json"}
