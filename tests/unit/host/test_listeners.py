from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.standins.machine import Machine
from tpuwatch.host.holders import Holders
from tpuwatch.host.listeners import Listeners, parse_sockets
from tpuwatch.host.procfs import ProcFs
from tpuwatch.model.signals import Listener

ALICE = 1001
NOW = 1_790_000_000.0


def ports(machine: Machine, held: set[int], *, at: float = 0.0, watch: Listeners | None = None) -> list[int]:
    found = (watch or Listeners(ProcFs(machine.root / "proc"))).look((8431, 8432), held, NOW + at, at)
    return [one.port for one in found]


def test_a_port_is_the_runtimes_if_who_holds_the_tpu_listens_there(machine: Machine) -> None:
    machine.listens((8431, ALICE, 77))
    assert ports(machine, {77}) == [8431]
    assert ports(machine, set()) == []  # any user's process


def test_the_users_that_nobody_else_can_be_are_trusted(machine: Machine) -> None:
    machine.listens((8431, 0, 77), (8432, os.geteuid(), 78))
    assert ports(machine, set()) == [8431, 8432]


@pytest.mark.parametrize("table", ["tcp", "tcp6"])
def test_another_listener_on_the_same_port_spoils_it(machine: Machine, table: str) -> None:
    machine.listens((8431, ALICE, 77))
    machine.listens(*([(8431, ALICE, 77)] if table == "tcp" else []), (8431, 1002, 78), table=table)
    assert ports(machine, {77}) == []


def test_only_sockets_that_listen_count(machine: Machine) -> None:
    machine.listens()  # 8431 is connected
    assert ports(machine, {5}) == []


def test_since_when_is_that_of_the_same_socket(machine: Machine) -> None:
    watch = Listeners(ProcFs(machine.root / "proc"))
    machine.listens((8431, ALICE, 77))
    assert watch.look((8431,), {77}, NOW, 10.0) == (Listener(8431, NOW),)
    assert watch.look((8431,), {77}, NOW + 300, 310.0) == (Listener(8431, NOW),)
    machine.listens((8431, ALICE, 78))  # a forger had it before, or it began again
    assert watch.look((8431,), {77, 78}, NOW + 310, 320.0) == (Listener(8431, NOW + 310),)
    assert ports(machine, set(), at=330.0, watch=watch) == []
    assert watch.look((8431,), {78}, NOW + 330, 340.0) == (Listener(8431, NOW + 330),)


def test_a_table_that_is_cut_off_vouches_for_nobody(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.listens((8431, 0, 77))
    monkeypatch.setattr("tpuwatch.host.listeners._MAX_BYTES", 100)
    assert ports(machine, {77}) == []


def test_without_a_table_nobody_is_known(machine: Machine) -> None:
    assert ports(machine, {77}) == []


@given(st.binary(max_size=300))
def test_nonsense_is_skipped(raw: bytes) -> None:
    for one in parse_sockets(b"sl\n" + raw):
        assert one.port >= 0


def test_on_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = Listeners(ProcFs()).look((port,), set(), NOW, 0.0)
    assert [one.port for one in found] == [port]  # of tpuwatch's own user


# -- through a scan of the holders


def test_the_sockets_of_who_has_a_device_open_are_known(machine: Machine) -> None:
    machine.process(40, files=("socket:[77]", "/dev/accel0"), uid=ALICE)
    machine.process(41, files=("socket:[78]", "/dev/null"), uid=ALICE)
    processes = machine.devices(accel0="accel0")
    assert Holders(processes, machine.root).look(NOW, 0.0).sockets == {77}


@pytest.mark.parametrize(
    ("called", "kernel"),
    [
        ("accel0", ""),  # a file of a user's, in a namespace where it has that name
        ("accel0", "null"),  # another device, put there in such a namespace
        ("vfio_vfio", "vfio/vfio"),  # open to all
    ],
)
def test_a_devices_name_alone_is_no_proof(machine: Machine, called: str, kernel: str) -> None:
    machine.process(40, files=("socket:[77]", f"/dev/{called.replace('_', '/')}"), uid=ALICE)
    scan = Holders(machine.devices(**{called: kernel}), machine.root).look(NOW, 0.0)
    assert [(one.pid, one.trusted) for one in scan.holders] == [(40, False)]
    assert scan.sockets == frozenset()


def test_who_is_trusted_to_hold_it(machine: Machine) -> None:
    machine.lock(40)
    machine.process(40, files=(machine.lock_path,), uid=ALICE)
    machine.process(41, files=("/dev/vfio/0",), uid=ALICE)
    machine.process(42, files=("/dev/accel9",), uid=0)
    scan = Holders(machine.devices(vfio_0="vfio/0"), machine.root).look(NOW, 0.0)
    assert {one.pid: one.trusted for one in scan.holders} == {40: False, 41: True, 42: True}


def test_without_a_port_to_watch_the_kernels_tables_are_not_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = ProcFs(machine.root / "proc")
    watch = Listeners(processes)
    machine.listens((8431, 0, 77))
    assert watch.look((8431,), set(), NOW, 10.0) == (Listener(8431, NOW),)
    read: list[str] = []
    monkeypatch.setattr(processes, "read", lambda name, _: read.append(name) or b"")
    assert (watch.look((), set(), NOW + 5, 15.0), read) == ((), [])
    monkeypatch.undo()
    assert watch.look((8431,), set(), NOW + 20, 30.0) == (Listener(8431, NOW + 20),)  # nobody looked meanwhile
