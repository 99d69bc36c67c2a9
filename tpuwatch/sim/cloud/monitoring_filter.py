"""The part of Cloud Monitoring's filter language that tpuwatch uses.

Comparisons that must all hold: `metric.type = "…" AND resource.labels.node_id = "…"`. What else the language can say is
refused, so that a client's mistake is not answered with everything.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tpuwatch.sim.cloud.responses import ServiceError

_COMPARISON: Final = re.compile(
    r'\s*(metric\.type|resource\.type|(?:metric|resource)\.labels\.[A-Za-z_]\w*)\s*=\s*("(?:[^"\\]|\\.)*")\s*'
)


def parse(text: str) -> dict[str, str]:
    """The values that are asked for, by field. Raises ServiceError for all that is not understood."""
    wanted = {}
    for comparison in re.split(r"\bAND\b", text):
        found = _COMPARISON.fullmatch(comparison)
        if found is None or found[1] in wanted:
            raise ServiceError("INVALID_ARGUMENT", f"Could not parse the filter at {comparison[:40]!r}.")
        try:
            wanted[found[1]] = str(json.loads(found[2]))
        except ValueError:
            raise ServiceError("INVALID_ARGUMENT", f"Could not parse the string {found[2]}.") from None
    return wanted


def matches(wanted: dict[str, str], series: Any) -> bool:
    """Whether a series (a message with metric and resource) passes; a label that is not there is an empty string."""
    return all(_value(series, field) == value for field, value in wanted.items())


def _value(series: Any, field: str) -> str:
    part, kind, *label = field.split(".")
    described = getattr(series, part)
    return str(described.labels.get(label[0], "") if label else getattr(described, kind))
