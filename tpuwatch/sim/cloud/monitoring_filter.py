"""The part of Cloud Monitoring's filter language that clients of the simulator use.

Comparisons that must all hold: `metric.type = "…" AND resource.labels.node_id = one_of("a", "b")`. The operators are =
and !=, a value is a string in quotes, starts_with("…") or one_of("…", …). AND may be left out. What else the language
can say is refused, so that a client's mistake is not answered with everything.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.sim.cloud.responses import ServiceError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LENGTH: Final = 2048  # of a filter, as the service has it
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_COMPARISON: Final = re.compile(
    rf"""\s*(?P<field>metric\.type|resource\.type|(?:metric|resource)\.labels?\.(?:[A-Za-z_]\w*|{_STRING}))
    \s*(?P<operator>!=|=)\s*
    (?:(?P<function>starts_with|one_of)\(\s*(?P<arguments>{_STRING}(?:\s*,\s*{_STRING})*)\s*\)|(?P<value>{_STRING}))
    \s*(?P<joint>AND\b|$|(?=metric\.|resource\.))""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field against one or more strings."""

    field: str  # "metric.type", "resource.type", "metric.labels.X", "resource.labels.X"
    values: tuple[str, ...]
    prefix: bool = False
    negated: bool = False

    def holds(self, fields: Mapping[str, str]) -> bool:
        """Whether it holds; a label that is not there is an empty string."""
        found = fields.get(self.field, "")
        equal = found.startswith(self.values[0]) if self.prefix else found in self.values
        return equal is not self.negated


@dataclass(frozen=True, slots=True)
class Filter:
    """Comparisons that must all hold."""

    comparisons: tuple[Comparison, ...]

    @property
    def metric_type(self) -> str:
        """The one metric type that is asked for; "" where that is not said with =."""
        for one in self.comparisons:
            if one.field == "metric.type" and len(one.values) == 1 and not (one.prefix or one.negated):
                return one.values[0]
        return ""

    def matches(self, series: Any) -> bool:
        """Whether a series (a message with metric and resource) passes."""
        fields = {"metric.type": series.metric.type, "resource.type": series.resource.type}
        for part in ("metric", "resource"):
            fields.update({f"{part}.labels.{name}": value for name, value in getattr(series, part).labels.items()})
        return all(one.holds(fields) for one in self.comparisons)


def parse(text: str) -> Filter:
    """A filter of at least one comparison. Raises ServiceError for all that is not understood."""
    if len(text) > MAX_LENGTH:
        raise ServiceError("INVALID_ARGUMENT", f"The filter is longer than {MAX_LENGTH} characters.")
    comparisons: list[Comparison] = []
    at, joint = 0, "AND"
    while at < len(text.rstrip()) or not comparisons or joint == "AND":
        found = _COMPARISON.match(text, at)
        if found is None:
            raise ServiceError("INVALID_ARGUMENT", f"Could not parse the filter at {text[at : at + 40]!r}.")
        comparisons.append(_comparison(found))
        at, joint = found.end(), found["joint"]
    return Filter(tuple(comparisons))


def _comparison(found: re.Match[str]) -> Comparison:
    function = found["function"]
    values = tuple(_text(one) for one in re.findall(_STRING, found["arguments"] or found["value"]))
    if function == "starts_with" and len(values) > 1:
        raise ServiceError("INVALID_ARGUMENT", "starts_with takes one string.")
    part, _, name = found["field"].partition(".")
    kind, _, label = name.partition(".")
    field = f"{part}.labels.{_text(label) if label.startswith(chr(34)) else label}" if label else f"{part}.{kind}"
    return Comparison(field, values, prefix=function == "starts_with", negated=found["operator"] == "!=")


def _text(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        raise ServiceError("INVALID_ARGUMENT", f"Could not parse the string {quoted}.") from None
