"""`python -m deploy.prometheus`: write the alerts for findings and docs/causes.md from the table of causes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from tpuwatch.model.causes import MACHINE_FAULT, PROGRAM_FAULT, Cause

RULES: Final = Path(__file__).with_name("tpuwatch.rules.yml")
PAGE: Final = Path(__file__).parents[2] / "docs/causes.md"
WHOSE: Final = {
    MACHINE_FAULT: "a fault of the machine or its setup",
    PROGRAM_FAULT: "a fault of the program",
}
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")
_GROUP: Final = re.compile(r"^  - name: tpuwatch\.findings\b.*?(?=^  - name: )", re.MULTILINE | re.DOTALL)
_ROWS: Final = re.compile(r"(?<=^\|---\|---\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE)


def with_causes(page: str) -> str:
    """The page with a row for each cause."""
    return _ROWS.sub(lambda _: "".join(map(_row, Cause)), page)


def _row(cause: Cause) -> str:
    alert = cause.row.alert
    link = alert if alert.startswith("none: ") else f"[{alert}](runbooks/{alert}.md)"
    return f"| `{cause.value}` | {cause.row.meaning} | {cause.row.who_acts} | {link} |\n"


def group() -> str:
    """The group of rules for findings."""
    alerts = "\n".join(_alert(name) for name in WHOSE)
    return f"  - name: tpuwatch.findings # made by `make alerts` from tpuwatch/model/causes.py\n    rules:\n{alerts}\n"


def _alert(name: str) -> str:
    meanings = {cause.value: _LINK.sub(r"\1", cause.row.meaning) for cause in Cause if cause.row.alert == name}
    cases = [f'if eq $labels.cause "{cause}" }}}}{what}' for cause, what in meanings.items()]
    indent = " " * 12
    meaning = f"\n{indent}{{{{- else ".join(cases)
    return f"""\
      - alert: {name}
        expr: tpuwatch_finding{{cause=~"{"|".join(meanings)}"}} == 1
        for: 5m
        keep_firing_for: 10m
        labels:
          severity: warning
        annotations:
          summary: '{WHOSE[name].capitalize()} on {{{{ $labels.instance }}}}: {{{{ $labels.cause }}}}.'
          description: >-
            On {{{{ $labels.instance }}}} there is {WHOSE[name]}, {{{{ $labels.cause }}}}:
            {{{{ {meaning}
            {{{{- end }}}}. First run `tpuwatch status` there: it has what to do.
            `tpuwatch events --cause {{{{ $labels.cause }}}}` has the lines of the logs.
          runbook_url: https://tpuwatch.example.com/runbooks/{name}
"""


def with_findings(rules: str) -> str:
    """The rules with the group for findings."""
    return _GROUP.sub(lambda _: group(), rules)


def main() -> int:
    """0, always."""
    for file, renewed in ((RULES, with_findings), (PAGE, with_causes)):
        file.write_text(renewed(file.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
