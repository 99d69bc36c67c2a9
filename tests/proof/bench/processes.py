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
from typing import TYPE_CHECKING, TypeVar

from tpuwatch.model.status import ADDRESS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

START_SECONDS = 30.0
STOP_SECONDS = 20.0
_PAGE = resource.getpagesize()

NO_NODE = "[cloud]\nenabled = false\n\n[runtime]\nenabled = false"
CONFIG = """\
[logs]
paths = ["{logs}"]
job_paths = ["{logs}/*.out"]

{node}

[http]
listen = "127.0.0.1:0"

[state]
dir = "{state}"
max_mib = {max_mib}

[log]
level = "error"
"""


Result = TypeVar("Result", float, tuple[float, int])


def best(measure: Callable[[], Result]) -> Result:
    """The least of three: what else the machine does only adds to it."""
    return min(measure() for _ in range(3))


def processor_seconds(
    command: Sequence[str], *, environ: Mapping[str, str] | None = None, timeout: float = 600.0
) -> tuple[float, bytes]:
    """Seconds of the processor that a command and its children take until it ends, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environ, check=False, timeout=timeout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


@contextlib.contextmanager
def daemon(
    logs: Path,
    state: Path,
    *,
    max_mib: int = 256,
    node: str = NO_NODE,
    environ: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """The real daemon, from `tpuwatch run`; gives its pid once it serves, and ends it.

    `node` is the configuration of its node side, as text; `environ` more variables for it.
    """
    state.mkdir(exist_ok=True)
    config = state / "config.toml"
    config.write_text(CONFIG.format(logs=logs, state=state, max_mib=max_mib, node=node))
    with tpuwatch("run", "--config", str(config), until=state / ADDRESS_FILE, environ=environ) as pid:
        yield pid


@contextlib.contextmanager
def tpuwatch(*words: str, until: Path, environ: Mapping[str, str] | None = None) -> Iterator[int]:
    """A command of tpuwatch's that runs until it is ended; gives its pid once the file `until` is there."""
    command = [sys.executable, "-m", "tpuwatch", *words]
    variables = {**os.environ, **(environ or {})}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not until.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"tpuwatch {words[0]} did not start (exit code {process.poll()}); see its words above"
                )
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
    # The clock that clock_getcpuclockid(3) names: /proc/PID/stat counts hundredths of a second only.
    return time.clock_gettime(~pid << 3 | 2)


@contextlib.contextmanager
def processor_share(*pids: int) -> Iterator[dict[int, float]]:
    """What part of a processor each of the processes uses meanwhile: a dictionary that is filled in at the end."""
    shares: dict[int, float] = {}
    before, start = {pid: cpu_seconds(pid) for pid in pids}, time.perf_counter()
    yield shares
    passed = time.perf_counter() - start
    shares.update({pid: (cpu_seconds(pid) - before[pid]) / passed for pid in pids})


def resident_bytes(pid: int) -> int:
    """How much memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def peak_bytes(pid: int) -> int:
    """The most memory that a process has held so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
