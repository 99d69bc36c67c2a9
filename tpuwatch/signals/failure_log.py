"""Signals that fail and that answer again, in tpuwatch's log: a line each, however often they are asked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tpuwatch.core import printable
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from tpuwatch.model import Answer

NO_FAILURE = frozenset({None, Problem.OFF, Problem.ABSENT})  # an idle host has no source to ask

_log = logging.getLogger(__name__)


class FailureLog:
    """Logs a problem when it comes twice in a row: one that passes at once does not matter. Logs it again only after
    another problem has lasted, or the signal has answered twice in a row. Each signal has one thread."""

    def __init__(self) -> None:
        self._last: dict[str, Problem | None] = {}
        self._logged: dict[str, Problem] = {}

    def record(self, name: str, answer: Answer[Any]) -> None:
        """Record the answer that a source gave for a signal."""
        problem = None if answer.problem in NO_FAILURE else answer.problem
        again = name in self._last and self._last[name] is problem
        self._last[name] = problem
        if not again or problem is self._logged.get(name):
            return
        if problem is None:
            del self._logged[name]
            _log.info("The signal %s answers again.", name)
        else:
            self._logged[name] = problem
            _log.warning("The signal %s does not answer (%s): %s", name, problem.value, printable(answer.detail))
