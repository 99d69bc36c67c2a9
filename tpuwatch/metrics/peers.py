"""Metrics of the daemons on other nodes. Labels hold only names of watched nodes."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING

from prometheus_client import Metric

from tpuwatch.metrics.families import Families, FamilyCollector, node_labels
from tpuwatch.model import PeerState, peer_state, split_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpuwatch.model import Answer, Peer


class PeerMetrics:
    def __init__(self, new: Families) -> None:
        self._peers: Mapping[str, Answer[Peer]] | None = None
        new.registry.register(FamilyCollector(self._peer_families))

    def set_answers(self, answers: Mapping[str, Answer[Peer]] | None) -> None:
        """The latest answer of the first worker of each node, by the node's label; None if none is asked, which has no
        series."""
        self._peers = answers

    def _peer_families(self) -> Iterator[Metric]:
        up = Metric(
            "tpuwatch_peer_up", "1 if the tpuwatch on a watched node answered the latest question, 0 if not.", "gauge"
        )
        count = Metric(
            "tpuwatch_peers",
            "Watched nodes by how it stands with their own tpuwatch: answering; silent or refused since it answered; "
            "unheard as yet; unclear.",
            "gauge",
        )
        if self._peers is not None:
            for labels, answer in node_labels((*split_label(label), one) for label, one in self._peers.items()):
                peer = answer.value
                up.add_sample(up.name, labels, peer is not None and peer.silent_since is None and not answer.problem)
            tally = Tally(peer_state(answer) for answer in self._peers.values())
            for state in PeerState:
                count.add_sample(count.name, {"state": state.value}, tally[state])
        yield from (up, count)
