"""Every key of the configuration: its type, its bounds, its default and its meaning.

A key's meaning is the description of its field; its type (`Allowed`) and its bounds define what it allows.
Messages, config.example.toml and `tpuwatch config show` are generated from these, so they cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast, get_args, get_origin

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from tpuwatch.config.restart import LedgerConfig, RestartConfig
from tpuwatch.config.start import SOCKET_NAME, THIS_MACHINE
from tpuwatch.config.tune import TuneConfig
from tpuwatch.config.types import (
    AbsolutePath,
    Allowed,
    Days,
    Directories,
    Endpoint,
    Globs,
    HostName,
    HostNames,
    Listen,
    LocalAddress,
    Mebibytes,
    Name,
    NodeAddresses,
    Nodes,
    OptionalPath,
    Port,
    Ports,
    Project,
    Seconds,
    Section,
    Share,
    YesNo,
    split_listen,
)
from tpuwatch.core import host_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo


class LogsConfig(Section):
    """Which logs are read, and when a launch counts as slow or silent."""

    paths: Directories = Field(
        default=(Path("/tmp/tpu_logs"), Path("/tmp")),  # noqa: S108 (where libtpu writes)
        description="Directories whose tpu_driver.* files are followed. libtpu writes to /tmp/tpu_logs, and to /tmp "
        "if it cannot. A directory may be created later.",
    )
    job_paths: Globs = Field(
        default=(),
        description="Files with the output (stdout and stderr) of training jobs. Many faults are reported only there. "
        "** stands for any directories, and follows no links to them.",
    )
    rules: Directories = Field(
        default=(), description="Directories with your own rules (*.toml), which are added to the built-in ones."
    )
    poll_seconds: Seconds = Field(
        default=1.0,
        ge=0.05,
        le=60,
        description="The longest time between two scans of the files, if no file event comes first.",
    )
    compile_grace_seconds: Seconds = Field(
        default=300.0,
        ge=10,
        le=86_400,
        description="How long a launch may write nothing before it counts as silent. Compilation takes long.",
    )
    slow_init_seconds: Seconds = Field(
        default=15.0, ge=0.1, le=3600, description="The duration from which the initialisation of a TPU counts as slow."
    )


class CloudConfig(Section):
    """The Cloud TPU API and the metadata server. Empty values are taken from the metadata server."""

    enabled: YesNo = Field(default=True, description="Whether the Cloud TPU API and the metadata server are queried.")
    project: Project = Field(default="", description="The project of the nodes.")
    zone: Name = Field(default="", description="The zone of the nodes.")
    nodes: Nodes = Field(
        default=(),
        description="Nodes to watch besides the one that tpuwatch runs on. Each poll sends one request per zone, and "
        "every 5 minutes another one for its queued resources.",
    )
    endpoint: Endpoint = Field(
        default="",
        description="Another server of the Cloud TPU API, such as `tpuwatch sim`; empty means Google's own.",
    )
    metadata_server: Endpoint = Field(
        default="",
        description="Another metadata server, such as `tpuwatch sim`; empty means that of GCE_METADATA_HOST, else "
        "Google's own.",
    )
    insecure: YesNo = Field(
        default=False, description="Connect to that endpoint without TLS and without credentials. Only for simulators."
    )
    use_v2alpha1: YesNo = Field(
        default=False,
        description="Use the API's v2alpha1, which alone reports upcoming maintenance. Not every project may.",
    )
    poll_seconds: Seconds = Field(
        default=30.0, ge=1, le=3600, description="Time between two polls, with a little random jitter."
    )
    timeout_seconds: Seconds = Field(
        default=10.0, ge=0.1, le=120, description="How long one request may take before it counts as failed."
    )
    request_wait_seconds: Seconds = Field(
        default=86_400.0,
        ge=0,
        le=31_536_000,
        description="How long a queued resource that makes a watched node may wait for its nodes before it counts as a "
        "problem: by default a day, which few wait for on purpose. 0 means without a limit.",
    )


class KubernetesConfig(Section):
    """The API of Kubernetes, on GKE: the maintenance, termination and conditions of the node that a pod runs on.

    It is queried only in a pod that has a service account's token; deploy/gke has the role that this takes.
    """

    enabled: YesNo = Field(default=True, description="Whether the node is queried where tpuwatch runs in a pod.")
    service_account: AbsolutePath = Field(
        default=Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        description="The directory with the service account's token (`token`) and the certificates of the API's "
        "authority (`ca.crt`), as Kubernetes mounts it. They are read again when they change.",
    )
    poll_seconds: Seconds = Field(
        default=30.0, ge=1, le=3600, description="Time between two queries, with a little random jitter."
    )
    timeout_seconds: Seconds = Field(
        default=5.0, ge=0.1, le=60, description="How long one query may take before it counts as failed."
    )


class PeersConfig(Section):
    """The tpuwatch of other machines. Its `listen` under [http] must be an address that this machine can reach.

    A worker of a slice asks up to 16 others of it, a watcher every worker of the nodes that it watches. Those whose
    [http] has a certificate and a token are asked with `tls` and `token_file`.
    """

    enabled: YesNo = Field(
        default=False,
        description="Whether the tpuwatch on other machines is queried for their health: on the workers of the own "
        "slice, and of watched nodes. If one that has answered falls silent, that is evidence besides the Cloud TPU "
        "API's state.",
    )
    port: Port = Field(
        default=9478,
        ge=1,
        le=65535,
        description="Its port, on the addresses of the node's workers according to the Cloud TPU API.",
    )
    addresses: NodeAddresses = Field(default_factory=dict, description="Nodes whose first worker has another address.")
    tls: YesNo = Field(
        default=False, description="Ask over TLS. Of `addresses` each says by https:// or http:// whether it is."
    )
    ca_file: OptionalPath = Field(
        default="",
        description="The certificates (PEM) of the authorities that the nodes' certificates must be from. Empty: those "
        "that this machine trusts. It is read again when it changes.",
    )
    server_name: HostName = Field(
        default="",
        description="The name that the nodes' certificates must have: so nodes whose addresses change can share one "
        "certificate. Empty: the address, or the name, at which a node is asked.",
    )
    token_file: OptionalPath = Field(
        default="",
        description="The token that the nodes want: a file as `token_file` under [http], whose first line is sent. "
        "Without `tls` the network can read it.",
    )
    poll_seconds: Seconds = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="Time between two queries of one machine, with random jitter; twice that in the own slice.",
    )
    timeout_seconds: Seconds = Field(
        default=5.0, ge=0.1, le=60, description="How long one query may take before it counts as unanswered."
    )
    silent_seconds: Seconds = Field(
        default=120.0,
        ge=10,
        le=3600,
        description="How long one that has answered must have been silent, over at least three queries, to count as "
        "evidence.",
    )

    def url(self, address: str) -> str:
        """Where the tpuwatch of a machine with this address is asked; "" without one."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host_port(address, self.port)}" if address else ""


