"""All that goes wrong, and which verdicts on the nodes are right meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core.grpc_codes import GRPC_CODES
from tpuwatch.model.verdict import Verdict
from tpuwatch.signals.identity import UNKNOWN_SECONDS
from tpuwatch.signals.runtime import MAX_PAUSE
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.nodes import WorkloadPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.proof.soak.stage import Stage

    Strikes = Callable[[Stage], AbstractContextManager[None]]

POLL_SECONDS: Final = 30.0  # between two polls of the API
RUNTIME_POLL_SECONDS: Final = 10.0
GRACE_SECONDS: Final = 300.0  # from when on a runtime that does not answer counts as stuck
RETRY_AFTER_SECONDS: Final = 45.0
# A port that does not answer is left alone for so long at most, and asked at the poll after that.
_RUNTIME_BACK: Final = MAX_PAUSE + 1.1 * RUNTIME_POLL_SECONDS
_IDENTITY_BACK: Final = 2 * UNKNOWN_SECONDS  # between two attempts to learn who this machine is, at most
_API: Final = ("cloud",)
_ALL: Final = ("cloud", "metadata", "runtime", "monitoring")
_LISTS: Final = "ListNodes"
_RUNTIME: Final = "*RuntimeMetric*"
_SUPPORTED: Final = "ListSupportedMetrics"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that goes wrong for a while."""

    name: str
    strikes: Strikes
    others: Verdict | None = Verdict.UNKNOWN  # what nodes are in the end that the API alone reports; None: it depends
    own: Verdict = Verdict.HEALTHY  # what the own node is in the end
    own_after: float = 0.0  # the own node may be called `own` only when the trouble has lasted for so long
    others_within: float = POLL_SECONDS  # so soon they are as before when it is over
    own_within: float = POLL_SECONDS
    silent: tuple[str, ...] = ()  # services that do not answer at all, as `Driven.expect` takes them
    restarts_node_side: bool = False  # the daemon's node side begins while it lasts

    @property
    def within(self) -> float:
        """So soon all nodes are as before."""
        return max(self.others_within, self.own_within)


def all_troubles() -> list[Trouble]:
    """Every kind."""
    return [*_of_the_api(), *_of_everything(), *_of_the_metadata_server(), *_of_the_runtime()]


def quick_troubles() -> list[Trouble]:
    """A few of different kinds that do not cost real time."""
    names = {"API: UNAVAILABLE", "API: unknown enums", "API: refused", "runtime: foreign", "runtime: hangs"}
    return [trouble for trouble in all_troubles() if trouble.name in names]


