"""Scenarios as files: a simulated cloud, and what happens in it when. TOML; the built-in ones are in `scenarios/`."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tomli
from pydantic import AfterValidator, Field, ValidationError, model_validator

from tpuwatch.config import Allowed, Name, Project, Section, YesNo
from tpuwatch.core import ConfigError
from tpuwatch.sim.cloud.metadata_tree import MetadataDialect
from tpuwatch.sim.cloud.nodes import SimNode, Workload, WorkloadPhase, shape_of
from tpuwatch.sim.cloud.world import Timing
from tpuwatch.sim.scenario.actions import (
    AnyAction,
    Health,
    InvalidActionError,
    OnNode,
    PhaseName,
    QueuedState,
    SetQueuedResource,
    ShortName,
    State,
    Text,
    Wait,
    Worker,
    matching,
    one_of,
)
from tpuwatch.sim.scenario.validation import describe_errors, suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tpuwatch.sim.cloud.world import World

SCENARIOS = Path(__file__).parent / "built_in"
DEFAULT_SCENARIO = "quiet"
MAX_BYTES = 1 << 20
MAX_NODES = 50_000
MAX_NAME = 63  # characters, once the number is in it
NUMBER = "{number}"
_SHOWN_NODES = 20


def _check_accelerator(value: str) -> str:
    shape_of(value)  # raises ValueError for what there is not
    return value


_USUAL = Timing()

NodeName = Annotated[
    str,
    matching(r"[a-z]([a-z0-9-]|\{number\}){0,62}"),
    Allowed('a name in lower-case letters, digits and -, with {number} in it for several: "train-{number}"'),
]
Accelerator = Annotated[str, AfterValidator(_check_accelerator), Allowed('an accelerator type, such as "v5litepod-4"')]
Initiator = Annotated[str, one_of(("", "USER", "SERVICE")), Allowed('"USER", "SERVICE" or an empty text')]
Number = Annotated[int, Field(strict=True), Allowed("a whole number")]
DialectName = Annotated[
    str, one_of(tuple(each.value for each in MetadataDialect)), Allowed('"tpu" (the Cloud TPU API) or "compute"')
]
Labels = Annotated[
    dict[Annotated[str, matching(r"[a-z][a-z0-9_-]{0,62}")], Annotated[str, matching(r"[a-z0-9_-]{0,63}")]],
    Allowed("a table of labels"),
]


class NodeSpec(Section):
    """A node, or `count` of them."""

    name: NodeName = Field(description="Its name.")
    count: Annotated[Number, Field(ge=1, le=MAX_NODES)] = Field(default=1, description="How many, numbered from 1.")
    zone: Name = Field(default="", description="Its zone; empty for the scenario's.")
    accelerator: Accelerator = Field(default="v5litepod-4", description="Its accelerator type.")
    hosts: Annotated[Number, Field(ge=1, le=4096)] | None = Field(
        default=None, description="How many workers it has, if not given by the accelerator type."
    )
    state: State = Field(default="READY", description="The state that the API reports.")
    health: Health = Field(default="HEALTHY", description="The health that the API reports; empty for none.")
    health_description: Text = Field(default="", description="The API's words on that.")
    spot: YesNo = Field(default=False, description="Whether it is a spot node, which cannot be started again.")
    queued_resource: ShortName = Field(default="", description="The queued resource that it came from.")
    exists: YesNo = Field(
        default=True, description="false: it does not exist yet. Its queued resource makes it when that becomes ACTIVE."
    )
    labels: Labels = Field(default={}, description="Its labels.")
    age_seconds: Wait = Field(default=86_400.0, description="How long ago it was created.")
    phase: PhaseName = Field(default=WorkloadPhase.NONE.value, description="What its workers do.")
    phase_seconds: Wait = Field(default=0.0, description="How long they have been at it already.")
    played: YesNo = Field(
        default=False, description="Whether the tpuwatch of its workers, but this machine's, is played."
    )

    @property
    def names(self) -> list[str]:
        """The names of all of them."""
        return [self.name.replace(NUMBER, str(number)) for number in range(1, self.count + 1)]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Hosts, chips of each, and HBM bytes of a chip."""
        hosts, chips, hbm_bytes = shape_of(self.accelerator)
        return self.hosts or hosts, chips, hbm_bytes

    def build(self, name: str, scenario: Scenario, now: float) -> SimNode:
        """The node of this name at its beginning, which is `now` on the world's clock."""
        hosts, chips, hbm_bytes = self.shape
        return SimNode(
            project=scenario.project,
            zone=self.zone or scenario.zone,
            name=name,
            accelerator_type=self.accelerator,
            hosts=hosts,
            chips_per_host=chips,
            hbm_bytes=hbm_bytes,
            state=self.state,
            health=self.health,
            health_description=self.health_description,
            spot=self.spot,
            queued_resource=self.queued_resource,
            labels=dict(self.labels),
            created=now - self.age_seconds,
            played=self.played,
            workloads=[Workload(WorkloadPhase(self.phase), now - self.phase_seconds) for _ in range(hosts)],
        )


