"""Every key of the configuration: its type, its bounds, its default and its meaning.

A key's meaning is the description of its field; what it allows is said by its type (`Allowed`) and its bounds.
Messages, config.example.toml and `tpuwatch config show` are made from these, so that they cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import Field, PrivateAttr

from tpuwatch.config.restart import Ledger, Restart
from tpuwatch.config.section import Section
from tpuwatch.config.tune import Tune
from tpuwatch.config.types import (
    AbsolutePath,
    Allowed,
    Days,
    Directories,
    Endpoint,
    Globs,
    Listen,
    Mebibytes,
    Name,
    NodeAddresses,
    Nodes,
    Port,
    Ports,
    Project,
    Seconds,
    YesNo,
    split_listen,
)

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


class Logs(Section):
    """What is read, and when a launch counts as slow or silent."""

    paths: Directories = Field(
        default=(Path("/tmp/tpu_logs"), Path("/tmp")),  # noqa: S108 (where libtpu writes)
        description="Directories whose tpu_driver.* files are followed. libtpu writes to /tmp/tpu_logs, and to /tmp if "
        "it cannot. A directory may come later.",
    )
    job_paths: Globs = Field(
        default=(),
        description="Files with the output (stdout and stderr) of training jobs. Many faults are told only there.",
    )
    rules: Directories = Field(
        default=(), description="Directories with rules of your own (*.toml), which are added to the built-in ones."
    )
    poll_seconds: Seconds = Field(
        default=1.0,
        ge=0.05,
        le=60,
        description="The longest time between two looks at the files, when nothing else wakes tpuwatch.",
    )
    compile_grace_seconds: Seconds = Field(
        default=300.0,
        ge=10,
        le=86_400,
        description="How long a launch may say nothing before it counts as silent. Compiling takes long.",
    )
    slow_init_seconds: Seconds = Field(
        default=15.0, ge=0.1, le=3600, description="From which duration on the initialisation of a TPU counts as slow."
    )


class Cloud(Section):
    """The Cloud TPU API and the metadata server. What is left empty is taken from the metadata server."""

    enabled: YesNo = Field(default=True, description="Whether the Cloud TPU API and the metadata server are asked.")
    project: Project = Field(default="", description="The project that the nodes are in.")
    zone: Name = Field(default="", description="The zone that the nodes are in.")
    nodes: Nodes = Field(
        default=(),
        description="Nodes to watch besides the one that tpuwatch runs on. One request per zone and poll serves all.",
    )
    endpoint: Endpoint = Field(
        default="",
        description="Another server of the Cloud TPU API, such as `tpuwatch sim`; empty means Google's own.",
    )
    insecure: YesNo = Field(
        default=False, description="Talk to that endpoint without TLS and without credentials. Only for simulators."
    )
    alpha: YesNo = Field(
        default=False,
        description="Use the API's v2alpha1, which alone tells of upcoming maintenance. Not every project may.",
    )
    poll_seconds: Seconds = Field(
        default=30.0, ge=1, le=3600, description="Time between two polls; each is moved a little at random."
    )
    timeout_seconds: Seconds = Field(
        default=10.0, ge=0.1, le=120, description="How long one request may take until it counts as failed."
    )


class Agents(Section):
    """The other nodes' own tpuwatch. The `listen` under [http] there must be one that this machine can reach."""

    enabled: YesNo = Field(
        default=False,
        description="Whether the tpuwatch on each watched node is asked how it sees its node. When one that has "
        "answered falls silent, that is evidence beside the cloud's word.",
    )
    port: Port = Field(
        default=9478, ge=1, le=65535, description="Where it listens, on the node's first address by the Cloud TPU API."
    )
    addresses: NodeAddresses = Field(
        default_factory=dict, description="Nodes whose tpuwatch is to be asked at another address."
    )
    poll_seconds: Seconds = Field(
        default=30.0, ge=1, le=3600, description="Time between two questions to one node; each is a little earlier."
    )
    timeout_seconds: Seconds = Field(
        default=5.0, ge=0.1, le=60, description="How long one answer may take until it counts as none."
    )
    silent_seconds: Seconds = Field(
        default=120.0,
        ge=10,
        le=3600,
        description="How long one that has answered must have been silent, over at least three questions, to be "
        "evidence.",
    )


