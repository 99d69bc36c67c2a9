"""`python -m tests.proof.soak`."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from tests.proof.soak.run import ROUNDS, SECONDS, Soak
from tests.proof.soak.troubles import all_troubles


def main() -> int:
    """0 when nothing was false, slow or grew; else 1, after an account of what was."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.soak", description="Let everything go wrong, for ten minutes each."
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of simulated time for each (default 600)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often all of it (default {ROUNDS})")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of polls (default 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only troubles with this in their names")
    args = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())  # that signals fail is the point
    troubles = [trouble for trouble in all_troubles() if args.only.lower() in trouble.name.lower()]
    if not troubles:
        parser.error(f"no trouble has {args.only!r} in its name")
    with tempfile.TemporaryDirectory(prefix="tpuwatch-soak-") as scratch:
        soak = Soak(
            Path(scratch), troubles, seconds=args.seconds, rounds=args.rounds, seed=args.seed, print_line=_print_line
        )
        account = soak.run()
    print(account.summary)
    for fault in account.faults:
        print(f"  {fault}")
    return 1 if account.faults else 0


def _print_line(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
