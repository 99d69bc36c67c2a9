"""The evidence as the rules use it: what counts now, with ages that are never negative, and what follows from it.

A witness is heard when its latest answer is good and young enough. The local witnesses speak only of the machine's own
node. What is not known is None and decides nothing.
"""

from __future__ import annotations

import math
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.causes import HARDWARE_FAULTS, OTHERS_FAULTS
from tpuwatch.health.evidence import Identity, Problem, Witness, latest_word
from tpuwatch.health.verdict import Reason
from tpuwatch.model import Outcome

if TYPE_CHECKING:
    from tpuwatch.health.evidence import Answer, Chip, Evidence, Holder, RuntimePort, Symptom, Word
    from tpuwatch.health.limits import Limits
    from tpuwatch.model import Cause, Event, Launch

_UP: Final = frozenset({Outcome.OK, Outcome.SLOW})

_SERVING: Final = (None, Problem.TIMEOUT)  # problems of a port behind which there is a program
_WORKING_CORES: Final = 0.5  # a compile keeps at least one core busy
_RESTING_CORES: Final = 0.1  # what a program's own waiting takes
_WORKING_MACHINE: Final = 0.8  # cores, where only the machine as a whole is seen: others use it too
_DIGITS: Final = 6  # of a number of hosts
_STARVED_SHARE: Final = 0.01  # memory that is left
_JUDGED_SECONDS: Final = 60.0  # how old the judgement of another tpuwatch may be; it judges every few seconds
_TOOL_SECONDS: Final = 60.0  # tools that look at the TPU, such as tpu-info, are done sooner
SLACK_SECONDS: Final = 60.0  # between things that happen together, as different witnesses see them


class Cpu(Enum):
    """What the processors show of the program that holds the TPU."""

    WORKING = "working"
    RESTING = "resting"
    UNCLEAR = "unclear"


