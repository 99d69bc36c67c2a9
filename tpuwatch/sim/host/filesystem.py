"""The simulated machine's file system: what tpuwatch reads of a machine, below a directory of the simulator's.

Of the real machine it holds the clock since boot, by which the kernel counts when processes started, and the processes
of simulated jobs: each adds itself when it starts. So nothing else that runs here can be taken for a job.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import uuid
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

ROOT: Final = "machine"  # beside the directories for logs and jobs' output
MEMORY_KIB: Final = 188 << 20  # a host of four v5e chips
AVAILABLE_KIB: Final = 180 << 20
_INODE: Final = 1_000_000  # of the sockets, plus their port
_PCI: Final = {"v2": "0x0027", "v3": "0x0027", "v4": "0x005e", "v5p": "0x0062", "v5e": "0x0063", "v6e": "0x006f"}
_NEWEST: Final = "0x0076"
_NO_PRESSURE: Final = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
_SOCKETS: Final = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class MachineFiles:
    """The file system below `root`, which is made anew."""

    def __init__(self, directory: Path, *, chips: int, generation: str) -> None:
        """`directory` is the simulator's, which the machine sees at the same path."""
        self.root = directory / ROOT
        if self.root.exists():
            shutil.rmtree(self.root)
        self._ports: frozenset[int] | None = None
        self._write("proc/meminfo", f"MemTotal: {MEMORY_KIB} kB\nMemAvailable: {AVAILABLE_KIB} kB\nUnevictable: 0 kB\n")
        self._write("proc/vmstat", "oom_kill 0\n")
        self._write("proc/locks", "")
        self._write("proc/sys/kernel/random/boot_id", f"{uuid.uuid4()}\n")
        for name in ("cpu", "io", "memory"):
            self._write(f"proc/pressure/{name}", _NO_PRESSURE)
        # There is no process 1, as where other users' processes are hidden: no process stands for the simulated
        # workload, and with all processes to be seen a runtime without a holder of the TPU would be nobody's.
        (self.root / "proc/uptime").symlink_to("/proc/uptime")
        self.listen(())
        self._write("etc/passwd", "".join(f"{name}:x:{uid}:{uid}::/:\n" for uid, name in _users().items()))
        for number in range(chips):
            self._write(f"dev/accel{number}", "")
            (self.root / f"dev/accel{number}").chmod(0o666)
            self._write(f"sys/class/accel/accel{number}/device/vendor", "0x1ae0\n")
            self._write(f"sys/bus/pci/devices/0000:00:{number:02x}.0/vendor", "0x1ae0\n")
            self._write(f"sys/bus/pci/devices/0000:00:{number:02x}.0/device", f"{_PCI.get(generation, _NEWEST)}\n")
        self._write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")
        (self.root / "tmp").mkdir()
        here = self.root / str(directory).lstrip("/")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(directory)

    def listen(self, ports: Collection[int]) -> None:
        """Show these ports as listened on by the simulator's user, and no others."""
        if self._ports != frozenset(ports):
            self._ports = frozenset(ports)
            lines = (
                f"   0: 0100007F:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {os.getuid():5}"
                f"        0 {_INODE + port} 1\n"
                for port in ports
            )
            self._write("proc/net/tcp", _SOCKETS + "".join(lines))

    def sweep(self) -> None:
        """Remove the processes that were killed: their numbers may be given to others."""
        for entry in (self.root / "proc").iterdir():
            if entry.is_symlink() and not entry.exists():
                entry.unlink(missing_ok=True)

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(path)


@contextlib.contextmanager
def on_machine(logs: Path | None) -> Iterator[None]:
    """Run this process on the simulated machine that `logs` is of; anywhere else nothing is done."""
    processes = None if logs is None else logs.parent / ROOT / "proc"
    if processes is None or not processes.is_dir():
        yield
        return
    entry = processes / str(os.getpid())
    with contextlib.suppress(OSError):
        entry.unlink(missing_ok=True)
        entry.symlink_to(f"/proc/{os.getpid()}")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            entry.unlink(missing_ok=True)


def _users() -> dict[int, str]:
    found = {0: "root"}
    with contextlib.suppress(KeyError):
        found[os.getuid()] = pwd.getpwuid(os.getuid()).pw_name
    return found
