"""All that the policy looks at, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Witness
from tpuwatch.health.verdict import STUCK, Rung
from tpuwatch.restart.policy.budgets import SKEW_SECONDS, is_request
from tpuwatch.restart.policy.confirm import DECIDING

if TYPE_CHECKING:
    from tpuwatch.health.evidence import CloudNode
    from tpuwatch.health.verdict import Judgement
    from tpuwatch.restart.policy.budgets import Books
    from tpuwatch.restart.policy.confirm import Confirmation
    from tpuwatch.restart.policy.storm import Crowds
    from tpuwatch.restart.record import Record, Target

REQUEST_SECONDS: Final = 600.0  # how long the word of a node's own daemon counts for those who watch it
OF_THE_NODE: Final = frozenset({Rung.RESTART_NODE, Rung.RESET_QUEUED_RESOURCE})  # done by somebody else
OF_THE_MACHINE: Final = frozenset({Rung.CHECKPOINT, Rung.END_HOLDER, Rung.RESTART_RUNTIME})  # done on it


@dataclass(frozen=True, slots=True)
class Situation:
    """One node, what is said of it, and what the ledger knows."""

    target: Target
    judgement: Judgement
    confirmation: Confirmation | None  # with this judgement in it
    now: float
    cloud: CloudNode | None  # what the API says now; None where it was not asked, or its answer is old
    own: bool  # tpuwatch runs on it
    up_since: float | None  # when it booted, or since when the API has shown it READY; None is not known
    crowds: Crowds
    books: Books | None  # what the ledger holds; None where it cannot be read
    watching_since: float  # when tpuwatch began
    spared: int = 0  # other watched nodes of its queued resource that are not stuck, or on which tpuwatch runs

    @property
    def record(self) -> Record | None:
        """The node's record, if it has one."""
        return self.books.records.get(self.target.path) if self.books is not None else None

    @property
    def booted(self) -> float | None:
        """When it came up, as far as that is known; no later than that."""
        if self.up_since is not None or self.cloud is None:
            return self.up_since
        return self.cloud.changed

    @property
    def request(self) -> Record | None:
        """What the node's own daemon asks its watchers for, if it did so lately, and in this boot."""
        record = self.record
        if record is None or not is_request(record) or self.own:
            return None
        young = -SKEW_SECONDS <= self.now - record.requested <= REQUEST_SECONDS
        of_this_boot = self.booted is not None and record.requested >= self.booted
        return record if young and of_this_boot and record.rung in OF_THE_NODE else None

    @property
    def wanted(self) -> Rung:
        """What is called for: by the judgement, or by the node's own daemon where the judge here lacks a witness."""
        stuck = self.judgement.verdict in STUCK and self.judgement.rung is Rung.ASK
        if stuck and (request := self.request) is not None and request.cause == self.judgement.verdict.value:
            return request.rung
        return self.judgement.rung

    def heard(self, *, this_boot: bool = True) -> frozenset[Witness]:
        """Who speaks for the verdict. Those of the request count only beside the cloud's own word to us."""
        boot = self.booted
        told = frozenset(
            reason.witness
            for reason in self.judgement.reasons
            if reason.at is not None and (not this_boot or (boot is not None and reason.at >= boot))
        )
        request = self.request
        if request is None or Witness.CLOUD not in told or self.wanted is self.judgement.rung:
            return told
        return told | {witness for witness in Witness if witness.value in request.witnesses}


def proves(heard: frozenset[Witness]) -> bool:
    """Whether these witnesses are enough to interrupt something: two, and one of them the cloud or the runtime."""
    return len(heard) >= 2 and bool(heard & DECIDING)
