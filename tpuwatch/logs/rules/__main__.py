"""`make literals`: the table of literals to standard output; status 1 and the reasons if a rule is refused."""

from __future__ import annotations

import sys

from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.logs.rules.rule_literals import render_table

catalogue = load_catalogue()
if catalogue.refused:
    sys.exit("\n".join(map(str, catalogue.refused)))
sys.stdout.write(render_table(catalogue.rules))
