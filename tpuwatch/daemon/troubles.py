"""Witnesses that fail and that answer again, in tpuwatch's log: a line each, however often they are asked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tpuwatch.health.evidence import Problem
from tpuwatch.logsetup import one_line

if TYPE_CHECKING:
    from tpuwatch.health.evidence import Answer

NO_TROUBLE = frozenset({None, Problem.OFF, Problem.ABSENT})  # nobody there to be asked is how an idle host is

_log = logging.getLogger(__name__)


class Troubles:
    """Tells a problem when it comes twice in a row, for one that passes at once is no news; and then not again until
    another one lasts, or the witness has answered twice in a row. Each witness has one thread."""

    def __init__(self) -> None:
        self._last: dict[str, Problem | None] = {}
        self._told: dict[str, Problem] = {}

    def heard(self, name: str, answer: Answer[Any]) -> None:
        """A witness was asked, and this came of it."""
        problem = None if answer.problem in NO_TROUBLE else answer.problem
        again = name in self._last and self._last[name] is problem
        self._last[name] = problem
        if not again or problem is self._told.get(name):
            return
        if problem is None:
            del self._told[name]
            _log.info("The witness %s answers again.", name)
        else:
            self._told[name] = problem
            _log.warning("The witness %s does not answer (%s): %s", name, problem.value, one_line(answer.detail))