class Facts:
    """What is known of one node. Made anew for each judgement."""

    def __init__(self, evidence: Evidence, limits: Limits) -> None:
        self.evidence = evidence
        self.limits = limits
        self.now = evidence.now
        self.own = evidence.own
        self.cloud = latest_word(evidence.cloud, self.now, limits.cloud_seconds)
        self.monitoring = evidence.monitoring.current(self.now, limits.monitoring_seconds)
        self.runtime = evidence.runtime.current(self.now, limits.runtime_seconds) if self.own else None
        self.host = evidence.host.current(self.now, limits.host_seconds) if self.own else None
        self.logs = evidence.logs.current(self.now, limits.logs_seconds) if self.own else None
        self.notices = evidence.notices.current(self.now, limits.notices_seconds) if self.own else None
        self.agent = evidence.agent.current(self.now, limits.agent_seconds) if not self.own else None

    def age(self, when: float | None) -> float | None:
        """Seconds since then; 0 for the future, None where the time is not known."""
        if when is None or not math.isfinite(when) or when <= 0:
            return None
        return max(0.0, self.now - when)

    def older(self, when: float | None, seconds: float) -> bool:
        """Whether it is known to be at least so long ago."""
        age = self.age(when)
        return age is not None and age >= seconds

    def says(self, witness: Witness, text: str, at: float | None = None) -> Reason:
        """What a witness says, with the time of its answer unless there is a better one."""
        return Reason(witness, text, at if at is not None else self.answer(witness).at)

    def answer(self, witness: Witness) -> Answer[Any]:
        """The witness's answer as it came."""
        evidence = self.evidence
        answers: dict[Witness, Answer[Any]] = {
            Witness.CLOUD: evidence.cloud,
            Witness.RUNTIME: evidence.runtime,
            Witness.HOST: evidence.host,
            Witness.LOGS: evidence.logs,
            Witness.METADATA: evidence.notices,
            Witness.MONITORING: evidence.monitoring,
            Witness.AGENT: evidence.agent,
        }
        return answers[witness]

    # The node

    @cached_property
    def identity(self) -> Identity:
        """Who the node is; of one that is watched from elsewhere only where it is."""
        told = self.evidence.identity
        return told if self.own else Identity(project=told.project, zone=told.zone)

    @cached_property
    def has_metadata_server(self) -> bool:
        """Whether a metadata server has told anything of this machine."""
        return self.own and any(getattr(self.identity, name).source == "metadata" for name in self.identity.__slots__)

    @cached_property
    def outside(self) -> bool:
        """Whether this is a machine outside of Google Cloud that was told of no project, zone or node: a laptop."""
        known = (self.identity.project, self.identity.zone, self.identity.node)
        unnamed = self.own and not any(one.value for one in known)
        silence = (self.evidence.cloud.problem, self.evidence.notices.problem)
        return unnamed and silence == (Problem.UNCONFIGURED, Problem.ABSENT)

    @cached_property
    def hosts(self) -> int:
        """How many hosts the node has, the larger number where the witnesses differ."""
        told = self.identity.hosts.value
        known = int(told) if told.isascii() and told.isdecimal() and len(told) <= _DIGITS else 1
        return max(self.cloud.hosts if self.cloud else 1, known)

    @cached_property
    def spot(self) -> bool:
        """Whether anybody says that the node is spot or preemptible."""
        return bool(self.cloud and self.cloud.spot) or self.identity.spot.value == "yes"

    @cached_property
    def serves_metrics(self) -> bool:
        """Whether a program on this TPU is known to serve runtime metrics."""
        return bool(self._type) and not self.lacks_metrics

    @cached_property
    def lacks_metrics(self) -> bool:
        """Whether it is known to serve none, as on v2 and v3; without a type neither is known."""
        return self._type.startswith(("v2-", "v3-"))

    @cached_property
    def _type(self) -> str:
        return (self.identity.accelerator.value or (self.cloud.accelerator if self.cloud else "")).lower()

    @cached_property
    def gone(self) -> bool:
        """The API was asked just now, with success, and has no such node."""
        answer = self.evidence.cloud
        return answer.problem is Problem.GONE and self._young(answer.tried, self.limits.cloud_seconds)

    @cached_property
    def symptoms(self) -> tuple[Symptom, ...]:
        """The API's symptoms that still count, the newest first."""
        told = self.cloud.symptoms if self.cloud else ()
        return tuple(sorted((one for one in told if self._counts(one.at)), key=lambda one: -(one.at or 0.0)))

    # The tpuwatch on a node that is watched from elsewhere

    @cached_property
    def word(self) -> Word | None:
        """What the node's own tpuwatch makes of it, if it has said so just now, and judged just before."""
        word = self.agent.word if self.agent else None
        if self.agent is None or word is None or self.agent.tries > 1:  # one answer may be lost
            return None
        if not self._young(self.agent.answered, self.limits.agent_seconds):
            return None
        return word if word.age <= _JUDGED_SECONDS else None

    @cached_property
    def silent(self) -> float | None:
        """For how long the node's own tpuwatch has been silent, where that counts: it answered before, and the machine
        does not even refuse the connection."""
        agent = self.agent
        age = self.age(agent.silent_since) if agent else None
        if agent is None or age is None or agent.refuses or agent.tries < self.limits.silent_tries:
            return None
        return age if age >= self.limits.silent_seconds else None

    @cached_property
    def fell_silent(self) -> bool:
        """Whether it has been silent since about when the cloud came to call the node bad, not since long before."""
        bad = self.age(self.cloud.changed) if self.cloud else None
        return self.silent is not None and bad is not None and self.silent <= bad + self.limits.silent_ahead_seconds

    # The runtime

    @cached_property
    def absent(self) -> bool:
        """Nobody served runtime metrics when they were last asked for, just now."""
        answer = self.evidence.runtime
        young = self._young(answer.tried, self.limits.runtime_seconds)
        return self.own and answer.problem is Problem.ABSENT and young

    @cached_property
    def chips(self) -> tuple[Chip, ...]:
        """All chips of which the runtime tells whether they run anything."""
        return tuple(chip for chip in self.runtime.chips if not chip.mute) if self.runtime else ()

    @cached_property
    def working_chips(self) -> tuple[Chip, ...]:
        """Chips that run programs."""
        return tuple(chip for chip in self.chips if self._steps(chip))

    @property
    def stepping(self) -> bool:
        """Whether a program is known to run on a chip."""
        return bool(self.working_chips)

    @cached_property
    def slow(self) -> bool:
        """Whether that is known only by programs that ran minutes ago: the next step may still be prepared."""
        return self.stepping and not any(self._runs(chip) for chip in self.chips)

    @cached_property
    def idle(self) -> float | None:
        """For how long no chip at all has run anything; None where that is not told."""
        told = [seconds for chip in self.chips if (seconds := number(chip.idle_seconds)) is not None]
        return min(told) if told and not self.stepping else None

    @cached_property
    def waiting(self) -> int:
        """Programs that wait for a chip."""
        return sum(max(0, port.hlo_queue or 0) for port in self.runtime.ports) if self.runtime else 0

    @cached_property
    def hung(self) -> RuntimePort | None:
        """A port that takes connections and does not answer, the one that has done so longest.

        Where everything on the machine can be seen and nobody holds the TPU, it is not libtpu's.
        """
        if self.host is not None and not self.host.unseen and not self.host.holders:
            return None
        ports = [port for port in self.runtime.ports if port.problem is Problem.TIMEOUT] if self.runtime else []
        return max(ports, key=lambda port: self.age(port.since) or 0.0, default=None)

    # The host

    @cached_property
    def booted(self) -> float | None:
        """When the machine booted: that stays true however old the answer is."""
        host = self.evidence.host.value if self.own else None
        return host.booted if host and self.age(host.booted) is not None else None

    @cached_property
    def holders(self) -> tuple[Holder, ...]:
        """Processes that hold the TPU, the oldest first."""
        return tuple(sorted(self.host.holders, key=lambda one: one.started or math.inf)) if self.host else ()

    @cached_property
    def holding(self) -> tuple[Holder, ...]:
        """The holders that count: those that only just came beside older ones are tools that look at the TPU."""
        older = tuple(one for one in self.holders if one.started is None or self.older(one.started, _TOOL_SECONDS))
        return older or self.holders

    @cached_property
    def culprits(self) -> tuple[int, ...]:
        """Pids of the program that holds the TPU: of its launches where logs tell of them, else the oldest holders.

        There are none where several programs may hold it, as it may be one of them alone: holders of several users,
        launches that did not begin together, or more processes that serve metrics than began together.
        """
        if len({one.user for one in self.holding}) != 1:
            return ()
        launched = tuple(one for one in self.holding if self.logs is not None and one.pid in self.logs.alive)
        oldest = (launched or self.holding)[0].started or 0.0
        together = [one for one in launched or self.holding if (one.started or 0.0) <= oldest + SLACK_SECONDS]
        ports = [port for port in self.runtime.ports if port.problem in _SERVING] if self.runtime else []
        others = len(together) < len(launched) or len(together) < min(len(self.holding), len(ports))
        return () if others else tuple(one.pid for one in together)

    @cached_property
    def cpu(self) -> Cpu:
        """What the holders' use of processors shows; the machine's where no holder is seen."""
        if self.host is None:
            return Cpu.UNCLEAR
        used = [number(holder.cpu_cores) for holder in self.holding]
        known = [cores for cores in used if cores is not None]
        if sum(known) >= _WORKING_CORES:
            return Cpu.WORKING
        if known:
            return Cpu.RESTING if len(known) == len(used) and sum(known) < _RESTING_CORES else Cpu.UNCLEAR
        # A share alone tells nothing: one core that compiles is 0.4 % of a machine with 240.
        busy, cores = number(self.host.cpu_busy), self.host.cores
        if busy is None or not cores:
            return Cpu.UNCLEAR
        if busy * cores >= _WORKING_MACHINE:
            return Cpu.WORKING
        return Cpu.RESTING if busy * cores < _RESTING_CORES else Cpu.UNCLEAR

    @cached_property
    def killed(self) -> bool:
        """The kernel has killed for lack of memory since the last launch came up."""
        return bool(self.host and self.host.oom_kills and self._counts(self.host.last_oom_kill))

    @cached_property
    def starved(self) -> bool:
        """Next to no memory is left."""
        host = self.host
        if host is None or not host.memory_total_bytes or host.memory_available_bytes is None:
            return False
        return host.memory_available_bytes < _STARVED_SHARE * host.memory_total_bytes

    # Launches and events

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of this boot, the newest first."""
        told = self.logs.launches if self.logs else ()
        of_boot = (one for one in told if self.booted is None or one.started >= self.booted)
        return tuple(sorted(of_boot, key=lambda one: -one.started))

    @cached_property
    def launch(self) -> Launch | None:
        """The newest launch whose process lives."""
        return next((one for one in self.launches if self.lives(one)), None)

    def lives(self, launch: Launch) -> bool:
        """Whether the launch's process is there."""
        return self.logs is not None and launch.pid in self.logs.alive

    def is_up(self, launch: Launch) -> bool:
        """Whether the launch's TPU came up."""
        return launch.outcome in _UP

    @cached_property
    def quiet(self) -> float | None:
        """Seconds since the program that is there gave its latest sign: it began, or its log spoke.

        Of several holders the oldest counts: those that came later are its children, or tools that look at the TPU.
        """
        begun = [age for holder in self.holding if (age := self.age(holder.started)) is not None]
        heard = [self.age(max(one.started, one.last_heard or 0.0)) for one in self.launches if self.lives(one)]
        known = [seconds for seconds in (*([max(begun)] if begun else []), *heard) if seconds is not None]
        return min(known) if known else None

    @cached_property
    def _began(self) -> float | None:
        """For how many seconds there has been a program: the age of the oldest that is there."""
        living = [self.age(one.started) for one in self.launches if self.lives(one)]
        known = [age for age in (*(self.age(one.started) for one in self.holders), *living) if age is not None]
        return max(known) if known else None

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Events that still count, the newest first."""
        told = self.logs.events if self.logs else ()
        return tuple(
            sorted((one for one in told if not one.history and self._counts(one.when)), key=lambda one: -one.when)
        )

    def since_idle(self, when: float | None) -> bool:
        """Whether something happened when the chips ran their last program, or later."""
        age = self.age(when)
        return age is not None and self.idle is not None and age <= self.idle + SLACK_SECONDS

    def of_program(self, event: Event) -> bool:
        """Whether an event is one of the program that holds the TPU, by its pid."""
        alive = self.logs.alive if self.logs is not None else frozenset()
        return event.pid is not None and event.pid in alive | {holder.pid for holder in self.holding}

    def event(self, causes: frozenset[Cause]) -> Event | None:
        """The newest event of these causes."""
        return next((one for one in self.events if one.cause in causes), None)

    @cached_property
    def program(self) -> bool:
        """Whether a program is known to hold the TPU, or to be about to."""
        ports = self.runtime.ports if self.runtime else ()
        serving = self.hung is not None or any(port.problem is None for port in ports)
        return bool(self.holders) or self.launch is not None or serving

    @cached_property
    def _came_up(self) -> float:
        """When the newest launch began that came up: what was before it is over."""
        return max((min(one.started, self.now) for one in self.launches if self.is_up(one)), default=0.0)

    def _counts(self, when: float | None) -> bool:
        """Whether something of that time is of this boot, fresh, and not over since."""
        age = self.age(when)
        if age is None or when is None or age > self.limits.event_seconds:
            return False
        return when >= max(self.booted or 0.0, self._came_up)

    def _young(self, when: float | None, seconds: float) -> bool:
        age = self.age(when)
        return age is not None and age <= seconds

    def _runs(self, chip: Chip) -> bool:
        idle = number(chip.idle_seconds)
        return (number(chip.duty_cycle) or 0.0) > 0 or (idle is not None and idle < self.limits.step_seconds)

    def _steps(self, chip: Chip) -> bool:
        """Whether it runs programs now, or may be between two steps, which may take minutes."""
        if self._runs(chip):
            return True
        idle, began = number(chip.idle_seconds), self._began
        if idle is None or idle >= self.limits.slow_step_seconds:
            return False
        if self.waiting or self.event(OTHERS_FAULTS | HARDWARE_FAULTS) is not None:
            return False  # there is a better explanation
        # A chip that has run nothing since the program came up is one of a compile.
        return began is None or began - idle >= self.limits.compile_grace_seconds


def number(value: float | None) -> float | None:
    """The number, at least 0, if there is one that can be reckoned with."""
    return max(0.0, value) if value is not None and math.isfinite(value) else None