class Runtime(Section):
    """libtpu's own runtime metrics: HBM, duty cycle, idle time. They are there while a program holds the TPU."""

    enabled: YesNo = Field(default=True, description="Whether the runtime metrics are asked for.")
    ports: Ports = Field(
        default=(),
        description="Ports on this machine, one per process. Empty: as the metadata server says, else 8431 to 8434.",
    )
    poll_seconds: Seconds = Field(
        default=10.0,
        ge=1,
        le=600,
        description="Time between two polls. Less than 10 is for simulators: frequent polls may disturb a runtime that "
        "is being reset.",
    )


class Health(Section):
    """When what is seen counts as stuck. The compile grace is under [logs]."""

    idle_seconds: Seconds = Field(
        default=600.0,
        ge=30,
        le=86_400,
        description="How long the chips may run nothing under a live program until it counts as stuck.",
    )
    settle_seconds: Seconds = Field(
        default=120.0,
        ge=0,
        le=3600,
        description="How long a node must have been bad by the cloud's word until it counts as stuck.",
    )
    boot_grace_seconds: Seconds = Field(
        default=300.0, ge=0, le=3600, description="How long after its boot a node is only starting."
    )


class Monitoring(Section):
    """Cloud Monitoring. Its samples are minutes late: they confirm, and never detect."""

    read: YesNo = Field(default=False, description="Read idle duration and infrastructure health from it.")
    export: YesNo = Field(
        default=False,
        description="Write tpuwatch's main metrics to it as custom metrics, which Google charges for.",
    )
    export_seconds: Seconds = Field(default=60.0, ge=10, le=3600, description="Time between two writes.")
    endpoint: Endpoint = Field(
        default="", description="Another server of the API, such as `tpuwatch sim`; empty means Google's own."
    )


class Http(Section):
    """Where metrics, status and API are served. There is no access control: keep it on addresses that you trust."""

    listen: Listen = Field(default="127.0.0.1:9478", description="Address and port to serve on.")

    @property
    def address(self) -> tuple[str, int]:
        """Host (without brackets) and port."""
        return split_listen(self.listen)


class State(Section):
    """The journal: what was recognised, and how far each file has been read."""

    dir: AbsolutePath = Field(
        default=Path("/var/lib/tpuwatch"), description="Directory of the journal. One tpuwatch uses it at a time."
    )
    max_age_days: Days = Field(default=30, ge=1, le=3650, description="Events that were read longer ago are removed.")
    max_mib: Mebibytes = Field(
        default=256, ge=16, le=16_384, description="When the journal is larger, its oldest events are removed."
    )


class Log(Section):
    """What tpuwatch says of itself, on stderr."""

    format: Literal["line", "json"] = Field(
        default="line", description="Lines for people, or one JSON object per line."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is worth saying."
    )


class Config(Section):
    """The whole configuration."""

    logs: Logs = Logs()
    cloud: Cloud = Cloud()
    agents: Agents = Agents()
    runtime: Runtime = Runtime()
    health: Health = Health()
    monitoring: Monitoring = Monitoring()
    restart: Restart = Restart()
    ledger: Ledger = Ledger()
    tune: Tune = Tune()
    http: Http = Http()
    state: State = State()
    log: Log = Log()

    _source: Path | None = PrivateAttr(None)

    @property
    def source(self) -> Path | None:
        """The file that it was read from; None if all of it is defaults."""
        return self._source

    @property
    def ledger_dir(self) -> Path:
        """The directory of the ledger."""
        return Path(self.ledger.dir) if self.ledger.dir else self.state.dir

    @property
    def tune_dir(self) -> Path:
        """The directory of plans, environment files and records of launches."""
        return Path(self.tune.dir) if self.tune.dir else self.state.dir / "tune"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the file, as messages and the example speak of it."""

    table: str  # "logs"
    key: str
    field: FieldInfo

    @property
    def name(self) -> str:
        """The dotted name: "logs.paths"."""
        return f"{self.table}.{self.key}"

    @property
    def secret(self) -> bool:
        """Whether its value is shown to nobody."""
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
    return {name: _section(field.annotation) for name, field in Config.model_fields.items()}


def settings() -> list[Setting]:
    """Every key of the file, in its order."""
    return [
        Setting(table, key, field) for table, section in tables().items() for key, field in section.model_fields.items()
    ]


def _section(annotation: Any) -> type[Section]:
    if not (isinstance(annotation, type) and issubclass(annotation, Section)):
        raise TypeError(f"{annotation} is no table: a key outside of the tables has no place in the file")
    return annotation