class RuntimeConfig(Section):
    """libtpu's own runtime metrics: HBM, duty cycle, idle time. They exist while a program holds the TPU."""

    enabled: YesNo = Field(default=True, description="Whether the runtime metrics are read.")
    ports: Ports = Field(
        default=(),
        description="Ports on this machine, one per process. Empty: those that the metadata server names, else 8431 "
        "to 8434.",
    )
    poll_seconds: Seconds = Field(
        default=10.0,
        ge=1,
        le=600,
        description="Time between two polls. Values below 10 are for simulators: frequent polls may disturb a runtime "
        "during a reset.",
    )


class WorkloadConfig(Section):
    """What runs here. That nothing runs on the chips is no fault of a server or of an interactive program."""

    kind: Literal["", "training", "serving", "interactive"] = Field(
        default="",
        description="The kind of workload that this machine is for. Empty: what TPUWATCH_KIND of the process that "
        "holds the TPU says, else what its command line shows (vLLM, SGLang, JetStream, Jupyter, Colab …), else "
        "training.",
    )
    metrics_url: LocalAddress = Field(
        default="",
        description="The Prometheus metrics of the server of models that runs here: of vLLM, SGLang or JetStream. With "
        "them a server that has requests and makes no progress for [health] idle_seconds is stuck, and one without "
        "requests is idle. Empty: they are not read.",
    )
    heartbeats: YesNo = Field(
        default=True, description="Whether training loops may report their steps with tpuwatch.workload."
    )
    socket: OptionalPath = Field(
        default="",
        description="The socket that they report to, which every user may write to. Empty: heartbeats.socket in the "
        "directory of [state]. A job finds it by TPUWATCH_SOCKET, which `tpuwatch exec` and `env` set, else at "
        "/var/lib/tpuwatch/heartbeats.socket.",
    )


