"""What the signals report of a node: plain data.

Times are seconds since the Unix epoch by this machine's clock, durations seconds, sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model.answers import OFF, Answer, Problem, Signal
from tpuwatch.model.labels import node_label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.model.causes import Cause
    from tpuwatch.model.events import Event
    from tpuwatch.model.launches import Launch
    from tpuwatch.model.probe import Probe
    from tpuwatch.model.progress import TrainingLoop
    from tpuwatch.model.verdict import Action, Confidence, Source, Verdict
    from tpuwatch.model.workload import ModelServer, WorkloadKind

WELL_HEALTH: Final = frozenset({"", "HEALTHY", "HEALTH_UNSPECIFIED"})  # the API has nothing against the node

BAD_HEALTH: Final = frozenset({"TIMEOUT", "UNHEALTHY_TENSORFLOW", "DEPRECATED_UNHEALTHY"})  # it calls it ill

# The names of google.cloud.tpu.v2's enum. The package is not imported for them: it takes 60 MiB.
QUEUED_WAITING: Final = ("CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES")
QUEUED_ENDED: Final = ("FAILED", "SUSPENDED")
QUEUED_STATES: Final = ("STATE_UNSPECIFIED", *QUEUED_WAITING, "ACTIVE", "SUSPENDING", "DELETING", *QUEUED_ENDED)


@dataclass(frozen=True, slots=True)
class Known:
    """One thing that is known of this machine, and where from: "metadata", "config", or "" where it is unknown."""

    value: str = ""
    source: str = ""


HERE = "this-vm"  # the label of a machine of which no node name is known


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this machine is. An empty value is unknown."""

    project: Known = Known()
    zone: Known = Known()
    node: Known = Known()  # "" for TPUs made through Compute Engine: there is no node to stop or start
    worker: Known = Known()  # "0", "1", …
    accelerator: Known = Known()  # "v5litepod-16"
    chips: Known = Known()  # on this host
    hosts: Known = Known()  # of the node: "1" is single-host
    spot: Known = Known()  # "yes" or "no"
    instance: Known = Known()  # the VM's number in Compute Engine
    metrics_ports: Known = Known()  # "8431,8432"
    kubernetes: Known = Known()  # the name of the node of Kubernetes in a pod of which tpuwatch runs

    @property
    def name(self) -> str:
        """What its node is called: as the Cloud TPU API knows it, else as Kubernetes does, else `HERE`."""
        return self.node.value or self.kubernetes.value or HERE


