"""Reports decisions and restarts once: in metrics, audit and log, and to operators by webhook where one is needed.

A node is judged every few seconds, and mostly the decision stays the same. It is reported when it changes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, counted, ended, printable, times
from tpuwatch.model import Blocked, Phase
from tpuwatch.restart.operator_message import OperatorMessage
from tpuwatch.restart.webhook import slack
from tpuwatch.restart.wording import own_command, words

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tpuwatch.core import Clock
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Action, JudgedNode, RestartDecision, RestartRecord, Target
    from tpuwatch.restart.audit import Audit
    from tpuwatch.restart.driver import Progress
    from tpuwatch.restart.webhook import Webhook

MAX_LINES: Final = 20  # of decisions, that one turn writes into tpuwatch's log
LOG_AGAIN_SECONDS: Final = 600.0  # the same of one node, which flaps between two decisions
SEND_AGAIN_SECONDS: Final = 21_600.0
_MAX_REMEMBERED: Final = 50_000
# These are about all nodes at once: one message for all.
_OF_ALL: Final = frozenset({Blocked.STORM, Blocked.BREAKER, Blocked.FLEET_BUDGET, Blocked.NO_LEDGER, Blocked.CLOCK})
_EVENTS: Final = {
    Phase.FAILED: "restart_failed",
    Phase.NEEDS_OPERATOR: "restart_failed",
    Phase.NOT_VERIFIED: "restart_not_verified",
}

_log = logging.getLogger(__name__)


class Notifier:
    """Used from one thread."""

    def __init__(
        self,
        *,
        metrics: Metrics,
        audit: Audit,
        clock: Clock,
        webhook: Webhook | None,
        config: str = "",
    ) -> None:
        """`webhook` sends to operators; `config` is the configuration's file, if their commands need it."""
        self._config = config
        self._metrics = metrics
        self._audit = audit
        self._clock = clock
        self._webhook = webhook
        self._lines = 0
        self._keys: dict[str, tuple[object, ...]] = {}  # of the decision that was reported last, by the nodes' labels
        self._last_reported: dict[Hashable, float] = {}  # what was logged or sent, and when, by the monotonic clock

    def notify_decision(
        self,
        label: str,
        target: Target,
        decision: RestartDecision,
        *,
        judged: JudgedNode | None = None,
        record: RestartRecord | None = None,
        begun: bool = False,
    ) -> None:
        """The decision on a node that was `judged`, and has the `record`. `begun`: it is being done."""
        message = OperatorMessage(target, judged, record, self._config)
        if begun or self._keys.get(label) != decision.key:
            self._keys[label] = decision.key
            if decision.blocked is not None:
                self._metrics.restart.count_blocked(decision.blocked)
            self._audit.note_decision(target, decision)
            if begun or self._is_due(("log", label, decision.key), LOG_AGAIN_SECONDS):
                self._lines += 1
                if self._lines <= MAX_LINES or begun:
                    level = logging.WARNING if begun or decision.needs_operator else logging.INFO
                    text = _text(decision.sentence, message, decision) if decision.needs_operator else decision.sentence
                    _log.log(level, "%s: %s", label, printable(text))
        if decision.needs_operator:
            key = decision.blocked if decision.blocked in _OF_ALL else (label, decision.key)
            wanted, blocked = decision.wanted, decision.blocked
            self._send_once(key, "person_needed", decision.sentence, message, decision, wanted=wanted, blocked=blocked)

    def close(self) -> None:
        """Send no more; returns at once."""
        if self._webhook is not None:
            self._webhook.close()

    def end_turn(self, labels: set[str]) -> None:
        """Forget the decisions on all nodes but these candidates."""
        if self._lines > MAX_LINES:
            _log.warning("… and %d more decisions; the audit has them all.", self._lines - MAX_LINES)
        self._lines = 0
        for label in self._keys.keys() - labels:
            del self._keys[label]

    def notify_request(self, target: Target, decision: RestartDecision) -> None:
        """A request was written for those who watch the node."""
        self._metrics.restart.count_request()
        self._audit.note(
            target, decision.wanted.value, "requested", decision.sentence, decision.verdict, decision.evidence
        )

    def notify_takeover(self, record: RestartRecord) -> None:
        """A restart that another driver left half done is being finished."""
        sentence = f"What was begun about {record.target.node} is finished from here: it is at {record.phase.value}."
        self._audit.note(record.target, record.action.value, "taken_up", sentence, record.cause)
        _log.warning("%s", sentence)

    def notify_withdrawal(self, record: RestartRecord, why: str) -> None:
        """A record without a driver was withdrawn or ended, without any action from here."""
        self._audit.note_record(record, "given_up", why)
        _log.info("%s of %s is given up: %s", record.action.value, record.target.node, printable(why))

    def notify_end(self, record: RestartRecord, action: Action, judged: JudgedNode | None = None) -> None:
        """What was driven from here has ended. `action` is what was begun: a record that was given up has none.

        `judged`: how the node is.
        """
        record = replace(record, action=action)
        self._metrics.restart.count_ended(record.action, record.phase)
        if record.phase in (Phase.DONE, Phase.NOT_VERIFIED):
            self._metrics.restart.observe_duration(record.action, record.entered - (record.began or record.requested))
        self._audit.note_record(record, record.phase.value, record.note)
        well = record.phase in (Phase.DONE, Phase.CANCELLED)
        sentence = f"{record.action.value} of {record.target.node} because of {record.cause}: {words(record.phase)}."
        sentence = f"{sentence} {record.note}".rstrip()
        _log.log(logging.INFO if well else logging.WARNING, "%s", printable(sentence))
        if (event := _EVENTS.get(record.phase)) is not None:
            message = OperatorMessage(record.target, judged, record, self._config)
            key = ("over", record.target, record.requested)
            self._send_once(key, event, sentence, message, phase=record.phase)

    def notify_note(self, record: RestartRecord, judged: JudgedNode | None = None) -> None:
        """A restart under way has a note for operators, such as a start that is refused again and again."""
        key = ("note", record.target, record.requested, record.phase)
        message, tries = OperatorMessage(record.target, judged, record, self._config), record.tries
        if not (record.open and record.note):
            return
        if self._send_once(key, "restart_hindered", record.note, message, phase=record.phase, tries=tries):
            _log.warning("%s", printable(record.note))

    def notify_unrecorded(self, progress: Progress, judged: JudgedNode | None = None) -> None:
        """A restart under way cannot be recorded. Its driver has logged it."""
        record = progress.record
        message = OperatorMessage(record.target, judged, record, self._config)
        key = ("unrecorded", record.target, record.requested)
        event, phase, reason = "restart_unrecorded", record.phase, progress.unrecorded
        if self._send_once(key, event, progress.alarm, message, phase=phase, reason=reason):
            self._audit.note_record(record, "unrecorded", f"{progress.alarm} {progress.unrecorded}")

    def notify_breaker_opened(self, why: str) -> None:
        """The breaker was opened from here."""
        sentence = f"The breaker is open: {why} tpuwatch restarts nothing until `tpuwatch restarts reset-breaker`."
        self._audit.note(None, "open_breaker", "done", sentence)
        _log.error("%s", printable(sentence))
        self._last_reported[Blocked.BREAKER] = self._clock.monotonic()
        self._send("breaker_opened", None, sentence, sentence, do=[own_command("restarts", config=self._config)])

    def _send_once(
        self,
        key: Hashable,
        event: str,
        sentence: str,
        message: OperatorMessage,
        decision: RestartDecision | None = None,
        **more: object,
    ) -> bool:
        if not self._is_due(("message", key) if not isinstance(key, Blocked) else key, SEND_AGAIN_SECONDS):
            return False
        self._send(
            event, message.target, sentence, _text(sentence, message, decision), **message.document(decision), **more
        )
        return True

    def _send(self, event: str, target: Target | None, sentence: str, text: str, **more: object) -> None:
        if self._webhook is None:
            return
        about = f"{target.node} (zone {target.zone}, project {target.project}): " if target is not None else ""
        self._webhook.send(
            {
                "text": slack(f"tpuwatch: {about}{text}"),
                "source": "tpuwatch",
                "event": event,
                "actor": self._audit.actor,
                **times("time", self._clock.time()),
                "node": target.node if target is not None else None,
                "zone": target.zone if target is not None else None,
                "project": target.project if target is not None else None,
                "sentence": clean(sentence, 2000),
                **more,
            }
        )

    def _is_due(self, key: Hashable, seconds: float) -> bool:
        """Whether it was not reported within so many seconds; if so it counts as reported now."""
        now = self._clock.monotonic()
        if key in self._last_reported and now - self._last_reported[key] < seconds:
            return False
        if len(self._last_reported) >= _MAX_REMEMBERED:
            self._last_reported.clear()
        self._last_reported[key] = now
        return True


def _text(sentence: str, message: OperatorMessage, decision: RestartDecision | None) -> str:
    """A sentence with all that a person needs to begin: how the node is, since when, and what to run."""
    shown, judged = message.document(decision), message.judged
    parts = [ended(sentence)]
    if judged is not None and judged.judgement.summary not in sentence:
        parts.append(ended(judged.judgement.summary))
    known = [str(shown[name]) for name in ("state", "health") if shown[name]]
    since = f" It is {shown['verdict'].value} since {shown['since']}." if judged is not None and shown["since"] else ""
    if known:
        parts.append(f"The cloud says {' and '.join(known)}.{since}")
    if message.record is not None and message.record.tries and message.record.failure not in sentence:
        parts.append(f"Tried {counted(message.record.tries, 'time')}: {ended(message.record.failure)}")
    if not any(step in sentence for step in shown["do"]):
        parts.append(f"To do: {shown['do'][0]}")
    return " ".join(parts)
