"""The daemon on a made-up machine, with a time that skips: `python -m tests.e2e.daemon_elsewhere ROOT SKIP PATIENCE`.

ROOT is a directory with what /proc would show, or with a link to the real one, whose devices do not count; what is done
on the machine is done in it, too. SKIP is a file with the seconds by which all clocks are ahead. PATIENCE is how many
seconds it has with the metadata server and with the runtime's ports: few, lest tests take long. All else is the daemon
as it is. What comes after the first `tpuwatch` is its command line.
"""

from __future__ import annotations

import functools
import sys
from datetime import timedelta
from pathlib import Path

from tpuwatch.cli.main import main
from tpuwatch.core.clock import SystemClock
from tpuwatch.daemon import daemon
from tpuwatch.google import metadata, server_time
from tpuwatch.host.procfs import ProcFs
from tpuwatch.restart import driver_pool
from tpuwatch.restart.local.linux import Linux
from tpuwatch.signals import host, runtime, sources

PATIENCE_SECONDS = 1.0  # where a test does not say
LOOK_SECONDS = 1.0  # between two looks at the machine, which a skip does not hasten
STATUS_SECONDS = 0.1  # between two changes of what it shows


def skipping(skip: Path, *, real: bool) -> None:
    """Let all clocks of this process be ahead by what the file says; `real` machines have been up for longer, too."""
    time, monotonic, uptime = SystemClock.time, SystemClock.monotonic, ProcFs.uptime

    def ahead() -> float:
        return float(skip.read_text())

    dated = server_time.parsedate_to_datetime
    later = lambda date: dated(date) + timedelta(seconds=ahead())  # noqa: E731 (the same for those who tell the time)
    server_time.parsedate_to_datetime = later  # type: ignore[assignment]
    SystemClock.time = lambda self: time(self) + ahead()  # type: ignore[method-assign]
    SystemClock.monotonic = lambda self: monotonic(self) + ahead()  # type: ignore[method-assign]
    if real:
        ProcFs.uptime = lambda self: (uptime(self) or 0.0) + ahead()  # type: ignore[method-assign]


def hide_devices() -> None:
    """Let no process count as a holder for a device that it has open: the test's own have a lock file below ROOT.

    Other processes on this machine may hold a real TPU, or one of another test's; the daemon would end them.
    """
    open_files = ProcFs.open_files
    ProcFs.open_files = lambda self, pid: {  # type: ignore[method-assign]
        name: target for name, target in open_files(self, pid).items() if not target.startswith("/dev/")
    }


def run(root: Path, skip: Path, patience: float, command: list[str]) -> int:
    """Run the command there and then."""
    sources.FIRST_SECONDS = max(sources.FIRST_SECONDS, patience)
    host.LOOK_SECONDS = LOOK_SECONDS  # type: ignore[misc]
    daemon.STATUS_SECONDS = STATUS_SECONDS
    signal = host.HostSignal
    host.HostSignal = lambda **more: signal(**{**more, "root": root})  # type: ignore[misc,assignment]
    driver_pool.Linux = lambda clock, _: Linux(clock, root)  # type: ignore[misc,assignment]
    metadata.MetadataClient = functools.partial(metadata.MetadataClient, timeout_seconds=patience)  # type: ignore[misc,assignment]
    runtime.RuntimeSignal = functools.partial(  # type: ignore[misc,assignment]
        runtime.RuntimeSignal, timeout_seconds=patience
    )
    real = (root / "proc").is_symlink()
    if real:
        hide_devices()
    skipping(skip, real=real)
    return main(command[command.index("tpuwatch") + 1 :])


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]))
