"""The actions on the simulated cloud, for time lines, the control endpoint and the command line.

An action is a table with `do` and the keys that go with it: {"do": "workload", "node": "train-1", "phase": "stuck"}.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, PlainValidator, TypeAdapter, model_validator

from tpuwatch.config import Allowed, Seconds, Section, YesNo
from tpuwatch.core import GRPC_CODES
from tpuwatch.model import QUEUED_STATES, Cause
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.nodes import TpuwatchPlay, WorkloadPhase
from tpuwatch.sim.host.launch import LAUNCHES

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SECONDS = 30 * 86_400.0

# The enums of the Cloud TPU API (v2). A number stands for a value that today's clients do not know.
STATES = (
    *("STATE_UNSPECIFIED", "CREATING", "READY", "RESTARTING", "REIMAGING", "DELETING", "REPAIRING", "STOPPED"),
    *("STOPPING", "STARTING", "PREEMPTED", "TERMINATED", "HIDING", "HIDDEN", "UNHIDING", "UNKNOWN"),
)
HEALTH = ("", "HEALTHY", "TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE")
SYMPTOMS = (
    *("LOW_MEMORY", "OUT_OF_MEMORY", "EXECUTE_TIMED_OUT", "MESH_BUILD_FAIL", "HBM_OUT_OF_MEMORY", "PROJECT_ABUSE"),
)
CODES = ("", *(code for code in GRPC_CODES if code != "OK"))  # OK is no fault
PHASES = tuple(phase.value for phase in WorkloadPhase)
PLAYS = tuple(play.value for play in TpuwatchPlay)
CAUSES = ("", *(cause.value for cause in Cause))
# The keys with an effect; all others select the calls. half_open affects connections, not calls.
EFFECTS = ("code", "latency_seconds", "black_hole", "wrong_enum", "stale_seconds", "drop", "omit", "half_open")
_WITH_HALF_OPEN = frozenset({"do", "at", "say", "half_open", "for_seconds"})


class InvalidActionError(ValueError):
    """A validation error whose lines are complete messages."""


def _accepting(accepts: Callable[[Any], bool]) -> PlainValidator:
    def check(value: object) -> object:
        if accepts(value):
            return value
        raise ValueError("not allowed")

    return PlainValidator(check)


def one_of(names: tuple[str, ...], *, number: bool = False) -> PlainValidator:
    """Accept one of these names, and with `number` also an unknown enum number."""
    return _accepting(lambda value: value in names or (number and type(value) is int and 0 <= value < 1000))


def matching(pattern: str) -> PlainValidator:
    """Accept text that matches a pattern, with tpuwatch's own error messages."""
    return _accepting(lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None)


def _listed(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(name or 'an empty text' for name in names)}"


