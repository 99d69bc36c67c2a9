"""Metrics of nodes, of the runtime, of the host, and of the signals that are read about them.

Nodes, chips and the host are snapshots that are rendered at the scrape: a node that is no longer watched, a chip of a
runtime that has ended, leave no series behind. What is not known has no series; 0 would be a claim. Labels hold names
of watched nodes, values of enums, and small numbers; a value that is new is "other".
"""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Metric

from tpuwatch.core import GRPC_CODES
from tpuwatch.metrics.families import Families, FamilyCollector, node_labels
from tpuwatch.metrics.slices import slice_families
from tpuwatch.model import QUEUED_STATES, QueuedProblem, Signal, Verdict, WorkloadKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tpuwatch.model import Chip, Host, JudgedNode, JudgedQueuedResource, Notices, Runtime

OTHER: Final = "other"
# The names of google.cloud.tpu.v2's enums. The package is not imported for them: it takes 60 MiB.
STATES: Final = (
    "STATE_UNSPECIFIED",
    "CREATING",
    "READY",
    "RESTARTING",
    "REIMAGING",
    "DELETING",
    "REPAIRING",
    "STOPPED",
    "STOPPING",
    "STARTING",
    "PREEMPTED",
    "TERMINATED",
    "HIDING",
    "HIDDEN",
    "UNHIDING",
    "UNKNOWN",
    OTHER,
)
HEALTHS: Final = (
    "HEALTH_UNSPECIFIED",
    "HEALTHY",
    "TIMEOUT",
    "UNHEALTHY_TENSORFLOW",
    "UNHEALTHY_MAINTENANCE",
    OTHER,
)
VERDICTS: Final = tuple(verdict.value for verdict in Verdict)
KINDS: Final = tuple(kind.value for kind in WorkloadKind)
METHODS: Final = (
    "ListNodes",
    "GetNode",
    "StopNode",
    "StartNode",
    "ListOperations",
    "ListQueuedResources",
    "ResetQueuedResource",
    "ListTimeSeries",
    "CreateTimeSeries",
    "storage.objects.get",
    "storage.objects.insert",
    "storage.objects.list",
    "storage.objects.delete",
    "storage.buckets.testIamPermissions",
    "GetRuntimeMetric",
    "ListSupportedMetrics",
    OTHER,
)
# These have their series from the start, others from the first call.
POLLED: Final = ("ListNodes", "GetNode", "GetRuntimeMetric")
CODES: Final = (*GRPC_CODES, OTHER)
FULL_NODES: Final = 100  # up to so many nodes have a series for every value; beyond, only for the one that holds
MAX_WAITING: Final = 20  # queued resources with a series of their own, those that have waited longest
MAX_CHIPS: Final = 64
MAX_PORTS: Final = 64


