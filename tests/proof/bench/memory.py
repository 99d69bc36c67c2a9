"""Memory over a long time: gigabytes of log and a million events through one daemon, with a store that is pruned."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.proof.bench import generate
from tests.proof.bench.figures import Figure
from tests.proof.bench.processes import daemon, resident_bytes
from tpuwatch.store import StoreReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.proof.bench.figures import Bench

STEPS = 10  # parts of the whole, after each of which memory is looked at
MAX_MIB = 64  # of store, so that it is pruned from early on
STEP_SECONDS = 600.0
_SPREAD = 5  # per cent around the middle


def flat(bench: Bench) -> Iterator[Figure]:
    """Each part is a new file, of another process, that takes the place of the one before the last."""
    logs, state = bench.directory("logs"), bench.scratch / "state"
    step_size, step_events = bench.scale.long_log // STEPS, bench.scale.long_events // STEPS
    sizes: list[float] = []
    with daemon(logs, state, max_mib=MAX_MIB) as pid:
        reader = StoreReader.open(state)
        for step in range(1, STEPS + 1):
            path = logs / generate.NAME.replace(str(generate.PID), str(step))
            _write_part(path, step_size, step_events, step)
            _wait_until_read(reader, path)
            sizes.append(resident_bytes(pid) / (1 << 20))
            yield Figure(f"memory after {10 * step} % of the log and events", sizes[-1], "MiB")
            path.unlink()
        last_id, store = reader.last_id(), reader.size_bytes()
    later = sizes[1:]  # the first part warms up
    middle = (max(later) + min(later)) / 2
    yield Figure("memory: events stored", last_id, "")
    yield Figure("memory: store at the end", store / (1 << 20), "MiB")
    spread = 100 * (max(later) / middle - 1)
    yield Figure("memory: spread around the middle, from 20 % on", spread, "%", at_most=_SPREAD)


def _write_part(path: Path, size: int, events: int, seed: int) -> None:
    """Healthy lines with `events` failures spread among them."""
    pieces = generate.healthy(seed, event_every=1 << 62)
    written = failures = 0
    with path.open("w") as file:
        while written < size or failures < events:
            if written < size:
                written += file.write(next(pieces))
            while failures < events * min(1.0, written / size):
                failures += 1
                file.write(generate.failure(seed * events + failures, failures * 1e-4))


def _wait_until_read(reader: StoreReader, path: Path) -> None:
    """Until the store's cursor for the file stands near its end (a last record may wait to be settled)."""
    deadline = time.monotonic() + STEP_SECONDS
    size = path.stat().st_size
    while time.monotonic() < deadline:
        offsets = [cursor.offset for cursor in reader.cursors() if cursor.path == str(path)]
        if offsets and max(offsets) >= size - (1 << 16):
            return
        time.sleep(0.2)
    raise RuntimeError(f"{path} was not read to its end within {STEP_SECONDS:g} s")
