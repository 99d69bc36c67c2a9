"""A slice of 2,048 hosts: what it costs a worker to ask 16 others and to be asked by 16, and a watcher to ask all.

The simulator, which plays the other workers, the daemons and what measures them share this machine. The answers of
played workers are short; that of a daemon, whose size is a figure, was never asked of 2,048 machines.
"""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING

from tests.proof.bench.figures import Figure
from tests.proof.bench.processes import cpu_seconds, peak_bytes, processor_share
from tests.proof.bench.simulated import number, simulator, watcher
from tpuwatch.signals.peer_calls import PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.proof.bench.figures import Bench
    from tests.proof.bench.simulated import Watcher
    from tpuwatch.sim.client import Client

SCENARIO = """\
title = "A large slice"

[[nodes]]
name = "large"
accelerator = "v5litepod-4"
hosts = {hosts}
played = true
phase = "training"
phase_seconds = 3600.0
"""
ASKED_PER_MINUTE = 16  # questions to each worker, and by it
_QUESTIONS = 200
_SECONDS = 120.0
_USUAL = {"enabled": True, "poll_seconds": 30.0}
_ANSWERING = 'tpuwatch_slice_workers{node="large",state="answering",zone="us-central2-b"}'


def slices(bench: Bench) -> Iterator[Figure]:
    """A worker with and without the ring beside each other, and then a watcher."""
    scenario = bench.scratch / "slice.toml"
    scenario.write_text(SCENARIO.format(hosts=bench.scale.slice_hosts))
    with simulator(bench.scratch / "sim", str(scenario)) as client:
        yield from _worker(bench, client)
        yield from _watcher(bench, client)


def _worker(bench: Bench, client: Client) -> Iterator[Figure]:
    port = client.info["settings"]["peers"]["port"]
    cloud = {"nodes": [], "poll_seconds": 30.0}
    runtime = {"poll_seconds": 10.0}
    alone = watcher(client, bench.scratch / "alone", cloud=cloud, runtime=runtime, peers={"enabled": False})
    with (
        alone as without,
        watcher(
            client, bench.scratch / "worker", cloud=cloud, runtime=runtime, peers={**_USUAL, "port": port}
        ) as within,
    ):
        asked = min(ASKED_PER_MINUTE, bench.scale.slice_hosts - 1)
        _wait_for(within, asked + 1)
        time.sleep(bench.scale.settle_seconds)
        with processor_share(without.pid, within.pid) as share:
            time.sleep(bench.scale.idle_seconds)
        size, seconds = _answers(within)
    answering = 100 * seconds * asked / 60
    yield Figure("slice: hosts", bench.scale.slice_hosts, "")
    yield Figure("slice, a worker: others that it asks each minute", asked, "")
    yield Figure(
        "slice, a worker: processor for asking", 100 * (share[within.pid] - share[without.pid]), "%", at_most=0.1
    )
    yield Figure("slice, a worker: an answer to another", 1000 * seconds, "ms")
    yield Figure("slice, a worker: processor for answers to as many", answering, "%", at_most=0.1)
    yield Figure("slice, a worker: size of an answer", size / 1024, "KiB")


def _watcher(bench: Bench, client: Client) -> Iterator[Figure]:
    peers = {**_USUAL, "port": client.info["settings"]["peers"]["port"]}
    nobody = {"GCE_METADATA_HOST": "127.0.0.1:9", "GCE_METADATA_IP": "127.0.0.1:9"}
    usual = {"cloud": {"poll_seconds": 30.0}, "runtime": {"enabled": False}}
    with watcher(client, bench.scratch / "watcher", environ=nobody, peers=peers, **usual) as watching:
        # Worker 0 is this machine's by the scenario: nobody plays it, and it stays unheard.
        _wait_for(watching, bench.scale.slice_hosts - 1)
        time.sleep(bench.scale.settle_seconds)
        with processor_share(watching.pid) as share:
            time.sleep(bench.scale.idle_seconds)
        peak = peak_bytes(watching.pid) / (1 << 20)
    yield Figure("slice, a watcher: workers that it asks every 30 s", bench.scale.slice_hosts, "")
    yield Figure("slice, a watcher: processor", 100 * share[watching.pid], "%", at_most=5)
    yield Figure("slice, a watcher: most resident memory", peak, "MiB", at_most=200)


def _wait_for(watching: Watcher, answering: int) -> None:
    """Until so many workers of the slice answer."""
    deadline = time.monotonic() + _SECONDS
    while (text := watching.scrape()) and (_ANSWERING not in text or number(text, _ANSWERING) < answering):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all of {answering} workers were heard within {_SECONDS:g} s")
        time.sleep(0.2)


def _answers(watching: Watcher) -> tuple[int, float]:
    """The size of the document that others ask for, and the seconds of the processor for each."""
    before, size = cpu_seconds(watching.pid), 0
    for _ in range(_QUESTIONS):
        connection = http.client.HTTPConnection(watching.address, timeout=30.0)
        connection.request("GET", PATH)
        size = len(connection.getresponse().read())
        connection.close()
    return size, (cpu_seconds(watching.pid) - before) / _QUESTIONS
