"""Thousands of nodes in one zone: what a poll of them costs the daemon, against Google's client with nothing behind it.

The simulator, the daemon and what measures them share this machine.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.proof.bench.figures import Figure
from tests.proof.bench.processes import peak_bytes, processor_share
from tests.proof.bench.simulated import number, simulator, watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.proof.bench.figures import Bench
    from tests.proof.bench.simulated import Watcher
    from tpuwatch.sim.client import Client

PAGE_SIZE = 1000  # as tpuwatch asks for; the service gives less if it likes
USUAL_POLL_SECONDS = 30.0
STEP_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_CALLS = 'tpuwatch_api_requests_total{code="OK",method="ListNodes"}'
_POLLED = 'tpuwatch_loop_last_success_timestamp_seconds{loop="cloud"}'
_POLL = 'tpuwatch_loop_turn_seconds{loop="cloud"}'
_JUDGEMENT = 'tpuwatch_loop_turn_seconds{loop="judge"}'


def fleet(bench: Bench) -> Iterator[Figure]:
    """All nodes of a zone, by the real daemon: polled fast to see many polls, then as it is by default."""
    with simulator(bench.scratch / "sim", "fleet", "--nodes", str(bench.scale.nodes)) as client:
        bare = _Bare(client, bench.scale.runs)
        with watcher(client, bench.scratch / "fast", cloud={"poll_seconds": bench.scale.fast_poll_seconds}) as watching:
            yield from _polls(watching, bench.scale.polls, bare)
        with watcher(client, bench.scratch / "usual", cloud={"poll_seconds": USUAL_POLL_SECONDS}) as watching:
            share, peak = _usual(bench, watching, bare.nodes)
    yield Figure("fleet, polled every 30 s: processor", share, "%", at_most=1)
    yield Figure("fleet, polled every 30 s: most resident memory", peak, "MiB", at_most=150)
    yield from _large(bench)


def _large(bench: Bench) -> Iterator[Figure]:
    """Four times as many, as they are polled by default."""
    nodes = 4 * bench.scale.nodes
    with (
        simulator(bench.scratch / "large-sim", "fleet", "--nodes", str(nodes)) as client,
        watcher(client, bench.scratch / "large", cloud={"poll_seconds": USUAL_POLL_SECONDS}) as watching,
    ):
        share, peak = _usual(bench, watching, nodes)
        calls = number(watching.scrape(), _CALLS)
    yield Figure("large fleet: nodes", nodes, "")
    yield Figure("large fleet, polled every 30 s: processor", share, "%", at_most=4)
    yield Figure("large fleet, polled every 30 s: most resident memory", peak, "MiB", at_most=300)
    yield Figure("large fleet: API calls until then", calls, "")


def _usual(bench: Bench, watching: Watcher, nodes: int) -> tuple[float, float]:
    """The percentage of a core that it takes, and the most MiB of memory that it had."""
    _wait_until_judged(watching, nodes)
    time.sleep(bench.scale.settle_seconds)
    with processor_share(watching.pid) as share:
        time.sleep(bench.scale.idle_seconds)
    return 100 * share[watching.pid], peak_bytes(watching.pid) / (1 << 20)


class _Bare:
    """Google's own client, unmodified, over the same server."""

    def __init__(self, client: Client, runs: int) -> None:
        import grpc
        from google.cloud import tpu_v2
        from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

        self.nodes = self.pages = 0
        self._request = {"parent": client.info["node"].partition("/nodes/")[0], "page_size": PAGE_SIZE}
        with grpc.insecure_channel(client.info["tpu"]) as channel:
            self._client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
            self.list_seconds = self._median(self._list, runs)
            self.read_seconds = self._median(self._read, runs)

    def _list(self) -> None:
        """Fetch the pages, and look at no node."""
        sizes = [len(page.nodes) for page in self._pager().pages]
        self.nodes, self.pages = sum(sizes), len(sizes)

    def _read(self) -> None:
        """What the least of scripts would do: read of each node its name, state and health."""
        for node in self._pager():
            _ = (node.name, node.state, node.health)

    def _pager(self) -> Any:
        return self._client.list_nodes(request=self._request, retry=None, timeout=60.0)

    def _median(self, work: Callable[[], None], runs: int) -> float:
        times = []
        for _ in range(1 + runs):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])


def _polls(watching: Watcher, polls: int, bare: _Bare) -> Iterator[Figure]:
    _wait_until_judged(watching, bare.nodes)
    took: list[float] = []
    judged: list[float] = []
    scraped: list[float] = []
    counted: list[float] = []  # calls, after each poll
    text, last = "", 0.0
    deadline = time.monotonic() + STEP_SECONDS
    while len(counted) <= polls:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(counted)} polls were seen in {STEP_SECONDS:g} s")
        start = time.perf_counter()
        text = watching.scrape()
        seconds = time.perf_counter() - start
        if (polled := number(text, _POLLED)) != last:
            last = polled
            took.append(number(text, _POLL))
            counted.append(number(text, _CALLS))
            scraped.append(seconds)
        judged.append(number(text, _JUDGEMENT))
        time.sleep(_LOOK_SECONDS)
    poll = statistics.median(took)
    yield Figure("fleet: nodes", bare.nodes, "")
    yield Figure("fleet: pages of the list", bare.pages, "")
    yield Figure("fleet: API calls per poll to pages", _per_poll(counted) / bare.pages, "x", at_most=1)
    yield Figure("fleet: a poll cycle", poll, "s", at_most=2)
    yield Figure("fleet: the longest poll cycle", max(took), "s", at_most=2)
    for what, seconds in (("", bare.list_seconds), (" and reading three fields", bare.read_seconds)):
        yield Figure(f"fleet: TpuClient.list_nodes{what}", seconds, "s")
        yield Figure(f"fleet: a poll cycle to TpuClient.list_nodes{what}", poll / seconds, "x")
    yield Figure("fleet: judging after a poll, the longest", 1000 * max(judged), "ms")
    yield Figure("fleet: a scrape of /metrics", 1000 * statistics.median(scraped), "ms")
    yield Figure("fleet: size of a scrape", len(text) / (1 << 20), "MiB")


def _per_poll(counted: list[float]) -> float:
    return max(after - before for before, after in pairwise(counted))


def _wait_until_judged(watching: Watcher, nodes: int) -> None:
    """Until every node has a verdict."""
    deadline = time.monotonic() + STEP_SECONDS
    while watching.scrape().count("\ntpuwatch_verdict_since_timestamp_seconds{") < nodes:
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all of {nodes} nodes were judged within {STEP_SECONDS:g} s")
        time.sleep(_LOOK_SECONDS)