class NodeMetrics:
    """Metrics of nodes and signals. Each snapshot may be set from any thread; the last one counts."""

    def __init__(self, new: Families) -> None:
        self._nodes: Sequence[JudgedNode] = ()
        self._queued: Sequence[JudgedQueuedResource] = ()
        self._queued_zones: Sequence[str] = ()
        self._runtime: Runtime | None = None
        self._waiting: Callable[[], Mapping[int, float]] | None = None
        self._host: Host | None = None
        self._signals: dict[Signal, tuple[float | None, bool | None]] = dict.fromkeys(Signal, (None, None))  # at, ok
        self._requests_out = Counter(
            "tpuwatch_api_requests_total",
            "Calls to the Cloud TPU API, Cloud Monitoring, Cloud Storage and the runtime's metrics, "
            "by method and gRPC code.",
            ["method", "code"],
            registry=new.registry,
        )
        for method in POLLED:
            self._show_method(method)
        self.count_verdict = new.counting(
            "tpuwatch_verdict_changes_total",
            "Times that a watched node came to be judged so, from another verdict or from none.",
            "verdict",
            Verdict,
        )
        self._verdict_seconds = new.counters(
            "tpuwatch_verdict_seconds_total",
            "How long watched nodes were judged so, all of them together.",
            "verdict",
            Verdict,
        )
        self._failures = new.counters(
            "tpuwatch_signal_failures_total",
            "Attempts to ask a signal that failed. That nobody is there to be asked is no failure.",
            "signal",
            Signal,
        )
        self.set_api_breaker = new.gauge(
            "tpuwatch_api_breaker_open",
            "1 while the Cloud TPU API is left alone after too many failures, 0 while it is asked.",
        ).set
        self._maintenance = new.gauge(
            "tpuwatch_maintenance_notice",
            "1 while the metadata server, or Kubernetes, announces a maintenance of this machine.",
        )
        self._maintenance_start = new.gauge(
            "tpuwatch_maintenance_start_timestamp_seconds",
            "When the announced maintenance of this machine begins; 0 where none is announced or its time is unknown.",
        )
        self._preempted = new.gauge(
            "tpuwatch_preemption_notice", "1 once the metadata server says that this machine is preempted."
        )
        new.registry.register(FamilyCollector(self._families))

    def count_api_request(self, method: str, code: str) -> None:
        """A call ended: its method, such as ListNodes, and its gRPC code's name. A new one counts as "other"."""
        method, code = _one_of(METHODS, method), _one_of(CODES, code)
        self._show_method(method)
        self._requests_out.labels(method, code).inc()

    def count_verdict_seconds(self, statuses: Sequence[JudgedNode], seconds: float) -> None:
        """For `seconds` the nodes were as these judgements say."""
        for verdict, nodes in Tally(status.judgement.verdict for status in statuses).items():
            self._verdict_seconds[verdict].inc(nodes * seconds)

    def set_nodes(self, statuses: Sequence[JudgedNode]) -> None:
        """All watched nodes as they are now; one that is not among them loses its series."""
        self._nodes = statuses

    def set_queued_resources(self, queued: Sequence[JudgedQueuedResource], zones: Sequence[str]) -> None:
        """All queued resources that concern watched nodes as they are now, and the zones whose are known."""
        self._queued, self._queued_zones = queued, zones

    def set_runtime(self, runtime: Runtime | None) -> None:
        """The latest answer of the runtime; None if no workload runs or it is not known."""
        self._runtime = runtime

    def set_runtime_response_pending(self, waiting: Callable[[], Mapping[int, float]] | None) -> None:
        """`waiting` returns, at each scrape, for how many seconds each port of the runtime has owed an answer."""
        self._waiting = waiting

    def set_host(self, host: Host | None) -> None:
        """The latest facts about this machine."""
        self._host = host

    def set_signal(self, name: str, *, at: float | None, ok: bool | None) -> None:
        """A signal last answered at the time `at`; `ok` is false if its latest attempt failed.

        None: it is switched off in the configuration and has no series.
        """
        self._signals[Signal(name)] = (at, ok)

    def count_signal_failure(self, name: str) -> None:
        """An attempt to ask a signal failed."""
        self._failures[Signal(name)].inc()

    def set_notices(self, notices: Notices | None) -> None:
        """The announcements of the metadata server and of Kubernetes together; None if they are not known."""
        maintenance = notices.maintenance if notices else None
        event = notices.maintenance_event if notices else "NONE"
        terminating = notices is not None and notices.terminating
        self._maintenance.set(maintenance is not None or event not in ("NONE", "") or terminating)
        self._maintenance_start.set((maintenance.start if maintenance else None) or 0)
        self._preempted.set(notices is not None and notices.preempted)

    def _show_method(self, method: str) -> None:
        """All codes of a method at once, so that the first error of a kind is an increase and not a new series."""
        for code in CODES:
            self._requests_out.labels(method, code)

    def _families(self) -> Iterator[Metric]:
        statuses = self._nodes
        labels = list(node_labels((status.zone, status.node, status) for status in statuses))
        yield from _node_families(labels)
        yield from slice_families(labels)
        yield _count_family(Tally(status.judgement.verdict.value for status in statuses))
        yield from _queued_families(self._queued, self._queued_zones)
        yield from _signal_families(self._signals)
        yield from _runtime_families(self._runtime)
        yield _waiting_family(self._waiting)
        yield from _host_families(self._host)


def _one_of(values: Iterable[str], value: str) -> str:
    return value if value in values else OTHER


