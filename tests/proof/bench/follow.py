"""Following live logs with the real daemon: how soon an event is stored, and what that costs.

The n-th event in the store is the n-th one written. The store is read beside the daemon every few milliseconds, so
a latency holds up to POLL_SECONDS of waiting for the next look; the counter in /metrics is raised with the same turn.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import time
import urllib.request
from bisect import bisect_left
from itertools import chain, count
from typing import TYPE_CHECKING

from tests.proof.bench import generate
from tests.proof.bench.figures import Figure
from tests.proof.bench.kinds import KINDS
from tests.proof.bench.processes import daemon, processor_share
from tpuwatch.model.status import ADDRESS_FILE
from tpuwatch.store import StoreReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.proof.bench.figures import Bench

POLL_SECONDS = 0.004
WARM_UP_SECONDS = 2.0
COMPILE_SECONDS = 6.0  # the warm-up where literals are many: the patterns are compiled meanwhile
LATE_SECONDS = 10.0  # what is not stored so long after the last line never comes
_BURST_SECONDS = 0.002  # the fast writer writes what is due, line by line, then sleeps for so long


def slow(bench: Bench) -> Iterator[Figure]:
    """50 lines a second: one in ten an event, then each of them, where polls are further apart."""
    for event_every, name, late in ((10, "one in ten an event", 100), (1, "each an event", 500)):
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
        yield Figure(f"50 lines/s, {name}: p99 from write to store", 1000 * ranked[98], "ms", at_most=late)
        yield Figure(f"50 lines/s, {name}: processor", 100 * share[pid], "%", at_most=2)


def fast(bench: Bench) -> Iterator[Figure]:
    """50,000 lines a second of the healthy mix, each with its own write, to two files in turns."""
    logs = bench.directory("logs")
    paths = [logs / generate.NAME.replace(str(generate.PID), str(pid)) for pid in (1, 2)]
    for path in paths:
        path.write_text(generate.head())
    with daemon(logs, bench.scratch / "state") as pid:
        lines = chain.from_iterable(piece.encode().splitlines(keepends=True) for piece in generate.healthy())
        _write_fast(paths, WARM_UP_SECONDS, 50_000, lines)
        with processor_share(pid) as share:
            rate = _write_fast(paths, bench.scale.fast_seconds, 50_000, lines)
    yield Figure("two files in turns: lines written", rate, "1/s")
    yield Figure("two files in turns, 50,000 lines/s: processor", 100 * share[pid], "%", at_most=20)


def output(bench: Bench) -> Iterator[Figure]:
    """A job that prints its steps, 5,000 and 50,000 lines a second, each with its own write."""
    for rate, most in ((5_000, 5), (50_000, 25)):
        logs, state = bench.directory(f"logs-{rate}"), bench.scratch / f"state-{rate}"
        path = logs / "train.out"
        path.touch()
        lines = _steps(rate * (COMPILE_SECONDS + 2 * bench.scale.fast_seconds))
        with daemon(logs, state) as pid:
            _write_fast([path], COMPILE_SECONDS, rate, lines)
            with processor_share(pid) as share:
                written = _write_fast([path], bench.scale.fast_seconds, rate, lines)
            address = (state / ADDRESS_FILE).read_text().strip()
            lags, apart = _lags(address, path, bench.scale.fast_seconds, rate, lines)
        name = f"output of a job, {rate:,} lines/s"
        yield Figure(f"{name}: lines written", written, "1/s")
        yield Figure(f"{name}: processor", 100 * share[pid], "%", at_most=most)
        yield Figure(f"{name}: lag, the longest", max(lags), "s", at_most=1)
        yield Figure(f"{name}: reported lag to the real one, the furthest apart", apart, "s of writing", at_most=1)


def _steps(number: float) -> Iterator[bytes]:
    """So many lines and some more, made beforehand: the writer shares the processors."""
    rng = random.Random(1)
    lines = [KINDS["print"].piece(step, rng).encode() for step in range(round(number * 1.1))]
    return chain(lines, (KINDS["print"].piece(step, rng).encode() for step in count(len(lines))))


def _lags(address: str, path: Path, seconds: float, rate: int, lines: Iterator[bytes]) -> tuple[list[float], float]:
    """How old the first unread byte was at each look, in seconds; and how far the reported lag was from the real one.

    The latter in seconds of writing, as the daemon reports what it found at its last look at the file.
    """
    offset = path.stat().st_size
    marks: list[tuple[int, float]] = [(offset, time.perf_counter())]  # sizes, and when the file had them
    lags, apart, next_look = [], 0.0, time.perf_counter() + seconds / 4
    with path.open("ab", buffering=0) as file:
        start = time.perf_counter()
        written = size = 0
        while (now := time.perf_counter()) - start < seconds:
            while written < (now - start) * rate:
                size += file.write(next(lines))
                written += 1
            marks.append((offset + size, time.perf_counter()))
            if now >= next_look:
                next_look += 0.5
                read, reported = _read_and_lag(address)
                unread = offset + size - read
                asked = time.perf_counter()
                lags.append(
                    asked - marks[min(len(marks) - 1, bisect_left(marks, (read, 0.0)))][1] if unread > 0 else 0.0
                )
                apart = max(apart, abs(unread - reported) / (size / (now - start)))
            time.sleep(_BURST_SECONDS)
    return lags, apart


def _read_and_lag(address: str) -> tuple[int, int]:
    """The bytes that the daemon has read so far, and its lag as it reports it."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    names = ("tpuwatch_log_read_bytes_total", "tpuwatch_log_lag_bytes")
    read, lag = (float(match[1]) for name in names if (match := re.search(rf"(?m)^{name} (\S+)$", text)))
    return round(read), round(lag)


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


def _write_fast(paths: list[Path], seconds: float, rate: int, lines: Iterator[bytes]) -> float:
    """Write for so long, to the files in turns; returns lines a second."""
    descriptors = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in paths]
    start = time.perf_counter()
    written = 0
    try:
        while (passed := time.perf_counter() - start) < seconds:
            while written < passed * rate:
                os.write(descriptors[written % len(descriptors)], next(lines))
                written += 1
            time.sleep(_BURST_SECONDS)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return written / passed
