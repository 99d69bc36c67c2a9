"""What situations are made of: signals' answers at one moment, with plain defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Event
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.signals import (
    Chip,
    CloudNode,
    Evidence,
    Holder,
    Host,
    Identity,
    Known,
    Listener,
    Logs,
    Monitoring,
    Notices,
    Peer,
    QueuedResource,
    Runtime,
    RuntimePort,
    Symptom,
)
from tpuwatch.model.verdict import Action, Verdict

T = TypeVar("T")

NOW = 1_790_000_000.0
MINUTE = 60.0
HOUR = 3600.0
DAY = 24 * HOUR
GIB = 1 << 30
PID = 4711

OFF: Answer[Any] = Answer(problem=Problem.OFF)
ABSENT: Answer[Any] = Answer(problem=Problem.ABSENT, tried=NOW - 5)
NOT_READ: Answer[Any] = Answer()
WAITING = ("CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES")  # states of queued resources


@dataclass(frozen=True)
class Situation:
    """Evidence, and what is to be made of it. () leaves the thing open, except for `contradictions`."""

    name: str
    evidence: Evidence
    judged: (
        str  # verdict and action, and where it matters confidence and the first reason's signal: "idle none high host"
    )
    contradictions: tuple[str, ...] = ()  # words of each of them, in their order; all there are
    words: tuple[str, ...] = ()  # words of the summary or of a reason
    missing: tuple[str, ...] = ()  # words of what is missing
    remedy: tuple[str, ...] = ()  # words of the steps
    unwanted: tuple[str, ...] = ()  # words that no command in the steps has

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.judged.split()[0])

    @property
    def action(self) -> Action:
        return Action(self.judged.split()[1])


def answered(value: T, age: float = 5.0) -> Answer[T]:
    """A good answer that is so old."""
    return Answer(value, NOW - age, None, "", NOW - age)


def silent(problem: Problem, detail: str = "", *, last: Any = None) -> Answer[Any]:
    """No answer a moment ago; `last` was the last good one, ten minutes ago."""
    return Answer(last, None if last is None else NOW - 10 * MINUTE, problem, detail, NOW - 5)


def known(value: str) -> Known:
    return Known(value, "metadata") if value else Known()


def identity(**values: str) -> Identity:
    """A machine that the metadata server has fully described."""
    usual = {
        "project": "acme",
        "zone": "us-central2-b",
        "node": "trainer",
        "worker": "0",
        "accelerator": "v5litepod-4",
        "chips": "4",
        "hosts": "1",
        "spot": "no",
        "metrics_ports": "8431",
    }
    return Identity(**{name: known(value) for name, value in {**usual, **values}.items()})


DESCRIBED = identity()


def node(state: str = "READY", health: str = "HEALTHY", *, held: float = HOUR, **more: Any) -> CloudNode:
    """The node as the API shows it, in this state and health for `held` seconds."""
    usual: dict[str, Any] = {"accelerator": "v5litepod-4", "runtime_version": "v2-alpha-tpuv5-lite"}
    return CloudNode("acme", "us-central2-b", "trainer", state, health, changed=NOW - held, **{**usual, **more})


def queued(state: str = "", age: float = MINUTE, **more: Any) -> Answer[QueuedResource]:
    """The queued resource q-1 in this state, as it was listed so long ago; without a state there was none."""
    when = NOW - age
    return Answer(QueuedResource("q-1", state) if state else None, when, **{"problem": None, "tried": when, **more})


def symptom(kind: str, age: float = 5 * MINUTE) -> Symptom:
    return Symptom(kind, NOW - age, "0", "as the service words it")


def runtime(duty: float | None = 0.9, idle: float | None = 0.5, *, chips: int = 4, queue: int = 0) -> Answer[Runtime]:
    """One process that answers."""
    each = tuple(Chip(str(number), 9 * GIB, 16 * GIB, duty, idle) for number in range(chips))
    return answered(Runtime((RuntimePort(8431, each, queue),)))


def idle(seconds: float, **more: Any) -> Answer[Runtime]:
    return runtime(0.0, seconds, **more)


def hung(seconds: float | None) -> Answer[Runtime]:
    """A process that takes connections and does not answer."""
    since = None if seconds is None else NOW - seconds
    return answered(Runtime((RuntimePort(8431, problem=Problem.TIMEOUT, detail="No answer in 5 s.", since=since),)))


def holder(cores: float | None = 3.0, age: float = HOUR, pid: int = PID, **more: Any) -> Holder:
    """A process that has a device open by the kernel's own name of it, unless that is given otherwise."""
    usual: dict[str, Any] = {"user": "alice", "command": "python train.py", "devices": ("/dev/vfio/0",)}
    usual["trusted"] = bool(more.get("devices", usual["devices"]))
    return Holder(pid=pid, started=NOW - age, cpu_cores=cores, **{**usual, **more})


