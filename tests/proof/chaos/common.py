"""What the tests of restarts have in common: a time that runs fast in many processes, and the account at the end."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tpuwatch.model.answers import Signal
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.signals import CloudNode
from tpuwatch.model.verdict import Action, Confidence, Judgement, Reason, Source, Verdict

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # Google's packages remark on the age of Python
    from tpuwatch.sim.cloud.server import CloudServer

__all__ = ["CallClock", "CloudServer", "FastTime", "Tally", "judged"]


@dataclass(frozen=True)
class FastTime:
    """Simulated time, the same in every process: it runs `speed` times as fast as real time."""

    wall: float  # the simulated wall time at the real monotonic time `start`
    start: float
    speed: float

    def time(self) -> float:
        """The simulated wall time."""
        return self.wall + self.monotonic()

    def monotonic(self) -> float:
        """The simulated monotonic time."""
        return (time.monotonic() - self.start) * self.speed

    def text(self) -> str:
        """All fields as JSON, for the command line of a process."""
        return json.dumps(asdict(self))


class CallClock:
    """Simulated wall time, and real monotonic time, by which calls have their deadlines."""

    def __init__(self, simulated: FastTime) -> None:
        self._simulated = simulated

    def time(self) -> float:
        """Simulated."""
        return self._simulated.time()

    def monotonic(self) -> float:
        """Real."""
        return time.monotonic()


@dataclass
class Tally:
    """What was done, and what came of it."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def end(self, rows: Mapping[str, object], began: float) -> int:
        """Print these rows, how long it took since `began`, and all faults; the exit status of the command."""
        rows = {**rows, "violations": len(self.faults), "seconds": round(time.monotonic() - began)}
        print("\n".join(f"{name:<34}{value:>8}" for name, value in rows.items()))
        for fault in self.faults:
            print(f"  {fault}")
        return 1 if self.faults else 0


def judged(label: str, node: CloudNode, now: float) -> JudgedNode:
    """A node that the cloud calls unresponsive, judged to be stuck by two signals; any other is healthy."""
    stuck = (node.state, node.health) == ("READY", "TIMEOUT")
    verdict, action = (Verdict.NODE_STUCK, Action.RESTART_NODE) if stuck else (Verdict.HEALTHY, Action.NONE)
    said = {Signal.CLOUD: Source.CLOUD, Signal.RUNTIME: Source.RUNTIME}
    reasons = tuple(Reason(one, "It says so.", now, frozenset({source})) for one, source in said.items())
    judgement = Judgement(label, verdict, now, Confidence.HIGH, action, "It is as it is.", reasons, since=now)
    return JudgedNode(node.name, node.project, node.zone, own=False, judgement=judgement, cloud=node)
