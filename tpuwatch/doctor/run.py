"""Runs checks side by side, each with its deadline: one that hangs or raises is unknown, and the others go on."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tpuwatch.doctor.check import Check, Finding, Result, Status, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.doctor.environment import Environment

_ANSWERS = (Status.OK, Status.WARN, Status.WRONG)
_MAX_RESULTS = 50  # of one check


def run(checks: Sequence[Check], environment: Environment) -> list[Finding]:
    """Everything that the checks found, in the order of the checks. Takes no longer than the longest deadline."""
    turns = [_Turn(check, environment) for check in checks]
    started = time.monotonic()
    for turn in turns:
        turn.start()
    return [finding for turn in turns for finding in turn.findings(started + turn.check.seconds)]


def found_out(findings: Iterable[Finding]) -> bool:
    """Whether an essential check has found out anything; where none of those ran, whether any check has."""
    findings = list(findings)
    weighed = [finding for finding in findings if finding.check.essential] or findings
    answered = any(finding.result.status in _ANSWERS for finding in weighed)
    return answered or all(finding.result.status is Status.SKIPPED for finding in weighed)


class _Turn:
    """One check in a thread of its own, which ends with the process if it never returns."""

    def __init__(self, check: Check, environment: Environment) -> None:
        self.check = check
        self._environment = environment
        self._results: list[Result] = []
        self._thread = threading.Thread(target=self._look, name=f"check {check.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def findings(self, deadline: float) -> list[Finding]:
        """What it found by then."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        results = self._results
        if self._thread.is_alive():
            results = [unknown(f"{self.check.title}: no answer within {self.check.seconds:g} s.")]
        return [Finding(self.check, result) for result in results]

    def _look(self) -> None:
        try:
            results = list(self.check.look(self._environment))
        except PermissionError as error:
            text = f"{self.check.title}: not allowed to look at {error.filename or 'it'}."
            results = [unknown(text, self._environment.sudo)]
        except OSError as error:
            results = [unknown(f"{self.check.title}: {error.filename or 'it'} cannot be read: {error.strerror}.")]
        except Exception as error:  # noqa: BLE001 # one check that fails must not take the others with it
            results = [unknown(f"{self.check.title}: the check itself failed: {type(error).__name__}: {error}")]
        self._results = results[:_MAX_RESULTS]
