"""A process that asks the Cloud TPU API with Application Default Credentials: one ask and one line per line it reads.

A process of its own, for Google's packages read the environment when they are imported.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter

from tpuwatch.config.schema import CloudConfig
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.signals import Identity, Known
from tpuwatch.signals.cloud import CloudSignal


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
    signal = CloudSignal(
        CloudConfig(endpoint=endpoint, timeout_seconds=float(timeout_seconds)),
        lambda: identity,
        clock=clock,
        rng=random.Random(1),
        on_call=lambda method, code: counts.update([f"{method} {code}"]),
    )
    for _ in sys.stdin:
        clock.skipped += signal.due_in
        answer = signal.ask()
        problem = answer.problem.value if answer.problem else None
        states = {label: one.value.state for label, one in signal.answers.items() if one.value}
        print(json.dumps({"problem": problem, "detail": answer.detail, "states": states, "counts": counts}), flush=True)
    signal.close()


main(*sys.argv[1:])
