from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.standins.machine import KERNEL_THREAD, Machine
from tpuwatch.core import installed
from tpuwatch.host.holders import MAX_HOLDERS, Holders, HolderScan, parse_locks
from tpuwatch.host.procfs import ProcFs
from tpuwatch.model.signals import Holder

BOOTED = 1_790_000_000.0


def holders(machine: Machine) -> Holders:
    return Holders(ProcFs(machine.root / "proc"), machine.root)


def look(machine: Machine) -> HolderScan:
    return holders(machine).look(BOOTED, 0.0)


# -- devices


def test_who_has_a_device_open_holds_the_tpu(machine: Machine) -> None:
    files = ("/dev/null", "/dev/vfio/1", "socket:[77]", "/dev/vfio/0", "/dev/vfio/0", "/dev/vfio/vfio")
    machine.process(40, files=files, uid=1001, started=200.5, pinned=(3, 4))
    machine.process(41, files=("/dev/pts/0", "/home/alice/dev/vfio/0"))
    held = look(machine)
    devices = ("/dev/vfio/0", "/dev/vfio/1", "/dev/vfio/vfio")
    assert held.holders == (Holder(40, "alice", "python3 train.py", BOOTED + 200.5, devices),)
    assert (held.lock_file, held.pinned_bytes, held.unseen) == (False, 7 * 1024, ())


@pytest.mark.parametrize(
    ("target", "device"),
    [
        ("/dev/accel0", "/dev/accel0"),
        ("/dev/accel/accel3", "/dev/accel/accel3"),
        ("/dev/vfio/devices/vfio0", "/dev/vfio/devices/vfio0"),
        ("/dev/vfio/12 (deleted)", "/dev/vfio/12"),
        ("/dev/vfio", None),
        ("/dev/accel0\n/dev/accel1", None),
        ("/dev/vfio/" + "9" * 200, None),
        ("/tmp/dev/accel0", None),  # noqa: S108
    ],
)
def test_which_links_are_devices(machine: Machine, target: str, device: str | None) -> None:
    machine.process(40, files=(target,))
    assert [holder.devices for holder in look(machine).holders] == ([] if device is None else [(device,)])


def test_the_oldest_holder_comes_first(machine: Machine) -> None:
    for pid, started in ((40, 300.0), (41, 100.0), (42, 200.0)):
        machine.process(pid, files=("/dev/accel0",), started=started)
    assert [holder.pid for holder in look(machine).holders] == [41, 42, 40]


def test_their_number_is_bounded(machine: Machine) -> None:
    for pid in range(100, 100 + MAX_HOLDERS + 20):
        machine.process(pid, files=("/dev/accel0",))
    assert len(look(machine).holders) == MAX_HOLDERS


def test_cpu_is_the_mean_over_a_minute(machine: Machine) -> None:
    machine.process(40, files=("/dev/accel0",), cpu=50.0)
    watch = holders(machine)
    assert watch.look(BOOTED, 100.0).holders[0].cpu_cores is None
    machine.process(40, files=("/dev/accel0",), cpu=75.0)
    assert watch.look(BOOTED, 110.0).holders[0].cpu_cores == 2.5
    assert watch.look(BOOTED, 110.0).holders[0].cpu_cores == 2.5  # no time has passed
    assert watch.look(BOOTED, 120.0).holders[0].cpu_cores == 1.25
    for number in range(1, 6):
        held = watch.look(BOOTED, 120.0 + 10 * number)
    assert held.holders[0].cpu_cores == 0.0


def test_of_holders_that_descend_from_each_other_each_has_its_own_cpu(machine: Machine) -> None:
    for pid, parent in ((40, 1), (41, 40)):
        machine.process(pid, parent=parent, files=("/dev/accel0",))
    watch = holders(machine)
    watch.look(BOOTED, 100.0)
    machine.process(41, parent=40, files=("/dev/accel0",), cpu=20.0)
    assert [one.cpu_cores for one in watch.look(BOOTED, 110.0).holders] == [0.0, 2.0]
    machine.process(40, files=("/dev/accel0",), reaped=20.0)  # what the child has used comes all at once
    machine.ended(41)
    assert watch.look(BOOTED, 120.0).holders[0].cpu_cores is None