def host(*holders: Holder, booted: float = DAY, **more: Any) -> Answer[Host]:
    """A machine with these holders, on whose metrics ports nobody else listens."""
    usual: dict[str, Any] = {
        "lock_file": bool(holders),
        "listeners": tuple(Listener(port, NOW - booted) for port in range(8431, 8435) if holders),
        "memory_total_bytes": 192 * GIB,
        "memory_available_bytes": 150 * GIB,
        "oom_kills": 0,
    }
    return answered(Host("boot-1", NOW - booted, holders, **{**usual, **more}))


def launch(outcome: Outcome = Outcome.OK, age: float = HOUR, pid: int = PID, **more: Any) -> Launch:
    return Launch(pid, NOW - age, "alice", outcome=outcome, **{"last_heard": NOW - age + 10, **more})


def event(cause: Cause, age: float = 5 * MINUTE, *, pid: int | None = PID, text: str = "", **more: Any) -> Event:
    when = NOW - age
    return Event(cause.value.encode(), cause.value, cause, when, when, "E", pid, "/logs/x", 0, text or "words", **more)


def logs(*entries: Launch | Event, alive: tuple[int, ...] = ()) -> Answer[Logs]:
    launches = tuple(one for one in entries if isinstance(one, Launch))
    events = tuple(one for one in entries if isinstance(one, Event))
    return answered(Logs(launches, events, frozenset(alive)))


def as_answer(given: Any) -> Answer[Any]:
    """A value is a good answer of a moment ago."""
    return given if isinstance(given, Answer) else answered(given)


def own(*, identity: Identity = DESCRIBED, **given: Any) -> Evidence:
    """A machine on which nothing runs and everybody answers, but for what is given: answers, or values of good ones."""
    usual = {
        "cloud": node(),
        "runtime": ABSENT,
        "host": host(),
        "logs": logs(),
        "notices": Notices(),
        "monitoring": OFF,
    }
    answers = {name: as_answer(one) for name, one in {**usual, **given}.items()}
    return Evidence("trainer", NOW, own=True, identity=identity, **answers)


def training(**answers: Any) -> Evidence:
    """A machine on which a program trains."""
    usual = {"runtime": runtime(), "host": host(holder()), "logs": logs(launch(), alive=(PID,))}
    return own(**{**usual, **answers})


def job(answer: Runtime | Answer[Runtime], cores: float | None, age: float = HOUR, **answers: Any) -> Evidence:
    """A program of that age with this answer of its runtime and whose process uses so many cores."""
    usual = {
        "runtime": answer,
        "host": host(holder(cores, age)),
        "logs": logs(launch(age=age), alive=(PID,)),
    }
    return own(**{**usual, **answers})


def elsewhere(
    cloud: CloudNode | Answer[CloudNode],
    monitoring: Monitoring | Answer[Monitoring] = OFF,
    peer: Peer | Answer[Peer] = OFF,
    queued: Answer[QueuedResource] = NOT_READ,
) -> Evidence:
    """A node that is watched from another machine."""
    return Evidence(
        "trainer",
        NOW,
        identity=Identity(project=known("acme"), zone=known("us-central2-b")),
        cloud=as_answer(cloud),
        runtime=OFF,
        host=OFF,
        logs=OFF,
        notices=OFF,
        monitoring=as_answer(monitoring),
        peer=as_answer(peer),
        queued=queued,
    )


def of_type(evidence: Evidence, accelerator: str) -> Evidence:
    """The same on a TPU of another type."""
    cloud = evidence.cloud
    if cloud.value is not None:
        cloud = replace(cloud, value=replace(cloud.value, accelerator=accelerator))
    return replace(evidence, cloud=cloud, identity=replace(evidence.identity, accelerator=known(accelerator)))


# Pieces that several modules of situations share.
API_WELL = "The API says READY and HEALTHY"
RESTING = host(holder(0.0, 20 * MINUTE))
SILENT_LAUNCH = logs(launch(Outcome.SILENT, 20 * MINUTE), alive=(PID,))
SPOT = identity(spot="yes")
UNSEEN = ("The open files of 40 processes cannot be seen.",)


def against_the_api(name: str, evidence: Evidence, judged: str, **words: tuple[str, ...]) -> Situation:
    """A situation in which the API alone calls the node well: one contradiction, and no other."""
    return Situation(name, evidence, judged, contradictions=(API_WELL,), **words)
