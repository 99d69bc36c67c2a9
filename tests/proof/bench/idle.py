"""A daemon with nothing to do: what it costs to have it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from tests.proof.bench import generate
from tests.proof.bench.figures import Figure
from tests.proof.bench.processes import daemon, processor_share, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.proof.bench.figures import Bench

SETTLE_SECONDS = 3.0
_FILES = 20  # of earlier processes, as they stay behind
_BUSY = 0.2  # the share of a processor above which a daemon has files left to read
_READ_SECONDS = 300.0  # at most until all files are read at first


def idle(bench: Bench) -> Iterator[Figure]:
    """A few quiet logs, no reader of its metrics."""
    logs = bench.directory("logs")
    for pid in range(_FILES):
        generate.write(logs / generate.NAME.replace(str(generate.PID), str(pid + 1)), 10_000, generate.healthy())
    with daemon(logs, bench.scratch / "state") as pid:
        time.sleep(SETTLE_SECONDS)
        with processor_share(pid) as share:
            time.sleep(bench.scale.idle_seconds)
        resident = resident_bytes(pid)
    yield Figure("idle: processor", 100 * share[pid], "%", at_most=0.3)
    yield Figure("idle: resident memory", resident / (1 << 20), "MiB", at_most=80)


def old_files(bench: Bench) -> Iterator[Figure]:
    """Very many small logs of earlier processes, as libtpu never deletes one."""
    logs, state = bench.directory("logs"), bench.scratch / "state"
    written = time.time() - 86_400.0
    for pid in range(bench.scale.old_files):
        path = logs / generate.NAME.replace(str(generate.PID), str(pid + 1))
        path.write_text(generate.head() + generate.dull(pid, 0.0))
        os.utime(path, (written, written))
    with daemon(logs, state) as pid:
        started = time.monotonic()
        while _still_reading(pid) and time.monotonic() - started < _READ_SECONDS:
            pass
        with processor_share(pid) as share:
            time.sleep(bench.scale.idle_seconds)
        resident = resident_bytes(pid)
    name = f"{bench.scale.old_files:,} old files"
    yield Figure(f"{name}: processor when idle", 100 * share[pid], "%", at_most=1)
    yield Figure(f"{name}: resident memory", resident / (1 << 20), "MiB", at_most=256)


def _still_reading(pid: int) -> bool:
    """Whether a daemon is busy; it takes a moment to find out."""
    with processor_share(pid) as share:
        time.sleep(SETTLE_SECONDS)
    return share[pid] > _BUSY
