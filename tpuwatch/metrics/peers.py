"""Metrics of the daemons on other nodes. Labels hold only names of watched nodes."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Final

from prometheus_client import Metric

from tpuwatch.metrics.families import Families, FamilyCollector, node_labels
from tpuwatch.model import split_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpuwatch.model import Answer, Peer

STATES: Final = ("answering", "silent", "refused", "unheard", "unclear")


class PeerMetrics:
    def __init__(self, new: Families) -> None:
        self._peers: Mapping[str, Answer[Peer]] | None = None
        new.registry.register(FamilyCollector(self._peer_families))

    def set_answers(self, answers: Mapping[str, Answer[Peer]] | None) -> None:
        """The latest answer of each peer, by its node's label; None if peers are not asked, which has no series."""
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
            states = {label: _state(answer) for label, answer in self._peers.items()}
            for labels, state in node_labels((*split_label(label), state) for label, state in states.items()):
                up.add_sample(up.name, labels, state == "answering")
            tally = Tally(states.values())
            for state in STATES:
                count.add_sample(count.name, {"state": state}, tally[state])
        yield from (up, count)


def _state(answer: Answer[Peer]) -> str:
    peer = answer.value
    if peer is None:
        return "unheard"
    if peer.silent_since is not None:
        return "refused" if peer.refuses else "silent"
    return "unclear" if answer.problem else "answering"
