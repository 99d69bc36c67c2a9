"""The audit: a line of JSON for each decision about a restart, also for those not to restart.

It is for people who ask afterwards. Nothing reads it to decide anything, and a disk on which it cannot be written
never holds up a restart that is under way: that is in the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import AuditFile, clean, times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.core import Clock
    from tpuwatch.model import RestartDecision, RestartRecord, Target, Use

FILE_NAME: Final = "audit.jsonl"
MAX_EVIDENCE: Final = 20
_SENTENCE: Final = 1000  # characters
_TEXT: Final = 300


class Audit(AuditFile):
    """The audit of restarts, as one actor writes it."""

    def __init__(self, path: Path, actor: str, clock: Clock) -> None:
        super().__init__(path)
        self.actor = actor
        self._clock = clock

    def note(
        self,
        target: Target | None,
        decision: str,
        result: str,
        sentence: str,
        verdict: str = "",
        evidence: Sequence[str] = (),
        *,
        blocked: str | None = None,
        budget: Use | None = None,
        at: float | None = None,
    ) -> None:
        """Write who decided what about which node, why, and what came of it. If that fails, it is logged.

        `target` is None for what concerns all nodes; `decision` is the action, or "cancel", "reset_breaker", "nothing";
        `result` is "begun", "done", "blocked", "refused", …; `blocked` is why not: a value of Blocked. Without `at` it
        is of now.
        """
        self.write(
            {
                **times("time", self._clock.time() if at is None else at),
                "node": clean(target.path, _TEXT) if target is not None else "",
                "actor": clean(self.actor, _TEXT),
                "decision": decision,
                "result": result,
                "blocked": blocked,
                "verdict": verdict or None,
                "evidence": [clean(one, _TEXT) for one in evidence[:MAX_EVIDENCE]],
                "budget": {name: getattr(budget, name) for name in budget.__slots__} if budget is not None else None,
                "sentence": clean(sentence, _SENTENCE),
            }
        )

    def note_record(self, record: RestartRecord, result: str, sentence: str) -> None:
        """Write what came of a restart that is recorded."""
        self.note(record.target, record.action.value, result, sentence, record.cause, record.evidence)

    def note_decision(self, target: Target, decision: RestartDecision) -> None:
        """Write what the policy has decided."""
        self.note(
            target,
            decision.wanted.value,
            "begun" if decision.act is not None else "blocked" if decision.blocked is not None else "nothing",
            decision.sentence,
            decision.verdict,
            decision.evidence,
            blocked=decision.blocked.value if decision.blocked is not None else None,
            budget=decision.use,
            at=decision.at,
        )
