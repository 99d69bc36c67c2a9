"""`python -m tests.proof.pace replay CASE`: what the detector says about a case, both as JSON lines.

The steps of worker 0 and the HBM of its chips are read. Worker and cause are not known yet: `worker` is null, `cause`
is "unexplained".
"""

from __future__ import annotations

import sys

from tests.proof.pace.replay import replay

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "replay":
        sys.exit("usage: python -m tests.proof.pace replay CASE")
    with open(sys.argv[2], encoding="utf-8") as lines:
        for line in replay(lines):
            print(line)
