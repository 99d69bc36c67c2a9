"""Catching up with a log of libtpu that is already there: healthy, against counting its newlines, and a flood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.paths import SHARED
from tests.proof.bench import generate, mtail, rules
from tests.proof.bench.figures import Figure
from tests.proof.bench.recognition import Readers, newline_seconds
from tpuwatch.logs.rules.catalogue import Catalogue, load_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.proof.bench.figures import Bench

NEWLINES = 25.0  # per cent of the speed at which Python counts newlines
FLOOD = 4.0  # times as fast as mtail
RULES = 1.5  # times as long with 300 rules as with 20


def healthy(bench: Bench) -> Iterator[Figure]:
    """libtpu's mix of lines, events rare: as it is generated, and as a real libtpu wrote it."""
    log = bench.directory("healthy") / generate.NAME
    generate.write(log, bench.scale.log, generate.healthy())
    yield from _to_newlines("healthy log", log, Readers(bench.scratch))
    real = bench.directory("real") / generate.NAME
    if _write_real(real, bench.scale.log):
        yield from _to_newlines("real logs that went well", real, Readers(bench.scratch))
    times = []
    for count in (20, 300):
        made_up = Catalogue(rules.made_up(count, bench.directory(f"toml-{count}")))
        times.append(Readers(bench.scratch, made_up).pipeline(log, job=False))
    yield Figure("healthy log: time with 300 rules to time with 20", times[1] / times[0], "x", at_most=RULES)


def flood(bench: Bench) -> Iterator[Figure]:
    """A log with an event in every line, no two alike."""
    log = bench.directory("flood") / generate.NAME
    size = generate.write(log, bench.scale.flood, generate.failures())
    readers = Readers(bench.scratch)
    ways = readers.ways(log, readers.pipeline(log, job=False), readers.diagnose(log))
    for way, seconds in ways.items():
        yield Figure(f"a failure in each line: {way}", size / seconds / 1e6, "MB/s")
    if mtail.PROGRAM:
        part = bench.scratch / "part.log"
        generate.write(part, bench.scale.peer_log, generate.failures())
        peer = mtail.speed(part, rules.few(load_catalogue()), bench.scratch)
        yield Figure(f"a failure in each line: mtail with {rules.FEW} patterns", peer, "MB/s")
        for way, seconds in ways.items():
            speed = size / seconds / 1e6
            yield Figure(f"a failure in each line: {way} to mtail", speed / peer, "x", at_least=FLOOD)


def _to_newlines(name: str, log: Path, readers: Readers) -> Iterator[Figure]:
    size, newlines = log.stat().st_size, newline_seconds(log)
    ways = readers.ways(log, readers.pipeline(log, job=False), readers.diagnose(log))
    newlines = min(newlines, newline_seconds(log))  # before and after: a machine has its moments
    yield Figure(f"{name}: counting newlines in Python", size / newlines / 1e6, "MB/s")
    for way, seconds in ways.items():
        yield Figure(f"{name}: {way}", size / seconds / 1e6, "MB/s")
        yield Figure(f"{name}: {way} to counting newlines", 100 * newlines / seconds, "%", at_least=NEWLINES)


def _write_real(path: Path, size: int) -> bool:
    """Put the logs of real runs that went well together, again and again, up to `size`; whether there are any."""
    runs = [run for run in sorted((SHARED / "libtpu-logs" / "aot-oom").glob("*/logs")) if not _failed(run)]
    text = b"".join(log.read_bytes() for run in runs for log in sorted(run.glob("*.log.*")))
    if text:
        path.write_bytes((text * (size // len(text) + 1))[:size])
    return bool(text)


def _failed(run: Path) -> bool:
    return (run.parent / "error.txt").exists()
