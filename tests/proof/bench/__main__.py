"""`python -m tests.proof.bench [NAME …] [--smoke] [--json | --markdown]`: measure and print the table.

With --smoke it fails where a ratio of a benchmark in GUARDED is worse than half of its target, and for nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.proof.bench import (
    catch_up,
    faults,
    fleet,
    follow,
    idle,
    kinds,
    memory,
    mtail,
    node,
    restarts,
    slices,
    startup,
    tune,
)
from tests.proof.bench import exec as execution
from tests.proof.bench.figures import FULL, SMOKE, Bench, Figure, heading, markdown, row, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BENCHMARKS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "catch-up": catch_up.healthy,
    "flood": catch_up.flood,
    "kinds": kinds.kinds,
    "follow": follow.slow,
    "follow-fast": follow.fast,
    "follow-output": follow.output,
    "idle": idle.idle,
    "old-files": idle.old_files,
    "startup": startup.start_up,
    "memory": memory.flat,
    "node": node.node,
    "fleet": fleet.fleet,
    "slice": slices.slices,
    "faults": faults.faults,
    "restarts": restarts.restarts,
    "exec": execution.run,
    "tune": tune.tune,
}

# Their ratios are of seconds of the processor in the same run, the best of three, and hold in small too.
GUARDED = ("catch-up", "flood", "kinds")


def main() -> int:
    """1 where a guarded figure is lost, measured twice; a benchmark that breaks raises."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="small sizes: does every benchmark run, and is no speed of recognition lost?",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the figures as JSON, when all are there")
    form.add_argument("--markdown", action="store_true", help="the table as docs/benchmarks.md has it")
    args = parser.parse_args()
    if unknown := set(args.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if not mtail.PROGRAM:
        print("mtail is not installed: figures against it are left out (apt-get install mtail).", file=sys.stderr)
    figures, lost = list[Figure](), list[Figure]()
    show = markdown if args.markdown else row
    if not args.json:
        print("| figure | value | target | reached |\n|---|---|---|---|" if args.markdown else heading())
    for name in args.names or BENCHMARKS:
        bad = list[Figure]()
        for figure in measure(BENCHMARKS[name], smoke=args.smoke):
            figures.append(figure)
            if args.smoke and name in GUARDED and figure.lost:
                bad.append(figure)
            if not args.json:
                print(show(figure), flush=True)
        if bad:  # what else the machine did is not there twice
            again = {figure.name for figure in measure(BENCHMARKS[name], smoke=True) if figure.lost}
            lost += [figure for figure in bad if figure.name in again]
    print(json.dumps([figure.document() for figure in figures], indent=2) if args.json else summary(figures))
    for figure in lost:
        print(f"worse than half of its target: {row(figure)}", file=sys.stderr)
    return 1 if lost else 0


def measure(benchmark: Callable[[Bench], Iterator[Figure]], *, smoke: bool) -> Iterator[Figure]:
    """The figures of one benchmark, which has a directory of its own while it runs."""
    with tempfile.TemporaryDirectory(prefix="tpuwatch-bench-", ignore_cleanup_errors=True) as scratch:
        yield from benchmark(Bench(Path(scratch), SMOKE if smoke else FULL))


if __name__ == "__main__":
    sys.exit(main())
