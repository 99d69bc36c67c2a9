"""A process that asks the Cloud TPU API with Application Default Credentials: one ask and one line per line it reads.

A process of its own, for Google's packages read the environment when they are imported.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter

from tpuwatch.clock import SystemClock
from tpuwatch.config.schema import Cloud
from tpuwatch.health.evidence import Identity, Known
from tpuwatch.node.cloud import CloudWitness


class Skipping(SystemClock):
    """Runs as time does, and skips what would be waited for."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped


def main(endpoint: str, timeout_seconds: str) -> None:
    clock = Skipping()
    counts: Counter[str] = Counter()
    identity = Identity(Known("lab", "config"), Known("us-east5-a", "config"), Known("train-1", "metadata"))
    witness = CloudWitness(
        Cloud(endpoint=endpoint, timeout_seconds=float(timeout_seconds)),
        lambda: identity,
        clock=clock,
        dice=random.Random(1),
        counted=lambda method, code: counts.update([f"{method} {code}"]),
    )
    for _ in sys.stdin:
        clock.skipped += witness.due_in
        answer = witness.ask()
        problem = answer.problem.value if answer.problem else None
        states = {label: one.value.state for label, one in witness.answers.items() if one.value}
        print(json.dumps({"problem": problem, "detail": answer.detail, "states": states, "counts": counts}), flush=True)
    witness.close()


main(*sys.argv[1:])
