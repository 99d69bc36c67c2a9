"""What is decided and done, told once: counted, audited, in tpuwatch's log, and to a person where one is needed.

A node is judged every few seconds, and mostly the decision is the one of before. It is told when it is another one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.words import clean, ended
from tpuwatch.jsontext import times
from tpuwatch.logsetup import one_line
from tpuwatch.restart.audit import Entry
from tpuwatch.restart.policy.decision import Blocked
from tpuwatch.restart.record import Phase
from tpuwatch.restart.webhook import slack

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.restart.audit import Audit
    from tpuwatch.restart.policy.decision import Decision
    from tpuwatch.restart.record import Record, Target

MOST_LINES: Final = 20  # of decisions, that one turn writes into tpuwatch's log
LOG_AGAIN_SECONDS: Final = 600.0  # the same of one node, which flaps between two decisions
CALL_AGAIN_SECONDS: Final = 21_600.0
_MOST_REMEMBERED: Final = 50_000
_EVIDENCE: Final = 10
# These are about all nodes at once: one message for all.
_OF_ALL: Final = frozenset({Blocked.STORM, Blocked.BREAKER, Blocked.FLEET_BUDGET, Blocked.NO_LEDGER})

_log = logging.getLogger(__name__)


class Telling:
    """Used from one thread."""

    def __init__(
        self,
        *,
        metrics: Metrics,
        audit: Audit,
        clock: Clock,
        actor: str,
        call: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """`call` calls a person with a document."""
        self._metrics = metrics
        self._audit = audit
        self._clock = clock
        self._actor = actor
        self._call = call
        self._lines = 0
        self._keys: dict[str, tuple[object, ...]] = {}  # of the decision that was told last, by the nodes' labels
        self._told: dict[Hashable, float] = {}  # what was logged or called for, and when, by the monotonic clock

    def decided(self, label: str, target: Target, decision: Decision, *, begun: bool = False) -> None:
        """The decision on a node. `begun`: it is being done."""
        if begun or self._keys.get(label) != decision.key:
            self._keys[label] = decision.key
            if decision.blocked is not None:
                self._metrics.restart_blocked(decision.blocked)
            self._audit.note(Entry.of(decision, target, self._actor))
            if begun or self._is_due(("log", label, decision.key), LOG_AGAIN_SECONDS):
                self._lines += 1
                if self._lines <= MOST_LINES or begun:
                    level = logging.WARNING if begun or decision.ask else logging.INFO
                    _log.log(level, "%s: %s", label, one_line(decision.sentence))
        if decision.ask:
            key = decision.blocked if decision.blocked in _OF_ALL else (label, decision.key)
            self._call_once(key, "person_needed", target, decision.sentence, **_of(decision))

    def end_turn(self, labels: set[str]) -> None:
        """Only for these nodes something is called for: on the others nothing is decided."""
        if self._lines > MOST_LINES:
            _log.warning("… and %d more decisions; the audit has them all.", self._lines - MOST_LINES)
        self._lines = 0
        for label in self._keys.keys() - labels:
            del self._keys[label]

    def asked_others(self, target: Target, decision: Decision) -> None:
        """A request was written for those who watch the node."""
        self._metrics.restart_requested()
        self._note(target, decision.wanted.value, "requested", decision.sentence, decision.verdict, decision.evidence)

    def took_up(self, record: Record) -> None:
        """What another one, or an earlier tpuwatch, left half done is being finished."""
        sentence = f"What was begun about {record.target.node} is finished from here: it is at {record.phase.value}."
        self._note(record.target, record.rung.value, "taken_up", sentence, record.cause)
        _log.warning("%s", sentence)

    def given_up(self, record: Record, why: str) -> None:
        """What nobody drives any more was taken back, or counts as failed, without anything being done from here."""
        self._note(record.target, record.rung.value, "given_up", why, record.cause, record.evidence)
        _log.info("%s of %s is given up: %s", record.rung.value, record.target.node, one_line(why))

    def over(self, record: Record) -> None:
        """What was driven from here has ended."""
        self._metrics.restart_ended(record.rung, record.phase)
        self._note(record.target, record.rung.value, record.phase.value, record.note, record.cause, record.evidence)
        well = record.phase is Phase.DONE
        words = record.phase.value.replace("_", " ")
        sentence = f"{record.rung.value} of {record.target.node} because of {record.cause}: {words}."
        sentence = f"{sentence} {record.note}".rstrip()
        _log.log(logging.INFO if well else logging.WARNING, "%s", one_line(sentence))
        if record.phase in (Phase.FAILED, Phase.NEEDS_PERSON):
            self._call_once(
                ("over", record.target, record.requested), "restart_failed", record.target, sentence, phase=record.phase
            )

    def noted(self, record: Record) -> None:
        """What is under way carries a note that a person should read: a start that is refused again and again."""
        key = ("note", record.target, record.requested, record.phase)
        if (
            record.open
            and record.note
            and self._call_once(
                key, "restart_hindered", record.target, record.note, phase=record.phase, tries=record.tries
            )
        ):
            _log.warning("%s", one_line(record.note))

    def breaker_opened(self, why: str) -> None:
        """The breaker was opened from here."""
        sentence = f"The breaker is open: {why} tpuwatch restarts nothing until `tpuwatch restart --reset-breaker`."
        self._audit.note(Entry(self._clock.time(), "", self._actor, "open_breaker", "done", sentence=sentence))
        _log.error("%s", one_line(sentence))
        self._told[Blocked.BREAKER] = self._clock.monotonic()
        self._send("breaker_opened", None, sentence)

    def _note(
        self, target: Target, what: str, result: str, sentence: str, verdict: str, evidence: tuple[str, ...] = ()
    ) -> None:
        self._audit.note(
            Entry(
                self._clock.time(),
                target.path,
                self._actor,
                what,
                result,
                verdict=verdict,
                evidence=evidence,
                sentence=sentence,
            )
        )

    def _call_once(self, key: Hashable, event: str, target: Target, sentence: str, **more: object) -> bool:
        if not self._is_due(("call", key) if not isinstance(key, Blocked) else key, CALL_AGAIN_SECONDS):
            return False
        self._send(event, target, sentence, **more)
        return True

    def _send(self, event: str, target: Target | None, sentence: str, **more: object) -> None:
        about = f"{target.node} ({target.zone}): " if target is not None else ""
        self._call(
            {
                "text": slack(f"tpuwatch: {about}{ended(sentence)}"),
                "source": "tpuwatch",
                "event": event,
                "actor": self._actor,
                **times("time", self._clock.time()),
                "node": target.node if target is not None else None,
                "zone": target.zone if target is not None else None,
                "project": target.project if target is not None else None,
                "sentence": clean(sentence, 2000),
                **more,
            }
        )

    def _is_due(self, key: Hashable, seconds: float) -> bool:
        """Whether it was not told within so many seconds; then it counts as told now."""
        now = self._clock.monotonic()
        if key in self._told and now - self._told[key] < seconds:
            return False
        if len(self._told) >= _MOST_REMEMBERED:
            self._told.clear()
        self._told[key] = now
        return True


def _of(decision: Decision) -> dict[str, object]:
    return {
        "verdict": decision.verdict,
        "wanted": decision.wanted,
        "blocked": decision.blocked,
        "evidence": [clean(one, 300) for one in decision.evidence[:_EVIDENCE]],
        "against": [clean(one, 300) for one in decision.against[:_EVIDENCE]],
    }
