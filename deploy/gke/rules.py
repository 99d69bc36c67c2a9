#!/usr/bin/env python3
"""`python3 deploy/gke/rules.py PrometheusRule|Rules`: the rules of deploy/prometheus as an object of Kubernetes.

PrometheusRule is the Prometheus operator's, Rules that of Google Cloud Managed Service for Prometheus. The text is
wrapped as it is, so nothing but Python is needed, and there is one file of rules. A rule of Rules cannot have
`keep_firing_for`: there it is left out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import indent
from typing import Final

RULES: Final = Path(__file__).resolve().parents[1] / "prometheus"
API_VERSIONS: Final = {"PrometheusRule": "monitoring.coreos.com/v1", "Rules": "monitoring.googleapis.com/v1"}
INTERVAL: Final = "30s"  # of an evaluation; a group of Rules has to have one


def wrapped(kind: str, name: str, rules: str) -> str:
    """A file of rules as an object of this kind."""
    head = f"apiVersion: {API_VERSIONS[kind]}\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: tpuwatch\nspec:\n"
    if kind == "Rules" and not re.search(r"^ +interval:", rules, re.MULTILINE):
        rules = re.sub(r"^( *)- name: .*$", rf"\g<0>\n\1  interval: {INTERVAL}", rules, flags=re.MULTILINE)
    if kind == "Rules":
        rules = re.sub(r"^ +keep_firing_for: .*\n", "", rules, flags=re.MULTILINE)
    return head + indent(rules, "  ")


def main() -> int:
    """0 done, 2 for a word that is no kind."""
    kind = sys.argv[1] if len(sys.argv) == 2 else ""
    if kind not in API_VERSIONS:
        print(f"usage: rules.py {'|'.join(API_VERSIONS)}", file=sys.stderr)
        return 2
    texts = [
        wrapped(kind, path.name.removesuffix(".rules.yml").replace(".", "-"), path.read_text(encoding="utf-8"))
        for path in sorted(RULES.glob("*.rules.yml"))
    ]
    print("---\n".join(texts), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