@dataclass(frozen=True, slots=True)
class Symptom:
    """What the API reports to have been wrong with a worker."""

    kind: str  # LOW_MEMORY, OUT_OF_MEMORY, EXECUTE_TIMED_OUT, MESH_BUILD_FAIL, HBM_OUT_OF_MEMORY, PROJECT_ABUSE, …
    at: float | None
    worker: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A maintenance that is announced or under way."""

    kind: str  # SCHEDULED, UNSCHEDULED, or as the service reports
    status: str  # PENDING, ONGOING, …
    start: float | None
    end: float | None
    latest_start: float | None = None
    can_reschedule: bool = False


@dataclass(frozen=True, slots=True)
class CloudNode:
    """A node as the Cloud TPU API shows it. Values of its enums that are new are "STATE_17" or "HEALTH_9"."""

    project: str
    zone: str
    name: str  # the short one
    state: str  # READY, STOPPED, …: the enum's name
    health: str  # HEALTHY, TIMEOUT, UNHEALTHY_…, or "" where the API reports nothing
    health_description: str = ""
    symptoms: tuple[Symptom, ...] = ()
    accelerator: str = ""
    runtime_version: str = ""
    hosts: int = 1
    spot: bool = False  # spot or preemptible: cannot be restarted, is recreated
    queued_resource: str = ""  # the short name
    addresses: tuple[str, ...] = ()  # of its hosts in their order, as the service gives them; "" where it gives none
    lacks_endpoints: bool = False  # the service gives no network endpoint: where its machines are is not known now
    maintenance: Maintenance | None = None
    created: float | None = None
    labels: tuple[tuple[str, str], ...] = ()
    changed: float | None = None  # when tpuwatch first saw it in this state and health
    changed_unseen: bool = False  # it came to be so when tpuwatch did not look, who knows how long before `changed`

    @property
    def address(self) -> str:
        """Of its first host; "" where that is not known."""
        return self.addresses[0] if self.addresses else ""

    @property
    def runs(self) -> bool:
        """Whether its machines are up, as far as the cloud knows; any other state is the end of their boot."""
        return self.state in ("READY", "UNKNOWN")

    @property
    def well(self) -> bool:
        """Whether the cloud has nothing to say against it."""
        return self.state == "READY" and self.health in WELL_HEALTH

    @property
    def said(self) -> str:
        """What the cloud says of it, in words."""
        return f"{self.state}, {self.health}" if self.health else self.state

    @property
    def ill(self) -> bool:
        """Whether the cloud calls it ill: it is up, and its health is bad."""
        return self.state == "READY" and self.health in BAD_HEALTH


@dataclass(frozen=True, slots=True)
class QueuedResource:
    """A request for nodes as the Cloud TPU API shows it."""

    name: str  # the short one
    # WAITING_FOR_RESOURCES, ACTIVE, …: the enum's name; "" of one that nodes name and the zone does not list.
    state: str
    project: str = ""
    zone: str = ""
    nodes: tuple[str, ...] = ()  # the short names of those that it makes
    lost: tuple[str, ...] = ()  # of those of an ACTIVE one, those that are missing from several lists of nodes in a row
    spot: bool = False
    initiator: str = ""  # who caused the state: USER, SERVICE, or "" where the API does not say
    detail: str = ""  # the API's words on why it FAILED
    created: float | None = None
    valid_until: float | None = None  # when it fails if it still waits

    @property
    def label(self) -> str:
        """The zone and the name."""
        return node_label(self.zone, self.name)

    @property
    def waits(self) -> bool:
        """Whether its nodes are on their way: it waits for capacity, or the service makes them."""
        return self.state in QUEUED_WAITING

    @property
    def ended(self) -> bool:
        """Whether it will make no nodes any more."""
        return self.state in QUEUED_ENDED


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip as libtpu's runtime metrics show it, on tpu7x one of its two devices; None is not reported."""

    id: str
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    duty_cycle: float | None = None  # 0 to 1
    idle_seconds: float | None = None  # since the last program ran

    @property
    def reports_nothing(self) -> bool:
        """Whether it reports neither use nor rest, or nothing but zeros: a program that has just run holds memory."""
        values = (self.duty_cycle, self.idle_seconds, self.hbm_used_bytes)
        return values[:2] == (None, None) or values == (0, 0, 0)


@dataclass(frozen=True, slots=True)
class RuntimePort:
    """One process's runtime metrics. With a `problem` the listener there does not answer as libtpu does."""

    port: int
    chips: tuple[Chip, ...] = ()
    hlo_queue: int | None = None  # programs that wait, over all cores
    problem: Problem | None = None
    detail: str = ""
    since: float | None = None  # since when it has had this problem without an answer in between; None is not known


@dataclass(frozen=True, slots=True)
class Runtime:
    """All processes that serve runtime metrics here. Where none does, the answer is Problem.ABSENT."""

    ports: tuple[RuntimePort, ...]

    @property
    def chips(self) -> tuple[Chip, ...]:
        """All chips of all processes."""
        return tuple(chip for port in self.ports for chip in port.chips)

    @property
    def hbm_used_bytes(self) -> int | None:
        """The bytes of HBM that all chips use; None if one does not say, or there are none."""
        used = [chip.hbm_used_bytes for chip in self.chips]
        known = [one for one in used if one is not None]
        return sum(known) if known and len(known) == len(used) else None


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a TPU device open, or holds libtpu's lock file."""

    pid: int
    user: str
    command: str  # cut
    started: float | None
    devices: tuple[str, ...]  # "/dev/vfio/0"; empty where only the lock is known
    locks: bool = False  # holds the lock file
    cpu_cores: float | None = None  # used, with its descendants, over about a minute
    trusted: bool = False  # by the kernel it has a TPU device open, or runs as root or as tpuwatch's own user
    blocked_seconds: float | None = None  # for how long a call on a device has been blocked in the kernel; None: none
    kind: WorkloadKind | None = None  # of workload, as it says itself or its command line shows; None: neither does


