"""All metrics of one tpuwatch process and their exposition for Prometheus.

One `Metrics` holds one registry; nothing is global. The methods of its parts take only enums, numbers and names that
were declared at the start, so that the text of a log can never become a series. Sizes are bytes, durations seconds,
times seconds since the Unix epoch. Where an update is no more than one series', it is that series' own method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from tpuwatch.metrics.daemon import DaemonMetrics, add_build
from tpuwatch.metrics.families import Families, WithoutCreated
from tpuwatch.metrics.goodput import GoodputMetrics
from tpuwatch.metrics.logs import LogMetrics
from tpuwatch.metrics.node import NodeMetrics
from tpuwatch.metrics.peers import PeerMetrics
from tpuwatch.metrics.progress import ProgressMetrics
from tpuwatch.metrics.restart import RestartMetrics
from tpuwatch.metrics.tune import TuneMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable


class Metrics:
    """All series of one tpuwatch process. Each exists from the start, at 0 until something happens."""

    def __init__(self, *, loops: Iterable[str], refusals: Iterable[str]) -> None:
        """`loops` are the names of all loops that report a success, `refusals` all reasons not to read a file."""
        families = Families()
        add_build(families)
        self.logs = LogMetrics(families, refusals)
        self.daemon = DaemonMetrics(families, loops)
        self.node = NodeMetrics(families)
        self.restart = RestartMetrics(families)
        self.peers = PeerMetrics(families)
        self.tune = TuneMetrics(families)
        self.progress = ProgressMetrics(families)
        self.goodput = GoodputMetrics(families)
        self._exposed = CollectorRegistry()
        self._exposed.register(WithoutCreated(families.registry))

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The scrape and its content type: OpenMetrics or Prometheus' text, as the Accept header asks."""
        try:
            encode, content_type = choose_encoder(accept)
        except (
            TypeError,
            ValueError,
        ):  # a version that is no number: the client's fault, and plain text still serves it
            encode, content_type = choose_encoder("")
        return encode(self._exposed), content_type