class QueuedResourceSpec(Section):
    """A queued resource. Its nodes are those that name it."""

    name: ShortName = Field(description="Its name.")
    zone: Name = Field(default="", description="Its zone; empty for the scenario's.")
    state: QueuedState = Field(default="ACTIVE", description="Its state.")
    spot: YesNo = Field(default=False, description="Whether it asks for spot nodes.")
    initiator: Initiator = Field(default="", description="Who caused its state.")
    error: Text = Field(default="", description="Why it is FAILED, in the API's words.")
    age_seconds: Wait = Field(default=86_400.0, description="How long ago it was created.")
    valid_for_seconds: Wait | None = Field(default=None, description="How long it may still wait. None: no limit.")


class ZoneSpec(Section):
    """A zone that is worth a word: one without nodes, or one that is full."""

    name: ShortName = Field(description="Its name.")
    capacity: Annotated[Number, Field(ge=0, le=1_000_000)] | None = Field(
        default=None,
        description="Capacity for further nodes; a stopped node gives its own away. None: no limit.",
    )


class Durations(Section):
    """How long things take, in seconds of the world's time."""

    stop: Wait = Field(default=_USUAL.stop, description="To stop a node.")
    start: Wait = Field(default=_USUAL.start, description="To start it.")
    reset: Wait = Field(default=_USUAL.reset, description="To reset a queued resource.")
    create: Wait = Field(default=_USUAL.create, description="To create a node.")
    delete: Wait = Field(default=_USUAL.delete, description="To delete it.")
    timeout: Wait = Field(default=_USUAL.timeout, description="Until the API finds a dead guest unresponsive.")
    preemption: Wait = Field(default=_USUAL.preemption, description="From the notice of a preemption to its end.")


