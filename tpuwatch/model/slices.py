"""The workers of a node with several, as one of them or a watcher sees them: who answers, and who failed first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tpuwatch.model.verdict import BAD

if TYPE_CHECKING:
    from tpuwatch.model.answers import Answer
    from tpuwatch.model.causes import Cause
    from tpuwatch.model.signals import Peer
    from tpuwatch.model.verdict import Verdict

_MAX_LISTED = 64
SILENT_TRIES = 3  # one whose tpuwatch has answered counts as silent, or as refusing, after so many failed attempts


class PeerState(str, Enum):
    """How it stands with the tpuwatch of a worker."""

    ANSWERING = "answering"
    SILENT = "silent"  # it answered since its node came up, and nothing comes back from its machine any more
    REFUSED = "refused"  # it answered since then; its machine is up and takes no connection
    UNHEARD = "unheard"  # it has not answered since its node came up
    UNCLEAR = "unclear"  # something else answers there, or the fault may be this machine's


@dataclass(frozen=True, slots=True)
class Failure:
    """The first thing that went wrong on a worker with what runs there now, by its own logs."""

    cause: Cause
    at: float


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker of a slice."""

    number: int
    state: PeerState
    answered: float | None = None  # last; None: never since its node came up
    silent_since: float | None = None  # since the first question without an answer; None while it answers
    verdict: Verdict | None = None  # by its own tpuwatch, while that answers
    summary: str = ""  # of that verdict
    failure: Failure | None = None  # by its own tpuwatch, as it answered last
    own: bool = False  # tpuwatch runs on it

    @property
    def is_well(self) -> bool:
        """Whether it answers, and has nothing to report."""
        return self.state is PeerState.ANSWERING and self.failure is None and self.verdict not in BAD


@dataclass(frozen=True, slots=True)
class Slice:
    """The workers of a node that has several."""

    hosts: int  # workers that it should have
    workers: tuple[Worker, ...]  # the own one, and those that are asked from here, by their numbers
    sentence: str  # how it stands with them
    first: int | None = None  # the number of the one that failed first; None: none did, or it is not known which
    culprit: int | None = None  # the same, unless all of them failed alike

    @property
    def listed(self) -> tuple[Worker, ...]:
        """The workers that are listed for people: of many those that are not just well come first."""
        notable = sorted(self.workers, key=lambda one: (one.is_well, one.number))[:_MAX_LISTED]
        return tuple(sorted(notable, key=lambda one: one.number))

    def those(self, state: PeerState) -> tuple[Worker, ...]:
        """The workers in a state."""
        return tuple(one for one in self.workers if one.state is state)


def peer_state(answer: Answer[Peer]) -> PeerState:
    """How it stands with a tpuwatch by the latest answer. A lost answer or two are no silence."""
    peer = answer.value
    if peer is None:
        return PeerState.UNHEARD
    if peer.silent_since is not None and peer.tries >= SILENT_TRIES:
        if answer.problem is not None:
            return PeerState.UNCLEAR
        return PeerState.REFUSED if peer.refuses else PeerState.SILENT
    return PeerState.UNCLEAR if answer.problem else PeerState.ANSWERING