@dataclass(frozen=True, slots=True)
class Listener:
    """A port for runtime metrics on which nobody listens but processes that hold a TPU device, root, or tpuwatch's own
    user."""

    port: int
    since: float  # when tpuwatch first saw them listen there


@dataclass(frozen=True, slots=True)
class Host:
    """The machine: who holds the TPU, memory, kills, uptime. `unseen` says what could not be looked at, and why."""

    boot_id: str
    booted: float | None
    holders: tuple[Holder, ...] = ()
    lock_file: bool = False  # it exists
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    memory_pinned_bytes: int | None = None
    oom_kills: int | None = None  # since boot
    last_oom_kill: float | None = None  # when the number was first seen to have grown
    unseen: tuple[str, ...] = ()
    listeners: tuple[Listener, ...] = ()
    probe: Probe | None = None  # the latest of root or tpuwatch's own user


@dataclass(frozen=True, slots=True)
class Logs:
    """What the logs showed in this boot: launches, the newest first, and events, the newest first, without history."""

    launches: tuple[Launch, ...] = ()
    events: tuple[Event, ...] = ()
    alive: frozenset[int] = frozenset()  # pids of those launches whose process lives


@dataclass(frozen=True, slots=True)
class Notices:
    """What the metadata server announces, or on GKE Kubernetes."""

    maintenance_event: str = "NONE"  # of the metadata server alone, as `preempted`
    preempted: bool = False
    maintenance: Maintenance | None = None
    terminating: bool = False  # the node is about to end; of Kubernetes alone, as `conditions`
    conditions: tuple[str, ...] = ()  # those of the node that say that it is ill: "Ready is False (KubeletNotReady)"


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What Cloud Monitoring holds of the node, with the time that each sample is of."""

    idle_seconds: float | None = None
    idle_at: float | None = None
    infra_healthy: bool | None = None
    infra_at: float | None = None


@dataclass(frozen=True, slots=True)
class PeerVerdict:
    """The verdict of the tpuwatch on a node."""

    verdict: Verdict
    action: Action
    confidence: Confidence
    summary: str  # cleaned and cut
    signals: frozenset[Signal]  # of its reasons
    age: float  # how old the judgement was when it was sent, by that machine's own clock
    sources: frozenset[Source] = frozenset()  # that it rests on; none of a version that does not report them
    kind: WorkloadKind | None = None  # of the workload there
    failed: Cause | None = None  # the first fault there that may explain why a program ended or stands still
    failed_age: float = 0.0  # how old that was when it was sent, by that machine's own clock


@dataclass(frozen=True, slots=True)
class Peer:
    """The tpuwatch on another machine: one that has answered since its node was last seen to come up."""

    answered: float  # when it last did
    verdict: PeerVerdict | None = None  # what it reported then; None: it had not judged yet
    silent_since: float | None = None  # since the first failed attempt after that; None while it answers
    tries: int = 0  # failed attempts since
    refuses: bool = False  # the latest was refused: the machine is there, and tpuwatch is not
    boot_id: str = ""  # of its machine's boot, as it reported it then; "" where it did not


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """The latest answers of what only a daemon on the node itself can ask."""

    runtime: Answer[Runtime] = field(default_factory=Answer)
    host: Answer[Host] = field(default_factory=Answer)
    logs: Answer[Logs] = field(default_factory=Answer)
    notices: Answer[Notices] = field(default_factory=Answer)
    kubernetes: Answer[Notices] = OFF  # of a node of Kubernetes
    monitoring: Answer[Monitoring] = field(default_factory=Answer)
    server: Answer[ModelServer] = OFF


@dataclass(frozen=True, slots=True)
class Evidence(Local):
    """Everything that is known of one node, by its label, at `now`.

    One that is watched from elsewhere has only the cloud's and its peer's.
    """

    node: str
    now: float
    own: bool = False  # the machine that tpuwatch runs on belongs to it
    identity: Identity = field(default_factory=Identity)
    cloud: Answer[CloudNode] = field(default_factory=Answer)
    # Of a node that the API does not list, or does not show as READY. A good answer without a value: no queued resource
    # makes the node.
    queued: Answer[QueuedResource] = field(default_factory=Answer)
    peer: Answer[Peer] = OFF  # of a node that is watched from elsewhere: of its first worker
    workers: Mapping[int, Answer[Peer]] | None = None  # of those that are asked, by number; None: none is to be asked
    loops: tuple[TrainingLoop, ...] = ()  # by the jobs' own word

    def answer(self, signal: Signal) -> Answer[Any]:
        """The signal's answer, however old."""
        found: Answer[Any] = getattr(self, signal.field)
        return found


