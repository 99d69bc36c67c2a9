"""Runs checks in parallel, each with a deadline. A check that hangs or raises is unknown and does not affect others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tpuwatch.doctor.check import Check, CheckResult, CheckStatus, Result, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.doctor.environment import Environment

_OUTCOMES = (CheckStatus.OK, CheckStatus.WARN, CheckStatus.WRONG)
_MAX_RESULTS = 50  # of one check


def run_checks(checks: Sequence[Check], environment: Environment) -> list[CheckResult]:
    """All results, in the order of the checks. Takes no longer than the longest deadline."""
    running = [_RunningCheck(check, environment) for check in checks]
    started = time.monotonic()
    for each in running:
        each.start()
    return [finding for each in running for finding in each.findings(started + each.check.seconds)]


def is_conclusive(checks: Iterable[Check], results: Sequence[CheckResult]) -> bool:
    """Whether an essential check has an outcome; if none of those ran, whether any check has."""
    essential = {check.id for check in checks if check.essential}
    weighed = [one for one in results if one.id in essential] or results
    answered = any(one.status in _OUTCOMES for one in weighed)
    return answered or all(one.status is CheckStatus.SKIPPED for one in weighed)


class _RunningCheck:
    """One check in its own daemon thread, so that one that hangs does not keep the process alive."""

    def __init__(self, check: Check, environment: Environment) -> None:
        self.check = check
        self._environment = environment
        self._results: list[Result] = []
        self._thread = threading.Thread(target=self._look, name=f"check {check.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def findings(self, deadline: float) -> list[CheckResult]:
        """Its results at the deadline."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        results = self._results
        if self._thread.is_alive():
            results = [unknown(f"{self.check.title}: no answer within {self.check.seconds:g} s.")]
        return [CheckResult.of(self.check, result) for result in results]

    def _look(self) -> None:
        try:
            results = self.check.results(self._environment)
        except PermissionError as error:
            text = f"{self.check.title}: no permission to read {error.filename or 'it'}."
            results = [unknown(text, self._environment.sudo)]
        except OSError as error:
            results = [unknown(f"{self.check.title}: {error.filename or 'it'} cannot be read: {error.strerror}.")]
        except Exception as error:  # noqa: BLE001 # a check that fails must not affect the others
            results = [unknown(f"{self.check.title}: the check itself failed: {type(error).__name__}: {error}")]
        self._results = results[:_MAX_RESULTS]
