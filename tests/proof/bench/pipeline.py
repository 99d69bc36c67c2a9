"""The whole way of a log through tpuwatch, in this process: followed, recognised, stored and counted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.core.clock import SystemClock
from tpuwatch.ingest.ingest import Ingest
from tpuwatch.ingest.job_processes import JobProcesses
from tpuwatch.launches.tracker import MARKS, LaunchTracker
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_streams
from tpuwatch.logs.tail.files import Refusal
from tpuwatch.logs.tail.follow import Follower
from tpuwatch.metrics.registry import Metrics
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.logs.rules.catalogue import Catalogue

SETTLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Caught:
    """What catching up took."""

    seconds: float  # of the processor
    size: int  # bytes read
    events: int  # that are in the store now, repeats among them

    @property
    def speed(self) -> float:
        """Megabytes a second."""
        return self.size / self.seconds / 1e6


class Pipeline:
    """What the daemon's loop turns, without the daemon."""

    def __init__(self, logs: Path, state: Path, catalogue: Catalogue, jobs: Sequence[str] = ()) -> None:
        """Follows the directory `logs` and the files of `jobs` (globs), and keeps the store in `state`.

        Nothing of them has been read before.
        """
        clock = SystemClock()
        streams, outputs = Scanner(for_streams(catalogue, MARKS)), Scanner(catalogue)
        for scanner in (streams, outputs):
            scanner.find(b"\n")  # compiles, as the daemon does once in its life
        self.store = EventStore.open(state, clock)
        self.follower = Follower(
            log_dirs=[str(logs)],
            job_globs=list(jobs),
            scanner=streams,
            outputs=outputs,
            clock=clock,
            cursors=self.store.cursors(),
            first_run=self.store.first_run,
            wake=lambda: None,  # the turns follow each other: there is no one to wake
        )
        tracker = LaunchTracker()
        self._ingest = Ingest(
            jobs=JobProcesses(tracker, lambda _name, _limit: b""),
            follower=self.follower,
            store=self.store,
            tracker=tracker,
            metrics=Metrics(loops=[], refusals=[reason.value for reason in Refusal]),
            clock=clock,
            on_events=lambda _: None,
            rules={},
        )

    def turn(self) -> None:
        """One turn, as the daemon takes them one after another while there is more to read."""
        self._ingest.turn()

    def catch_up(self) -> Caught:
        """Turn until everything that is there has been read and settled."""
        start = time.process_time()
        self.turn()
        while self._ingest.due_in == 0.0:  # there is more to read
            self.turn()
        seconds = time.process_time() - start
        time.sleep(SETTLE_SECONDS)  # the last record waits for a quiet moment, which is a matter of the clock alone
        self.turn()
        size = sum(status.size_bytes for status in self.follower.files())
        return Caught(seconds, size, sum(1 + event.repeats for event in self.store.events(limit=1_000_000)))

    def close(self) -> None:
        """Let everything go."""
        self.follower.close()
        self.store.close()
