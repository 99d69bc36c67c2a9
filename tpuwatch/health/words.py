"""The words in which the witnesses are spoken of: names, ages, silence. Text from outside is cleaned and cut here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Problem, Witness
from tpuwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_LIMIT: Final = 200
_LONGEST: Final = 100 * 365 * 86_400.0  # what is older is told as this much

NAMES: Final[dict[Witness, str]] = {
    Witness.CLOUD: "the Cloud TPU API",
    Witness.RUNTIME: "the runtime metric service",
    Witness.HOST: "the host's own view",
    Witness.LOGS: "the journal of the logs",
    Witness.METADATA: "the metadata server",
    Witness.MONITORING: "Cloud Monitoring",
    Witness.AGENT: "the node's own tpuwatch",
}
_SILENCE: Final[dict[Problem, str]] = {
    Problem.OFF: "is switched off in the configuration",
    Problem.UNCONFIGURED: "was not asked, because nothing tells for which project, zone or node",
    Problem.ABSENT: "is not there",
    Problem.GONE: "knows no such node",
    Problem.UNREACHABLE: "cannot be reached",
    Problem.TIMEOUT: "did not answer in time",
    Problem.THROTTLED: "was asked too often",
    Problem.SERVER: "has an error on its side",
    Problem.DENIED: "refuses, because a permission is missing",
    Problem.SCOPE: "refuses, because the access token lacks a scope",
    Problem.CREDENTIALS: "could not be asked, because there are no valid credentials",
    Problem.DISABLED: "is not enabled in the project",
    Problem.NOT_FOUND: "knows no such project or zone",
    Problem.FOREIGN: "is not what answers there",
    Problem.INTERNAL: "could not be asked, because of an error in tpuwatch that its log tells",
}


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """Text from outside on one line, without what does not print, and cut."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def length(seconds: float) -> str:
    """A duration for people; never negative, never endless."""
    bounded = min(max(seconds, 0.0), _LONGEST) if math.isfinite(seconds) else _LONGEST
    if bounded < 1:
        return "less than 1 s"
    return format_seconds(round(bounded)) if bounded >= 10 else format_seconds(bounded)


def silence(witness: Witness, problem: Problem, detail: str, last_age: float | None) -> str:
    """That a witness gave no answer, why, and how old its last good one is."""
    sentence = f"{capital(NAMES[witness])} {_SILENCE[problem]}"
    sentence = ended(f"{sentence}: {clean(detail)}" if detail else sentence)
    return sentence + (f" Its last answer is {length(last_age)} old." if last_age is not None else "")


def stale(witness: Witness, age: float | None, limit: float) -> str:
    """That a witness's answer is too old to count."""
    old = f"{length(age)} old" if age is not None else "of an unknown time"
    return f"The latest answer of {NAMES[witness]} is {old}; it counts for {length(limit)}."


def capital(sentence: str) -> str:
    """The sentence with its first letter in upper case; the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


def ended(sentence: str) -> str:
    """The sentence with a full stop, if it has no end yet."""
    return sentence if sentence.endswith((".", "…")) else f"{sentence}."


def listed(parts: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *most, last = list(parts) or [""]
    return f"{', '.join(most)} and {last}" if most else last
