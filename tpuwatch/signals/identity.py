"""Who this machine is: project, zone, node, worker and hardware, each value with where it is from.

The configuration wins; the metadata server supplies the rest; what neither supplies is unknown. TPU VMs that the
Cloud TPU API made report all in the attribute `tpu-env`. VMs with TPUs that Compute Engine or GKE made report
NODE_ID '0' there and use other names for some keys; they belong to no node that could be stopped or started, so
their node is unknown. In a pod of Kubernetes the node's name there is in NODE_NAME, which deploy/gke sets.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import Pacing
from tpuwatch.google import MetadataClient, MetadataError, metadata_host
from tpuwatch.libtpu import chips_of
from tpuwatch.model import Answer, Identity, Known, Problem

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tpuwatch.config import CloudConfig
    from tpuwatch.core import Clock
    from tpuwatch.signals.sources import SignalSources

KNOWN_SECONDS: Final = 3600.0  # between two looks once all is known: who a machine is hardly changes
UNKNOWN_SECONDS: Final = 30.0  # until then

_OFF: Final = "The metadata server is not asked: `enabled` under [cloud] is false."
_DEFAULT_PORTS: Final = (8431, 8432, 8433, 8434)  # where none are configured
_MAX_LINES: Final = 2000
_MAX_ENDPOINTS: Final = 10_000
_LINE: Final = re.compile(r"\s*([A-Z][A-Z0-9_]*)\s*:\s*(.*?)\s*")
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_KUBERNETES_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_ZONE: Final = re.compile(r"(?:projects/[^/]+/zones/)?([a-z][a-z0-9-]{0,62})")
_PROJECT: Final = re.compile(r"([a-z0-9.-]{1,64}:)?[a-z][a-z0-9-]{0,62}")
_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_ACCELERATOR: Final = re.compile(r"[A-Za-z0-9]{2,20}-[0-9]{1,6}")

_log = logging.getLogger(__name__)


def kubernetes_node(environ: Mapping[str, str]) -> str:
    """The node of Kubernetes that a pod with this environment runs on; "" outside of a pod, or if it is not set."""
    name = environ.get("NODE_NAME", "") if environ.get("KUBERNETES_SERVICE_HOST") else ""
    return name if _KUBERNETES_NAME.fullmatch(name) else ""


def parse_tpu_env(text: str) -> dict[str, str]:
    """The pairs of `tpu-env`: a line each, KEY: 'value'. Lines of another form are skipped; later ones win."""
    pairs = {}
    for line in text.splitlines()[:_MAX_LINES]:
        match = _LINE.fullmatch(line)
        if match:
            pairs[match[1]] = _unquoted(match[2])
    return pairs


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


# -- what a value may look like: "" for what is none. All of it comes from outside.


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str]:
    return lambda value: value if pattern.fullmatch(value) else ""


def _zone(value: str) -> str:
    match = _ZONE.fullmatch(value)
    return match[1] if match else ""


def _whole(value: str) -> str:
    return str(int(value)) if value.isascii() and value.isdigit() and len(value) < 7 else ""


def _product(value: str) -> str:
    sides = [_whole(side.strip()) for side in value.split(",")]
    return _whole(str(math.prod(int(side) for side in sides))) if all(sides) and "0" not in sides else ""


def _endpoints(value: str) -> str:
    """The addresses in their order: of a TPU VM "unknown:unknown:10.0.0.2,…", elsewhere names."""
    entries = [entry.strip() for entry in value.split(",") if entry.strip()][:_MAX_ENDPOINTS]
    return ",".join(entry if entry.count(":") > 3 else entry.rpartition(":")[2] for entry in entries)


def _yes_no(value: str) -> str:
    return {"true": "yes", "false": "no"}.get(value.lower(), "")


def _ports(value: str) -> str:
    ports = [_whole(port.strip()) for port in value.split(",")[:64]]
    return ",".join(ports) if all(port and 0 < int(port) < 65536 for port in ports) else ""


# Each value, with where it may stand, the best place first: a key of tpu-env, or a path of the metadata server.
_PLACES: Final[dict[str, tuple[tuple[str, ...], Callable[[str], str]]]] = {
    "project": (("CONSUMER_PROJECT_ID", "project/project-id"), _matching(_PROJECT)),
    "zone": (("ZONE", "instance/zone"), _zone),
    "node": (("NODE_ID", "instance/attributes/instance-id"), _matching(_NAME)),
    "worker": (("WORKER_ID", "TPU_WORKER_ID", "instance/attributes/agent-worker-number"), _whole),
    "accelerator": (
        ("ACCELERATOR_TYPE", "TPU_ACCELERATOR_TYPE", "instance/attributes/accelerator-type"),
        _matching(_ACCELERATOR),
    ),
    "chips": (("CHIPS_PER_HOST_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS"), _product),
    "hosts": (("HOST_BOUNDS", "TPU_HOST_BOUNDS"), _product),
    "endpoints": (("instance/attributes/worker-network-endpoints",), _endpoints),
    "spot": (("PREEMPTIBLE",), _yes_no),
    "preemptible": (("instance/scheduling/preemptible",), _yes_no),
    "instance": (("instance/id",), _matching(_NUMBER)),
    "metrics_ports": (("TPU_RUNTIME_METRICS_PORTS",), _ports),
}


def ask_metadata(metadata: MetadataClient) -> dict[str, str]:
    """What the metadata server reports, by the names of Identity's fields; what it does not report is left out.

    Besides, as "endpoints", the addresses of the slice's workers.

    Raises MetadataError.
    """
    env = parse_tpu_env(metadata.get("instance/attributes/tpu-env") or "")
    reported = {}
    for name, (places, cleaned) in _PLACES.items():
        for place in places:
            value = cleaned((metadata.get(place) or "").strip() if "/" in place else env.get(place, ""))
            if value:
                reported[name] = value
            if value or (place == "NODE_ID" and place in env):
                break  # a NODE_ID that is no node's name means that there is no node
    return _completed(reported)


def _completed(reported: dict[str, str]) -> dict[str, str]:
    """What follows from what was reported."""
    endpoints = reported.get("endpoints", "")
    reported.setdefault("hosts", str(endpoints.count(",") + 1) if endpoints else "")
    reported.setdefault("chips", _chips_per_host(reported.get("accelerator", ""), reported["hosts"]))
    spots = (reported.get("spot"), reported.pop("preemptible", ""))  # a spot VM need not report it in tpu-env
    reported["spot"] = "yes" if "yes" in spots else "no" if "no" in spots else ""
    return {name: value for name, value in reported.items() if value}


def _chips_per_host(accelerator: str, hosts: str) -> str:
    chips = chips_of(accelerator)
    if chips is None or not hosts or chips % int(hosts):
        return ""
    return str(chips // int(hosts))


def combine(
    cloud: CloudConfig, runtime_ports: tuple[int, ...], reported: Mapping[str, str], kubernetes: str = ""
) -> Identity:
    """The identity from the configuration, which wins, from what the metadata server reported, and from Kubernetes."""
    configured = {
        "project": cloud.project,
        "zone": cloud.zone,
        "metrics_ports": ",".join(map(str, runtime_ports)),
    }
    known = {name: Known(value, "metadata") for name, value in reported.items() if name != "endpoints"}
    known.update({name: Known(value, "config") for name, value in configured.items() if value})
    if kubernetes:
        known["kubernetes"] = Known(kubernetes, "kubernetes")
    if _elsewhere(cloud, reported):
        # Of this name there may be another node in the place that is configured: it must not be taken for this one.
        known.pop("node", None)
    return replace(Identity(), **known)


def _elsewhere(cloud: CloudConfig, reported: Mapping[str, str]) -> str:
    """What to know if the configured place is another than this machine's; "" if it is not."""
    for name, configured in (("project", cloud.project), ("zone", cloud.zone)):
        own = reported.get(name, "")
        # A project's number cannot be compared with its id.
        if configured and own and configured != own and not configured.isdigit():
            return (
                f'The configuration says {name} = "{configured}" under [cloud], but this machine is in {own}: its own '
                "node is not watched. Leave the key empty, unless only nodes elsewhere are to be watched."
            )
    return ""


