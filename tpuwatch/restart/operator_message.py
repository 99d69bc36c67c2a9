"""What a message to an operator says of a node: how it is, since when, what was done, and the commands to run. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean, times
from tpuwatch.model import Blocked, Phase, Remedy, filled_in
from tpuwatch.restart.policy.situation import OF_THE_NODE
from tpuwatch.restart.wording import own_command

if TYPE_CHECKING:
    from tpuwatch.model import JudgedNode, RestartDecision, RestartRecord, Target

_COMMAND: Final = re.compile(r"`([^`]+)`")
_MAX: Final = 10  # of each list
_TEXT: Final = 600  # characters
_STEP: Final = 2000  # no command is longer
# tpuwatch restarts such a node for an operator, though not by itself.
_RESTARTED: Final = frozenset(
    {
        Blocked.OBSERVE,
        Blocked.SWITCHED_OFF,
        Blocked.SAME_CAUSE,
        Blocked.NEEDS_OPERATOR,
        Blocked.NODE_BUDGET,
        Blocked.FLEET_BUDGET,
        Blocked.NO_CAPACITY,
        Blocked.BREAKER,
    }
)


@dataclass(frozen=True, slots=True)
class OperatorMessage:
    """What it is about: a node as it was judged last, and its record in the ledger, as far as there are such."""

    target: Target
    judged: JudgedNode | None = None
    record: RestartRecord | None = None
    config: str = ""  # the configuration's file, if commands need it

    def document(self, decision: RestartDecision | None = None) -> dict[str, Any]:
        """The node, what was done about it, and what to do, for JSON. `decision`: why nothing more is done."""
        judged, record = self.judged, self.record
        judgement = judged.judgement if judged is not None else None
        cloud = judged.cloud if judged is not None else None
        evidence = decision.evidence if decision is not None else record.evidence if record is not None else ()
        against = decision.against if decision is not None else ()
        return {
            "state": cloud.state if cloud is not None else (record.shown if record is not None else "") or None,
            "health": cloud.health if cloud is not None else None,
            "verdict": judgement.verdict if judgement is not None else record.cause if record is not None else None,
            "summary": clean(judgement.summary, _TEXT) if judgement is not None else None,
            **times("since", judgement.since if judgement is not None else None),
            "evidence": [clean(one, 300) for one in evidence[:_MAX]],
            "against": [clean(one, 300) for one in against[:_MAX]],
            "last_restart": _done(record) if record is not None else None,
            "do": self.steps(decision),
        }

    def steps(self, decision: RestartDecision | None = None) -> list[str]:
        """What to do, in order: commands of tpuwatch where it can do it, else what the judge or the note says."""
        blocked = decision.blocked if decision is not None else None
        if decision is not None and decision.wanted in OF_THE_NODE and blocked in _RESTARTED:
            restart = own_command("restart", self.target.path, config=self.config)
            if blocked is Blocked.BREAKER:
                return [restart, own_command("restarts", "reset-breaker", config=self.config)]
            return [restart]
        if blocked is Blocked.STORM:
            return [own_command("nodes", config=self.config)]
        steps = [] if self.judged is None or decision is None else [one.do for one in self.judged.judgement.remedy]
        if decision is None and self.record is not None:
            steps = _COMMAND.findall(self._note(self.record))
            if self.record.phase is Phase.FAILED:
                steps.append(own_command("restart", self.target.path, config=self.config))
        if blocked is Blocked.NO_LEDGER:
            steps = [own_command("doctor", config=self.config), *steps]
        return [clean(one, _STEP) for one in steps[:_MAX]] or [
            own_command("restarts", self.target.path, config=self.config)
        ]

    def _note(self, record: RestartRecord) -> str:
        """The record's note, its commands with what the cloud says of the node."""
        cloud = self.judged.cloud if self.judged is not None else None
        if cloud is None:
            return record.note
        known = {"TYPE": cloud.accelerator, "VERSION": cloud.runtime_version}
        quoted = {word: shlex.quote(value) for word, value in known.items() if value}
        return filled_in([Remedy(record.note, "")], quoted)[0].do


def _done(record: RestartRecord) -> dict[str, Any]:
    """What was done about the node last, and how far that came."""
    return {
        "action": record.action,
        "phase": record.phase,
        "actor": record.actor,
        "reason": record.reason,
        **times("requested", record.requested),
        **times("entered", record.entered),
        "stops": record.stops,
        "tries": record.tries,
        "last_error": record.failure or None,
        "operations": list(record.operations[-_MAX:]),
        "note": record.note,
    }
