"""The signals by their names, and the latest answer of one.

A signal that could not be asked, or did not answer, is a `Problem`, never a bad answer. Times are seconds since the
Unix epoch by this machine's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Signal(str, Enum):
    """What is reported of a node, by its source."""

    CLOUD = "cloud"  # the Cloud TPU API
    RUNTIME = "runtime"  # libtpu's runtime metrics
    HOST = "host"  # the machine itself: holders, memory, kernel
    LOGS = "logs"  # libtpu's logs and jobs' output
    METADATA = "metadata"  # the metadata server: maintenance and preemption
    KUBERNETES = "kubernetes"  # the API of Kubernetes, of the node that a pod runs on: maintenance and termination
    MONITORING = "monitoring"  # Cloud Monitoring, minutes late
    PEER = "peer"  # the tpuwatch on a node that is watched from here
    SERVER = "server"  # the metrics of the server of models that runs here


class Problem(str, Enum):
    """Why a signal gave no answer. The value is what users, metrics and the API see."""

    OFF = "off"  # not to be asked, by configuration
    UNCONFIGURED = "unconfigured"  # project, zone or node to ask for are unknown
    ABSENT = "absent"  # there is nothing to ask, as is normal: no workload, no metadata server outside Google Cloud
    GONE = "gone"  # asked with success: there is no such node (any more)
    UNREACHABLE = "unreachable"  # no connection, or it broke
    TIMEOUT = "timeout"  # no answer by the deadline
    THROTTLED = "throttled"  # asked too often
    SERVER = "server"  # an error on their side
    DENIED = "denied"  # a permission is missing
    SCOPE = "scope"  # the access token lacks the scope
    CREDENTIALS = "credentials"  # there are none, or they have expired
    DISABLED = "disabled"  # the API is not enabled in the project
    NOT_FOUND = "not_found"  # no such project or zone
    FOREIGN = "foreign"  # something else answers there
    INTERNAL = "internal"  # tpuwatch itself failed to ask; see its log


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a signal reported last, and what became of the latest attempt to ask it."""

    value: T | None = None  # the last good answer, however old
    at: float | None = None  # when it was given
    problem: Problem | None = Problem.UNCONFIGURED  # of the latest attempt; None when it succeeded
    detail: str = ""  # the problem in a sentence, with what to do
    tried: float | None = None  # when it was asked last

    def current(self, now: float, seconds: float) -> T | None:
        """The value, if the latest attempt gave it and it is no older than `seconds`."""
        if self.problem is None and self.at is not None and now - self.at <= seconds:
            return self.value
        return None


OFF: Answer[Any] = Answer(problem=Problem.OFF)