def metrics_ports(identity: Identity) -> tuple[int, ...]:
    """The ports on which runtime metrics may be served: those of the configuration or the metadata server, if known."""
    known = identity.metrics_ports.value
    return tuple(map(int, known.split(","))) if known else _DEFAULT_PORTS


class IdentitySignal:
    """Asks who this machine is until that is known, then rarely. Once known, it stays known through later faults.

    Takes over the metadata client, which `close` closes. Without one, or with the cloud switched off, asks no server.
    """

    def __init__(
        self,
        cloud: CloudConfig,
        metadata: MetadataClient | None,
        runtime_ports: tuple[int, ...],
        *,
        clock: Clock,
        rng: random.Random,
        kubernetes: str = "",
    ) -> None:
        """`kubernetes` is the name of the node of Kubernetes that this is, if it is one."""
        self._kubernetes = kubernetes
        self._cloud = cloud
        self._metadata = metadata
        self._runtime_ports = runtime_ports
        self._clock = clock
        self._pacing = Pacing(UNKNOWN_SECONDS, clock=clock, rng=rng, max_pause=2 * UNKNOWN_SECONDS)
        self._last: Answer[Identity] = Answer(combine(cloud, runtime_ports, {}, kubernetes))
        self.endpoints: tuple[str, ...] = ()  # the addresses of the own slice's workers, as they were reported last

    @property
    def identity(self) -> Identity:
        """As far as it is known by now. May be read from any thread."""
        return self._last.value or Identity()

    @property
    def due_in(self) -> float:
        """Seconds until it is to be asked again."""
        return self._pacing.due_in

    def ask(self) -> Answer[Identity]:
        """The identity. `problem` is the metadata server's; the value is there all the same, as far as it is known."""
        if self._metadata is None or not self._cloud.enabled:
            return self._learn({}, Problem.OFF, _OFF)
        try:
            reported = ask_metadata(self._metadata)
        except MetadataError as error:
            self._pacing.interval = UNKNOWN_SECONDS
            self._pacing.failed(error.retry_after)
            self._last = Answer(self.identity, self._last.at, error.problem, str(error), self._clock.time())
            return self._last
        return self._learn(reported, None, _elsewhere(self._cloud, reported))

    def _learn(self, reported: Mapping[str, str], problem: Problem | None, detail: str) -> Answer[Identity]:
        # Attributes may be set only after the boot, and a server that is ill may answer that there are none.
        complete = problem is Problem.OFF or "accelerator" in reported
        self._pacing.interval = KNOWN_SECONDS if complete else UNKNOWN_SECONDS
        self._pacing.succeeded()
        asked = None if problem else self._clock.time()
        self.endpoints = tuple(filter(None, reported.get("endpoints", "").split(",")))
        self._last = Answer(
            combine(self._cloud, self._runtime_ports, reported, self._kubernetes), asked, problem, detail, asked
        )
        return self._last

    def close(self) -> None:
        """Break off what is under way, and ask no more. May be called from any thread."""
        if self._metadata is not None:
            self._metadata.close()


def start(sources: SignalSources) -> None:
    """Add the source of this machine's identity. The part that the configuration gives is posted immediately."""
    config = sources.config
    source = IdentitySignal(
        config.cloud,
        metadata_client(sources) if config.cloud.enabled else None,
        config.runtime.ports,
        kubernetes=kubernetes_node(sources.environ),
        clock=sources.clock,
        rng=sources.rng,
    )

    def on_answer(answer: Answer[Identity]) -> None:
        if answer.problem is None and answer.detail != sources.misplaced:
            sources.misplaced = answer.detail
            _log.warning("%s", sources.misplaced or "This machine is where the configuration expects it.")
        if answer.value is not None and answer.value != sources.identity():
            sources.post_fields(identity=answer.value, endpoints=source.endpoints)
            if sources.has_answered("identity"):  # else they still wait for it
                sources.wake("cloud", "runtime")  # there may be another node to ask for, or other ports

    sources.post_fields(identity=source.identity)
    sources.add("identity", source, KNOWN_SECONDS, on_answer)


def metadata_client(sources: SignalSources) -> MetadataClient:
    """A client of its own: closing it ends a request that waits."""
    return MetadataClient(metadata_host(sources.config.cloud.metadata_server), clock=sources.clock)