State = Annotated[str | int, one_of(STATES, number=True), Allowed(f"{_listed(STATES)}, or a number for a new one")]
Health = Annotated[str | int, one_of(HEALTH, number=True), Allowed(f"{_listed(HEALTH)}, or a number for a new one")]
Symptoms = Annotated[str, one_of(SYMPTOMS), Allowed(_listed(SYMPTOMS))]
Code = Annotated[str, one_of(CODES), Allowed(_listed(CODES))]
PhaseName = Annotated[str, one_of(PHASES), Allowed(_listed(PHASES))]
PlayName = Annotated[str, one_of(PLAYS), Allowed(_listed(PLAYS))]
CauseName = Annotated[str, one_of(CAUSES), Allowed("a cause, such as core_halted, or an empty text")]
LaunchName = Annotated[str, one_of((*LAUNCHES,)), Allowed(_listed((*LAUNCHES,)))]
NodePattern = Annotated[
    str, matching(r"[a-z0-9*?-]{1,63}"), Allowed('a node\'s name, which may hold * and ?: "train-*"')
]
NodePatterns = Annotated[tuple[NodePattern, ...], Allowed("a list of names of nodes, which may hold * and ?")]
QueuedState = Annotated[str, one_of(QUEUED_STATES), Allowed(_listed(QUEUED_STATES))]
ShortName = Annotated[str, matching(r"([a-z][a-z0-9-]{0,62})?"), Allowed("a name in lower-case letters, digits and -")]
Text = Annotated[str, matching(r"(?s).{0,4000}"), Allowed("a text of at most 4000 characters")]
Method = Annotated[
    str,
    matching(r"[A-Za-z0-9_./*?]{1,128}"),
    Allowed('a method\'s name, such as "ListNodes", "metadata" or "GetRuntimeMetric", which may hold * and ?'),
]
Resource = Annotated[
    str, matching(r"[A-Za-z0-9_.:/*?-]{1,256}"), Allowed('a pattern for resource names: "*/locations/us-east5-a*"')
]
FieldNames = Annotated[
    tuple[Annotated[str, matching(r"[A-Za-z_-]{1,63}")], ...],
    Allowed('a list of names of fields, such as "health", or of the metadata server\'s values, such as "tpu-env"'),
]
Worker = Annotated[int, Field(strict=True, ge=0, le=4095), Allowed("a worker's number")]
Endpoints = Annotated[int, Field(strict=True, ge=0, le=4096), Allowed("a whole number")]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000), Allowed("a whole number")]
Share = Annotated[float, Field(strict=True, ge=0, le=1), Allowed("a number")]
Wait = Annotated[Seconds, Field(ge=0, le=MAX_SECONDS)]


class ScenarioAction(Section):
    """Base of all actions: its time in a time line, and its message."""

    do: str
    at: Wait = Field(default=0.0, description="Time of the step: seconds from the start of the time line.")
    say: Text = Field(default="", description="The message that is shown, instead of the outcome.")


class OnNode(ScenarioAction):
    """An action on one node, or on all that a pattern names."""

    node: NodePattern = Field(description="The node, or a pattern for several.")


class Hang(OnNode):
    """The guest dies: its runtime takes connections and never answers. After a while the API reports TIMEOUT."""

    do: Literal["hang"]


class Lie(OnNode):
    """The guest dies, and the API still reports READY and HEALTHY."""

    do: Literal["lie"]


class Preempt(OnNode):
    """The capacity is taken back: the metadata server reports it at once; a little later the node is PREEMPTED."""

    do: Literal["preempt"]


class Maintain(OnNode):
    """A maintenance is announced, begins in so many seconds, and ends with a boot of the hosts."""

    do: Literal["maintain"]
    in_seconds: Wait = Field(default=0.0, description="When it begins. 0: now.")
    lasts_seconds: Wait = Field(default=3600.0, description="Its announced duration.")


class Vanish(OnNode):
    """The node is deleted."""

    do: Literal["vanish"]


class Restore(OnNode):
    """The node is as the scenario describes it, and its workload starts again."""

    do: Literal["restore"]


class SetWorkload(OnNode):
    """What the node's workers do from now on; keys that are left out do not change."""

    do: Literal["workload"]
    phase: PhaseName | None = Field(default=None, description="What they do.")
    worker: Worker | None = Field(default=None, description="Only this one.")
    for_seconds: Wait = Field(default=0.0, description="How long they have been at it already.")
    tpuwatch: PlayName | None = Field(default=None, description="What their tpuwatch does, where it is played.")
    cause: CauseName | None = Field(default=None, description="What it reports to have gone wrong; empty: nothing.")


class SetNode(OnNode):
    """What the API reports of the node; keys that are left out do not change."""

    do: Literal["set"]
    state: State | None = Field(default=None, description="Its state.")
    health: Health | None = Field(default=None, description="Its health; empty for none.")
    health_description: Text | None = Field(default=None, description="The API's words on it.")
    symptom: Symptoms | None = Field(default=None, description="A symptom that is added.")
    worker: Worker = Field(default=0, description="The worker that has the symptom.")
    endpoints: Endpoints | None = Field(default=None, description="How many network endpoints it lists.")


class StartLaunch(ScenarioAction):
    """A process on this machine that writes what libtpu and a job write; while it lives, its worker is in `phase`."""

    do: Literal["launch"]
    launch: LaunchName = Field(description="Which one.")
    phase: PhaseName | None = Field(default=None, description="What its worker does, if not as usual.")