class HealthConfig(Section):
    """When a node counts as stuck. The compile grace is under [logs]."""

    idle_seconds: Seconds = Field(
        default=600.0,
        ge=30,
        le=86_400,
        description="How long the chips may be idle under a live program before the node counts as stuck.",
    )
    settle_seconds: Seconds = Field(
        default=120.0,
        ge=0,
        le=3600,
        description="How long the Cloud TPU API must have reported a node as bad before it counts as stuck.",
    )
    boot_grace_seconds: Seconds = Field(
        default=300.0, ge=0, le=3600, description="How long after its boot a node counts as starting."
    )
    finding_seconds: Seconds = Field(
        default=86_400.0,
        ge=60,
        le=2_592_000,
        description="How long after it was last seen a finding counts as wrong. It ends sooner when a later launch of "
        "the workload does well, or the node was restarted and is well.",
    )
    slower: Share = Field(
        default=0.05,
        ge=0,
        le=1,
        description="The least slow-down of a training loop against its own past that is told: 0.05 is 5 %; 0 is off.",
    )


class MonitoringConfig(Section):
    """Cloud Monitoring. Its samples are minutes late, and the word of the cloud: they are shown, and prove nothing."""

    read: YesNo = Field(default=False, description="Read idle duration and infrastructure health from it.")
    export: YesNo = Field(
        default=False,
        description="Write tpuwatch's main metrics to it as custom metrics, which Google charges for.",
    )
    export_seconds: Seconds = Field(default=60.0, ge=10, le=3600, description="Time between two writes.")
    endpoint: Endpoint = Field(
        default="", description="Another server of the API, such as `tpuwatch sim`; empty means Google's own."
    )


HALF_TLS: Final = "half_tls"
_HALF_TLS: Final = "http.certificate_file and http.key_file belong together; give both, or none"


class HttpConfig(Section):
    """Where metrics, status and API are served, and to whom. Nothing can be changed through it."""

    listen: Listen = Field(
        default="127.0.0.1:9478",
        description="Address and port to serve on. On another address than loopback give a certificate and a token, or "
        "say `trusted_network`.",
    )
    certificate_file: OptionalPath = Field(
        default="",
        description="The server's certificate (PEM), and after it those between it and its authority. With it only TLS "
        "is spoken, version 1.2 or newer. It is read again when it changes.",
    )
    key_file: OptionalPath = Field(
        default="",
        description="Its private key (PEM, without a passphrase), which only its owner and group may read.",
    )
    token_file: OptionalPath = Field(
        default="",
        description="A token on each line, which only the file's owner and group may read: each request needs one of "
        "them, as a bearer token, or as the password of any user. Without it /healthz and /readyz say whether all is "
        "well, and nothing else. Commands on this machine send the first. It is read again when it changes.",
    )
    trusted_network: YesNo = Field(
        default=False,
        description="Whether `listen` can be reached by nobody else than who may see all of it, as behind a firewall: "
        "then TLS and a token are not missed.",
    )
    hosts: HostNames = Field(
        default=(),
        description="Names under which the page and the API are asked for through a proxy or public DNS. Other names "
        "in a request's Host header are answered with status 421, for a web page could have its own name lead here; "
        "addresses, localhost and this machine's name are always answered.",
    )

    @field_validator("key_file")
    @classmethod
    def _require_both(cls, value: str, info: ValidationInfo) -> str:
        """One without the other would be served without TLS, which nobody means who gives it."""
        if bool(value) != bool(info.data.get("certificate_file", value)):
            raise PydanticCustomError(HALF_TLS, _HALF_TLS)
        return value

    @property
    def address(self) -> tuple[str, int]:
        """Host (without brackets) and port."""
        return split_listen(self.listen)


class StateConfig(Section):
    """The event store: what was recognised, and how far each file has been read."""

    dir: AbsolutePath = Field(
        default=Path("/var/lib/tpuwatch"), description="Directory of the store. Only one daemon can use it at a time."
    )
    max_age_days: Days = Field(default=30, ge=1, le=3650, description="Events that were read longer ago are deleted.")
    max_mib: Mebibytes = Field(
        default=256, ge=16, le=16_384, description="When the store is larger, its oldest events are deleted."
    )


class HostConfig(Section):
    """The machine that is watched: its processes, devices, lock file, memory and users."""

    root: AbsolutePath = Field(
        default=THIS_MACHINE,
        description="The directory below which its /proc, /sys, /dev, /etc and /tmp/libtpu_lockfile are. Another one "
        "than / is for simulators: `tpuwatch sim` keeps its simulated machine there, and nothing of the real one is "
        "read or acted on, such as its systemd units and TPU_* variables.",
    )

    def environ(self, own: Mapping[str, str]) -> Mapping[str, str]:
        """Return the machine's variables: `own`, those of this process, for this machine; none for another one."""
        return own if self.root == THIS_MACHINE else {}