@dataclass(frozen=True, slots=True)
class Snapshot(Local):
    """The latest answers of all sources, at one moment. Never changed."""

    identity: Identity = field(default_factory=Identity)
    cloud: Mapping[str, Answer[CloudNode]] = field(default_factory=dict)  # by label; the own node's is `own`
    # Listed and not watched, of the queued resources of watched nodes.
    beside: tuple[CloudNode, ...] = ()
    queued: Mapping[str, Answer[QueuedResource]] = field(default_factory=dict)  # by label: `queued` of Evidence
    # Those that make, made or name a watched node, by zone; no zone whose list is not known.
    queued_resources: Mapping[str, tuple[QueuedResource, ...]] = field(default_factory=dict)
    api: Answer[int] = field(default_factory=Answer)  # how many nodes the latest poll returned
    asked: Answer[Any] = OFF  # how it stands with the other nodes' tpuwatch as a whole
    endpoints: tuple[str, ...] = ()  # the addresses of the own slice's workers, by the metadata server
    # Each of them, by the node's label and the worker's number.
    peers: Mapping[str, Mapping[int, Answer[Peer]]] = field(default_factory=dict)
    # The time by Google's servers, as the latest of their answers has it, at the zero of the monotonic clock.
    server_epoch: float | None = None
    loops: tuple[TrainingLoop, ...] = ()

    @property
    def own(self) -> str:
        """The label of the node that this machine belongs to."""
        return node_label(self.identity.zone.value, self.identity.name)

    def answers(self) -> dict[Signal, Answer[Any]]:
        """The latest answer of every signal."""
        return {signal: getattr(self, signal.whole) for signal in Signal}

    def evidence(self, now: float) -> Evidence:
        """What is known at `now` of the node that this machine belongs to."""
        # Without a word on this very node the API's own state counts: whether it could be asked, and why not.
        api = self.api
        # A node of Kubernetes is none of the API, whatever that calls another one.
        known = self.cloud.get(self.own) if self.identity.node.value else None
        mine = known or Answer(None, None, api.problem or Problem.ABSENT, api.detail, api.tried)
        return Evidence(
            node=self.own,
            now=now,
            own=True,
            identity=self.identity,
            cloud=mine,
            queued=self.queued.get(self.own, Answer()) if known else Answer(),
            workers=None if self.asked.problem is Problem.OFF else self.peers.get(self.own, _NONE),
            loops=self.loops,
            **{one.name: getattr(self, one.name) for one in fields(Local)},
        )

    def others(self, now: float) -> list[Evidence]:
        """What is known of the nodes that are watched from here."""
        asked = self.asked.problem is not Problem.OFF
        unheard = _NOBODY if asked else OFF
        return [
            Evidence(
                node=label,
                now=now,
                cloud=answer,
                queued=self.queued.get(label, Answer()),
                peer=self.peers.get(label, _NONE).get(0, unheard),
                workers=self.peers.get(label, _NONE) if asked else None,
                **_ELSEWHERE,
            )
            for label, answer in sorted(self.cloud.items())
            if label != self.own
        ]


_NOBODY: Final[Answer[Any]] = Answer(problem=Problem.ABSENT, detail="There was no reason yet to ask it.")
_NONE: Final[dict[int, Answer[Peer]]] = {}
_ELSEWHERE: Final[dict[str, Any]] = {one.name: OFF for one in fields(Local)}