class SetQueuedResource(ScenarioAction):
    """A queued resource that the scenario describes gets another state; when it becomes ACTIVE, its nodes are made."""

    do: Literal["queued_resource"]
    name: ShortName = Field(description="Which one.")
    state: QueuedState = Field(description="Its state.")
    error: Text = Field(default="", description="Why it is FAILED, in the API's words.")


class SetFault(ScenarioAction):
    """A fault of calls to one of the services. The newest fault that matches a call applies."""

    do: Literal["fault"]
    method: Method = Field(default="*", description="The method, or * for all.")
    code: Code = Field(default="", description="The gRPC code that is answered. Empty: the right answer.")
    message: Text = Field(default="", description="The error's text.")
    reason: Text = Field(default="", description='Of google.rpc.ErrorInfo, such as "SERVICE_DISABLED".')
    latency_seconds: Wait = Field(default=0.0, description="How long an answer takes.")
    retry_after_seconds: Wait | None = Field(default=None, description="When the caller may try again.")
    black_hole: YesNo = Field(default=False, description="Take the request and never answer.")
    wrong_enum: YesNo = Field(default=False, description="States and health with numbers that no enum has.")
    stale_seconds: Wait = Field(default=0.0, description="Nodes and operations are shown as they were so long ago.")
    drop: FieldNames = Field(default=(), description="Fields and values that are left out of answers.")
    omit: NodePatterns = Field(default=(), description="Nodes that are missing from lists.")
    share: Share = Field(default=1.0, description="Of the calls that it strikes.")
    times: Count | None = Field(default=None, description="How often it strikes; else until it is cleared.")
    resource: Resource = Field(default="*", description="A pattern for the name or parent that is asked for.")
    after_work: YesNo = Field(default=False, description="Do what was asked, then strike: only the answer is lost.")
    half_open: YesNo = Field(
        default=False, description="Connections to the cloud stay open, new ones are accepted, and nothing answers."
    )
    for_seconds: Wait | None = Field(default=None, description="How long it is set; else until it is cleared.")

    @model_validator(mode="after")
    def _strikes(self) -> SetFault:
        if not any(getattr(self, effect) for effect in EFFECTS):
            raise InvalidActionError(f"the fault has no effect; give one of {', '.join(EFFECTS)}")
        fields = type(self).model_fields
        calls = [name for name in fields.keys() - _WITH_HALF_OPEN if getattr(self, name) != fields[name].default]
        if self.half_open and calls:
            raise InvalidActionError(
                f"half_open strikes all connections to the cloud, no calls; leave out {', '.join(sorted(calls))}"
            )
        return self

    def fault(self, now: float) -> InjectedFault:
        """Return the fault for the services. `now` is the world's time."""
        values = self.model_dump(exclude={"at", "say", "do", "for_seconds"})
        return InjectedFault(**values, until=None if self.for_seconds is None else now + self.for_seconds)


class ClearFaults(ScenarioAction):
    """Clear the faults of a method, or all."""

    do: Literal["clear"]
    method: Method = Field(default="*", description="The method, or * for all.")


class ShowMessage(ScenarioAction):
    """Show a message, without any effect."""

    do: Literal["tell"]
    say: Text = Field(description="The sentence.")


_Any = (
    Hang
    | Lie
    | Preempt
    | Maintain
    | Vanish
    | Restore
    | SetWorkload
    | SetNode
    | StartLaunch
    | SetQueuedResource
    | SetFault
    | ClearFaults
    | ShowMessage
)
AnyAction = Annotated[_Any, Field(discriminator="do")]
ADAPTER: TypeAdapter[ScenarioAction] = TypeAdapter(AnyAction)
# By the value of `do`.
ACTIONS: dict[str, type[ScenarioAction]] = {
    get_args(kind.model_fields["do"].annotation)[0]: kind for kind in get_args(_Any)
}
ON_NODES = tuple(word for word, kind in ACTIONS.items() if issubclass(kind, OnNode))
