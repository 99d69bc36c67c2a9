"""A process that looks like somebody's TPU job: it has a file open that is called /dev/accel0, and TPU_* variables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MARK = "somebody-elses-training"  # in its command line and its variables
# Root may make a file system of its own, others only with users of their own.
_SCRIPT = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
user, group = os.getuid(), os.getgid()
if libc.unshare(0x00020000 if user == 0 else 0x10020000):
    sys.exit("unshare")
if user:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
if libc.mount(b"none", b"/", None, 0x44000, None) or libc.mount(b"none", b"/dev", b"tmpfs", 0, None):
    sys.exit("mount")
device = os.open("/dev/accel0", os.O_RDWR | os.O_CREAT)
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def decoy() -> Iterator[int | None]:
    """Run it; its pid, or None where such a process cannot be made."""
    environ = {"PATH": os.defpath, "TPU_WORKER_ID": "0", "TPU_NAME": MARK, "PJRT_DEVICE": "TPU"}
    with subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, MARK], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.pid if process.stdout.readline() == "open\n" else None
        process.stdin.close()