class LogConfig(Section):
    """tpuwatch's own log, on stderr."""

    format: Literal["line", "json"] = Field(default="line", description="Plain lines, or one JSON object per line.")
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that is logged."
    )


LOOK_SECONDS: Final = 20.0  # at most, for one look at a node through the Cloud TPU API, all requests together
SHORT_LEASE: Final = "short_lease"
_TOO_SHORT: Final = (
    "ledger.lease_seconds cannot be {lease}; give more than {needed}, which two looks at a node (2 requests of "
    "cloud.timeout_seconds, and no more than 20 s) and a write (ledger.timeout_seconds, at most a third of the "
    "lease) may take"
)


class Config(Section):
    """The whole configuration."""

    logs: LogsConfig = LogsConfig()
    cloud: CloudConfig = CloudConfig()
    kubernetes: KubernetesConfig = KubernetesConfig()
    peers: PeersConfig = PeersConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    workload: WorkloadConfig = WorkloadConfig()
    health: HealthConfig = HealthConfig()
    monitoring: MonitoringConfig = MonitoringConfig()
    restart: RestartConfig = RestartConfig()
    ledger: LedgerConfig = LedgerConfig()
    tune: TuneConfig = TuneConfig()
    http: HttpConfig = HttpConfig()
    state: StateConfig = StateConfig()
    host: HostConfig = HostConfig()
    log: LogConfig = LogConfig()

    _source: Path | None = PrivateAttr(None)

    @field_validator("ledger")
    @classmethod
    def _require_long_lease(cls, value: LedgerConfig, info: ValidationInfo) -> LedgerConfig:
        """A driver must be able to look, write and look again within its lease."""
        if "cloud" in info.data:
            look = min(LOOK_SECONDS, 2 * info.data["cloud"].timeout_seconds)
            needed = min(2 * look + value.timeout_seconds, 3 * look)  # a write takes a third of a lease at most
            if value.lease_seconds <= needed:
                seconds = {"lease": f"{value.lease_seconds:g}", "needed": f"{needed:g}"}
                raise PydanticCustomError(SHORT_LEASE, _TOO_SHORT, seconds)
        return value

    @property
    def source(self) -> Path | None:
        """The file that it was read from; None if there is none."""
        return self._source

    @property
    def ledger_dir(self) -> Path:
        """The directory of the ledger."""
        return Path(self.ledger.dir) if self.ledger.dir else self.state.dir

    @property
    def heartbeats_socket(self) -> Path:
        """The path of the socket for heartbeats."""
        return Path(self.workload.socket) if self.workload.socket else self.state.dir / SOCKET_NAME

    @property
    def tune_dir(self) -> Path:
        """The directory of plans, environment files and records of launches."""
        return Path(self.tune.dir) if self.tune.dir else self.state.dir / "tune"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of the file, as messages and the example describe it."""

    table: str  # "logs"
    key: str
    field: FieldInfo

    @property
    def name(self) -> str:
        """The dotted name: "logs.paths"."""
        return f"{self.table}.{self.key}"

    @property
    def secret(self) -> bool:
        """Whether its value is never printed."""
        return not self.field.repr

    @property
    def meaning(self) -> str:
        """What it does, in whole sentences."""
        return self.field.description or ""

    @property
    def allowed(self) -> str:
        """What may be given, unit and bounds included."""
        if get_origin(self.field.annotation) is Literal:
            return " or ".join(f'"{choice}"' for choice in get_args(self.field.annotation))
        words = next(item.words for item in self.field.metadata if isinstance(item, Allowed))
        low = [f"{item.ge}" for item in self.field.metadata if hasattr(item, "ge")]
        high = [f"{item.le}" for item in self.field.metadata if hasattr(item, "le")]
        return f"{words} from {low[0]} to {high[0]}" if low and high else words


def tables() -> dict[str, type[Section]]:
    """The tables of the file by name, in their order."""
    return {name: cast("type[Section]", field.annotation) for name, field in Config.model_fields.items()}


def config_keys() -> list[ConfigKey]:
    """Every key of the file, in its order."""
    return [
        ConfigKey(table, key, field)
        for table, section in tables().items()
        for key, field in section.model_fields.items()
    ]
