"""Draw the pictures of docs/dashboards.md: `python -m tests.proof.dashboards [DIRECTORY]`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.paths import ROOT
from tests.proof.dashboards.draw import Answer, Answers, draw
from tests.proof.dashboards.stage import NODES, Stage
from tests.proof.monitoring.dashboards import DASHBOARDS, with_variables
from tests.proof.monitoring.stack import Inbox, Stack, missing
from tests.standins.simulated import ZONE, simulated

MAX_BYTES: Final = 150_000
SHOWN: Final = {"fleet": 3, "node": 2}  # dashboards, and how many of their sections
STEP_SECONDS: Final = 1.0
RATE_INTERVAL: Final = "4s"  # as Grafana chooses it: four scrapes


def answers(stack: Stack, since: float, until: float, variables: dict[str, str]) -> Answers:
    """The dashboards' own queries, with what Grafana puts in place of variables."""

    def over(expr: str) -> Answer:
        return stack.range(with_variables(expr, variables), since, until, STEP_SECONDS)

    def now(expr: str) -> Answer:
        return stack.query(with_variables(expr, variables), until)

    return Answers(over, now, since, until)


def main() -> int:
    """0 when both are drawn and small."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.dashboards", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "docs" / "dashboards")
    args = parser.parse_args()
    if lacking := missing():
        print(f"skipped: {', '.join(lacking)} not installed (Debian packages prometheus and prometheus-alertmanager)")
        return 0
    args.directory.mkdir(exist_ok=True)
    large = []
    with tempfile.TemporaryDirectory(prefix="tpuwatch-panels-") as scratch, ExitStack() as started:
        site = started.enter_context(simulated(Path(scratch) / "sim", **NODES))
        stage = Stage(Path(scratch), site)
        started.enter_context(stage.running())
        inbox = Inbox()
        started.enter_context(inbox.open())
        stack = started.enter_context(Stack(Path(scratch), inbox).running([stage.listen[stage.outside]]))
        since = time.time()
        stage.play(lambda line: print(f"{time.time() - since:4.0f} s: {line}", flush=True))
        until = time.time()
        own = {"instance": stage.listen[stage.inside], "node": "job-1"}
        for name, sections in SHOWN.items():
            document: dict[str, Any] = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
            zone = ".*" if name == "fleet" else ZONE  # there it takes several
            variables = {"__rate_interval": RATE_INTERVAL, "zone": zone, **own}
            path = args.directory / f"{name}.png"
            draw(document, sections, answers(stack, since, until, variables), path)
            print(f"{path.name}: {path.stat().st_size} bytes", flush=True)
            large += [path.name] if path.stat().st_size > MAX_BYTES else []
    if large:
        print(f"larger than {MAX_BYTES} bytes: {', '.join(large)}", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
