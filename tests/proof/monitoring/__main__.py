"""`python -m tests.proof.monitoring`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.proof.monitoring.run import run
from tests.proof.monitoring.stack import missing


def main() -> int:
    """0 when each alert came, and went."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.monitoring", description="Cause each alert, and wait for its message."
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only acts with a fault of this name")
    args = parser.parse_args()
    if lacking := missing():
        print(f"skipped: {', '.join(lacking)} not installed (Debian packages prometheus and prometheus-alertmanager)")
        return 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tpuwatch-monitoring-") as scratch:
        rows = run(Path(scratch), lambda line: print(line, flush=True), args.only)
    print(f"{len(rows)} alerts came to the webhook and were resolved, in {time.monotonic() - begun:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
