"""`python -m deploy.prometheus`: write the alerts for findings into the rules, from the table of docs/causes.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

RULES: Final = Path(__file__).with_name("tpuwatch.rules.yml")
CAUSES: Final = Path(__file__).parents[2] / "docs/causes.md"
WHOSE: Final = {
    "TpuwatchMachineFault": "a fault of the machine or its setup",
    "TpuwatchProgramFault": "a fault of the program",
}
_ROW: Final = re.compile(r"^\| `(\w+)` \| (.*?) \| .*? \| (.*?) \|$", re.MULTILINE)
_NAME: Final = re.compile(r"\[(\w+)\]\(runbooks/\1\.md\)")
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")
_GROUP: Final = re.compile(r"^  - name: tpuwatch\.findings\b.*?(?=^  - name: )", re.MULTILINE | re.DOTALL)


def table() -> dict[str, tuple[str, str]]:
    """By cause: what went wrong, and the name of its alert, or "none: " and why it has none."""
    rows = _ROW.findall(CAUSES.read_text(encoding="utf-8"))
    return {cause: (_LINK.sub(r"\1", what), _NAME.sub(r"\1", alert)) for cause, what, alert in rows}


def group() -> str:
    """The group of rules for findings."""
    alerts = "\n".join(_alert(name) for name in WHOSE)
    return f"  - name: tpuwatch.findings # written by `make alerts` from docs/causes.md\n    rules:\n{alerts}\n"


def _alert(name: str) -> str:
    meanings = {cause: what for cause, (what, alert) in table().items() if alert == name}
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
    """The rules with the group for findings as the table has it now."""
    return _GROUP.sub(lambda _: group(), rules)


def main() -> int:
    """0, always."""
    RULES.write_text(with_findings(RULES.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
