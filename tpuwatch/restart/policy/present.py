"""Whether what a restart was decided on still holds. Pure.

Between the decision and the stop there may be minutes: a stop that is refused, an answer that is lost, a driver that
has died. Before each call that takes the node down the node is judged again, with the settings of now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ended
from tpuwatch.model import STUCK, WELL, Blocked, Lease, Phase, Signal, Source, Verdict
from tpuwatch.restart.policy import objections
from tpuwatch.restart.policy.budgets import breaker_hold
from tpuwatch.restart.policy.policy import mass_failure_hold, switch_hold
from tpuwatch.restart.workflow.types import PresentEvidence, Standing

if TYPE_CHECKING:
    from tpuwatch.model import Judgement, Peer, RestartRecord
    from tpuwatch.restart.policy.budgets import Hold, LedgerView
    from tpuwatch.restart.policy.settings import PolicySettings
    from tpuwatch.restart.policy.situation import RestartSituation

# With these it is not known yet: a cloud that does not answer, or a tpuwatch that has not seen it for long enough.
_NOT_YET: Final = frozenset({Blocked.STALE, Blocked.CLOUD_SILENT, Blocked.UNCONFIRMED, Blocked.STARTUP})


def present_evidence(
    record: RestartRecord,
    judgement: Judgement,
    situation: RestartSituation | None,
    settings: PolicySettings,
    now: float,
) -> PresentEvidence:
    """How it stands with the restart of that record by the node's latest judgement.

    `situation` is that judgement with all that the policy looks at; None while it is not put together, or where the
    judgement calls for no action.
    """
    verdict = judgement.verdict
    if not judgement.is_last_known and objections.is_stale(judgement, now):
        return PresentEvidence(Standing.UNKNOWN, "The latest verdict on it is too old.")
    summary = f"It is {verdict.value} now: {ended(judgement.summary)}"
    if judgement.is_last_known:
        return PresentEvidence(Standing.UNKNOWN, ended(judgement.summary))
    if verdict in WELL:
        return PresentEvidence(Standing.RECOVERED, summary)
    if verdict is Verdict.UNKNOWN:
        return PresentEvidence(Standing.UNKNOWN, summary)
    if verdict.value != (record.grounds.verdict or record.cause):
        return PresentEvidence(Standing.LAPSED, summary)
    if situation is None:
        if judgement.action in (record.action, record.grounds.action):
            return PresentEvidence(Standing.UNKNOWN, "The latest verdict on it is being looked at.")
        return PresentEvidence(Standing.LAPSED, f"What would help it now is {judgement.action.value}.")
    return _allowed(_as_asked(situation, record), record, settings)


def rests_on_peer(judgement: Judgement) -> bool:
    """Whether the node's own tpuwatch, or its silence, is part of the evidence."""
    return any(reason.signal is Signal.PEER for reason in judgement.reasons)


def with_peer(present: PresentEvidence, judgement: Judgement, peer: Peer | None) -> PresentEvidence:
    """What holds by the latest judgement, with what the node's own tpuwatch says now that it was asked anew."""
    sources = [reason.sources for reason in judgement.reasons if reason.signal is Signal.PEER]
    if peer is None:
        return replace(present, standing=Standing.UNKNOWN, sentence="Its own tpuwatch could not be asked just now.")
    if frozenset({Source.NETWORK}) in sources:
        if peer.silent_since is not None and not peer.refuses:
            return present
        return replace(present, standing=Standing.LAPSED, sentence="Its machine, which was silent, answers again.")
    word = peer.verdict
    if peer.silent_since is not None or word is None or word.age > objections.STALE_SECONDS:
        return replace(present, standing=Standing.UNKNOWN, sentence="Its own tpuwatch has not said just now how it is.")
    said = f"Its own tpuwatch calls it {word.verdict.value} now."
    if word.verdict in WELL:
        return replace(present, standing=Standing.RECOVERED, sentence=said)
    if word.verdict not in STUCK or not all(needed <= word.sources for needed in sources):
        return replace(present, standing=Standing.LAPSED, sentence=f"{said} That proves less than before.")
    return present


def _allowed(situation: RestartSituation, record: RestartRecord, settings: PolicySettings) -> PresentEvidence:
    """The verdict is the same. Would the policy still do it, but for the budgets, of which it has its share already?"""
    if situation.ledger is None:
        return PresentEvidence(Standing.UNKNOWN, "The ledger of restarts is DOWN.")
    if situation.wanted is not record.action:
        return PresentEvidence(Standing.LAPSED, f"What would help it now is {situation.wanted.value}.")
    hold = _hold(situation, situation.ledger, record, settings)
    if hold is None:
        return PresentEvidence(Standing.HOLDS, f"It is {situation.judgement.verdict.value} still.")
    standing = Standing.UNKNOWN if hold.blocked in _NOT_YET else Standing.LAPSED
    return PresentEvidence(standing, f"It would not be begun now: {ended(hold.sentence)}")


def _hold(
    situation: RestartSituation, view: LedgerView, record: RestartRecord, settings: PolicySettings
) -> Hold | None:
    return (
        switch_hold(record.action, settings)
        or breaker_hold(view, settings, situation.now)
        or objections.first_objection(situation, record.action, settings)
        or mass_failure_hold(situation, settings)
    )


def _as_asked(situation: RestartSituation, record: RestartRecord) -> RestartSituation:
    """With the request of the node's own daemon, in whose place the record is now. It counts no longer than it did."""
    view, grounds = situation.ledger, record.grounds
    if view is None or not grounds.requested:
        return situation
    request = replace(
        record,
        phase=Phase.REQUESTED,
        lease=Lease(),
        began=0.0,
        cause=grounds.verdict,
        actor=grounds.requester,
        requested=grounds.requested,
        sources=grounds.sources,
    )
    return replace(situation, ledger=replace(view, records={**view.records, record.target.path: request}))
