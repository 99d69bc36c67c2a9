"""`tpuwatch run`: what it does with its arguments; the daemon itself has its own tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon_process import DaemonProcess, libtpu_name, record, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as daemon:
        yield daemon


def test_its_log_is_one_json_object_a_line_if_wanted(daemon: DaemonProcess) -> None:
    daemon.configure(more='[log]\nformat = "json"\nlevel = "info"')
    daemon.start()
    (daemon.logs / libtpu_name()).write_text(record(1).replace("no more", "\x1b[2J\u202eno more"))
    daemon.sees(1)
    assert daemon.stop() == 0
    lines = [json.loads(line) for line in daemon.said().splitlines()]
    assert {line["level"] for line in lines} == {"info", "warning"}
    assert any(line["message"].startswith("hang: Event 1. (") for line in lines)


def test_its_log_tells_an_event_once_and_a_storm_in_short(daemon: DaemonProcess) -> None:
    daemon.start()
    (daemon.logs / libtpu_name()).write_text("".join(map(record, range(500))))
    wait_for(lambda: "more events; `tpuwatch events` lists them." in daemon.said(), "the end of the storm")
    assert daemon.stop() == 0
    assert daemon.said().count(" warning hang: Event ") == 20
    assert "… and 480 more events" in daemon.said()


def test_a_directory_of_rules_with_a_bad_rule(daemon: DaemonProcess) -> None:
    (daemon.rules / "bad.toml").write_text("[[rule]]\nid = 'bad-one'\ncause = 'hang'\nsummary = ''\nmatch = ['(']\n")
    daemon.start()
    assert "bad-one" in daemon.said()
    assert daemon.metric("tpuwatch_rules_refused") == 1
    (daemon.logs / libtpu_name()).write_text(record(1))
    daemon.sees(1)