def _node_families(nodes: Sequence[tuple[dict[str, str], JudgedNode]]) -> Iterator[Metric]:
    full = len(nodes) <= FULL_NODES
    state = _gauge("tpuwatch_node_state", "1 for the state in which the Cloud TPU API shows a node.")
    queued = _gauge(
        "tpuwatch_queued_resource_state",
        "1 for the state of the queued resource that makes a node, of one that the Cloud TPU API does not list.",
    )
    health = _gauge("tpuwatch_node_health", "1 for the health that the Cloud TPU API gives a node.")
    verdict = _gauge("tpuwatch_verdict", "1 for what tpuwatch judges a node to be, from all that it knows of it.")
    since = _gauge(
        "tpuwatch_verdict_since_timestamp_seconds", "Since when the verdict on a node has held, as far as tpuwatch saw."
    )
    last_known = _gauge(
        "tpuwatch_verdict_last_known_timestamp_seconds",
        "When the signals last showed the verdict on a node, of one that is only the last known.",
    )
    kind = _gauge("tpuwatch_workload_kind", "1 for the kind of workload that a node has.")
    for labels, status in nodes:
        cloud, judgement = status.cloud, status.judgement
        _add_state(state, labels, "state", STATES, _one_of(STATES, cloud.state) if cloud else "", full=full)
        given = _one_of(HEALTHS, cloud.health or "HEALTH_UNSPECIFIED") if cloud else ""
        _add_state(health, labels, "health", HEALTHS, given, full=full)
        waits = _one_of(QUEUED_STATES, status.queued.state) if status.queued else ""
        _add_state(queued, labels, "state", (*QUEUED_STATES, OTHER), waits, full=False)
        _add_state(verdict, labels, "verdict", VERDICTS, judgement.verdict.value, full=full)
        _add_known(since, labels, judgement.since)
        _add_known(last_known, labels, judgement.at if judgement.is_last_known else None)
        _add_state(kind, labels, "kind", KINDS, judgement.kind.value if judgement.kind else "", full=full)
    yield from (state, queued, health, verdict, since, last_known, kind)


def _count_family(verdicts: Mapping[str, int]) -> Metric:
    count = _gauge("tpuwatch_nodes", "Watched nodes, by what tpuwatch judges them to be.")
    for verdict in VERDICTS:
        count.add_sample(count.name, {"verdict": verdict}, verdicts.get(verdict, 0))
    return count


def _queued_families(queued: Sequence[JudgedQueuedResource], zones: Iterable[str]) -> Iterator[Metric]:
    number = _gauge(
        "tpuwatch_queued_resources",
        "Queued resources that make, made or name a watched node, by zone and state in the Cloud TPU API.",
    )
    problems = _gauge(
        "tpuwatch_queued_resource_problems", "Queued resources of watched nodes with a problem, by zone and problem."
    )
    since = _gauge(
        "tpuwatch_queued_resource_waiting_since_timestamp_seconds",
        "When a queued resource was created that still waits, of those that have waited longest.",
    )
    states = Tally((one.queued.zone, _one_of(QUEUED_STATES, one.queued.state)) for one in queued if one.queued.state)
    wrong = Tally((one.queued.zone, one.problem) for one in queued)
    for zone in zones:
        for state in (*QUEUED_STATES, OTHER):
            number.add_sample(number.name, {"zone": zone, "state": state}, states[zone, state])
        for problem in QueuedProblem:
            problems.add_sample(problems.name, {"zone": zone, "problem": problem.value}, wrong[zone, problem])
    waiting = [one.queued for one in queued if one.queued.waits and one.queued.created is not None]
    waiting.sort(key=lambda one: one.created or 0.0)
    for one in waiting[:MAX_WAITING]:
        _add_known(since, {"zone": one.zone, "queued_resource": one.name}, one.created)
    yield from (number, problems, since)


def _signal_families(signals: Mapping[Signal, tuple[float | None, bool | None]]) -> Iterator[Metric]:
    up = _gauge("tpuwatch_signal_up", "1 if the latest attempt to ask a signal succeeded, 0 if it failed.")
    at = _gauge(
        "tpuwatch_signal_last_answer_timestamp_seconds", "When a signal last gave an answer; 0 until its first."
    )
    for signal, (answered, ok) in signals.items():
        if ok is not None:
            up.add_sample(up.name, {"signal": signal.value}, ok)
            at.add_sample(at.name, {"signal": signal.value}, answered or 0)
    yield from (up, at)


