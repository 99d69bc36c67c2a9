"""Catching up: how fast a log that is already there is read, against mtail and against counting its newlines."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.proof.bench import generate, mtail, rules
from tests.proof.bench.figures import Figure
from tests.proof.bench.pipeline import Caught, Pipeline
from tpuwatch.launches.tracker import MARKS
from tpuwatch.logs.rules.catalogue import Catalogue, for_streams, load_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.proof.bench.figures import Bench

_BLOCK = 1 << 20


def healthy(bench: Bench) -> Iterator[Figure]:
    """libtpu's real mix of lines, events rare."""
    logs = bench.directory("logs")
    log = logs / generate.NAME
    size = generate.write(log, bench.scale.log, generate.healthy())
    newlines = size / _count_newlines(log) / 1e6
    catalogue = for_streams(load_catalogue(), MARKS)  # as the daemon has it
    caught = _catch_up(bench, "all", catalogue)
    yield Figure("healthy log: the whole pipeline", caught.speed, "MB/s")
    yield Figure("healthy log: counting newlines in Python", newlines, "MB/s")
    yield Figure("healthy log: the pipeline to counting newlines", 100 * caught.speed / newlines, "%", at_least=25)
    yield from _rule_counts(bench)
    yield Figure("healthy log: tpuwatch diagnose, start-up included", size / _diagnose(log) / 1e6, "MB/s")
    if mtail.PROGRAM:
        part = bench.scratch / "part.log"
        generate.write(part, bench.scale.peer_log, generate.healthy(event_every=10))
        yield from _against_mtail("healthy log", caught.speed, part, catalogue, bench, 60)


def storm(bench: Bench) -> Iterator[Figure]:
    """A log with an event in every line."""
    logs = bench.directory("logs")
    generate.write(logs / generate.NAME, bench.scale.storm, generate.failures())
    catalogue = for_streams(load_catalogue(), MARKS)  # as the daemon has it
    caught = _catch_up(bench, "all", catalogue)
    yield Figure("a failure in each line: the whole pipeline", caught.speed, "MB/s")
    yield Figure("a failure in each line: events stored", caught.events / caught.seconds, "1/s")
    if mtail.PROGRAM:
        part = bench.scratch / "part.log"
        generate.write(part, bench.scale.peer_storm, generate.failures())
        yield from _against_mtail("a failure in each line", caught.speed, part, catalogue, bench, 2)


def _against_mtail(
    name: str, speed: float, log: Path, catalogue: Catalogue, bench: Bench, target: float
) -> Iterator[Figure]:
    peer = mtail.speed(log, catalogue.rules, bench.scratch)
    yield Figure(f"{name}: mtail with the same rules", peer, "MB/s")
    yield Figure(f"{name}: tpuwatch to mtail, same rules", speed / peer, "x", at_least=target)
    few = mtail.speed(log, rules.few(catalogue), bench.scratch)
    yield Figure(f"{name}: mtail with {rules.FEW} patterns of them", few, "MB/s")
    yield Figure(f"{name}: tpuwatch with all to mtail with {rules.FEW}", speed / few, "x", at_least=target)


def _rule_counts(bench: Bench) -> Iterator[Figure]:
    few, many = (
        _catch_up(bench, f"rules-{count}", Catalogue(rules.made_up(count, bench.directory(f"toml-{count}"))))
        for count in (20, 300)
    )
    yield Figure("healthy log: 20 rules", few.speed, "MB/s")
    yield Figure("healthy log: 300 rules", many.speed, "MB/s")
    yield Figure("healthy log: time with 300 rules to time with 20", many.seconds / few.seconds, "x", at_most=1.5)


def _catch_up(bench: Bench, name: str, catalogue: Catalogue) -> Caught:
    pipeline = Pipeline(bench.scratch / "logs", bench.directory(f"state-{name}"), catalogue)
    try:
        return pipeline.catch_up()
    finally:
        pipeline.close()


def _count_newlines(path: Path) -> float:
    """Seconds it takes; the file has just been written, so both readers find it in the page cache."""
    start = time.perf_counter()
    lines = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            lines += block.count(b"\n")
    return time.perf_counter() - start


def _diagnose(log: Path) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "tpuwatch", "diagnose", str(log)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
