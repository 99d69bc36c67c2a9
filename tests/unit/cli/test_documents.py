"""The JSON of the commands that act stays what it is, byte for byte, as it stands in documents/."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.restarting import OTHER_OWNER, Site, site
from tests.unit.cli.tuning import GROWS, SETTLED, Machine, launch, machine
from tests.unit.store.make import NOW
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.restart import Attempt, Breaker, Fleet, Lease, Phase
from tpuwatch.model.verdict import Action

__all__ = ["machine", "site"]  # fixtures

GOLDEN = Path(__file__).with_name("documents")

Holds = Callable[[str, tuple[int, str, str]], None]


@pytest.fixture
def holds(tmp_path: Path) -> Holds:
    """That the output of a command is what is in the file of that name."""

    def compare(name: str, output: tuple[int, str, str]) -> None:
        text = output[1].replace(str(tmp_path), "/home/alice").replace(f".{os.uname().nodename}.", ".vm.")
        text = re.sub(r"operation-[0-9a-f-]+", "operation-1", re.sub(r"\w+@[\w.-]+\b", "alice@vm", text))
        text = re.sub(r'("TPUWATCH_SUMS": )"[^"]*"', r'\1"…"', re.sub(r"\d+ MiB are free", "77865 MiB are free", text))
        path = GOLDEN / f"{name}.json"
        if os.environ.get("TPUWATCH_UPDATE_GOLDEN"):
            path.write_text(text)
        assert text == path.read_text(), "if this change is meant, run this test with TPUWATCH_UPDATE_GOLDEN=1"

    return compare


def test_restart(site: Site, holds: Holds) -> None:
    site.add()
    holds("restart", site.run("train-1", "train-9", "--yes", "--json"))
    site.add("train-2")
    holds("restart-probe", site.run("train-2", "--yes", "--probe", "--json"))
    site.put("train-3", phase=Phase.STOPPED, stops=1)
    holds("restart-dry-run", site.run("train-3", "--dry-run", "--json"))


def test_restarts(site: Site, holds: Holds) -> None:
    now = site.clock.time()
    ended = Attempt(
        Action.RESTART_NODE, "node_stuck", now - 840, now - 600.5, Phase.DONE, 1, "joe@vm", "It hung.", "It is well."
    )
    site.put("train-1", phase=Phase.STOPPING, lease=Lease(OTHER_OWNER), operations=("stop-1",), stops=1)
    site.put("train-2", phase=Phase.DONE, history=(ended,))
    site.put("train-3", phase=Phase.REQUESTED, tries=2, failure="The stop was refused.", note="It is refused.")
    holds("restarts", site.restarts("--json"))
    holds("restarts-history", site.restarts("history", "--json"))
    holds("restarts-cancel", site.restarts("cancel", "train-1", "train-3", "train-9", "--json"))
    holds("restarts-closed", site.restarts("reset-breaker", "--json"))
    site.ledger.write_fleet(Fleet(Breaker(now - 60, "3 restarts have failed.")), site.ledger.fleet().version)
    holds("restarts-open", site.restarts("train-4", "--json"))
    holds("restarts-reset", site.restarts("reset-breaker", "--json"))


def test_tune(machine: Machine, holds: Holds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "time", lambda _: NOW + 19_999.5)
    monkeypatch.setattr("os.environ", {**os.environ, "TPU_STDERR_LOG_LEVEL": "0", "TPU_MIN_LOG_LEVEL": "0"})
    machine.configure('max_mib = 8192\nmemory_percent = 90\n[tune.overrides]\nTPU_A = "1"')
    machine.store(*GROWS)
    holds("tune", machine.run("--json"))
    monkeypatch.setenv("TPU_A", "2")
    machine.store(*SETTLED, launch(3, 8 << 30, 17.5))
    holds("tune-apply", machine.run("--json", "--apply"))
    holds("tune-reset", machine.run("--json", "--reset", "--workload", "train"))


def test_tune_prune_logs(machine: Machine, holds: Holds) -> None:
    logs = machine.root / "logs"
    logs.mkdir()
    for number, pid in enumerate((2**22 + 1, 2**22 + 2)):
        path = logs / f"tpu_driver.{os.uname().nodename}.user.log.INFO.20010909-01464{number}.{pid}"
        path.write_text("x" * 5000)
        os.utime(path, (1e9, 1e9))
    with path.open("a"):
        holds("tune-prune", machine.run("--json", "--prune-logs", "--dry-run"))
