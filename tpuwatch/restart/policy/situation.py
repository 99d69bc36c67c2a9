"""All that the policy looks at, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.model import STUCK, Action, Signal, Source, fault_sources
from tpuwatch.restart.policy.budgets import SKEW_SECONDS, is_request

if TYPE_CHECKING:
    from tpuwatch.model import CloudNode, Judgement, Reason, RestartRecord, Target, Verdict
    from tpuwatch.restart.policy.budgets import LedgerView
    from tpuwatch.restart.policy.mass_failure import BadCounts

REQUEST_SECONDS: Final = 600.0  # how long the word of a node's own daemon counts for those who watch it
OF_THE_NODE: Final = frozenset({Action.RESTART_NODE, Action.RESET_QUEUED_RESOURCE})  # done from another machine
OF_THE_MACHINE: Final = frozenset({Action.CHECKPOINT, Action.END_HOLDER, Action.RESTART_RUNTIME})  # done on it


@dataclass(frozen=True, slots=True)
class RestartSituation:
    """One node, its judgement, and what the ledger holds."""

    target: Target
    judgement: Judgement
    confirmation: Confirmation | None  # with this judgement in it
    now: float
    cloud: CloudNode | None  # the API's current answer; None if there is none, or it is old
    own: bool  # tpuwatch runs on it
    up_since: float | None  # when it booted, or since when the API has shown it READY; None is not known
    bad_counts: BadCounts
    ledger: LedgerView | None  # what the ledger holds; None where it cannot be used
    watching_since: float  # when tpuwatch began
    clock: str = ""  # why this machine's clock cannot be believed, for a sentence; "" if nothing is known against it
    ledger_problem: str = ""  # why it cannot be used, for a sentence
    # Other nodes of its queued resource that are not known to be bad, or on which tpuwatch runs: each with how it is.
    spared: tuple[str, ...] = ()

    @property
    def record(self) -> RestartRecord | None:
        """The node's record, if it has one."""
        return self.ledger.records.get(self.target.path) if self.ledger is not None else None

    @property
    def created(self) -> float | None:
        """When it was created, as far as the API says now."""
        return self.cloud.created if self.cloud is not None else None

    @property
    def booted(self) -> float | None:
        """When it came up, as far as that is known; no later than that."""
        if self.up_since is not None or self.cloud is None:
            return self.up_since
        return self.cloud.changed

    @property
    def request(self) -> RestartRecord | None:
        """What the node's own daemon asks its watchers for, if it did so lately, and in this boot."""
        record = self.record
        if record is None or not is_request(record) or self.own:
            return None
        young = -SKEW_SECONDS <= self.now - record.requested <= REQUEST_SECONDS
        of_this_boot = self.booted is not None and record.requested >= self.booted
        return record if young and of_this_boot and record.action in OF_THE_NODE else None

    @property
    def wanted(self) -> Action:
        """What is called for: by the judgement, or by the node's own daemon where the judge here lacks a signal."""
        stuck = self.judgement.verdict in STUCK and self.judgement.action is Action.MANUAL
        if stuck and (request := self.request) is not None and request.cause == self.judgement.verdict.value:
            return request.action
        return self.judgement.action

    def supporting_signals(self, *, this_boot: bool = True) -> frozenset[Signal]:
        """The signals that support the verdict. Those of the request count only beside the cloud's own answer."""
        signals = frozenset(reason.signal for reason in self._reasons(this_boot=this_boot))
        request = self._counted_request(signals)
        return signals | {signal for signal in Signal if request is not None and signal.value in request.signals}

    def supporting_sources(self, *, this_boot: bool = True) -> frozenset[Source]:
        """What the evidence of the fault rests on, likewise: it must be `proven`."""
        reasons = self._reasons(this_boot=this_boot)
        request = self._counted_request(frozenset(reason.signal for reason in reasons))
        asked = {source for source in Source if request is not None and source.value in request.sources}
        return fault_sources(reasons) | asked

    def _reasons(self, *, this_boot: bool) -> list[Reason]:
        boot = self.booted
        return [
            reason
            for reason in self.judgement.reasons
            if reason.at is not None and (not this_boot or (boot is not None and reason.at >= boot))
        ]

    def _counted_request(self, signals: frozenset[Signal]) -> RestartRecord | None:
        counts = Signal.CLOUD in signals and self.wanted is not self.judgement.action
        return self.request if counts else None


GAP_SECONDS: Final = 180.0  # a node is judged once a minute or more often; after a longer break it starts again
DECIDING: Final = frozenset({Signal.CLOUD, Signal.RUNTIME})


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What has been seen without a break: the same verdict with the same advice."""

    verdict: Verdict
    action: Action
    since: float
    until: float  # the latest judgement
    polls: int = 0  # answers of the cloud or the runtime that support it; of the slower one, where both do
    stamp: float | None = None  # when the latest of those answers was given

    @property
    def seconds(self) -> float:
        """For how long it has held."""
        return self.until - self.since


def confirm(previous: Confirmation | None, judgement: Judgement) -> Confirmation:
    """`previous` with one judgement more; a new one where the verdict or the advice is another one, or after a gap."""
    stamp = _stamp(judgement)
    if previous is None or not _continues(previous, judgement):
        polls = 0 if stamp is None else 1
        return Confirmation(judgement.verdict, judgement.action, judgement.at, judgement.at, polls, stamp)
    held = replace(previous, until=judgement.at)
    if stamp is None or (previous.stamp is not None and stamp <= previous.stamp):
        return held
    return replace(held, polls=previous.polls + 1, stamp=stamp)


def required_seconds(judgement: Judgement, seconds: float) -> float:
    """How long it must have held, by `confirm_seconds`: twice as long where signals contradict it."""
    return seconds * (2 if judgement.contradictions else 1)


def _continues(previous: Confirmation, judgement: Judgement) -> bool:
    same = (previous.verdict, previous.action) == (judgement.verdict, judgement.action)
    return same and 0 <= judgement.at - previous.until <= GAP_SECONDS


def _stamp(judgement: Judgement) -> float | None:
    """The oldest of the latest answers of the deciding signals."""
    latest: dict[Signal, float] = {}
    for reason in judgement.reasons:
        if reason.signal in DECIDING and reason.at is not None:
            latest[reason.signal] = max(reason.at, latest.get(reason.signal, reason.at))
    return min(latest.values(), default=None)
