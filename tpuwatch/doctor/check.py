"""A check and its results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tpuwatch.core import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpuwatch.doctor.environment import Environment


class CheckStatus(str, Enum):
    """The outcome of a check. Unknown is not wrong: something could not be checked."""

    WRONG = "wrong"  # it will fail, or has no effect
    WARN = "warn"  # it may fail, or hides something
    UNKNOWN = "unknown"
    SKIPPED = "skipped"  # there is nothing here to check
    OK = "ok"


class Area(str, Enum):
    """The subject of a check, in the order of the report."""

    CONFIGURATION = "configuration"
    CLOUD = "cloud"
    LOGS = "logs"
    ENVIRONMENT = "environment"
    VERSIONS = "versions"
    HOST = "host"
    TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class Result:
    """One finding in a sentence, and for a problem the exact fix and its source."""

    status: CheckStatus
    text: str
    fix: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `look` may raise OSError for what it cannot read, which makes the result unknown."""

    id: str
    title: str  # what is checked, in a few words
    area: Area
    look: Callable[[Environment], Iterable[Result]]
    seconds: float = 5.0  # before it counts as hanging
    essential: bool = False  # if no essential check has an outcome, the report is inconclusive
    fine: str = ""  # reported as OK where `look` finds nothing

    def results(self, environment: Environment) -> list[Result]:
        """What it finds. Raises what `look` raises."""
        return list(self.look(environment)) or ([ok(self.fine)] if self.fine else [])


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A result and its check, as they are reported."""

    id: str
    area: Area
    status: CheckStatus
    title: str
    text: str
    fix: str
    source: str

    @classmethod
    def of(cls, check: Check, result: Result) -> CheckResult:
        text, fix = printable(result.text), printable(result.fix)
        return cls(check.id, check.area, result.status, check.title, text, fix, result.source)


def ok(text: str) -> Result:
    """No problem."""
    return Result(CheckStatus.OK, text)


def wrong(text: str, fix: str, source: str) -> Result:
    """It will fail, or has no effect."""
    return Result(CheckStatus.WRONG, text, fix, source)


def warn(text: str, fix: str, source: str) -> Result:
    """It may fail, or hides something."""
    return Result(CheckStatus.WARN, text, fix, source)


def unknown(text: str, fix: str = "") -> Result:
    """It could not be checked; `fix` says how it can be."""
    return Result(CheckStatus.UNKNOWN, text, fix)


def skipped(text: str) -> Result:
    """There is nothing here to check."""
    return Result(CheckStatus.SKIPPED, text)
