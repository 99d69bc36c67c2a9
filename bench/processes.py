"""Other processes: the daemon under measurement, and what it costs."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.export.view import ADDRESS_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 30.0
STOP_SECONDS = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()

CONFIG = """\
[logs]
paths = ["{logs}"]

[cloud]
enabled = false

[runtime]
enabled = false

[http]
listen = "127.0.0.1:0"

[state]
dir = "{state}"
max_mib = {max_mib}

[log]
level = "error"
"""


@contextlib.contextmanager
def daemon(logs: Path, state: Path, *, max_mib: int = 256) -> Iterator[int]:
    """The real daemon, from `tpuwatch run`; gives its pid once it is ready, and ends it."""
    state.mkdir(exist_ok=True)
    config = state / "config.toml"
    config.write_text(CONFIG.format(logs=logs, state=state, max_mib=max_mib))
    address = state / ADDRESS_FILE
    process = subprocess.Popen([sys.executable, "-m", "tpuwatch", "run", "--config", str(config)])  # noqa: S603 - ours
    try:
        deadline = time.monotonic() + START_SECONDS
        while not address.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the daemon did not start (exit code {process.poll()}); see its words above")
            time.sleep(0.02)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processors since it began, in its own code and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """How much memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
