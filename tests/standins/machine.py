"""A made-up machine: a directory with what /proc, /sys, /etc and /tmp would show."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tpuwatch.host.procfs import ProcFs

TICKS = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x0020_0000
PAGE = 1024


class Machine:
    """Files below `root`, made and changed as a test wants them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/uptime", "1000.00 3900.00\n")
        self.write("proc/sys/kernel/random/boot_id", "4c206349-4c05-46c5-9b3d-3ae5e69ee5c6\n")
        self.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable:  600 kB\nUnevictable: 20 kB\nMlocked: 10 kB\n")
        self.write("proc/vmstat", "nr_free_pages 12\noom_kill 0\n")
        self.write("proc/locks", "")
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nalice:x:1001:1001::/home/alice:/bin/bash\n")
        self.process(1, command="/sbin/init", files=("/dev/null",))

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def process(
        self,
        pid: int,
        *,
        command: str = "python3\0train.py\0",
        files: tuple[Any, ...] = (),
        uid: int = 0,
        started: float = 100.0,
        cpu: float = 0.0,
        name: str = "python3",
        flags: int = 0,
        pinned: tuple[int, int] = (0, 0),
        parent: int = 1,
        reaped: float = 0.0,
        state: str = "S",
        numbers: tuple[int, ...] = (),
    ) -> None:
        """A process that `started` so long after boot and used so much CPU, in seconds; pinned: KiB locked, pinned.

        `reaped` is the CPU of children that have ended, `numbers` its pids in the namespaces below the machine's own.
        """
        used = [int(cpu * TICKS), 0, int(reaped * TICKS), 0]
        fields = [state, parent, 1, 1, 0, -1, flags, 0, 0, 0, 0, *used, 20, 0, 1, 0, int(started * TICKS)]
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) {' '.join(map(str, fields))} 0 0 0\n")
        self.write(f"proc/{pid}/cmdline", command)
        self.write(
            f"proc/{pid}/status",
            f"Name:\t{name}\nNSpid:\t{' '.join(map(str, (pid, *numbers)))}\nUid:\t{uid}\t0\t0\t0\n"
            f"VmLck:\t{pinned[0]} kB\nVmPin:\t{pinned[1]} kB\n",
        )
        directory = self.root / f"proc/{pid}/fd"
        directory.mkdir(exist_ok=True)
        for link in directory.iterdir():
            link.unlink()
        for number, target in enumerate(files):
            (directory / str(number)).symlink_to(target)

    def in_namespace(self, number: int) -> None:
        """Let us be in this pid namespace."""
        (self.root / "proc/self/ns").mkdir(parents=True)
        (self.root / "proc/self/ns/pid").symlink_to(f"pid:[{number}]")

    def listens(self, *sockets: tuple[int, int, int], table: str = "tcp") -> None:
        """Let there be sockets that listen, each on a port, of a user, with an inode; and one that is connected."""
        lines = ["  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"]
        for number, (port, uid, inode) in enumerate(sockets):
            where = f"{number:4}: 0100007F:{port:04X} 00000000:0000"
            lines.append(f"{where} 0A 00000000:00000000 00:00000000 00000000 {uid:5}        0 {inode} 1 0 100 0")
        lines.append("  99: 0100007F:20EF 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 5 1 0")
        self.write(f"proc/net/{table}", "\n".join(lines) + "\n")

    def has_real_sockets(self) -> None:
        """Let its sockets be those of the real machine: the servers of a test are there, of tpuwatch's own user."""
        (self.root / "proc/net").symlink_to("/proc/net")

    def devices(self, **names: str) -> ProcFs:
        """The processes, with files that are devices: what a process calls them, and what the kernel does ("" where it
        knows no such device)."""
        numbers = {}
        for minor, (called, name) in enumerate(names.items()):
            numbers[f"/dev/{called.replace('_', '/')}"] = os.makedev(261, minor)
            if name:
                self.write(f"sys/dev/char/261:{minor}/uevent", f"MAJOR=261\nMINOR={minor}\nDEVNAME={name}\n")
        return _WithDevices(self.root / "proc", numbers)

    def thread(
        self, pid: int, thread: int, *, state: str = "D", call: str = "16 0x0 0x3b71 0x7f", cpu: int = 0
    ) -> None:
        """A thread of a process: its state, the call that it is in, and the clock ticks that it has used."""
        fields = [state, 1, 1, 1, 0, -1, 0, 0, 0, 0, 0, cpu, 0, 0, 0, 20, 0, 1, 0, 100]
        self.write(f"proc/{pid}/task/{thread}/stat", f"{thread} (python3) {' '.join(map(str, fields))} 0 0 0\n")
        self.write(f"proc/{pid}/task/{thread}/syscall", f"{call}\n")

    def ended(self, pid: int) -> None:
        directory = self.root / f"proc/{pid}"
        for path in sorted(directory.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        directory.rmdir()

    @property
    def lock_path(self) -> Path:
        return self.root / "tmp/libtpu_lockfile"

    def lock(self, pid: int, kind: str = "FLOCK  ADVISORY  WRITE") -> None:
        """Let the lock file be there, locked by `pid`."""
        self.write("tmp/libtpu_lockfile", "")
        entry = self.lock_path.stat()
        where = f"{os.major(entry.st_dev):02x}:{os.minor(entry.st_dev):02x}:{entry.st_ino}"
        self.write("proc/locks", f"1: FLOCK  ADVISORY  WRITE 9 00:01:1 0 EOF\n2: {kind} {pid} {where} 0 EOF\n")


class _WithDevices(ProcFs):
    """Processes whose files below /dev are devices, by number."""

    def __init__(self, root: Path, numbers: dict[str, int]) -> None:
        super().__init__(root)
        self._proc, self._numbers = root, numbers

    def device_number(self, pid: int, descriptor: int | str) -> int | None:
        try:
            return self._numbers.get(str((self._proc / f"{pid}/fd/{descriptor}").readlink()))
        except OSError:
            return None
