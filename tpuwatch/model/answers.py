"""The table of signals: each is one row; and the latest answer of one.

A signal that could not be asked, or did not answer, is a `Problem`, never a bad answer. Times are seconds since the
Unix epoch by this machine's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")


class Source(str, Enum):
    """Where a piece of evidence comes from, whichever signal brings it: who could have made it up."""

    CLOUD = "cloud"  # Google: the Cloud TPU API, the metadata server, Cloud Monitoring, and what repeats them
    KERNEL = "kernel"  # the machine's kernel, on processes that hold the TPU
    RUNTIME = "runtime"  # libtpu's runtime in a process that holds the TPU, or that root runs
    PROBE = "probe"  # a computation on the TPU, by root or tpuwatch's own user
    NETWORK = "network"  # the silence of the whole machine, as another machine sees it
    PROCESS = "process"  # what a process of any user can cause: a listener, a lock, memory that is used up
    TEXT = "text"  # what any user can write: logs, jobs' output


FORGEABLE: Final = frozenset({Source.PROCESS, Source.TEXT})  # by any user of the machine


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
class SignalRow:
    """What is known of a signal."""

    id: str  # what users see
    called: str  # in a sentence
    source: Source  # of what it reports, where a reason does not say more; the weakest where that depends
    field: str = ""  # its answer's in Evidence, and what of it counts now in Facts, where that is not the id
    whole: str = ""  # the field of Snapshot that holds how it stands with the answers on all nodes
    local: bool = True  # only a daemon on the node itself has it
    optional: frozenset[Problem] = frozenset()  # problems that nobody is told of: it need not be configured
    of_program: bool = False  # without a program on the TPU it is absent


class Signal(str, Enum):
    """What is reported of a node, by its source. Each has a module in tpuwatch/signals, and a field in Evidence."""

    value: str  # the id
    row: SignalRow
    field: str  # that holds its answer

    def __new__(cls, row: Any) -> Self:  # Any: to type checkers `Signal("cloud")` is a call of it, too
        """The member of a row."""
        member = str.__new__(cls, row.id)
        member._value_, member.row, member.field = row.id, row, row.field or row.id
        return member

    @property
    def whole(self) -> str:
        """The field of Snapshot that holds its answer."""
        return self.row.whole or self.field

    # fmt: off
    CLOUD = SignalRow("cloud", "the Cloud TPU API", Source.CLOUD, whole="api", local=False)
    # libtpu's runtime metrics
    RUNTIME = SignalRow("runtime", "the runtime metric service", Source.PROCESS, of_program=True)
    # the machine itself: holders, memory, kernel
    HOST = SignalRow("host", "the host's own view", Source.KERNEL)
    # libtpu's logs and jobs' output
    LOGS = SignalRow("logs", "the store of the logs", Source.TEXT)
    # maintenance and preemption
    METADATA = SignalRow("metadata", "the metadata server", Source.CLOUD, "notices")
    # of the node that a pod runs on: maintenance and termination; GKE passes on what Compute Engine says
    KUBERNETES = SignalRow(
        "kubernetes", "the API of Kubernetes", Source.CLOUD, optional=frozenset({Problem.OFF}),
    )
    # minutes late
    MONITORING = SignalRow(
        "monitoring", "Cloud Monitoring", Source.CLOUD, local=False,
        optional=frozenset({Problem.OFF, Problem.UNCONFIGURED}),
    )
    # the tpuwatch on a node that is watched from here
    PEER = SignalRow(
        "peer", "the node's own tpuwatch", Source.TEXT, whole="asked", local=False, optional=frozenset({Problem.OFF}),
    )
    # the server of models that runs here
    SERVER = SignalRow(
        "server", "the server's own metrics page", Source.PROCESS,
        optional=frozenset({Problem.OFF}), of_program=True,
    )
    # fmt: on


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

    def counted(self) -> Answer[int]:
        """The same of an answer with several values, with their number in their place."""
        values: Any = self.value or ()
        return Answer(len(values), self.at, self.problem, self.detail, self.tried)


OFF: Answer[Any] = Answer(problem=Problem.OFF)
