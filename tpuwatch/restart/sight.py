"""What this daemon sees of the nodes now, for the threads that drive their restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tpuwatch.model import Phase, Problem
from tpuwatch.restart.candidates import stuck_beside, target_of
from tpuwatch.restart.policy.present import present_evidence, rests_on_peer, with_peer
from tpuwatch.restart.workflow.types import PresentEvidence, Standing
from tpuwatch.restart.workflow.within import heard_from_within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpuwatch.core import Clock
    from tpuwatch.model import JudgedNode, Peer, RestartRecord, Snapshot, Target
    from tpuwatch.restart.candidates import Candidate
    from tpuwatch.restart.policy.budgets import LedgerView
    from tpuwatch.restart.policy.settings import PolicySettings


class _Turn(NamedTuple):
    """What the loop has put together in its latest turn."""

    candidates: Mapping[Target, Candidate]
    view: LedgerView | None  # None while the ledger cannot be read


class Sight:
    """`update` is for the loop's thread, `judge_again` and `confirm` for any."""

    def __init__(
        self,
        *,
        nodes: Callable[[], Sequence[JudgedNode]],
        snapshot: Callable[[], Snapshot],
        settings: PolicySettings,
        clock: Clock,
        is_stopping: Callable[[], bool],
        ask_peer: Callable[[str], Peer | None],
    ) -> None:
        """`nodes` and `snapshot` return the judged nodes and the signals' answers as they are now. `ask_peer` asks the
        tpuwatch on the node of that label anew; None where that could not be asked."""
        self._nodes = nodes
        self._snapshot = snapshot
        self._settings = settings
        self._clock = clock
        self._is_stopping = is_stopping
        self._ask_peer = ask_peer
        self._turn = _Turn({}, None)  # replaced, never changed

    def update(self, candidates: Sequence[Candidate], view: LedgerView | None) -> None:
        """The candidates of this turn, and what the ledger holds."""
        self._turn = _Turn({one.target: one for one in candidates}, view)

    def confirm(self, record: RestartRecord) -> PresentEvidence:
        """The same, for drivers: the word of the node's own tpuwatch, or its silence, is asked anew if it counts."""
        present, judged = self.judge_again(record), self._judged(record)
        if present.standing is not Standing.HOLDS or judged is None or not rests_on_peer(judged.judgement):
            return present
        return with_peer(present, judged.judgement, self._ask_peer(judged.label))

    def judge_again(self, record: RestartRecord) -> PresentEvidence:
        """How it stands now with what the restart was decided on, and with the node since it was started."""
        if record.phase is Phase.VERIFYING:
            return self._listen(record)
        if self._is_stopping():
            return PresentEvidence(Standing.UNKNOWN, "tpuwatch ends, or takes another configuration into force.")
        judged = self._judged(record)
        if judged is None:
            return self._unwatched()
        turn, now, situation = self._turn, self._clock.time(), None
        candidate = turn.candidates.get(record.target)
        if candidate is not None and candidate.judged is judged:
            situation = replace(candidate.situation, ledger=turn.view, now=now)
        present = present_evidence(record, judged.judgement, situation, self._settings, now)
        ill = judged.cloud is not None and judged.cloud.ill
        return replace(present, ill=ill, stuck_beside=stuck_beside(judged, self._nodes()))

    def _listen(self, record: RestartRecord) -> PresentEvidence:
        judged = self._judged(record)
        if judged is None or self._snapshot().asked.problem is Problem.OFF:
            return PresentEvidence()
        within, heard = heard_from_within(record, judged.peer)
        return PresentEvidence(within=within, heard=heard)

    def _judged(self, record: RestartRecord) -> JudgedNode | None:
        return next((one for one in self._nodes() if target_of(one) == record.target), None)

    def _unwatched(self) -> PresentEvidence:
        """Who does not see a node takes it down on nobody's word: those that watch it decide again."""
        api = self._snapshot().api
        if api.at is None or api.problem is not None:
            return PresentEvidence(Standing.UNKNOWN, "The Cloud TPU API has not answered here.")
        return PresentEvidence(Standing.LAPSED, "It is not watched from here, so those who watch it decide on it.")
