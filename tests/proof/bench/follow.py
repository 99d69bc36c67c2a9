"""Following live logs with the real daemon: how soon an event is stored, and what that costs.

The n-th event in the store is the n-th one written. The store is read beside the daemon every few milliseconds, so
a latency holds up to POLL_SECONDS of waiting for the next look; the counter in /metrics is raised with the same turn.
"""

from __future__ import annotations

import os
import statistics
import time
from itertools import chain
from typing import TYPE_CHECKING

from tests.proof.bench import generate
from tests.proof.bench.figures import Figure
from tests.proof.bench.processes import daemon, processor_share
from tpuwatch.store import StoreReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.proof.bench.figures import Bench

POLL_SECONDS = 0.004
WARM_UP_SECONDS = 2.0
LATE_SECONDS = 10.0  # what is not stored so long after the last line never comes
_BURST_SECONDS = 0.002  # the fast writer writes what is due, line by line, then sleeps for so long


def slow(bench: Bench) -> Iterator[Figure]:
    """50 lines a second: one in ten an event, then each of them."""
    for event_every, name in ((10, "one in ten an event"), (1, "each an event")):
        logs, state = bench.directory(f"logs-{event_every}"), bench.scratch / f"state-{event_every}"
        log = logs / generate.NAME
        log.write_text(generate.head())
        with daemon(logs, state) as pid:
            reader = StoreReader.open(state)
            time.sleep(WARM_UP_SECONDS)
            with processor_share(pid) as share:
                latencies = _latencies(log, reader, round(50 * bench.scale.slow_seconds), event_every)
        ranked = statistics.quantiles(latencies, n=100, method="inclusive")
        yield Figure(f"50 lines/s, {name}: median from write to store", 1000 * ranked[49], "ms")
        yield Figure(f"50 lines/s, {name}: p99 from write to store", 1000 * ranked[98], "ms", at_most=100)
        yield Figure(f"50 lines/s, {name}: processor", 100 * share[pid], "%", at_most=2)


def fast(bench: Bench) -> Iterator[Figure]:
    """50,000 lines a second of the healthy mix, each with its own write, to two files in turns."""
    logs = bench.directory("logs")
    paths = [logs / generate.NAME.replace(str(generate.PID), str(pid)) for pid in (1, 2)]
    for path in paths:
        path.write_text(generate.head())
    with daemon(logs, bench.scratch / "state") as pid:
        _write_fast(paths, WARM_UP_SECONDS)
        with processor_share(pid) as share:
            rate = _write_fast(paths, bench.scale.fast_seconds)
    yield Figure("two files in turns: lines written", rate, "1/s")
    yield Figure("two files in turns, 50,000 lines/s: processor", 100 * share[pid], "%", at_most=20)


def _latencies(log: Path, reader: StoreReader, count: int, event_every: int) -> list[float]:
    """Write `count` lines, 50 a second; seconds from the write of each event until it is seen in the store."""
    events = range(event_every, count + 1, event_every)  # the numbers of their lines
    written: list[float] = []
    latencies: list[float] = []
    last_id = reader.last_id()
    start = time.perf_counter()
    with log.open("a", buffering=1) as file:
        while len(latencies) < len(events):
            now = time.perf_counter()
            if len(written) < count and now - start >= len(written) * 0.02:
                written.append(now)
                line = generate.failure if len(written) in events else generate.dull
                file.write(line(len(written), now - start))
            found = reader.events(after_id=last_id)
            seen = time.perf_counter()
            for event in found:
                latencies.append(seen - written[events[len(latencies)] - 1])
                last_id = event.id or last_id
            if seen - written[-1] > LATE_SECONDS:
                raise RuntimeError(f"{len(latencies)} of {len(events)} events were stored: the daemon has lost some")
            time.sleep(POLL_SECONDS)
    return latencies


def _write_fast(paths: list[Path], seconds: float) -> float:
    """Write for so long; returns lines a second."""
    lines = chain.from_iterable(piece.encode().splitlines(keepends=True) for piece in generate.healthy())
    descriptors = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in paths]
    start = time.perf_counter()
    written = 0
    try:
        while (passed := time.perf_counter() - start) < seconds:
            while written < passed * 50_000:
                os.write(descriptors[written % 2], next(lines))
                written += 1
            time.sleep(_BURST_SECONDS)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return written / passed
