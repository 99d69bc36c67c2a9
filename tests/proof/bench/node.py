"""One node with all of its signals: what asking them costs, against the same daemon that asks nobody."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from tests.proof.bench.figures import Figure
from tests.proof.bench.processes import processor_share, resident_bytes
from tests.proof.bench.simulated import PAIR, simulator, watcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.proof.bench.figures import Bench

# As they are by default; a simulator's own configuration is faster.
_ON: dict[str, dict[str, Any]] = {
    "cloud": {"nodes": [], "poll_seconds": 30.0},
    "runtime": {"poll_seconds": 10.0},
    "monitoring": {"read": True},
}
_OFF: dict[str, dict[str, Any]] = {"cloud": {"enabled": False}, "runtime": {"enabled": False}}


def node(bench: Bench) -> Iterator[Figure]:
    """Both daemons run beside each other, so that what else the machine does meets both. The workload trains."""
    scenario = bench.scratch / "one.toml"
    scenario.write_text(PAIR.replace("count = 2", "count = 1"))
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(simulator(bench.scratch / "sim", str(scenario)))
        off = stack.enter_context(watcher(client, bench.scratch / "off", **_OFF)).pid
        on = stack.enter_context(watcher(client, bench.scratch / "on", **_ON)).pid
        time.sleep(bench.scale.settle_seconds)
        with processor_share(off, on) as share:
            time.sleep(bench.scale.idle_seconds)
        resident = {pid: resident_bytes(pid) / (1 << 20) for pid in (off, on)}
    yield Figure("one node, all signals: processor", 100 * share[on], "%", at_most=0.3)
    yield Figure("one node, cloud and runtime off: processor", 100 * share[off], "%")
    yield Figure("one node: processor for cloud and runtime", 100 * (share[on] - share[off]), "%", at_most=0.1)
    yield Figure("one node, all signals: resident memory", resident[on], "MiB", at_most=110)
    yield Figure("one node, cloud and runtime off: resident memory", resident[off], "MiB")
