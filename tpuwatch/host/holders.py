"""Who holds the TPU: the processes that have its devices open, or libtpu's lock file locked.

Devices are found through /proc/PID/fd, which needs CAP_SYS_PTRACE for other users' processes. The holder of the lock is
found through /proc/locks, without privileges. What could not be read is reported.

The name of an open file is no proof: in a namespace of its own any user's process can have a file called /dev/accel0,
and /dev/vfio/vfio is open to all. So what is held by the kernel's name of the device is distinguished from what is not.
A device of another PCI vendor than Google is not a TPU.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tpuwatch.core import installed
from tpuwatch.host.blocked import BlockedCalls
from tpuwatch.host.cpu import Mean, process_trees
from tpuwatch.host.devices import device_name, is_other_vendors
from tpuwatch.host.kinds import kind_of_process
from tpuwatch.host.listeners import is_trusted
from tpuwatch.host.procfs import read_bounded
from tpuwatch.host.users import USER_FILES, parse_users
from tpuwatch.model import Holder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpuwatch.host.procfs import ProcFs
    from tpuwatch.model import WorkloadKind

LOCK_FILE: Final = "tmp/libtpu_lockfile"  # below the root
MAX_HOLDERS: Final = 64
_MAX_BYTES: Final = 1 << 20  # of /proc/locks and of a list of users
_KERNEL_SCANS: Final = 30  # scans for which a known kernel thread is skipped: big hosts have thousands
_KIB: Final = 1024

_RESTING_CORES: Final = 0.5  # a program that uses more is not blocked, and has too many threads to look at each
_OPEN_TO_ALL: Final = "/dev/vfio/vfio"
_SOCKET: Final = re.compile(r"socket:\[(\d{1,20})\]")
_MAX_NAME_BYTES: Final = 4096
_DEVICE: Final = re.compile(r"(/dev/(?:accel[\w/]{0,40}|vfio/[\w/-]{1,40}))(?: \(deleted\))?")
_LOCK: Final = re.compile(
    rb"^\d+: (?:FLOCK|POSIX|OFDLCK) +\S+ +(?:READ|WRITE) +(-?\d{1,10}) ([0-9a-f]{1,8}):([0-9a-f]{1,8}):(\d{1,20}) ",
    re.MULTILINE,
)  # "1: -> FLOCK …" is only waiting

_HIDDEN = (
    "Only processes of tpuwatch's own user can be seen, so a holder of the TPU may be among the others: mount /proc "
    "without hidepid, or remove ProtectProc= from the unit."
)
_CONTAINED = (
    "Only processes of tpuwatch's own container can be seen, so a holder of the TPU may be among the others: "
    "run tpuwatch on the host itself, or in the host's pid namespace (hostPID, --pid=host)."
)
_UNREADABLE = (
    "The open files of {} cannot be seen, so a holder of the TPU may be among them: give tpuwatch CAP_SYS_PTRACE, as "
    f"{installed('systemd/tpuwatch-holders.conf')} does."
)
_LOCKS_UNREADABLE = "Who holds {} cannot be seen, since /proc/locks cannot be read: run tpuwatch on the host itself."
_LOCK_INHERITED = (
    "{0} is locked by an unknown process, since the one that locked it has ended or runs outside of this container: "
    "`sudo fuser -v {0}` lists those that have it open."
)


@dataclass(frozen=True, slots=True)
class HolderScan:
    """The result of one scan."""

    holders: tuple[Holder, ...] = ()  # the oldest first
    lock_file: bool = False  # it exists
    pinned_bytes: int = 0  # memory that the holders have locked or pinned
    unseen: tuple[str, ...] = ()
    sockets: frozenset[int] = frozenset()  # inodes of those that processes have open which hold a device


@dataclass(slots=True)
class _Scan:
    """All processes, as far as they could be read."""

    pids: frozenset[int]
    devices: dict[int, tuple[str, ...]] = field(default_factory=dict)  # by pid, of processes that have any open
    lockers: set[int] = field(default_factory=set)  # processes that have the lock file open, by name
    trusted: set[int] = field(default_factory=set)  # processes that have a device open by the kernel's name of it
    sockets: set[int] = field(default_factory=set)  # that these have open
    unreadable: set[int] = field(default_factory=set)


class Holders:
    """Scans for holders, and keeps what makes the next scan cheap and its CPU times meaningful."""

    def __init__(self, processes: ProcFs, root: Path) -> None:
        self._processes = processes
        self._root = root
        self._contained = processes.contained()
        self._lock_path = str(root / LOCK_FILE)
        self._locks = root / "proc/locks"
        self._numbers = str(root / "sys/dev/char")
        self._prefixes = dict.fromkeys(("/dev/", f"{root / 'dev'}/"))  # of devices, as processes have them open
        self._blocked = BlockedCalls(processes)
        self._users = _UserNames(root)
        self._kernel: set[int] = set()
        self._scans = 0
        self._used: dict[tuple[int, int, frozenset[int]], Mean] = {}  # by pid, start, and holders below it
        self._kinds: dict[tuple[int, int, str], WorkloadKind | None] = {}  # by pid, start and command

    def look(self, booted: float | None, monotonic: float) -> HolderScan:
        """Scan now: `booted` since the epoch, `monotonic` for CPU shares, both in seconds."""
        scan = self._scan()
        lock_file, locked, unseen = self._lock(scan)
        used: dict[tuple[int, int, frozenset[int]], Mean] = {}
        kinds: dict[tuple[int, int, str], WorkloadKind | None] = {}
        pinned, holders = 0, []
        self._blocked.begin()
        found = sorted(scan.devices.keys() | locked)[:MAX_HOLDERS]
        trees = process_trees(self._processes, frozenset(found), scan.pids - self._kernel)
        for pid in found:
            entry, numbers = self._processes.stat(pid), self._processes.status(pid)
            if entry is None or pid not in trees:
                continue  # ended meanwhile
            command = self._processes.command(pid)
            named = (pid, entry.started_ticks, command)
            kinds[named] = self._kinds[named] if named in self._kinds else kind_of_process(self._processes, pid)
            key = (pid, entry.started_ticks, trees[pid].roots)
            used[key] = self._used.get(key) or Mean()
            cores = used[key].add(monotonic, trees[pid].seconds)
            rests = pid in scan.trusted and (cores is None or cores < _RESTING_CORES)
            pinned += _KIB * (numbers.get("VmLck", 0) + numbers.get("VmPin", 0))
            holders.append(
                Holder(
                    pid=pid,
                    user=self._users.name(numbers.get("Uid")),
                    command=command,
                    started=None if booted is None else booted + self._processes.seconds(entry.started_ticks),
                    devices=scan.devices.get(pid, ()),
                    locks=pid in locked,
                    cpu_cores=cores,
                    trusted=pid in scan.trusted or is_trusted(numbers.get("Uid")),
                    blocked_seconds=self._blocked.seconds(pid, self._is_device_of(pid), monotonic) if rests else None,
                    kind=kinds[named],
                )
            )
        self._used, self._kinds = used, kinds
        holders.sort(key=lambda holder: (holder.started or 0.0, holder.pid))
        hidden = (_CONTAINED,) if self._contained else ()
        unseen = hidden + _unseen(scan) + unseen
        return HolderScan(tuple(holders), lock_file, pinned, unseen, frozenset(scan.sockets))

    def holds(self, pid: int) -> bool:
        """Whether this process holds the TPU now, as far as that can be read."""
        scan = _Scan(frozenset(self._processes.pids()))
        self._scan_one(pid, scan)
        return pid in scan.devices or pid in self._lock(scan)[1]

    def _scan(self) -> _Scan:
        if self._scans % _KERNEL_SCANS == 0:
            self._kernel.clear()
        self._scans += 1
        scan = _Scan(frozenset(self._processes.pids()))
        self._kernel &= scan.pids
        for pid in scan.pids - self._kernel:
            self._scan_one(pid, scan)
        return scan

    def _scan_one(self, pid: int, scan: _Scan) -> None:
        try:
            files: dict[str, str] | None = self._processes.open_files(pid)
        except PermissionError:
            files = None
        if not files:
            entry = self._processes.stat(pid)
            if entry is not None and entry.kernel:
                self._kernel.add(pid)
            elif entry is not None and files is None and not entry.ended:  # an ended process has no open files
                scan.unreadable.add(pid)
            return
        targets = files.values()
        opened = {
            f"/dev/{target[len(prefix) :]}": name
            for prefix in self._prefixes
            for name, target in files.items()
            if target.startswith(prefix)  # faster than matching
        }
        found = {match[1]: name for one, name in opened.items() if (match := _DEVICE.fullmatch(one))}
        named = {one: name for one, name in found.items() if not self._is_other_vendors(pid, one, name)}
        if len(named) < len(found) and named.keys() <= {_OPEN_TO_ALL}:
            named = {}  # VFIO itself, for the devices of others
        if named:
            scan.devices[pid] = tuple(sorted(named))
        if any(map(self._is_device_of(pid), named.values())):
            scan.trusted.add(pid)
            scan.sockets |= {int(match[1]) for target in targets if (match := _SOCKET.fullmatch(target))}
        if self._lock_path in targets:
            scan.lockers.add(pid)

    def _is_device_of(self, pid: int) -> Callable[[int | str], bool]:
        """A function that tells whether a descriptor of the process is one of a TPU device, by the kernel's own name of
        the device: the name by which it was opened may be of a namespace where a user makes the names."""

        def is_device(descriptor: int | str) -> bool:
            name = self._kernels_name(pid, descriptor)
            if name == _OPEN_TO_ALL or _DEVICE.fullmatch(name) is None:
                return False
            return not is_other_vendors(self._root, name)

        return is_device

    def _is_other_vendors(self, pid: int, name: str, descriptor: str) -> bool:
        """Whether a device that the process has open by this name is known to be no TPU, by the kernel's own name of
        it where that is known: in a namespace another name may stand for a TPU."""
        own = self._kernels_name(pid, descriptor)
        return is_other_vendors(self._root, own if _DEVICE.fullmatch(own) else name)

    def _kernels_name(self, pid: int, descriptor: int | str) -> str:
        number = self._processes.device_number(pid, descriptor)
        if number is None:
            return ""
        uevent = f"{self._numbers}/{os.major(number)}:{os.minor(number)}/uevent"
        return device_name(read_bounded(uevent, _MAX_NAME_BYTES))

    def _lock(self, scan: _Scan) -> tuple[bool, set[int], tuple[str, ...]]:
        """Whether the lock file exists, the processes that have locked it, and what could not be read."""
        try:
            entry = os.lstat(self._lock_path)
        except OSError:
            return False, set(), ()
        if not stat.S_ISREG(entry.st_mode):
            return False, set(), ()  # any user can put a link there, to a file that others lock
        try:
            with open(self._locks, "rb") as file:
                owners = parse_locks(file.read(_MAX_BYTES), entry.st_dev, entry.st_ino)
        except OSError:
            return True, set(), (_LOCKS_UNREADABLE.format(self._lock_path),)
        # A lock outlives its process in children that inherited it; its pid may then be another process's.
        locked = {
            pid for pid in owners & scan.pids if self._processes.has_open(pid, entry.st_dev, entry.st_ino) is not False
        }
        if locked != owners:
            locked |= scan.lockers
        return True, locked, (_LOCK_INHERITED.format(self._lock_path),) if owners and not locked else ()


def parse_locks(raw: bytes, device: int, inode: int) -> set[int]:
    """The pids in /proc/locks that hold a lock on a file; 0 and below stand for unnamed processes."""
    return {
        int(match[1])
        for match in _LOCK.finditer(raw)
        if int(match[4]) == inode and (int(match[2], 16), int(match[3], 16)) == (os.major(device), os.minor(device))
    }


def _unseen(scan: _Scan) -> tuple[str, ...]:
    if 1 not in scan.pids:
        return (_HIDDEN,)
    if scan.unreadable:
        count = len(scan.unreadable)
        return (_UNREADABLE.format("one process" if count == 1 else f"{count} processes"),)
    return ()


class _UserNames:
    """User names, read again when an unknown uid appears."""

    def __init__(self, root: Path) -> None:
        self._files = tuple(root / file for file in USER_FILES)
        self._names: dict[int, str] = {}

    def name(self, uid: int | None) -> str:
        """The name of the user, or the uid as text if it has none; "" for None."""
        if uid is None:
            return ""
        if uid not in self._names:
            texts = [read_bounded(path, _MAX_BYTES).decode("utf-8", "replace") for path in self._files]
            self._names = parse_users("\n".join(texts))
        return self._names.get(uid, str(uid))