class Scenario(Section):
    """A simulated cloud and its time line."""

    title: Text = Field(default="", description="What it shows, in a line.")
    text: Text = Field(default="", description="More on that.")
    project: Project = Field(default="sim-project", description="The project that all nodes are in.")
    zone: Name = Field(default="us-central2-b", description="The zone of nodes that have none of their own.")
    machine: ShortName = Field(default="", description="The node that this machine is a worker of; empty: the first.")
    worker: Worker = Field(default=0, description="Which worker of it.")
    nodes: Annotated[tuple[NodeSpec, ...], Field(max_length=1000)] = Field(description="The nodes.")
    queued_resources: Annotated[tuple[QueuedResourceSpec, ...], Field(max_length=1000)] = Field(
        default=(), description="Queued resources that exist without nodes, or have a state of their own."
    )
    zones: Annotated[tuple[ZoneSpec, ...], Field(max_length=100)] = Field(
        default=(), description="Zones without nodes, or with a limit."
    )
    timing: Durations = Field(default=Durations(), description="How long things take.")
    dialect: DialectName = Field(default=MetadataDialect.TPU.value, description="Whose words the metadata server uses.")
    common_metadata: YesNo = Field(
        default=False, description="Operations carry google.cloud.common.OperationMetadata, as they may."
    )
    steps: Annotated[tuple[AnyAction, ...], Field(max_length=10_000)] = Field(
        default=(), description="What happens when."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Scenario:
        if wrong := list(self._disagreements()):
            raise InvalidActionError("\n".join(wrong))
        return self

    @property
    def own_node(self) -> str:
        """The name of the node that this machine is a worker of."""
        return self.machine or self.nodes[0].names[0]

    @property
    def own_spec(self) -> NodeSpec:
        """Its description."""
        return next(spec for spec in self.nodes if self.own_node in spec.names)

    @property
    def own_path(self) -> str:
        """Its resource name."""
        return f"projects/{self.project}/locations/{self.own_spec.zone or self.zone}/nodes/{self.own_node}"

    def with_nodes(self, count: int) -> Scenario:
        """The same with so many nodes in its first numbered group. Raises ConfigError."""
        group = next((index for index, spec in enumerate(self.nodes) if NUMBER in spec.name), None)
        if group is None:
            raise ConfigError(f"no nodes of the scenario are numbered; put {NUMBER} into the name of some")
        document = self.model_dump()
        document["nodes"][group]["count"] = count
        return _validate(document, f"with {count} nodes")

    def configure(self, world: World) -> None:
        """Configure a world: timing, zones and capacity, but not the nodes."""
        world.timing = Timing(**self.timing.model_dump())
        world.common_metadata = self.common_metadata
        for zone in self.zones:
            world.zones.add(zone.name)
            if zone.capacity is not None:
                world.capacity[zone.name] = zone.capacity

    def _disagreements(self) -> Iterator[str]:
        total = sum(spec.count for spec in self.nodes)
        if not 0 < total <= MAX_NODES:
            yield f"nodes: there are {total}; give tables [[nodes]] with a count of 1 to {MAX_NODES} in all"
            return
        for index, spec in enumerate(self.nodes):
            longest = len(spec.name.replace(NUMBER, str(spec.count)))
            if longest > MAX_NAME:
                with_it = f"{longest} characters with the number {spec.count} in it"
                yield f"nodes[{index}].name {spec.name} has {with_it}; give one of at most {MAX_NAME}"
        names = Counter(name for spec in self.nodes for name in spec.names)
        for name, number in names.items():
            if number > 1:
                yield f"nodes: {number} are called {name}; put {NUMBER} into the name, or give each a name of its own"
        yield from self._disagreements_on_the_machine(names)
        yield from self._disagreements_on_requests()
        for index, step in enumerate(self.steps):
            if isinstance(step, OnNode) and not match_nodes(step.node, names):
                yield f"steps[{index}].node {step.node} is no node of the scenario; {_suggest_node(step.node, names)}"

    def _disagreements_on_the_machine(self, names: Collection[str]) -> Iterator[str]:
        own = next((spec for spec in self.nodes if self.own_node in spec.names), None)
        if own is None:
            yield f"machine {self.machine} is no node of the scenario; {_suggest_node(self.machine, names)}"
        elif not own.exists:
            yield f"machine {self.own_node} does not exist at the beginning; leave exists out of its table"
        elif self.worker >= own.shape[0]:
            yield f"worker {self.worker} is more than {self.own_node} has; give a number below {own.shape[0]}"

    def _disagreements_on_requests(self) -> Iterator[str]:
        queued = Counter(spec.name for spec in self.queued_resources)
        for name, number in queued.items():
            if number > 1:
                yield f"queued_resources: {number} are called {name}; give each a name of its own"
        for index, node in enumerate(self.nodes):
            if not node.exists and node.queued_resource not in queued:
                yield f"nodes[{index}].queued_resource must name a table of queued_resources, which makes it later"
        for index, step in enumerate(self.steps):
            if isinstance(step, SetQueuedResource) and step.name not in queued:
                wrong = f"steps[{index}].name {step.name} is no queued resource of the scenario"
                yield f"{wrong}; {suggest(step.name, list(queued))}"


def _suggest_node(name: str, known: Iterable[str]) -> str:
    return suggest(name, list(known)[:_SHOWN_NODES])


def match_nodes(pattern: str, names: Collection[str]) -> list[str]:
    """Return the names that match a pattern; one without wildcards matches only itself."""
    if pattern in names:
        return [pattern]
    return [name for name in names if fnmatchcase(name, pattern)] if set(pattern) & set("*?") else []


def load_scenario(name: str) -> Scenario:
    """The built-in scenario of this name, or the one in a file. Raises ConfigError, a line for each problem."""
    if name in built_in_scenarios():
        return read_scenario(SCENARIOS / f"{name}.toml")
    if "/" not in name and not name.endswith(".toml") and not Path(name).exists():
        raise ConfigError(f"there is no scenario {name!r}; {suggest(name, built_in_scenarios())}")
    return read_scenario(Path(name))


def built_in_scenarios() -> list[str]:
    """The names of the scenarios that tpuwatch brings."""
    return sorted(path.stem for path in SCENARIOS.glob("*.toml"))


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file. Raises ConfigError, a line for each problem."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read the scenario {path}: {error.strerror}; give a file, or a name that `tpuwatch sim list` shows"
        ) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"the scenario {path} is larger than 1 MiB; describe many nodes by their count")
    try:
        return _validate(tomli.loads(raw.decode()), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (at byte {error.start}): save it as UTF-8") from error
    except (tomli.TOMLDecodeError, RecursionError) as error:  # the latter for lists in lists in lists …
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _validate(document: dict[str, Any], source: str) -> Scenario:
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{source}: {line}" for line in describe_errors(error, Scenario))) from error