def test_a_pid_that_is_used_again_is_another_process(machine: Machine) -> None:
    machine.process(40, files=("/dev/accel0",), cpu=50.0)
    watch = holders(machine)
    watch.look(BOOTED, 100.0)
    machine.process(40, files=("/dev/accel0",), cpu=75.0, started=500.0)
    assert watch.look(BOOTED, 110.0).holders[0].cpu_cores is None


def test_threads_of_the_kernel_are_looked_at_rarely_but_not_never(machine: Machine) -> None:
    machine.process(2, name="kthreadd", command="", flags=KERNEL_THREAD)
    watch = holders(machine)
    watch.look(BOOTED, 0.0)
    machine.process(2, files=("/dev/accel0",))  # its number has come to a program
    assert watch.look(BOOTED, 10.0).holders == ()
    for _ in range(30):
        held = watch.look(BOOTED, 20.0)
    assert [holder.pid for holder in held.holders] == [2]


# -- the lock


def test_the_lock_shows_its_holder_even_where_nothing_else_can_be_seen(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(40, files=("/dev/vfio/0",), uid=1001)
    machine.lock(40)
    _hide(monkeypatch, 1, 40)
    held = look(machine)
    assert [(holder.pid, holder.user, holder.devices, holder.locks) for holder in held.holders] == [
        (40, "alice", (), True)
    ]
    assert held.lock_file
    (unseen,) = held.unseen
    assert unseen.startswith("The open files of 2 processes cannot be seen")
    assert installed("systemd/tpuwatch-holders.conf") in unseen


def test_a_device_and_the_lock_are_one_holder(machine: Machine) -> None:
    machine.lock(40)
    machine.process(40, files=("/dev/vfio/0", machine.lock_path))
    (holder,) = look(machine).holders
    assert (holder.devices, holder.locks) == (("/dev/vfio/0",), True)


@pytest.mark.parametrize("kind", ["POSIX  ADVISORY  WRITE", "FLOCK  ADVISORY  READ "])
def test_every_kind_of_lock_counts(machine: Machine, kind: str) -> None:
    machine.lock(40, kind)
    machine.process(40, files=(machine.lock_path,))
    assert [holder.locks for holder in look(machine).holders] == [True]


@pytest.mark.parametrize("kind", ["-> FLOCK  ADVISORY  WRITE", "LEASE  ACTIVE    WRITE"])
def test_who_waits_for_the_lock_does_not_hold_it(machine: Machine, kind: str) -> None:
    machine.lock(40, kind)
    machine.process(40, files=(machine.lock_path,))
    assert look(machine) == HolderScan(lock_file=True)


def test_a_lock_file_that_nobody_locks_holds_nothing(machine: Machine) -> None:
    machine.lock(40)
    machine.write("proc/locks", "")
    machine.process(40, files=(machine.lock_path,))
    assert look(machine) == HolderScan(lock_file=True)


def test_a_lock_that_outlived_its_taker_is_held_by_who_inherited_it(machine: Machine) -> None:
    machine.lock(40)
    machine.process(41, files=(machine.lock_path,))
    assert [(holder.pid, holder.locks) for holder in look(machine).holders] == [(41, True)]


@pytest.mark.parametrize("owner", [40, 0, -1])
def test_a_process_that_took_over_the_number_of_the_taker_is_not_blamed(machine: Machine, owner: int) -> None:
    machine.lock(owner)
    machine.process(40, command="innocent")
    held = look(machine)
    assert held.holders == ()
    (unseen,) = held.unseen
    assert unseen.startswith(f"{machine.lock_path} is locked by an unknown process")


def test_a_link_in_the_place_of_the_lock_file_blames_nobody(machine: Machine) -> None:
    machine.lock(40)
    machine.process(40, files=(machine.lock_path,))
    machine.lock_path.rename(machine.root / "other")
    machine.lock_path.symlink_to(machine.root / "other")
    assert look(machine) == HolderScan()


def test_without_the_list_of_locks_that_is_said(machine: Machine) -> None:
    machine.lock(40)
    (machine.root / "proc/locks").unlink()
    held = look(machine)
    assert held.lock_file
    assert "/proc/locks cannot be read" in held.unseen[0]


# -- what may not be seen, and what is not as it should be


def _hide(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    """As the kernel does it for processes of other users; tests may run as root, who sees everything."""
    listdir, stat = os.listdir, os.stat

    def hidden(path: object) -> bool:
        return any(f"/proc/{pid}/fd" in str(path) for pid in pids)

    def list_some(path: str) -> list[str]:
        if hidden(path):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    def stat_some(path: str) -> os.stat_result:
        if hidden(path):
            raise PermissionError(13, "Permission denied")
        return stat(path)

    monkeypatch.setattr("tpuwatch.host.procfs.os.listdir", list_some)
    monkeypatch.setattr("tpuwatch.host.procfs.os.stat", stat_some)


def test_hidden_processes_are_reported(machine: Machine) -> None:
    machine.ended(1)
    machine.process(40, files=("/dev/accel0",))
    held = look(machine)
    assert [holder.pid for holder in held.holders] == [40]
    assert "hidepid" in held.unseen[0]


def test_threads_of_the_kernel_and_zombies_hide_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.process(2, command="", flags=KERNEL_THREAD)
    machine.process(40, state="Z")
    _hide(monkeypatch, 2, 40)
    assert look(machine).unseen == ()


@pytest.mark.parametrize(("namespace", "contained"), [(4026531836, False), (4026532177, True)])
def test_in_a_container_only_its_own_processes_can_be_seen(machine: Machine, namespace: int, contained: bool) -> None:
    machine.in_namespace(namespace)
    assert ["container" in text for text in look(machine).unseen] == [True] * contained


def test_links_that_may_not_be_read_count_as_unseen(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.process(40, files=("/dev/vfio/0",))

    def refuse(path: str) -> str:  # what CAP_DAC_READ_SEARCH alone gives: the list, not the links
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("tpuwatch.host.procfs.os.readlink", refuse)
    assert look(machine).unseen[0].startswith("The open files of 2 processes")


def test_a_process_that_ends_during_the_look_is_no_fault(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.process(40, files=("/dev/vfio/0", "/dev/vfio/1"))
    machine.process(41, files=("/dev/accel0",))
    readlink = os.readlink

    def vanish(path: str) -> str:
        if "/40/" in path:
            (machine.root / "proc/40/stat").unlink(missing_ok=True)
            if path.endswith("/1"):
                raise ProcessLookupError(3, "No such process")
        return readlink(path)

    monkeypatch.setattr("tpuwatch.host.procfs.os.readlink", vanish)
    assert [holder.pid for holder in look(machine).holders] == [41]


def test_a_file_that_is_closed_during_the_look_hides_no_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(40, files=("/tmp/a", "/dev/vfio/0"))  # noqa: S108
    readlink = os.readlink

    def close_first(path: str) -> str:
        if path.endswith("fd/0"):
            raise FileNotFoundError(2, "No such file", path)
        return readlink(path)

    monkeypatch.setattr("tpuwatch.host.procfs.os.readlink", close_first)
    assert [holder.devices for holder in look(machine).holders] == [("/dev/vfio/0",)]


@pytest.mark.parametrize("stat", ["", "40", "40 (x) S", "40 (x) S " + "x " * 30, "\0" * 100, "(" * 1000])
def test_a_malformed_process_is_left_out(machine: Machine, stat: str) -> None:
    machine.process(40, files=("/dev/accel0",))
    machine.write("proc/40/stat", stat)
    machine.process(41, files=("/dev/accel0",))
    assert [holder.pid for holder in look(machine).holders] == [41]


@pytest.mark.parametrize("status", ["", "Uid:\n", "Uid:\tx\n", "Uid: 99999999999999999999999\n"])
def test_an_unknown_user_stays_unknown(machine: Machine, status: str) -> None:
    machine.process(40, files=("/dev/accel0",))
    machine.write("proc/40/status", status)
    assert look(machine).holders[0].user == ""


@pytest.mark.parametrize(
    ("passwd", "user"),
    [
        ("bob:x:1001:1:::\nother:x:1001:1:::\n", "bob"),
        ("", "1001"),
        ("bob:x:2002:1:::\n", "1001"),
        ("ev\x1bil:x:1001:1:::\n", "1001"),
        ("a" * 100 + ":x:1001:1:::\n", "1001"),
        ("bob:x:1001\n\nbroken\n:::\n", "bob"),
    ],
)
def test_users_have_names_from_the_list_of_users(machine: Machine, passwd: str, user: str) -> None:
    machine.write("etc/passwd", passwd)
    machine.process(40, files=("/dev/accel0",), uid=1001)
    assert look(machine).holders[0].user == user


def test_users_of_os_login_have_names_too(machine: Machine) -> None:
    machine.write("etc/oslogin_passwd.cache", "carol_example_com:*:3000:3000::/home/carol:/bin/bash\n")
    machine.process(40, files=("/dev/accel0",), uid=3000)
    assert look(machine).holders[0].user == "carol_example_com"


@given(st.binary(max_size=300), st.integers(0, 2**40), st.integers(0, 2**40))
def test_no_list_of_locks_can_make_reading_it_fail(raw: bytes, device: int, inode: int) -> None:
    parse_locks(raw, device, inode)


@given(
    owner=st.integers(1, 2**22),
    device=st.integers(0, 2**20),
    inode=st.integers(1, 2**60),
    others=st.lists(st.tuples(st.integers(1, 2**22), st.integers(1, 2**60)), max_size=5),
)
def test_the_right_line_among_the_locks_is_found(
    owner: int, device: int, inode: int, others: list[tuple[int, int]]
) -> None:
    lines = [(owner, inode), *((pid, other) for pid, other in others if other != inode)]
    text = "".join(
        f"{number}: FLOCK  ADVISORY  WRITE {pid} {os.major(device):02x}:{os.minor(device):02x}:{node} 0 EOF\n"
        for number, (pid, node) in enumerate(lines, 1)
    )
    assert parse_locks(text.encode(), device, inode) == {owner}


# -- the real kernel

LOCKER = """
import fcntl, os, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
if sys.argv[2] == "inherit":
    here, there = os.pipe()
    if os.fork():
        os._exit(0)
    os.close(there)
    os.read(here, 1)  # until the one that took the lock has ended
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def real(tmp_path: Path) -> Machine:
    """The real /proc, with a /tmp of its own."""
    machine = object.__new__(Machine)
    machine.root = tmp_path
    (tmp_path / "proc").symlink_to("/proc")
    machine.write("tmp/libtpu_lockfile", "")
    return machine


@pytest.mark.parametrize("how", ["itself", "inherit"])
def test_a_real_process_that_locks_the_file_is_found(real: Machine, how: str) -> None:
    command = [sys.executable, "-c", LOCKER, str(real.lock_path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        pid = int(process.stdout.readline())
        assert (pid == process.pid) == (how == "itself")
        uptime = ProcFs().uptime()
        assert uptime is not None
        (holder,) = holders(real).look(time.time() - uptime, 0.0).holders
        assert (holder.pid, holder.locks, holder.devices) == (pid, True, ())
        assert "fcntl.flock" in holder.command
        assert holder.started is not None
        assert abs(holder.started - time.time()) < 60
        process.stdin.close()
        process.stdout.read()  # until it has ended
    held = look(real)
    assert (held.holders, held.lock_file) == ((), True)
