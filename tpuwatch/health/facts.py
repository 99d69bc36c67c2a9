"""The evidence as the rules use it: what counts now, with ages that are never negative, and what follows from it.

A signal counts while its latest answer is good and recent enough. The local signals cover only the machine's own node.
What is not known is None and decides nothing.
"""

from __future__ import annotations

import math
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.slices import judge_slice
from tpuwatch.model import (
    KIND_VARIABLE,
    Cause,
    Failure,
    Identity,
    Outcome,
    PeerState,
    ProbeVerdict,
    Problem,
    ProgressSource,
    Reason,
    Signal,
    Source,
    Whose,
    Worker,
    WorkloadKind,
    kind_named,
)

if TYPE_CHECKING:
    from tpuwatch.health.limits import JudgeLimits
    from tpuwatch.model import (
        Answer,
        Chip,
        CloudNode,
        Event,
        Evidence,
        Holder,
        Host,
        Launch,
        Logs,
        ModelServer,
        Monitoring,
        Notices,
        Peer,
        PeerVerdict,
        Probe,
        QueuedResource,
        Runtime,
        RuntimePort,
        Slice,
        Symptom,
        TrainingLoop,
    )

NODE_SYMPTOMS: Final = frozenset({"LOW_MEMORY", "OUT_OF_MEMORY", "EXECUTE_TIMED_OUT", "MESH_BUILD_FAIL"})

_UP: Final = frozenset({Outcome.OK, Outcome.SLOW})

_SERVING: Final = (None, Problem.TIMEOUT)  # problems of a port behind which there is a program
_BUSY_CORES: Final = 0.5  # a compile keeps at least one core busy
_IDLE_CORES: Final = 0.1  # what a program uses while it waits
_DIGITS: Final = 6  # of a number of hosts
_MIN_MEMORY_SHARE: Final = 0.01  # memory that is left
_JUDGED_SECONDS: Final = 60.0  # how old the judgement of another tpuwatch may be; it judges every few seconds
_TOOL_SECONDS: Final = 60.0  # tools that look at the TPU, such as tpu-info, are done sooner
SLACK_SECONDS: Final = 60.0  # between things that happen together, as different signals see them


class Cpu(Enum):
    """What the CPU shows of the program that holds the TPU."""

    BUSY = "busy"
    IDLE = "idle"
    UNCLEAR = "unclear"


