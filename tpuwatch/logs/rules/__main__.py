"""`python -m tpuwatch.logs.rules > tpuwatch/logs/rules/rule_literals.json` writes the table of literals."""

from __future__ import annotations

import sys

from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.logs.rules.rule_literals import render_table

sys.stdout.write(render_table(load_catalogue().rules))
