"""The speed at which a log is read, in seconds of the processor: by the pipeline, and by `tpuwatch diagnose`."""

from __future__ import annotations

import itertools
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.proof.bench.pipeline import Pipeline
from tests.proof.bench.processes import best, processor_seconds
from tpuwatch.launches.tracker import MARKS
from tpuwatch.logs.rules.catalogue import for_outputs, load_catalogue

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.logs.rules.catalogue import Catalogue

_BLOCK = 1 << 20
_PART = 256 << 10  # bytes of a log so short that start-up is all
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Readers:
    """The two ways by which tpuwatch reads a log."""

    scratch: Path
    catalogue: Catalogue = field(default_factory=lambda: for_outputs(load_catalogue(), MARKS))  # as the daemon has it

    def pipeline(self, log: Path, *, job: bool) -> float:
        """Seconds that the pipeline takes for a log: a job's output, or all of libtpu's logs beside it."""
        return best(lambda: self._catch_up(log, job=job))

    def diagnose(self, log: Path) -> float:
        """Seconds that `tpuwatch diagnose` takes for a log, its start-up included."""
        return best(lambda: self._diagnose(log))

    def start_up(self, log: Path) -> float:
        """Seconds of that for the first part of the log: it loads all that the log needs."""
        part = self.scratch / "part" / log.name
        part.parent.mkdir(exist_ok=True)
        with log.open("rb") as file:
            part.write_bytes(file.read(_PART))
        return self.diagnose(part)

    def ways(self, log: Path, pipeline: float, diagnose: float) -> dict[str, float]:
        """Both figures for a log by their names, the start-up of diagnose taken off."""
        return {"the pipeline": pipeline, "diagnose without its start-up": max(diagnose - self.start_up(log), _LEAST)}

    def _catch_up(self, log: Path, *, job: bool) -> float:
        state = self.scratch / f"state-{next(_numbers)}"
        state.mkdir()
        jobs, logs = ([str(log)], self.scratch / "none") if job else ([], log.parent)
        pipeline = Pipeline(logs, state, self.catalogue, jobs=jobs)
        try:
            return pipeline.catch_up().seconds
        finally:
            pipeline.close()

    def _diagnose(self, log: Path) -> float:
        return processor_seconds([sys.executable, "-m", "tpuwatch", "diagnose", str(log)])[0]


_LEAST = 0.005  # seconds: less cannot be measured


def newline_seconds(log: Path) -> float:
    """Seconds that Python takes to count the newlines of a log."""
    return best(lambda: _count_newlines(log))


def _count_newlines(log: Path) -> float:
    start = time.process_time()
    lines = 0
    with log.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            lines += block.count(b"\n")
    return time.process_time() - start
