"""What a reload of the configuration leaves the parts with, in the process of the tests."""

from __future__ import annotations

import errno
import socket
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.standins.fake_processes import OUTSIDE, FakeProcesses
from tests.unit.store.make import NOW
from tpuwatch.config import Config
from tpuwatch.config.restart import LedgerConfig, RestartConfig
from tpuwatch.config.schema import CloudConfig, HealthConfig, HttpConfig, LogsConfig, RuntimeConfig, StateConfig
from tpuwatch.core import ConfigError
from tpuwatch.core.clock import ManualClock
from tpuwatch.daemon import daemon as module
from tpuwatch.daemon.daemon import Daemon
from tpuwatch.daemon.node_services import NodeServices
from tpuwatch.ingest import service
from tpuwatch.launches.tracker import Origin
from tpuwatch.logs.tail.fs_events import EXHAUSTED_SECONDS
from tpuwatch.model import ADDRESS_FILE
from tpuwatch.restart.service import RestartService
from tpuwatch.web import Access, HttpServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Site:
    """A daemon whose turns the test does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "logs").mkdir()
        self.health = HealthConfig()
        self.runtime = RuntimeConfig(enabled=False)
        self.hosts: tuple[str, ...] = ()
        self.listen = "127.0.0.1:0"
        self.clock = ManualClock()
        self.daemon = Daemon(self.config, clock=self.clock, environ={})

    def config(self) -> Config:
        return Config(
            logs=LogsConfig(paths=(self.root / "logs",)),
            cloud=CloudConfig(enabled=False),
            runtime=self.runtime,
            http=HttpConfig(listen=self.listen, hosts=self.hosts),
            state=StateConfig(dir=self.root / "state"),
            health=self.health,
        )

    def shows(self, sample: str) -> bool:
        """Whether a scrape has this line now."""
        return sample in self.daemon.metrics.exposition()[0].decode().splitlines()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(module, "set_up_logging", lambda *_: None)  # this process's log is the tests' own
    monkeypatch.setattr(service, "ProcFs", lambda _: FakeProcesses((42, NOW - 2)))
    site = Site(tmp_path)
    yield site
    site.daemon.close()


def test_the_new_judge_gets_the_logs_answer_at_once(site: Site) -> None:
    daemon = site.daemon
    daemon._logs.ingest.tracker.mark("init_started", {}, Origin(42, "alice", "vm"), NOW)
    daemon.turn()
    before = daemon._node
    site.health = HealthConfig(idle_seconds=1234)
    daemon.reload()
    daemon.turn()
    assert daemon._node is not before
    logs = daemon._node.signals.snapshot.logs.value
    assert logs is not None
    assert logs.alive == {OUTSIDE + 42}


def test_new_names_of_the_server_need_no_new_port(site: Site) -> None:
    daemon = site.daemon
    before = daemon._http.address
    site.hosts = ("tpu.example.org",)
    daemon.reload()
    daemon.turn()
    assert daemon._http.address == before
    assert daemon._http._server.hosts.allow(["tpu.example.org"], "/")


def test_the_logs_answer_is_handed_on_when_it_changed(site: Site) -> None:
    daemon = site.daemon
    daemon.turn()
    first = daemon._node.signals.snapshot.logs
    assert first.problem is None
    for _ in range(int(service.ANSWER_SECONDS) - 1):
        site.clock.advance(1)
        daemon.turn()
        assert daemon._node.signals.snapshot.logs is first
    site.clock.advance(1)
    daemon.turn()
    assert daemon._node.signals.snapshot.logs.at == site.clock.time()


def test_a_new_loop_may_finish_its_first_turn_before_its_start_returns(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(node: NodeServices) -> None:
        for loop in node.loops.limits():
            node.loops._on_turn(loop, 0.0)

    monkeypatch.setattr(NodeServices, "start", start)
    daemon = site.daemon
    daemon.turn()
    assert "runtime" not in daemon._node.loops.limits()
    site.runtime = RuntimeConfig(ports=(1,))
    daemon.reload()
    daemon.turn()
    assert "runtime" in daemon._node.loops.limits()
    assert "failed" not in daemon._state


@pytest.mark.parametrize("drives", [True, False])
def test_the_ledger_is_not_taken_from_a_restart_that_is_under_way(
    site: Site, monkeypatch: pytest.MonkeyPatch, drives: bool
) -> None:
    monkeypatch.setattr(RestartService, "drives", drives)
    before = site.daemon._restart
    config = site.config().model_copy(update={"ledger": LedgerConfig(dir=str(site.root / "other"))})
    monkeypatch.setattr(site.daemon, "_load", lambda: config)
    site.daemon._apply_reload()
    assert (site.daemon._restart is before) == drives
    assert ("[ledger] cannot change" in site.daemon._config_error) == drives


def alive(address: str) -> bool:
    """True if a daemon answers there."""
    with urllib.request.urlopen(f"http://{address}/healthz", timeout=30) as answer:  # loopback
        return answer.status == 200


def test_a_reload_moves_to_all_addresses_of_the_machine_with_the_same_port(site: Site) -> None:
    site.daemon._http.start()
    port = site.daemon._http.address[1]
    site.listen = f"0.0.0.0:{port}"
    site.daemon._apply_reload()
    assert site.daemon._config_error == ""
    assert site.daemon._http.address == (site.listen.partition(":")[0], port)
    assert alive(f"127.0.0.1:{port}")
    site.listen = f"127.0.0.1:{port}"  # and back
    site.daemon._apply_reload()
    assert site.daemon._config_error == ""
    assert alive(f"127.0.0.1:{port}")


def test_a_reload_to_a_port_that_another_has_leaves_the_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.daemon._http.start()
    host, port = site.daemon._http.address
    with socket.create_server(("127.0.0.1", 0)) as other:
        site.listen = f"127.0.0.1:{other.getsockname()[1]}"
        site.daemon._apply_reload()
    assert "another program has the port" in site.daemon._config_error
    assert alive(f"{host}:{port}")
    serve, calls = site.daemon._serve, [0]

    def taken_twice(config: Config, access: Access) -> HttpServer:
        """The new address cannot be had, whether the old one is let go or not."""
        calls[0] += 1
        if calls[0] <= 2:
            raise ConfigError("Cannot listen") from OSError(errno.EADDRINUSE, "Address already in use")
        return serve(config.model_copy(update={"http": HttpConfig(listen=f"{host}:{port}")}), access)

    monkeypatch.setattr(site.daemon, "_serve", taken_twice)
    site.listen = f"0.0.0.0:{port}"
    site.daemon._apply_reload()
    assert calls == [3]
    assert "Cannot listen" in site.daemon._config_error
    assert alive(f"{host}:{port}")


def test_an_address_that_could_not_be_written_is_written_later(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = site.root / "state" / ADDRESS_FILE
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", full)
        site.daemon._announce()
        for _ in range(3):
            site.clock.advance(module.STATUS_SECONDS)
            site.daemon.turn()
    assert not place.exists()
    assert caplog.text.count("No space left on device") == 1  # said once
    assert any("No space left" in notice for notice in site.daemon._view.status().notices)
    site.clock.advance(module.STATUS_SECONDS)
    site.daemon.turn()
    host, port = site.daemon._http.address
    assert place.read_text() == f"{host}:{port}\n"
    assert not any("No space left" in notice for notice in site.daemon._view.status().notices)


def test_settings_in_vain_are_logged(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = site.config().model_copy(update={"restart": RestartConfig(mode="act")})
    monkeypatch.setattr(site.daemon, "_load", lambda: config)
    site.daemon._apply_reload()
    assert 'restart.mode = "act" has no effect' in caplog.text


def test_a_reload_where_inotify_is_exhausted_goes_on_by_polling(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "inotify instance limit reached")

    daemon = site.daemon
    daemon.turn()
    assert site.shows("tpuwatch_log_inotify_up 1.0")
    with monkeypatch.context() as patch:
        patch.setattr("tpuwatch.logs.tail.fs_events.InotifyObserver", full)
        daemon.reload()
        site.clock.advance(1)
        daemon.turn()
    assert "failed" not in daemon._state
    assert [notice for notice in daemon._view.status().notices if "inotify" in notice]
    assert site.shows("tpuwatch_log_inotify_up 0.0")
    site.clock.advance(EXHAUSTED_SECONDS)
    daemon.turn()
    assert daemon._view.status().notices == []
    assert site.shows("tpuwatch_log_inotify_up 1.0")
