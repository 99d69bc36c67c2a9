"""Metrics of the workers of a slice. Labels hold names of watched nodes, small numbers and values of an enum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Metric

from tpuwatch.model import PeerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.model import JudgedNode

_MAX_SILENT: Final = 16  # workers of one slice with a series of their own


def slice_families(nodes: Iterable[tuple[dict[str, str], JudgedNode]]) -> Iterator[Metric]:
    """The families of the nodes whose workers are asked, each node with its labels."""
    workers = Metric(
        "tpuwatch_slice_workers",
        "Workers of a slice that are asked from here, and this machine, by how it stands with their tpuwatch: "
        "answering; silent or refused since it answered; unheard as yet; unclear.",
        "gauge",
    )
    silent = Metric(
        "tpuwatch_slice_worker_silent_timestamp_seconds",
        "When a worker that answered before was first asked without an answer.",
        "gauge",
    )
    culprit = Metric("tpuwatch_slice_culprit", "1 for the worker that failed before all others of its slice.", "gauge")
    for labels, node in nodes:
        whole = node.slice
        if whole is None or not whole.workers:
            continue
        for state in PeerState:
            workers.add_sample(workers.name, {**labels, "state": state.value}, len(whole.those(state)))
        for one in whole.those(PeerState.SILENT)[:_MAX_SILENT]:
            if one.silent_since is not None:
                silent.add_sample(silent.name, {**labels, "worker": str(one.number)}, one.silent_since)
        if whole.culprit is not None:
            culprit.add_sample(culprit.name, {**labels, "worker": str(whole.culprit)}, 1)
    yield from (workers, silent, culprit)
