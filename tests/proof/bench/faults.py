"""How soon a fault of a node shows in /metrics, from the moment in which it is set on the simulated cloud."""

from __future__ import annotations

import math
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from tests.proof.bench.figures import Figure
from tests.proof.bench.simulated import PAIR, simulator, value, watcher

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.proof.bench.figures import Bench
    from tests.proof.bench.simulated import Watcher
    from tpuwatch.sim.client import Client

LATE_SECONDS = 60.0  # what does not show by then never will
SETTLE_SECONDS = 1.0
_LOOK_SECONDS = 0.01

OWED_SECONDS = 0.5  # an answer that has been owed for so long is a hang that shows: one that is well takes milliseconds

STATE, ENDS, HANGS, BEGINS = "state changes", "runtime ends", "runtime hangs", "runtime begins"
JUDGED = "runtime hangs, until it counts as evidence"  # which is after the deadline of the call
AGAIN = "runtime answers after a hang"  # no fault: it has been left alone for a while
_REPAIRING = 'tpuwatch_node_state{node="train-2",state="REPAIRING",zone="us-central2-b"}'
_HBM = 'tpuwatch_hbm_used_bytes{chip="0"}'
_OWED = re.compile(r"^tpuwatch_runtime_response_pending_seconds\{.*\} (\S+)$", re.MULTILINE)
_UNKNOWN = 'tpuwatch_verdict{node="train-1",verdict="unknown",zone="us-central2-b"}'


def faults(bench: Bench) -> Iterator[Figure]:
    """For each poll interval a simulator and a daemon, all at once: they wait most of the time."""
    scenario = bench.scratch / "pair.toml"
    scenario.write_text(PAIR)
    intervals = bench.scale.intervals
    with ThreadPoolExecutor(len(intervals)) as pool:
        measured = [
            pool.submit(_measure, bench.directory(f"poll-{seconds:g}"), scenario, seconds, bench.scale.faults)
            for seconds in intervals
        ]
        for interval, delays in zip(intervals, (future.result() for future in measured), strict=True):
            for what, seconds in delays.items():
                name = f"fault shows, poll {interval:g} s: {what}, p99 of {len(seconds)}"
                yield Figure(name, p99(seconds), "s", at_most=None if what in (JUDGED, AGAIN) else interval + 1)


def _measure(directory: Path, scenario: Path, interval: float, count: int) -> dict[str, list[float]]:
    """Set `count` faults, one after the other, at random moments; seconds until each was to be seen, by its kind."""
    rng = random.Random(int(interval))
    tables = {name: {"poll_seconds": interval} for name in ("cloud", "runtime")}
    delays: dict[str, list[float]] = {}
    with simulator(directory / "sim", str(scenario)) as client, watcher(client, directory / "daemon", **tables) as seen:
        _wait({STATE: False, BEGINS: True}, seen, time.perf_counter())
        for phase, wanted in islice(_story(), count):
            time.sleep(SETTLE_SECONDS + rng.uniform(0.0, interval))
            start = time.perf_counter()
            _set(client, phase, repairing=wanted[STATE])
            for what, seconds in _wait(wanted, seen, start).items():
                delays.setdefault(what, []).append(seconds)
    return delays


def _story() -> Iterator[tuple[str, dict[str, bool]]]:
    """What the own node's workload does next, and what is to be seen then: the other node's state changes each time."""
    while True:
        for phase, what, then in (
            ("none", (ENDS,), BEGINS),
            ("none", (ENDS,), BEGINS),
            ("hung", (HANGS, JUDGED), AGAIN),
        ):
            yield phase, {STATE: True, **dict.fromkeys(what, True)}
            yield "training", {STATE: False, then: True}


def _set(client: Client, phase: str, *, repairing: bool) -> None:
    client.node("train-2", {"do": "set", "state": "REPAIRING" if repairing else "READY"})
    client.node("train-1", {"do": "workload", "phase": phase, "for_seconds": 3600.0})


def _wait(wanted: Mapping[str, bool], watching: Watcher, start: float) -> dict[str, float]:
    """Look until all of it shows; seconds from `start` on, by what it was."""
    shown: dict[str, float] = {}
    while len(shown) < len(wanted):
        text = watching.scrape()
        seconds = time.perf_counter() - start
        for what in wanted.keys() - shown.keys():
            if _shows(text, what) is wanted[what]:
                shown[what] = seconds
        if seconds > LATE_SECONDS:
            raise RuntimeError(f"{', '.join(wanted.keys() - shown.keys())}: not shown within {LATE_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
    return shown


def _shows(text: str, what: str) -> bool:
    if what == STATE:
        return value(text, _REPAIRING) == 1
    if what == HANGS:
        return max(map(float, _OWED.findall(text)), default=0.0) >= OWED_SECONDS
    chips = value(text, _HBM) is not None
    if what == JUDGED:  # it is not known any more how the node is
        return not chips and value(text, _UNKNOWN) == 1
    return chips is (what in (BEGINS, AGAIN))


def p99(values: list[float]) -> float:
    """The one of the values that a hundredth of them is beyond at most."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]
