"""`python -m tests.proof.first_hour`: play it, and print where views fail, disagree or leave something out."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.proof.first_hour.install import install
from tests.proof.first_hour.story import tell
from tests.proof.monitoring.stack import missing


def main() -> int:
    """0 when all views agree at every stage."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.first_hour", description="The first hour of a user.")
    parser.add_argument("environment", type=Path, help="with tpuwatch's requirements, and nothing else")
    args = parser.parse_args()
    if lacking := missing():
        print(f"skipped: {', '.join(lacking)} not installed (Debian packages prometheus and prometheus-alertmanager)")
        return 0
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tpuwatch-first-hour-") as scratch:
        commands = install(args.environment.absolute(), Path(scratch))
        faults = tell(Path(scratch), commands, lambda line: print(line, flush=True))
    print(f"{len(faults)} faults, in {time.monotonic() - begun:.0f} s.")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
