"""`python -m tests.proof.chaos.everything [NAME …] [--short]`: every chaos test, and a table.

Each is a program of its own, which can be run by itself with other numbers: `python -m tests.proof.chaos.races --help`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Part:
    """One of them, with its arguments in full and in short."""

    module: str
    about: str
    full: tuple[str, ...]
    short: tuple[str, ...]


PARTS: Final = {
    "logs": Part(
        "tests.proof.chaos",
        "the daemon is killed while logs are written: no event is lost or doubled",
        (),
        ("--kills", "40"),
    ),
    "restarts": Part(
        "tests.proof.chaos.restarts",
        "drivers of restarts are killed and frozen: no node stays down, none is stopped twice",
        ("--kills", "500"),
        ("--kills", "60"),
    ),
    "commands": Part(
        "tests.proof.chaos.commands",
        "commands and daemons are killed over another stand-in of the API, with a file and with a bucket",
        ("--kills", "500"),
        ("--kills", "24"),
    ),
    "beyond": Part(
        "tests.proof.chaos.commands",
        "the same while the API shows for minutes what was, and nodes get well: nothing that is well is taken down",
        ("--beyond", "--kills", "150"),
        ("--beyond", "--kills", "8", "--ledger", "gcs"),
    ),
    "races": Part(
        "tests.proof.chaos.races",
        "fifty watchers, one ledger: one restart for each fault",
        ("--faults", "200"),
        ("--faults", "30"),
    ),
    "calls": Part(
        "tests.proof.chaos.calls",
        "every call of a restart fails in every way, one after the other",
        (),
        ("--every", "5"),
    ),
    "fleet": Part(
        "tests.proof.chaos.fleet",
        "a day of a thousand nodes, with an outage: no restart for nothing, no budget exceeded",
        (),
        ("--nodes", "300", "--troubles", "50", "--hours", "12"),
    ),
}


def main() -> int:
    """0 when all of them held; else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.chaos.everything", description="Break things on purpose."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--short", action="store_true", help="fewer of everything: three minutes in all")
    args = parser.parse_args()
    if unknown := set(args.names) - set(PARTS):
        parser.error(f"nothing is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    rows, held = [], True
    for name in args.names or PARTS:
        part, began = PARTS[name], time.monotonic()
        print(f"\n--- {name}: {part.about}", flush=True)
        command = [sys.executable, "-m", part.module, *(part.short if args.short else part.full)]
        code = subprocess.run(command, check=False).returncode
        held &= code == 0
        rows.append(f"{name:<10}{'held' if code == 0 else 'BROKEN':<8}{time.monotonic() - began:>5.0f} s  {part.about}")
    print("\n" + "\n".join(rows))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
