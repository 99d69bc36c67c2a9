"""Restarts: how soon the stop is called, what tpuwatch adds to the cloud's own times, and what watching costs.

The daemon's own restarting side, with its loop, its threads, a ledger on disk and Google's client, and the simulated
cloud in the same process. What is judged is given: the stopwatch starts when the evidence is complete.
"""

from __future__ import annotations

import logging
import statistics
import threading
import time
from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from tests.proof.bench.figures import Figure
from tests.proof.chaos.common import CloudServer, judged
from tests.standins.storage import StorageServer
from tpuwatch.config import Config
from tpuwatch.core.clock import SystemClock
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.labels import node_label
from tpuwatch.model.signals import CloudNode, Snapshot
from tpuwatch.restart.service import TURN_SECONDS, RestartService
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import Timing, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.proof.bench.figures import Bench

PROJECT, ZONE = "lab", "us-east5-a"
APART_SECONDS = 0.7  # between two faults
LATE_SECONDS = 120.0
POLL_SECONDS = 30.0  # after each poll all nodes are judged again
BUCKET = "ledger"
_LOOK_SECONDS = 0.01
_ACT: dict[str, Any] = {
    "mode": "act",
    "restart_node": True,
    "confirm_seconds": 0.0,  # the evidence is complete
    "confirm_polls": 1,
    "startup_seconds": 0.0,
    "fleet_max": 1000,
    "fleet_percent": 100.0,
    "storm_nodes": 10_000,
}


def restarts(bench: Bench) -> Iterator[Figure]:
    """From the evidence to the stop and to READY; then what it costs when nothing is wrong."""
    logging.getLogger("tpuwatch").addHandler(logging.NullHandler())  # its log is no part of the table
    yield from _acting(bench)
    yield from _idle(bench)


class _Fleet:
    """Nodes as the judge has judged them, and the side of the daemon that restarts them."""

    def __init__(self, names: list[str]) -> None:
        self._clock = SystemClock()
        self.answers: dict[str, Answer[CloudNode]] = {}
        self.statuses: dict[str, JudgedNode] = {}
        for name in names:
            self.judge(name, stuck=False)

    def judge(self, name: str, *, stuck: bool) -> None:
        """What is made of a node now."""
        now = self._clock.time()
        node = CloudNode(PROJECT, ZONE, name, "READY", "TIMEOUT" if stuck else "HEALTHY", changed=now - 3600.0)
        label = node_label(ZONE, name)
        self.answers[label] = Answer(node, now, None, "", now)
        self.statuses[name] = judged(label, node, now)

    def judge_all(self) -> None:
        """All of them again, and all as they were."""
        now = self._clock.time()
        self.statuses = {
            name: replace(one, judgement=replace(one.judgement, at=now)) for name, one in self.statuses.items()
        }

    def watch(self, config: Config) -> RestartService:
        """The daemon's side."""
        return RestartService(
            config,
            nodes=lambda: tuple(self.statuses.values()),
            snapshot=lambda: Snapshot(cloud=self.answers, notices=Answer(problem=Problem.ABSENT)),
            metrics=Metrics(loops=[], refusals=[]),
            clock=self._clock,
            watching_since=self._clock.time() - 86_400.0,
            progress=lambda *_: None,
            ask_peer=lambda _: None,
        )


def _acting(bench: Bench) -> Iterator[Figure]:
    state = bench.directory("restarts")
    world = World(SystemClock())
    world.timing = Timing(timeout=0.0, stop=bench.scale.stop_seconds, start=bench.scale.start_seconds)
    names = [f"train-{number + 1}" for number in range(bench.scale.runs)]
    nodes = {name: world.add(SimNode(PROJECT, ZONE, name)) for name in names}
    server = CloudServer(world)
    config = Config.model_validate(
        {
            "cloud": {"endpoint": server.address, "insecure": True},
            "restart": _ACT,
            "state": {"dir": state},
            "health": {"boot_grace_seconds": 0.0},
        }
    )
    fleet = _Fleet(names)
    watch = fleet.watch(config)
    watch.start()
    began: dict[str, float] = {}
    try:
        for name, node in nodes.items():
            time.sleep(APART_SECONDS)
            world.hang(node)
            began[name] = time.time()
            fleet.judge(name, stuck=True)
            watch.on_verdicts()
            threading.Thread(target=_recovered, args=(fleet, node), daemon=True).start()
        _wait(world, names)
    finally:
        watch.stop()
        server.stop()
    times = {name: {one.what: one.time for one in world.history if one.node == nodes[name].path} for name in names}
    stops = [times[name]["stop"] - began[name] for name in names]
    cloud = bench.scale.stop_seconds + bench.scale.start_seconds
    added = [times[name]["boot"] - began[name] - cloud for name in names]
    yield Figure("restart: evidence complete to the stop call, median", statistics.median(stops), "s")
    yield Figure(f"restart: the same, the longest of {len(names)}", max(stops), "s", at_most=2)
    yield Figure("restart: added to the cloud's stop and start, median", statistics.median(added), "s")
    yield Figure(f"restart: the same, the longest of {len(names)}", max(added), "s", at_most=3)


def _recovered(fleet: _Fleet, node: SimNode) -> None:
    """The judge sees it well again once it has booted."""
    deadline = time.monotonic() + LATE_SECONDS
    while node.state == "READY" and node.boots == 1 and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    fleet.judge(node.name, stuck=False)


def _wait(world: World, names: list[str]) -> None:
    deadline = time.monotonic() + LATE_SECONDS
    while sum(one.what == "boot" for one in list(world.history)) < len(names):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all of {len(names)} nodes were restarted within {LATE_SECONDS:g} s")
        with world.lock:
            world.advance()
        time.sleep(_LOOK_SECONDS)


def _idle(bench: Bench) -> Iterator[Figure]:
    """An hour's turns, one right after the other, over nodes that are well, with a ledger in a bucket."""
    storage = StorageServer(SystemClock())
    storage.start()
    config = Config.model_validate(
        {
            "restart": {**_ACT, "startup_seconds": 300.0},
            "ledger": {"kind": "gcs", "bucket": BUCKET, "endpoint": storage.address, "insecure": True},
            "state": {"dir": bench.directory("idle-restarts")},
        }
    )
    fleet = _Fleet([f"train-{number + 1}" for number in range(bench.scale.nodes)])
    watch = fleet.watch(config)
    try:
        watch.turn()  # at its start the ledger is read
        before = sum(storage.counts.values())
        turns = int(60 * bench.scale.idle_seconds / TURN_SECONDS)
        used = 0.0
        for judged in islice(cycle([True, *[False] * (int(POLL_SECONDS / TURN_SECONDS) - 1)]), turns):
            if judged:
                fleet.judge_all()
            start = time.thread_time()
            watch.turn()
            used += time.thread_time() - start
    finally:
        watch.stop()
        storage.close()
    yield Figure("restart: nodes that are watched and well", len(fleet.statuses), "")
    yield Figure("restart: processor for deciding about them", 100 * used / (turns * TURN_SECONDS), "%", at_most=1)
    requests = sum(storage.counts.values()) - before
    yield Figure("restart: requests to Cloud Storage meanwhile", requests, "", at_most=0)
