"""What a reload of the configuration leaves the parts with, in the process of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fake_processes import OUTSIDE, FakeProcesses
from tests.journal.make import NOW
from tpuwatch.clock import ManualClock
from tpuwatch.config import Config
from tpuwatch.config.restart import Ledger
from tpuwatch.config.schema import Cloud, Health, Http, Logs, Runtime, State
from tpuwatch.daemon import daemon as module
from tpuwatch.daemon import logwatch
from tpuwatch.daemon.daemon import Daemon
from tpuwatch.daemon.nodewatch import NodeWatch
from tpuwatch.daemon.restartwatch import RestartWatch
from tpuwatch.launches.tracker import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Site:
    """A daemon whose turns the test does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "logs").mkdir()
        self.health = Health()
        self.runtime = Runtime(enabled=False)
        self.clock = ManualClock()
        self.daemon = Daemon(self.config, clock=self.clock, environ={})

    def config(self) -> Config:
        return Config(
            logs=Logs(paths=(self.root / "logs",)),
            cloud=Cloud(enabled=False),
            runtime=self.runtime,
            http=Http(listen="127.0.0.1:0"),
            state=State(dir=self.root / "state"),
            health=self.health,
        )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(module, "set_up", lambda *_: None)  # this process's log is the tests' own
    monkeypatch.setattr(logwatch, "ProcFs", lambda: FakeProcesses((42, NOW - 2)))
    site = Site(tmp_path)
    yield site
    site.daemon.close()


def test_the_new_judge_is_told_at_once_what_the_logs_said(site: Site) -> None:
    daemon = site.daemon
    daemon._logs.ingest.tracker.mark("init_started", {}, Origin(42, "alice", "vm"), NOW)
    daemon.turn()
    before = daemon._node
    site.health = Health(idle_seconds=1234)
    daemon.reload()
    daemon.turn()
    assert daemon._node is not before
    told = daemon._node.posted.logs.value
    assert told is not None
    assert told.alive == {OUTSIDE + 42}


def test_what_the_logs_say_is_handed_on_when_it_is_news(site: Site) -> None:
    daemon = site.daemon
    daemon.turn()
    first = daemon._node.posted.logs
    assert first.problem is None
    for _ in range(int(logwatch.TESTIMONY_SECONDS) - 1):
        site.clock.advance(1)
        daemon.turn()
        assert daemon._node.posted.logs is first
    site.clock.advance(1)
    daemon.turn()
    assert daemon._node.posted.logs.at == site.clock.time()


def test_a_new_loop_may_finish_its_first_turn_before_its_start_returns(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(node: NodeWatch) -> None:
        for loop in node.limits():
            node._progress(loop, 0.0)

    monkeypatch.setattr(NodeWatch, "start", start)
    daemon = site.daemon
    daemon.turn()
    assert "runtime" not in daemon._node.limits()
    site.runtime = Runtime(ports=(1,))
    daemon.reload()
    daemon.turn()
    assert "runtime" in daemon._node.limits()
    assert "failed" not in daemon._state


@pytest.mark.parametrize("drives", [True, False])
def test_the_ledger_is_not_taken_from_a_restart_that_is_under_way(
    site: Site, monkeypatch: pytest.MonkeyPatch, drives: bool
) -> None:
    monkeypatch.setattr(RestartWatch, "drives", drives)
    before = site.daemon._restart
    config = site.config().model_copy(update={"ledger": Ledger(dir=str(site.root / "other"))})
    monkeypatch.setattr(site.daemon, "_load", lambda: config)
    site.daemon._apply_reload()
    assert (site.daemon._restart is before) == drives
    assert ("[ledger] cannot change" in site.daemon._config_error) == drives
