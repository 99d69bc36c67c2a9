"""What an unprivileged user of the machine can make tpuwatch see, and what he cannot, as changes of the evidence.

Every input of the snapshot, and how such a user gets at it:

- `cloud`, `notices`, `identity`, `monitoring`: not at all. The API's word is false in these tests by itself; Cloud
  Monitoring and the metadata server only repeat it.
- `runtime.ports`: he listens on a metrics port that is free, or on the next one, and answers nothing, garbage, zeros,
  chips that run, chips that have rested for hours, or programs that wait.
- `host.listeners`: not at all: the kernel names the user of a socket, and who has it open.
- `host.holders`: he locks libtpu's lock file; opens /dev/vfio/vfio, which is open to all; or gives a file of his the
  name of a device in a namespace of his own. Command line, start, user and use of the processors are as he likes. What
  he cannot be is `trusted`, and so never `blocked`: state D itself he gets by vfork(2).
- `host.lock_file`: he makes it. `host.unseen`: a process of his cannot be read, or his lock outlives its process.
- `host.memory_available_bytes`, `oom_kills`, `last_oom_kill`: he uses up memory. What he uses of the processors counts
  only where he holds the TPU.
- `host.boot_id`, `booted`: not at all.
- `logs.events`, `logs.launches`, `logs.alive`: he writes any line and any name into /tmp/tpu_logs or a job's output,
  with any cause, time and pid, that of another's program too. Records of `tpuwatch exec` are his own.
- `loops`: he sends heartbeats, of his own processes alone, as the kernel names the sender; or writes steps into a job's
  output, of which the process is not known, or is what libtpu's banner in it says.
- `server`: he serves a server's metrics, where the configuration names an address. The `kind` of a holder of his
  is as he likes, by its environment or its command line.
- `peer`: only by what the node's own tpuwatch makes of all this. Its port is taken to be tpuwatch's: docs/verdicts.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.unit.health.scenes import GIB, HOUR, MINUTE, NOW, PID, answered, event, holder, launch
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.model.progress import ProgressSource, TrainingLoop
from tpuwatch.model.signals import Chip, Evidence, Holder, Logs, Monitoring, Runtime, RuntimePort
from tpuwatch.model.workload import ModelServer, WorkloadKind

Forgery = Callable[[Evidence], Evidence]
FORGER = 6666  # the pid of his process
AGES = (2 * MINUTE, 20 * MINUTE)


def listening(**more: Any) -> Forgery:
    """He listens: on the metrics port, or on the next one where the runtime has that."""

    def forge(evidence: Evidence) -> Evidence:
        before = evidence.runtime.value.ports if evidence.runtime.value and not evidence.runtime.problem else ()
        port, seen = 8431 + len(before), evidence.host.value
        assert seen is not None
        theirs = tuple(one for one in seen.listeners if one.port != port)  # the kernel tells whose it is
        host = replace(evidence.host, value=replace(seen, listeners=theirs))
        return replace(evidence, runtime=answered(Runtime((*before, RuntimePort(port, **more)))), host=host)

    return forge


def holding(**more: Any) -> Forgery:
    """He holds something that is not the TPU."""
    usual: dict[str, Any] = {"cores": 0.0, "age": 2 * HOUR, "pid": FORGER, "trusted": False, "user": "mallory"}

    def forge(evidence: Evidence) -> Evidence:
        value = evidence.host.value
        assert value is not None
        forged: Holder = holder(**{**usual, **more})
        changed = replace(value, holders=(*value.holders, forged), lock_file=True)
        return replace(evidence, host=replace(evidence.host, value=changed))

    return forge


def machine(**more: Any) -> Forgery:
    """He changes what is seen of the machine."""

    def forge(evidence: Evidence) -> Evidence:
        value = evidence.host.value
        assert value is not None
        return replace(evidence, host=replace(evidence.host, value=replace(value, **more)))

    return forge


def writing(*, events: tuple[Any, ...] = (), launches: tuple[Any, ...] = (), alive: tuple[int, ...] = ()) -> Forgery:
    """He writes into the logs."""

    def forge(evidence: Evidence) -> Evidence:
        value = evidence.logs.value or Logs()
        changed = Logs((*launches, *value.launches), (*events, *value.events), value.alive | set(alive))
        return replace(evidence, logs=answered(changed))

    return forge


def echoing(**more: Any) -> Forgery:
    """Cloud Monitoring repeats the false word."""
    answer: Answer[Monitoring] = answered(Monitoring(**more))
    return lambda evidence: replace(evidence, monitoring=answer)


def answering(server: ModelServer) -> Forgery:
    """He answers as a server of models does."""
    return lambda evidence: replace(evidence, server=answered(server))


def chip(**more: Any) -> tuple[Chip, ...]:
    return (Chip("0", 9 * GIB, 16 * GIB, **more),)


PORTS: dict[str, Forgery] = {
    "a mute listener": listening(problem=Problem.TIMEOUT, since=NOW - HOUR),
    "a listener that speaks something else": listening(problem=Problem.FOREIGN),
    "a listener that answers with errors": listening(problem=Problem.SERVER),
    "a listener that breaks connections": listening(problem=Problem.UNREACHABLE),
    "a listener that answers with zeros": listening(chips=(Chip("0", 0, 16 * GIB, 0.0, 0.0),)),
    "a listener that answers without chips": listening(),
    "a listener whose chips run": listening(chips=chip(duty_cycle=0.9, idle_seconds=0.1)),
    "a listener whose chips rest": listening(chips=chip(duty_cycle=0.0, idle_seconds=2 * HOUR)),
    "a listener whose programs wait": listening(chips=chip(duty_cycle=0.0, idle_seconds=2 * HOUR), hlo_queue=9),
}
HOLDERS: dict[str, Forgery] = {
    "a lock": holding(devices=(), locks=True),
    "a lock by a process that works": holding(devices=(), locks=True, cores=8.0),
    "a lock by a process of the holder's user": holding(devices=(), locks=True, user="alice"),
    "a device by name only": holding(devices=("/dev/accel0",)),
    "a device by name only, of a young process": holding(devices=("/dev/vfio/0",), age=30.0),
    "what is open to all": holding(devices=("/dev/vfio/vfio",)),
    "a lock whose process has ended": machine(unseen=("It is locked by an unknown process.",), lock_file=True),
}
MACHINE: dict[str, Forgery] = {
    "memory that is used up": machine(memory_available_bytes=GIB // 2),
    "a kill for lack of memory": machine(oom_kills=3, last_oom_kill=NOW - 5 * MINUTE),
    "processes that cannot be seen": machine(unseen=("The open files of 2 processes cannot be seen.",)),
}
EVENTS: dict[str, Forgery] = {
    f"{cause.value} of {who}, {age / MINUTE:.0f} min ago": writing(events=(event(cause, age, pid=pid, text=text),))
    for cause in Cause
    for who, pid in (("another's program", PID), ("nobody", None))
    for age in AGES
    for text in ("TPUPollingThread found TPU x in state READY, and health UNHEALTHY_TENSORFLOW",)
}
LAUNCHES: dict[str, Forgery] = {
    f"a launch that {outcome.value}, of {who}": writing(launches=(launch(outcome, age, pid),), alive=alive)
    for outcome in Outcome
    for who, pid, age, alive in (
        ("another's program that is alive", PID, HOUR, (PID,)),
        ("another's program that has ended", PID + 1, HOUR, ()),
        ("his own", FORGER, 20 * MINUTE, (FORGER,)),
    )
}
FAILED = tuple(launch(Outcome.FAILED, minutes * MINUTE, FORGER + minutes) for minutes in (1, 4, 7, 10))
LOOP: dict[str, Forgery] = {"launch after launch that fails": writing(launches=FAILED)}
ECHOES: dict[str, Forgery] = {
    "monitoring: unhealthy": echoing(infra_healthy=False, infra_at=NOW - MINUTE),
    "monitoring: idle": echoing(idle_seconds=2 * HOUR, idle_at=NOW - MINUTE),
}
SERVERS: dict[str, Forgery] = {
    "a server without requests": answering(ModelServer("vLLM", 0, 0)),
    "a server that makes no progress": answering(ModelServer("vLLM", 3, 9, NOW - 2 * HOUR)),
    "a server that works": answering(ModelServer("vLLM", 3, 9, NOW - 1, NOW - 1)),
    **{
        f"a device by name only, of a process that calls itself {kind.value}": holding(
            devices=("/dev/accel0",), kind=kind
        )
        for kind in WorkloadKind
    },
}


def reporting(**more: Any) -> Forgery:
    """He reports steps."""
    usual: dict[str, Any] = {"pid": None, "user": "", "began": NOW - HOUR, "step": 9, "stepped": NOW, "heard": NOW}
    loop = TrainingLoop(**{"source": ProgressSource.OUTPUT, "name": "train.log", "alive": True, **usual, **more})
    return lambda evidence: replace(evidence, loops=(loop, *evidence.loops))


LOOPS: dict[str, Forgery] = {
    "steps that go on in some output": reporting(),
    "steps that go on in another's output": reporting(pid=PID),
    "heartbeats of his own": reporting(source=ProgressSource.HEARTBEAT, pid=FORGER),
    "output that stands still, of another's program": reporting(
        pid=PID, stepped=NOW - 2 * HOUR, faults=(Cause.STEPS_STALLED,)
    ),
    "output that stands still, of nobody": reporting(stepped=NOW - 2 * HOUR, faults=(Cause.STEPS_STALLED,)),
    "a loss that is no number": reporting(pid=PID, faults=(Cause.NUMERIC_FAULT,)),
}
FORGERIES = LOOPS | PORTS | HOLDERS | MACHINE | EVENTS | LAUNCHES | LOOP | ECHOES | SERVERS
# For pairs an event of each cause is enough: its age and pid are in the list above.
PAIRED = {
    name: forge
    for name, forge in FORGERIES.items()
    if name not in EVENTS or name.endswith("of another's program, 20 min ago")
}
