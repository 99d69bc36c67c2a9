"""Holds the TPU as a job does: has a device open, and libtpu's lock file locked."""

from __future__ import annotations

import fcntl
import os
import signal

if __name__ == "__main__":
    device = os.open("/dev/accel0", os.O_RDONLY)
    lock = os.open("/tmp/libtpu_lockfile", os.O_RDWR | os.O_CREAT, 0o600)  # noqa: S108 # where libtpu has it
    fcntl.flock(lock, fcntl.LOCK_EX)
    signal.pause()
