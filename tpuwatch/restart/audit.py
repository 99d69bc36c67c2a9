"""The audit: a line of JSON for each decision about a restart, also for those not to restart.

It is for people who ask afterwards. Nothing reads it to decide anything, and a disk on which it cannot be written
never holds up a restart that is under way: that is in the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import AuditFile, clean, times

if TYPE_CHECKING:
    from tpuwatch.model import RestartDecision, Target, Use

FILE_NAME: Final = "audit.jsonl"
MAX_EVIDENCE: Final = 20
_SENTENCE: Final = 1000  # characters
_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One decision: who decided what about which node, why, and what came of it."""

    at: float
    node: str  # the resource name; "" for what concerns all nodes
    actor: str
    decision: str  # the action, or "cancel", "reset_breaker", "nothing"
    result: str  # "begun", "done", "blocked", "refused", …
    blocked: str = ""  # why not: a value of Blocked
    verdict: str = ""
    evidence: tuple[str, ...] = ()
    budget: Use | None = None
    sentence: str = ""

    @classmethod
    def of(cls, decision: RestartDecision, target: Target, actor: str) -> AuditEntry:
        """What the policy has decided."""
        result = "begun" if decision.act is not None else "blocked" if decision.blocked is not None else "nothing"
        return cls(
            at=decision.at,
            node=target.path,
            actor=actor,
            decision=decision.wanted.value,
            result=result,
            blocked=decision.blocked.value if decision.blocked is not None else "",
            verdict=decision.verdict,
            evidence=decision.evidence,
            budget=decision.use,
            sentence=decision.sentence,
        )


class Audit(AuditFile):
    """The audit of restarts."""

    def note(self, entry: AuditEntry) -> None:
        """Write it. If that fails, it is logged."""
        self.write(_document(entry))


def _document(entry: AuditEntry) -> dict[str, Any]:
    budget = entry.budget
    return {
        **times("time", entry.at),
        "node": clean(entry.node, _TEXT),
        "actor": clean(entry.actor, _TEXT),
        "decision": entry.decision,
        "result": entry.result,
        "blocked": entry.blocked or None,
        "verdict": entry.verdict or None,
        "evidence": [clean(one, _TEXT) for one in entry.evidence[:MAX_EVIDENCE]],
        "budget": {name: getattr(budget, name) for name in budget.__slots__} if budget is not None else None,
        "sentence": clean(entry.sentence, _SENTENCE),
    }
