"""A daemon with nothing to do: what it costs to have it."""

from __future__ import annotations

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
