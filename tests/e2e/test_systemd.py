from __future__ import annotations

import contextlib
import logging
import socket
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.daemon.systemd import SystemdNotifier, Watchdog, watchdog_timeout

if TYPE_CHECKING:
    from collections.abc import Iterator


class Manager:
    """The receiving side: a datagram socket as systemd has one."""

    def __init__(self, address: str) -> None:
        self.name = "@" + address[1:] if address.startswith("\0") else address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        messages: list[str] = []
        with contextlib.suppress(BlockingIOError):  # no more of them
            while True:
                messages.append(self.socket.recv(65536).decode())
        return messages


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(f"\0tpuwatch-{uuid.uuid4()}" if request.param == "abstract" else str(tmp_path / "notify"))
    yield manager
    manager.socket.close()


def notifier(manager: Manager, clock: ManualClock | None = None) -> SystemdNotifier:
    return SystemdNotifier(manager.name, clock or ManualClock())


def test_a_status_cannot_smuggle_in_another_assignment(manager: Manager) -> None:
    notifier(manager).status("text from a log\nMAINPID=1\x00\u2028\udcff" + "x" * 1000)
    (message,) = manager.heard()
    assert "\n" not in message
    assert message.startswith("STATUS=text from a log MAINPID=1   xxx")
    assert len(message) == len("STATUS=") + 200 + len("…")


@pytest.mark.parametrize("address", [None, "", "vsock:2:1"])
def test_without_a_socket_nothing_happens(address: str | None) -> None:
    SystemdNotifier(address, ManualClock()).ready("x")


def test_a_socket_that_goes_and_comes_back_is_complained_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "notify"
    notify = SystemdNotifier(str(path), ManualClock())
    with caplog.at_level(logging.WARNING):
        notify.alive()
        notify.alive()
    assert [record.message.split(":")[0] for record in caplog.records] == ["Cannot reach systemd at its notify socket"]
    manager = Manager(str(path))
    notify.alive()
    assert manager.heard() == ["WATCHDOG=1"]
    manager.socket.close()
    notify.alive()
    assert len(caplog.records) == 2


def test_a_full_socket_never_blocks(manager: Manager) -> None:
    notify = notifier(manager)
    for _ in range(2000):
        notify.alive()
    assert 0 < len(manager.heard()) < 2000


@pytest.mark.parametrize(
    ("environment", "timeout"),
    [
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "42"}, 60.0),
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_for_this_process_or_for_none(environment: dict[str, str], timeout: float | None) -> None:
    assert watchdog_timeout(environment, 42) == timeout


def watchdog(manager: Manager, clock: ManualClock, timeout: float | None = 60.0) -> Watchdog:
    return Watchdog(notifier(manager, clock), clock, limits={"follow": 10.0, "prune": 600.0}, timeout=timeout)


def test_pings_come_four_times_in_a_timeout(manager: Manager) -> None:
    clock = ManualClock()
    dog = watchdog(manager, clock)
    assert dog.step() == 15.0
    clock.advance(5)
    assert dog.step() == 10.0
    assert manager.heard() == ["WATCHDOG=1"]
    clock.advance(10)
    dog.progress("follow")
    assert dog.step() == 15.0
    assert manager.heard() == ["WATCHDOG=1"]


def test_a_stalled_loop_stops_the_pings_until_it_moves_again(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    dog = watchdog(manager, clock)
    clock.advance(11)
    dog.progress("prune")
    assert dog.stalled() == ["follow"]
    dog.step()
    assert manager.heard() == []
    assert "no progress in follow" in caplog.text
    clock.advance(15)
    dog.progress("follow")
    dog.step()
    assert dog.stalled() == []
    assert manager.heard() == ["WATCHDOG=1"]


def test_without_a_watchdog_there_are_no_pings_but_stalls_are_known(manager: Manager) -> None:
    clock = ManualClock()
    dog = watchdog(manager, clock, timeout=None)
    clock.advance(11)
    assert dog.step() is None
    assert manager.heard() == []
    assert dog.stalled() == ["follow"]


def test_only_declared_loops_make_progress(manager: Manager) -> None:
    with pytest.raises(KeyError):
        watchdog(manager, ManualClock()).progress("other")