def _runtime_families(runtime: Runtime | None) -> Iterator[Metric]:
    used = _gauge("tpuwatch_hbm_used_bytes", "HBM in use on a chip, as libtpu's runtime tells while a workload runs.")
    total = _gauge("tpuwatch_hbm_total_bytes", "HBM that a chip has for programs, as libtpu's runtime tells.")
    duty = _gauge(
        "tpuwatch_tensorcore_duty_cycle_ratio", "Share of the last moments in which a chip's TensorCore worked."
    )
    idle = _gauge("tpuwatch_tensorcore_idle_seconds", "How long ago a chip's TensorCore last ran a program.")
    for label, chip in _chips(runtime):
        labels = {"chip": label}
        _add_known(used, labels, chip.hbm_used_bytes)
        _add_known(total, labels, chip.hbm_total_bytes)
        _add_known(duty, labels, chip.duty_cycle)
        _add_known(idle, labels, chip.idle_seconds)
    queue = _gauge("tpuwatch_hlo_queue_programs", "Programs that wait for the TensorCores of this machine.")
    queued = [port.hlo_queue for port in runtime.ports if port.hlo_queue is not None] if runtime else []
    _add_known(queue, {}, sum(queued) if queued else None)
    yield from (used, total, duty, idle, queue)


def _waiting_family(waiting: Callable[[], Mapping[int, float]] | None) -> Metric:
    family = _gauge(
        "tpuwatch_runtime_response_pending_seconds",
        "How long a port of libtpu's runtime metrics has owed tpuwatch an answer; 0 while it owes none.",
    )
    owed = waiting() if waiting is not None else {}
    for port in sorted(owed)[:MAX_PORTS]:
        family.add_sample(family.name, {"port": str(port)}, owed[port])
    return family


def _chips(runtime: Runtime | None) -> Iterator[tuple[str, Chip]]:
    """Chips with their label: their own small number, or their place in the list where those numbers do not serve."""
    chips = runtime.chips[:MAX_CHIPS] if runtime else ()
    ids = {chip.id for chip in chips}
    plain = len(ids) == len(chips) and ids <= {str(number) for number in range(MAX_CHIPS)}
    for place, chip in enumerate(chips):
        yield chip.id if plain else str(place), chip


def _host_families(host: Host | None) -> Iterator[Metric]:
    total = _gauge("tpuwatch_host_memory_total_bytes", "Memory that this machine has.")
    available = _gauge("tpuwatch_host_memory_available_bytes", "Memory that programs on this machine could still get.")
    pinned = _gauge(
        "tpuwatch_host_memory_pinned_bytes", "Memory of this machine that is locked and cannot be moved or swapped."
    )
    booted = _gauge("tpuwatch_host_boot_timestamp_seconds", "When this machine was started.")
    holders = _gauge("tpuwatch_tpu_holders", "Processes that hold a TPU device or libtpu's lock file.")
    kills = Metric(
        "tpuwatch_host_oom_kills", "Processes that the kernel ended for want of memory, since boot.", "counter"
    )
    if host is not None:
        _add_known(total, {}, host.memory_total_bytes)
        _add_known(available, {}, host.memory_available_bytes)
        _add_known(pinned, {}, host.memory_pinned_bytes)
        _add_known(booted, {}, host.booted)
        _add_known(holders, {}, len(host.holders))
        if host.oom_kills is not None:
            kills.add_sample(f"{kills.name}_total", {}, host.oom_kills)
    yield from (total, available, pinned, booted, holders, kills)


def _gauge(name: str, text: str) -> Metric:
    return Metric(name, text, "gauge")


def _add_state(
    family: Metric, node: dict[str, str], label: str, values: Iterable[str], held: str, *, full: bool
) -> None:
    """A series for each of the values: 1 for the one that holds, if any does, else 0. Unless `full` only for that."""
    for value in values if full else filter(None, [held]):
        family.add_sample(family.name, {**node, label: value}, value == held)


def _add_known(family: Metric, labels: dict[str, str], value: float | None) -> None:
    if value is not None:
        family.add_sample(family.name, labels, value)
