"""What kind of workload holds a TPU, and what a server of models reports of itself.

Light to import: `tpuwatch exec` needs it before a command starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

KIND_VARIABLE: Final = "TPUWATCH_KIND"  # in the environment of a process: what kind of workload it is


class WorkloadKind(str, Enum):
    """What a workload does when all is well. The value is what users, metrics and the API see."""

    TRAINING = "training"  # it runs until it is done: any program of which nothing else is known
    SERVING = "serving"  # it waits for requests
    INTERACTIVE = "interactive"  # it waits for its user, as a notebook does


def kind_named(name: str | None) -> WorkloadKind | None:
    """The kind of that name; None for any other text."""
    return next((kind for kind in WorkloadKind if kind.value == name), None)


@dataclass(frozen=True, slots=True)
class ModelServer:
    """What a server of models reports by its own Prometheus metrics. Any process can serve such metrics."""

    software: str  # "vLLM", "SGLang" or "JetStream"
    running: int  # requests that it works on; 0 where it does not report them
    waiting: int  # requests in its queue
    stalled_since: float | None = None  # since when it has had requests and made no progress; None: it has none
    progressed: float | None = None  # when it was last seen to have made progress; None: not yet

    @property
    def requests(self) -> int:
        """The number of requests that it has."""
        return self.running + self.waiting