class Facts:
    """What is known of one node. Made for each judgement."""

    def __init__(self, evidence: Evidence, limits: JudgeLimits) -> None:
        self.evidence = evidence
        self.limits = limits
        self.now = evidence.now
        self.own = evidence.own
        self.cloud = _latest_cloud_node(evidence.cloud, self.now, limits.cloud_seconds)
        self.monitoring: Monitoring | None = self._current(Signal.MONITORING)
        self.runtime: Runtime | None = self._current(Signal.RUNTIME)
        self.host: Host | None = self._current(Signal.HOST)
        self.logs: Logs | None = self._current(Signal.LOGS)
        self.notices: Notices | None = self._current(Signal.METADATA)
        self.kubernetes: Notices | None = self._current(Signal.KUBERNETES)
        self.peer: Peer | None = self._current(Signal.PEER)
        self.server: ModelServer | None = self._current(Signal.SERVER)

    def _current(self, signal: Signal) -> Any:
        """Return what counts now of a signal: the machine's own only of its own node, a peer only of another."""
        if self.own if signal is Signal.PEER else signal.row.local and not self.own:
            return None
        return self.evidence.answer(signal).current(self.now, self.limits.answer_seconds(signal))

    def age(self, when: float | None) -> float | None:
        """Seconds since then; 0 for the future, None where the time is not known."""
        if when is None or not math.isfinite(when) or when <= 0:
            return None
        return max(0.0, self.now - when)

    def is_older(self, when: float | None, seconds: float) -> bool:
        """Whether `when` is known to be at least so long ago."""
        age = self.age(when)
        return age is not None and age >= seconds

    def reason_of(
        self,
        signal: Signal,
        text: str,
        at: float | None = None,
        *,
        sources: frozenset[Source] = frozenset(),
        **more: bool,
    ) -> Reason:
        """Return a reason from a signal, with the time of its answer unless `at` is given, and with its usual source
        unless `sources` are."""
        when = at if at is not None else self.evidence.answer(signal).at
        return Reason(signal, text, when, sources or frozenset({signal.row.source}), **more)

    # The node

    @cached_property
    def identity(self) -> Identity:
        """The node's identity; of one that is watched from elsewhere only its place."""
        identity = self.evidence.identity
        return identity if self.own else Identity(project=identity.project, zone=identity.zone)

    @cached_property
    def has_metadata_server(self) -> bool:
        """Whether a metadata server has answered on this machine."""
        return self.own and any(getattr(self.identity, name).source == "metadata" for name in self.identity.__slots__)

    @cached_property
    def in_kubernetes(self) -> bool:
        """Whether this is a node of Kubernetes, and none that the Cloud TPU API knows."""
        return bool(self.identity.kubernetes.value) and not self.identity.node.value

    @cached_property
    def outside_cloud(self) -> bool:
        """Whether this is a machine outside of Google Cloud without a configured project, zone or node: a laptop."""
        known = (self.identity.project, self.identity.zone, self.identity.node)
        unnamed = self.own and not any(one.value for one in known)
        silence = (self.evidence.cloud.problem, self.evidence.notices.problem)
        return unnamed and silence == (Problem.UNCONFIGURED, Problem.ABSENT)

    @cached_property
    def hosts(self) -> int:
        """How many hosts the node has, the larger number where the signals differ."""
        hosts = self.identity.hosts.value
        known = int(hosts) if hosts.isascii() and hosts.isdecimal() and len(hosts) <= _DIGITS else 1
        return max(self.cloud.hosts if self.cloud else 1, known)

    @cached_property
    def is_spot(self) -> bool:
        """Whether any source reports that the node is spot or preemptible."""
        return bool(self.cloud and self.cloud.spot) or self.identity.spot.value == "yes"

    @cached_property
    def serves_metrics(self) -> bool:
        """Whether a program on this TPU is known to serve runtime metrics."""
        return bool(self.accelerator) and not self.lacks_metrics

    @cached_property
    def lacks_metrics(self) -> bool:
        """Whether it is known to serve none, as on v2 and v3; without a type neither is known."""
        return self.accelerator.startswith(("v2-", "v3-"))

    @cached_property
    def accelerator(self) -> str:
        """The node's type in small letters; empty where none is known."""
        return (self.identity.accelerator.value or (self.cloud.accelerator if self.cloud else "")).lower()

    @cached_property
    def is_gone(self) -> bool:
        """The API was asked just now, with success, and has no such node."""
        answer = self.evidence.cloud
        return answer.problem is Problem.GONE and self._is_recent(answer.tried, self.limits.cloud_seconds)

    @cached_property
    def knows_queue(self) -> bool:
        """Whether it is known which queued resource, if any, makes a node that is not listed, or not READY."""
        return self._is_recent(self.evidence.queued.at, self.limits.queued_seconds)

    @cached_property
    def queued(self) -> QueuedResource | None:
        """The queued resource of such a node; None also where it is not known."""
        return self.evidence.queued.value if self.knows_queue else None

    @cached_property
    def symptoms(self) -> tuple[Symptom, ...]:
        """The API's symptoms that still count, the newest first."""
        symptoms = self.cloud.symptoms if self.cloud else ()
        return tuple(sorted((one for one in symptoms if self._is_current(one.at)), key=lambda one: -(one.at or 0.0)))

    # The tpuwatch on a node that is watched from elsewhere

    @cached_property
    def peer_verdict(self) -> PeerVerdict | None:
        """The verdict of the node's own tpuwatch, if its answer is recent and its judgement was too."""
        verdict = self.peer.verdict if self.peer else None
        if self.peer is None or verdict is None or self.peer.tries > 1:  # one answer may be lost
            return None
        if not self._is_recent(self.peer.answered, self.limits.peer_seconds):
            return None
        return verdict if verdict.age <= _JUDGED_SECONDS else None

    @cached_property
    def peer_silent(self) -> float | None:
        """For how long the node's own tpuwatch has been silent, where that counts: it answered before, and the machine
        does not even refuse the connection."""
        peer = self.peer
        age = self.age(peer.silent_since) if peer else None
        if peer is None or age is None or peer.refuses or peer.tries < self.limits.silent_tries:
            return None
        return age if age >= self.limits.silent_seconds else None

    @cached_property
    def peer_fell_silent(self) -> bool:
        """Whether it has been silent since about when the cloud came to call the node bad, not since long before."""
        bad = self.age(self.cloud.changed) if self.cloud else None
        return (
            self.peer_silent is not None
            and bad is not None
            and self.peer_silent <= bad + self.limits.silent_ahead_seconds
        )

    # The runtime

    @cached_property
    def runtime_absent(self) -> bool:
        """Whether no process served runtime metrics at the latest request, just now."""
        answer = self.evidence.runtime
        young = self._is_recent(answer.tried, self.limits.runtime_seconds)
        return self.own and answer.problem is Problem.ABSENT and young

    @cached_property
    def chips(self) -> tuple[Chip, ...]:
        """All chips of which the runtime reports whether they run anything."""
        return tuple(chip for chip in self.runtime.chips if not chip.reports_nothing) if self.runtime else ()

    @cached_property
    def running_chips(self) -> tuple[Chip, ...]:
        """Chips that run programs."""
        return tuple(chip for chip in self.chips if self._is_running(chip))

    @property
    def running(self) -> bool:
        """Whether a program is known to run on a chip."""
        return bool(self.running_chips)

    @cached_property
    def rarely_runs(self) -> bool:
        """Whether that is known only by programs that ran minutes ago: the next step may still be prepared."""
        return self.running and not any(self._runs_now(chip) for chip in self.chips)

    @property
    def works(self) -> bool:
        """Whether a program here has just run something, or made a step."""
        return (self.running and not self.rarely_runs) or self.stepping is not None

    @cached_property
    def idle_seconds(self) -> float | None:
        """For how long no chip at all has run anything; None if not reported."""
        idle = [seconds for chip in self.chips if (seconds := number(chip.idle_seconds)) is not None]
        return min(idle) if idle and not self.running else None

    @cached_property
    def queued_programs(self) -> int:
        """The number of programs that wait for a chip, by runtimes that nobody else can pretend to be."""
        ports = self.runtime.ports if self.runtime else ()
        return sum(max(0, port.hlo_queue or 0) for port in ports if self.listens_since(port) is not None)

    def listens_since(self, port: RuntimePort) -> float | None:
        """Since when nobody is known to listen there but who holds the TPU, or root; None where anybody may."""
        listeners = self.host.listeners if self.host else ()
        return next((one.since for one in listeners if one.port == port.port), None)

    @cached_property
    def chips_source(self) -> Source:
        """Who reports what the chips do."""
        ports = [port for port in self.runtime.ports if port.chips] if self.runtime else []
        known = bool(ports) and all(self.listens_since(port) is not None for port in ports)
        return Source.RUNTIME if known else Source.PROCESS

    @cached_property
    def hung_port(self) -> RuntimePort | None:
        """A port that takes connections and does not answer, the one that has done so longest; first of those on which
        only the runtime can listen.

        Where everything on the machine can be seen, a port is not libtpu's if another process than the TPU's holder
        listens there.
        """
        ports = [port for port in self.runtime.ports if port.problem is Problem.TIMEOUT] if self.runtime else []
        if self.host is not None and not self.host.unseen:
            ports = [port for port in ports if self.host.holders and self.listens_since(port) is not None]
        return max(
            ports, key=lambda port: (self.listens_since(port) is not None, self.age(port.since) or 0.0), default=None
        )

    @cached_property
    def hung_source(self) -> Source:
        """Whose silence the hung port's is: the runtime's, if only that has listened there for a compile's time."""
        since = self.listens_since(self.hung_port) if self.hung_port else None
        return Source.RUNTIME if self.is_older(since, self.limits.compile_grace_seconds) else Source.PROCESS

    # The host

    @cached_property
    def booted_at(self) -> float | None:
        """When the machine booted: that stays true however old the answer is."""
        host = self.evidence.host.value if self.own else None
        return host.booted if host and self.age(host.booted) is not None else None

    @cached_property
    def holders(self) -> tuple[Holder, ...]:
        """Processes that hold the TPU, the oldest first."""
        return tuple(sorted(self.host.holders, key=lambda one: one.started or math.inf)) if self.host else ()

    @cached_property
    def main_holders(self) -> tuple[Holder, ...]:
        """The holders that count: those that only just came beside older ones are tools that look at the TPU."""
        older = tuple(one for one in self.holders if one.started is None or self.is_older(one.started, _TOOL_SECONDS))
        return older or self.holders

    @property
    def likely_holders(self) -> tuple[Holder, ...]:
        """Of these the ones that are known to have a device open, if there are any."""
        return tuple(one for one in self.main_holders if one.trusted) or self.main_holders

    @property
    def holders_source(self) -> Source:
        """Who shows that the TPU is held: the kernel, unless it is only a lock or a name, which any user can make."""
        return Source.KERNEL if any(one.trusted for one in self.main_holders) else Source.PROCESS

    @cached_property
    def blocked(self) -> Holder | None:
        """The holder whose call on a device has been blocked in the kernel longest, if for longer than a compile."""
        longest = max(self.main_holders, key=lambda one: number(one.blocked_seconds) or 0.0, default=None)
        seconds = number(longest.blocked_seconds) if longest is not None else None
        return longest if seconds is not None and seconds >= self.limits.compile_grace_seconds else None

    @cached_property
    def program_pids(self) -> tuple[int, ...]:
        """Pids of the program that holds the TPU: of its launches where logs show them, else the oldest holders.

        There are none where several programs may hold it, as it may be one of them alone: holders of several users,
        launches that did not begin together, or more processes that serve metrics than began together.
        """
        if len({one.user for one in self.main_holders}) != 1:
            return ()
        launched = tuple(one for one in self.main_holders if self.logs is not None and one.pid in self.logs.alive)
        oldest = (launched or self.main_holders)[0].started or 0.0
        together = [one for one in launched or self.main_holders if (one.started or 0.0) <= oldest + SLACK_SECONDS]
        ports = [port for port in self.runtime.ports if port.problem in _SERVING] if self.runtime else []
        others = len(together) < len(launched) or len(together) < min(len(self.main_holders), len(ports))
        return () if others else tuple(one.pid for one in together)

    @cached_property
    def cpu(self) -> Cpu:
        """What the holders' use of the CPU shows. Nothing, where none is seen: the CPU time of others is no evidence of
        a compile."""
        used = [number(holder.cpu_cores) for holder in self.likely_holders]
        known = [cores for cores in used if cores is not None]
        if sum(known) >= _BUSY_CORES:
            return Cpu.BUSY
        return Cpu.IDLE if known and len(known) == len(used) and sum(known) < _IDLE_CORES else Cpu.UNCLEAR

    @property
    def launch_oom_killed(self) -> bool:
        """Whether that ended the newest launch. The kernel may have killed any other process."""
        return self.oom_killed and bool(self.launches) and Cause.HOST_OOM.value in self.launches[0].faults

    @cached_property
    def oom_killed(self) -> bool:
        """Whether the kernel has killed for lack of memory since the last launch came up."""
        return bool(self.host and self.host.oom_kills and self._is_current(self.host.last_oom_kill))

    @cached_property
    def out_of_memory(self) -> bool:
        """Whether next to no memory is left."""
        host = self.host
        if host is None or not host.memory_total_bytes or host.memory_available_bytes is None:
            return False
        return host.memory_available_bytes < _MIN_MEMORY_SHARE * host.memory_total_bytes

    @cached_property
    def probe(self) -> Probe | None:
        """The latest probe of the TPU, if it is evidence: of this boot, fresh, and later than the last launch."""
        probe = self.host.probe if self.host is not None else None
        if probe is None or self.host is None or probe.objection or probe.boot_id != self.host.boot_id:
            return None
        fresh = probe.began <= probe.ended and not self.is_older(probe.began, self.limits.probe_seconds)
        return probe if fresh and self._is_current(probe.began) else None

    @property
    def probe_works(self) -> bool:
        """Whether a probe that began after the cloud came to call the node bad has had the TPU compute right."""
        changed = self.cloud.changed if self.cloud is not None else None
        probe = self.probe
        works = probe is not None and probe.verdict in (ProbeVerdict.WORKS, ProbeVerdict.PROGRAM_FAULT)
        return works and probe is not None and changed is not None and probe.began > changed

    # The workload

    @cached_property
    def kind(self) -> WorkloadKind | None:
        """The kind of workload: by the configuration, else by what those that hold the TPU are or say, else serving
        where a server answers. None where nothing is known to run; a program that shows no kind is training."""
        if not self.own:
            return self.peer_verdict.kind if self.peer_verdict is not None else None
        if self.limits.workload_kind is not None:
            return self.limits.workload_kind
        kinds = {one.kind for one in self.likely_holders}
        if kinds <= {None} and self.launch is not None:
            kinds = {kind_named(self.launch.environment.get(KIND_VARIABLE))}
        if kinds <= {None} and self.server is not None:
            return WorkloadKind.SERVING
        if not kinds and not self.has_program:
            return None
        return next(iter(kinds)) or WorkloadKind.TRAINING if len(kinds) == 1 else WorkloadKind.TRAINING

    @property
    def _models(self) -> ModelServer | None:
        """What the server reports, where the workload is one."""
        return self.server if self.kind is WorkloadKind.SERVING else None

    @property
    def server_has_none(self) -> bool:
        """Whether the server reports that it has no requests."""
        return self._models is not None and not self._models.requests

    @property
    def server_works(self) -> bool:
        """Whether the server has just made progress."""
        return self._models is not None and self._is_recent(self._models.progressed, self.limits.step_seconds)

    @property
    def server_stalled_seconds(self) -> float | None:
        """For how long the server has had requests and made no progress; None while it has none."""
        return self.age(self._models.stalled_since) if self._models is not None else None

    @property
    def awaits_input(self) -> bool:
        """Whether nothing need run: of a program that waits for its user, of a server without requests."""
        return self.kind is WorkloadKind.INTERACTIVE or self.server_has_none

    # Launches and events

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of this boot, the newest first."""
        launches = self.logs.launches if self.logs else ()
        of_boot = (one for one in launches if self.booted_at is None or one.started >= self.booted_at)
        return tuple(sorted(of_boot, key=lambda one: -one.started))

    @cached_property
    def launch(self) -> Launch | None:
        """The newest launch whose process lives."""
        return next((one for one in self.launches if self.is_alive(one)), None)

    @cached_property
    def loops(self) -> tuple[TrainingLoop, ...]:
        """The training loops of the program that holds the TPU, by its own word. The kernel names who sends heartbeats;
        whose output a file has is seldom known, and anybody may write it."""
        held = {holder.pid for holder in self.holders}
        loops = self.evidence.loops if self.own else ()
        return tuple(one for one in loops if one.is_running and (one.pid is None or one.pid in held))

    @cached_property
    def stepping(self) -> TrainingLoop | None:
        """A loop that has just made a step."""
        return next((one for one in self.loops if self._is_recent(one.stepped, self._step_seconds(one))), None)

    @property
    def holder_loop(self) -> TrainingLoop | None:
        """The loop of a process that holds the TPU, whether it steps now or not; not of an output that is of nobody."""
        return next((one for one in self.loops if one.pid is not None), None)

    @property
    def output_loop(self) -> TrainingLoop | None:
        """The loop of an output of no known process that has made a step since the TPU was taken, and goes on."""
        held_since = min((one.started or 0.0 for one in self.main_holders), default=0.0)
        loops = (one for one in self.loops if one.pid is None and Cause.STEPS_STALLED not in one.faults)
        return next((one for one in loops if one.stepped >= held_since), None)

    @property
    def holder_steps(self) -> bool:
        """Whether a holder of the TPU has just made a step, by a heartbeat whose sender the kernel names."""
        return self.stepping is not None and self.stepping.source is ProgressSource.HEARTBEAT

    @cached_property
    def stalled_loop(self) -> TrainingLoop | None:
        """A loop that stands still, if none makes steps."""
        stalled = (one for one in self.loops if Cause.STEPS_STALLED in one.faults)
        return next(stalled, None) if self.stepping is None else None

    def _step_seconds(self, loop: TrainingLoop) -> float:
        """How long ago the latest step of a loop may be that goes on."""
        usual = max(loop.usual_step_seconds or 0.0, loop.step_seconds or 0.0)
        return min(max(self.limits.step_seconds, 2 * usual), self.limits.slow_step_seconds)

    def is_alive(self, launch: Launch) -> bool:
        """Whether the launch's process is there."""
        return self.logs is not None and launch.pid in self.logs.alive

    def is_up(self, launch: Launch) -> bool:
        """Whether the launch's TPU came up."""
        return launch.outcome in _UP

    @cached_property
    def quiet_seconds(self) -> float | None:
        """Seconds since the latest sign of life of the present program: its start, or a line in its log.

        Of several holders the oldest counts: later ones are its children, or tools that look at the TPU.
        """
        begun = [age for holder in self.main_holders if (age := self.age(holder.started)) is not None]
        quiet = [self.age(max(one.started, one.last_heard or 0.0)) for one in self.launches if self.is_alive(one)]
        known = [seconds for seconds in (*([max(begun)] if begun else []), *quiet) if seconds is not None]
        return min(known) if known else None

    @cached_property
    def _began(self) -> float | None:
        """For how many seconds there has been a program: the age of the oldest that is there."""
        living = [self.age(one.started) for one in self.launches if self.is_alive(one)]
        known = [age for age in (*(self.age(one.started) for one in self.holders), *living) if age is not None]
        return max(known) if known else None

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Events that still count, the newest first."""
        events = self.logs.events if self.logs else ()
        return tuple(
            sorted((one for one in events if not one.history and self._is_current(one.when)), key=lambda one: -one.when)
        )

    def is_since_idle(self, when: float | None) -> bool:
        """Whether something happened when the chips ran their last program, or later."""
        age = self.age(when)
        return age is not None and self.idle_seconds is not None and age <= self.idle_seconds + SLACK_SECONDS

    def is_of_program(self, event: Event) -> bool:
        """Whether an event is one of the program that holds the TPU, by its pid."""
        alive = self.logs.alive if self.logs is not None else frozenset()
        return event.pid is not None and event.pid in alive | {holder.pid for holder in self.main_holders}

    @cached_property
    def failure(self) -> Failure | None:
        """The first event that may explain why a program on this machine ended or stands still; None of a node that is
        watched from elsewhere. What it reports of another worker counts only where there is nothing else."""
        blamed = [one for one in self.events if one.cause.is_known_fault and one.cause.row.whose is not Whose.NONE]
        own = [one for one in blamed if one.cause.row.whose is not Whose.OTHER_WORKER]
        first = min(own or blamed, key=lambda one: one.when, default=None)
        return Failure(first.cause, first.when) if first is not None and self.own else None

    @cached_property
    def slice(self) -> Slice | None:
        """The workers of a node with several; None of one with a single worker."""
        number = self.identity.worker.value
        answering, failure = PeerState.ANSWERING, self.failure
        here = Worker(int(number), answering, self.now, failure=failure, own=True) if self.own and number else None
        return judge_slice(
            self.evidence.workers,
            here,
            own=self.own,
            hosts=self.hosts,
            now=self.now,
            worker_seconds=self.limits.worker_seconds,
        )

    def event(self, *whose: Whose) -> Event | None:
        """The newest event that is the fault of one of these."""
        return next((one for one in self.events if one.cause.row.whose in whose), None)

    @property
    def hanging_event(self) -> Event | None:
        """The newest event after which a chip that counts as busy may wait forever."""
        return next((one for one in self.events if one.cause.row.hangs), None)

    @cached_property
    def has_program(self) -> bool:
        """Whether a program is known to hold the TPU, or to be about to."""
        ports = self.runtime.ports if self.runtime else ()
        serving = self.hung_port is not None or any(port.problem is None for port in ports)
        return bool(self.holders) or self.launch is not None or serving

    @cached_property
    def _came_up(self) -> float:
        """When the newest launch began that came up: what was before it is over."""
        return max((min(one.started, self.now) for one in self.launches if self.is_up(one)), default=0.0)

    def _is_current(self, when: float | None) -> bool:
        """Whether something of that time is of this boot, fresh, and not over since."""
        age = self.age(when)
        if age is None or when is None or age > self.limits.event_seconds:
            return False
        return when >= max(self.booted_at or 0.0, self._came_up)

    def _is_recent(self, when: float | None, seconds: float) -> bool:
        age = self.age(when)
        return age is not None and age <= seconds

    def _runs_now(self, chip: Chip) -> bool:
        idle = number(chip.idle_seconds)
        return (number(chip.duty_cycle) or 0.0) > 0 or (idle is not None and idle < self.limits.step_seconds)

    def _is_running(self, chip: Chip) -> bool:
        """Whether it runs programs now, or may be between two steps, which may take minutes."""
        if self._runs_now(chip):
            return True
        idle, began = number(chip.idle_seconds), self._began
        if idle is None or idle >= self.limits.slow_step_seconds:
            return False
        if self.queued_programs or self.hanging_event is not None:
            return False  # there is a better explanation
        # A chip that has run nothing since the program came up is one of a compile.
        return began is None or began - idle >= self.limits.compile_grace_seconds


def number(value: float | None) -> float | None:
    """The number, at least 0, if there is one that can be reckoned with."""
    return max(0.0, value) if value is not None and math.isfinite(value) else None


def _latest_cloud_node(answer: Answer[CloudNode], now: float, seconds: float) -> CloudNode | None:
    """What the cloud reports of a node, if it reported so within `seconds`.

    Where it had nothing to say against the node, attempts since then may have failed: one lost poll makes no fleet
    unknown. Anything else counts only as the answer to the latest attempt.
    """
    node = answer.value
    if node is None or answer.problem is None or answer.problem is Problem.GONE:
        return answer.current(now, seconds)
    calm = node.well and not node.symptoms and node.maintenance is None
    return node if calm and answer.at is not None and now - answer.at <= seconds else None
