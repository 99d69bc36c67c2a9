"""What a check is and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpuwatch.doctor.environment import Environment


class Status(str, Enum):
    """What a check found. Unknown is not wrong: something could not be looked at."""

    WRONG = "wrong"  # it will fail, or has no effect
    WARN = "warn"  # it may fail, or hides something
    UNKNOWN = "unknown"
    SKIPPED = "skipped"  # there is nothing here to check
    OK = "ok"


class Area(str, Enum):
    """What a check is about, in the order of the report."""

    CLOUD = "cloud"
    LOGS = "logs"
    ENVIRONMENT = "environment"
    VERSIONS = "versions"
    HOST = "host"
    TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class Result:
    """One thing that was found: what it is, in a sentence, and for what is not well the exact fix and its source."""

    status: Status
    text: str
    fix: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at. `look` may raise OSError for what it may not read; that is unknown."""

    id: str
    title: str  # what is checked, in a few words
    area: Area
    look: Callable[[Environment], Iterable[Result]]
    seconds: float = 5.0  # until it counts as hanging
    essential: bool = False  # if no essential check finds out anything, the doctor could not find out


@dataclass(frozen=True, slots=True)
class Finding:
    """A result with the check that it is of."""

    check: Check
    result: Result


def ok(text: str) -> Result:
    """All is well."""
    return Result(Status.OK, text)


def wrong(text: str, fix: str, source: str) -> Result:
    """It will fail, or has no effect."""
    return Result(Status.WRONG, text, fix, source)


def warn(text: str, fix: str, source: str) -> Result:
    """It may fail, or hides something."""
    return Result(Status.WARN, text, fix, source)


def unknown(text: str, fix: str = "") -> Result:
    """It could not be looked at; `fix` says how it can be."""
    return Result(Status.UNKNOWN, text, fix)


def skipped(text: str) -> Result:
    """There is nothing here to check."""
    return Result(Status.SKIPPED, text)


def or_ok(bad: Iterable[Result], text: str) -> list[Result]:
    """What is not well; when all is well, `text`."""
    return list(bad) or [ok(text)]