def _of_the_api() -> Iterator[Trouble]:
    for code in GRPC_CODES[1:]:
        yield Trouble(f"API: {code}", _calls(InjectedFault(_LISTS, code)))
    for code, reason in (
        ("PERMISSION_DENIED", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"),
        ("PERMISSION_DENIED", "SERVICE_DISABLED"),
        ("UNAUTHENTICATED", "ACCESS_TOKEN_EXPIRED"),
    ):
        yield Trouble(f"API: {reason}", _calls(InjectedFault(_LISTS, code, reason=reason)))
    throttled = InjectedFault(_LISTS, "RESOURCE_EXHAUSTED", retry_after_seconds=RETRY_AFTER_SECONDS)
    yield Trouble("API: 429 with Retry-After", _calls(throttled), others_within=POLL_SECONDS + RETRY_AFTER_SECONDS)
    yield Trouble("API: half of the calls fail", _calls(InjectedFault(_LISTS, "UNAVAILABLE", share=0.5)), None)
    yield Trouble("API: slow", _calls(InjectedFault(_LISTS, latency_seconds=0.02)), Verdict.HEALTHY)
    yield Trouble("API: too slow", _calls(InjectedFault(_LISTS, latency_seconds=2.0)), silent=_API)
    yield Trouble("API: black hole", _calls(InjectedFault(_LISTS, black_hole=True)), silent=_API)
    yield Trouble("API: half-open", lambda stage: stage.half_open(), silent=(*_API, "monitoring"))
    yield Trouble("API: refused", lambda stage: stage.nobody_listens())
    yield Trouble("API: unknown enums", _calls(InjectedFault(_LISTS, wrong_enum=True)))
    yield Trouble("API: no states", _calls(InjectedFault(_LISTS, drop=("state", "health"))))
    yield Trouble("API: no names", _calls(InjectedFault(_LISTS, drop=("name",))))
    yield Trouble("API: no endpoints", _calls(InjectedFault(_LISTS, drop=("network_endpoints",))))
    rest = ("health", "accelerator_type", "scheduling_config", "create_time", "labels")
    yield Trouble("API: next to no fields", _calls(InjectedFault(_LISTS, drop=rest)), Verdict.HEALTHY)


def _of_everything() -> Iterator[Trouble]:
    yield Trouble("everything: UNAVAILABLE", _calls(InjectedFault("*", "UNAVAILABLE")), own_within=_RUNTIME_BACK)
    yield Trouble(
        "everything: black hole",
        _calls(InjectedFault("*", black_hole=True)),
        own=Verdict.COMPILING,  # for the program works
        silent=_ALL,
        own_within=_RUNTIME_BACK,
    )
    yield Trouble("everything: slow", _calls(InjectedFault("*", latency_seconds=0.02)), Verdict.HEALTHY)
    yield Trouble(
        "Cloud Monitoring: UNAVAILABLE", _calls(InjectedFault("ListTimeSeries", "UNAVAILABLE")), Verdict.HEALTHY
    )


def _of_the_metadata_server() -> Iterator[Trouble]:
    for code in ("UNAVAILABLE", "PERMISSION_DENIED", "NOT_FOUND", "INTERNAL"):
        yield _of_metadata(code, InjectedFault("metadata", code))
    throttled = InjectedFault("metadata", "RESOURCE_EXHAUSTED", retry_after_seconds=RETRY_AFTER_SECONDS)
    yield _of_metadata("429 with Retry-After", throttled, _IDENTITY_BACK + RETRY_AFTER_SECONDS)
    yield _of_metadata("black hole", InjectedFault("metadata", black_hole=True), silent=("metadata",))
    yield _of_metadata("another server", InjectedFault("metadata", drop=("Metadata-Flavor",)))
    yield _of_metadata("no attributes", InjectedFault("metadata", drop=("tpu-env", "instance-id", "accelerator-type")))


def _of_metadata(
    what: str, fault: InjectedFault, within: float = _IDENTITY_BACK, *, silent: tuple[str, ...] = ()
) -> Trouble:
    name, strikes = f"metadata: {what}", _calls(fault)
    return Trouble(name, strikes, Verdict.HEALTHY, own_within=within, silent=silent, restarts_node_side=True)


def _of_the_runtime() -> Iterator[Trouble]:
    yield Trouble(
        "runtime: hangs",
        lambda stage: stage.workload(WorkloadPhase.HUNG),
        Verdict.HEALTHY,
        Verdict.RUNTIME_STUCK,
        own_after=GRACE_SECONDS,
        own_within=_RUNTIME_BACK,
        silent=("runtime",),
    )
    yield _of_runtime("no workload", lambda stage: stage.workload(WorkloadPhase.NONE), Verdict.IDLE)
    yield _of_runtime("foreign", lambda stage: stage.foreign(), Verdict.IDLE)
    for code in ("UNAVAILABLE", "UNIMPLEMENTED", "INTERNAL", "RESOURCE_EXHAUSTED"):
        # The processors show that the program works.
        yield _of_runtime(code, _calls(InjectedFault(_RUNTIME, code), InjectedFault(_SUPPORTED, code)), Verdict.HEALTHY)


def _of_runtime(what: str, strikes: Strikes, own: Verdict) -> Trouble:
    return Trouble(f"runtime: {what}", strikes, Verdict.HEALTHY, own, own_within=_RUNTIME_BACK)


def _calls(*faults: InjectedFault) -> Strikes:
    return lambda stage: stage.faulty(*faults)
