"""`python -m tests.proof.chaos`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.proof.chaos.run import Chaos


def main() -> int:
    """0 when nothing was lost, doubled or invented; else 1, after an account of what was."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.chaos", description="Kill the daemon over and over.")
    parser.add_argument("--kills", type=int, default=200, help="how often (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="of what is written, and of when it is killed (default 1)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in this directory and leave it behind")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tpuwatch-chaos-") as scratch:
        verdict = Chaos(args.keep or Path(scratch), kills=args.kills, seed=args.seed, say=print).run()
    print(verdict.summary)
    for fault in verdict.faults:
        print(f"  {fault}")
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
