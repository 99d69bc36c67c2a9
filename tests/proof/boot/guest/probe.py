"""Runs in the unit's sandbox in place of tpuwatch, tries what it should not be able to do, and prints what it could."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = {  # numbers of system calls
    "x86_64": {"open_by_handle_at": 304, "ptrace": 101, "process_vm_readv": 310, "bpf": 321, "unshare": 272},
    "aarch64": {"open_by_handle_at": 265, "ptrace": 117, "process_vm_readv": 270, "bpf": 280, "unshare": 97},
}
SOCKETS = {"AF_NETLINK": socket.SOCK_RAW, "AF_ALG": socket.SOCK_SEQPACKET}
EPERM = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def writable() -> list[str]:
    """Every directory outside of /proc that a file can be made in, and every file that can be opened to write."""
    found = []
    for directory, names, files in os.walk("/"):
        if directory == "/":
            names.remove("proc")
        if _can(lambda directory=directory: _make(directory)):
            found.append(directory)
        for name in files:
            path = Path(directory, name)
            if not path.is_symlink() and path.is_file() and _can(lambda path=path: _open(path)):
                found.append(str(path))
    return found


def possible() -> list[str]:
    """What else can be done."""
    attempts: dict[str, Callable[[], object]] = {
        "signal a process of root": lambda: os.kill(1, signal.SIGCONT),
        "read the memory of a process of root": lambda: Path("/proc/1/mem").open("rb").close(),
        "become root": lambda: os.setuid(0),
        "become nicer than others": lambda: os.setpriority(os.PRIO_PROCESS, 0, -10),
        "set the clock": lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
        "make a file setuid": _setuid,
    }
    attempts |= {
        f"{name} sockets": lambda name=name, kind=kind: socket.socket(getattr(socket, name), kind).close()
        for name, kind in SOCKETS.items()
    }
    attempts |= {
        f"system call {name}": lambda number=number: _call(number)
        for name, number in CALLS.get(platform.machine(), {}).items()
    }
    return [what for what, attempt in attempts.items() if _can(attempt)]


def _can(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _make(directory: str) -> None:
    path = Path(directory, f"tpuwatch-probe-{os.getpid()}")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    path.unlink()


def _open(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))


def _setuid() -> None:
    with tempfile.NamedTemporaryFile() as file:
        os.fchmod(file.fileno(), 0o4755)


def _call(number: int) -> None:
    """A system call with wrong arguments: the filter refuses it with EPERM, the kernel with something else."""
    if _LIBC.syscall(number, -1, -1, -1, -1, -1, -1) == -1 and ctypes.get_errno() == EPERM:
        raise PermissionError


if __name__ == "__main__":
    user = os.geteuid()
    print(json.dumps({"possible": possible(), "writable": writable() if user else []}))
