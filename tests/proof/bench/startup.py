"""Commands: how long a person waits."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.proof.bench import generate
from tests.proof.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.proof.bench.figures import Bench


def start_up(bench: Bench) -> Iterator[Figure]:
    """`--help`, and `diagnose` of ten kilobytes."""
    text = bench.scratch / "text.log"
    generate.write(text, 10_000, generate.healthy(event_every=1))
    bare = _median(bench.scale.runs, "-c", "pass")
    yield Figure("python -c pass", 1000 * bare, "ms")
    for name, target, arguments in (
        ("tpuwatch --help", 120, ("--help",)),
        ("tpuwatch diagnose, 10 KB", 400, ("diagnose", str(text))),
    ):
        seconds = _median(bench.scale.runs, "-m", "tpuwatch", *arguments)
        yield Figure(name, 1000 * seconds, "ms", at_most=target)
        yield Figure(f"{name}: to python -c pass", seconds / bare, "x")


def _median(runs: int, *arguments: str) -> float:
    """Seconds that Python takes with these arguments; one run before warms the caches."""
    times = []
    for _ in range(1 + runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
