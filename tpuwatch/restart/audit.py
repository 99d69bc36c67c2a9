"""The audit: a line of JSON for each decision about a restart, also for those not to restart.

It is for people who ask afterwards. Nothing reads it to decide anything, and a disk on which it cannot be written
never holds up a restart that is under way: that is in the ledger.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.export.jsonable import dumps, times
from tpuwatch.health.words import clean
from tpuwatch.restart.ledger.files import open_private

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.restart.policy.decision import Decision, Use
    from tpuwatch.restart.record import Target

FILE_NAME: Final = "audit.jsonl"
MAX_BYTES: Final = 8 << 20  # then it becomes audit.jsonl.1, and the one before that goes
MAX_EVIDENCE: Final = 20
MAX_NODES: Final = 10_000  # whose last decision is remembered
_SENTENCE: Final = 1000  # characters
_TEXT: Final = 300

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision: who decided what about which node, why, and what came of it."""

    at: float
    node: str  # the resource name; "" for what concerns all nodes
    actor: str
    decision: str  # the rung, or "cancel", "reset_breaker", "nothing"
    result: str  # "begun", "done", "blocked", "refused", …
    blocked: str = ""  # why not: a value of Blocked
    verdict: str = ""
    evidence: tuple[str, ...] = ()
    budget: Use | None = None
    sentence: str = ""

    @classmethod
    def of(cls, decision: Decision, target: Target, actor: str) -> Entry:
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

    @property
    def kind(self) -> tuple[str, ...]:
        """What makes it another decision than the one before; ages and counts in its sentences do not."""
        return (self.actor, self.decision, self.result, self.blocked, self.verdict)


class Audit:
    """Appends to one file, which several processes may do at a time. Used from one thread. Never raises."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._last: dict[str, tuple[str, ...]] = {}
        self._failing = False

    def note_change(self, entry: Entry) -> bool:
        """Write it if it is another decision than the last one on its node; whether it was tried.

        For what is decided again at every look.
        """
        if self._last.get(entry.node) == entry.kind:
            return False
        if len(self._last) >= MAX_NODES:
            self._last.clear()
        self._last[entry.node] = entry.kind
        self.note(entry)
        return True

    def note(self, entry: Entry) -> None:
        """Write it. If that fails, it is told in tpuwatch's own log."""
        try:
            self._append(f"{dumps(_document(entry))}\n".encode("ascii"))
        except OSError as error:
            if not self._failing:
                _log.warning(
                    "The audit %s cannot be written (%s): what is decided is not noted there. Check its directory's "
                    "owner and free space.",
                    self.path,
                    error.strerror,
                )
            self._failing = True
        else:
            if self._failing:
                _log.warning("The audit %s is written again; decisions in between are not in it.", self.path)
            self._failing = False

    def _append(self, line: bytes) -> None:
        if not self._appended(line, may_rotate=True):
            self._appended(line, may_rotate=False)

    def _appended(self, line: bytes, *, may_rotate: bool) -> bool:
        """Write it, in one write: lines of several processes do not mix. False: the file was set aside instead."""
        descriptor = open_private(self.path, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            if may_rotate and size and size + len(line) > self._max_bytes and self._rotated(descriptor):
                return False
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # the disk was full in the middle of the last one
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        return True

    def _rotated(self, descriptor: int) -> bool:
        """Set the file aside, unless another process does so."""
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # freed when it is closed
            if os.path.samestat(os.fstat(descriptor), self.path.lstat()):
                self.path.replace(f"{self.path}.1")
            return True
        return False


def _document(entry: Entry) -> dict[str, Any]:
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
