"""A daemon's view for the tests of what shows it: fixed data, given as the daemon would give it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tpuwatch.core.codec import decode, encode
from tpuwatch.core.json_text import dumps
from tpuwatch.core.loop import LoopStatus
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.documents.status import StatusDocument
from tpuwatch.model.events import Event, Finding, Remedy
from tpuwatch.model.goodput import (
    Estimate,
    Goodput,
    Interruption,
    InterruptionReason,
    TrainingAccount,
    TrainingState,
)
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.judged_queued_resource import JudgedQueuedResource, QueuedProblem
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.problems import present_problems
from tpuwatch.model.signals import (
    Chip,
    CloudNode,
    Holder,
    Host,
    Identity,
    Known,
    Maintenance,
    QueuedResource,
    Runtime,
    RuntimePort,
    Symptom,
)
from tpuwatch.model.slices import Failure, PeerState, Slice, Worker
from tpuwatch.model.status import DaemonStatus, FileProblem, FileStatus, ScrapeTarget, SignalStatus, StoreStatus
from tpuwatch.model.verdict import Action, Confidence, Judgement, Reason, Source, Verdict
from tpuwatch.web.sentences import restart_sentences

D = TypeVar("D")

NOW = 1_795_182_254.25  # 2026-11-20T13:44:14.250Z

LOG = "/tmp/tpu_logs/tpu_driver.t1v-n-1.alice.log.INFO.20261120-130000.4242"  # noqa: S108 # where libtpu writes


def event(cause: Cause = Cause.HBM_OOM_COMPILE, *, age: float = 60.0, **changes: object) -> Event:
    """An event of `age` seconds before NOW."""
    base = Event(
        key=b"\x01\x02",
        rule="hbm-oom-compile",
        cause=cause,
        observed=NOW - age + 0.1,
        time=NOW - age,
        severity="E",
        pid=4242,
        file=LOG,
        offset=1234,
        text="E1120 13:43:14.250000 4242 hbm.cc:10] Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.",
        details={"used_bytes": 28 * 2**30, "limit_bytes": 15.75 * 2**30},
        id=7,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def finding(first: Event | None = None, **changes: object) -> Finding:
    """A finding over one event."""
    first = first or event()
    base = Finding(
        cause=first.cause,
        count=1,
        first=first,
        last=first,
        line=17,
        details={"used_bytes": 28 * 2**30},
        summary="The program needs 28 GiB of HBM and 15.75 GiB is there.",
        remedy=(
            Remedy("Use a smaller batch, or shard the model over more chips.", "https://docs.example.org/hbm"),
            Remedy(
                "Check for padding: sizes that are multiples of 128 waste least.", "https://docs.example.org/padding"
            ),
        ),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def launch(**changes: object) -> Launch:
    """A launch that came up."""
    base = Launch(
        pid=4242,
        started=NOW - 120,
        user="alice",
        host="t1v-n-1",
        build="libtpu_20261001",
        chips=4,
        chip_kind="v5e",
        premapped_bytes=4 * 2**30,
        init_seconds=7.5,
        outcome=Outcome.OK,
        last_heard=NOW - 1,
        environment={"TPU_PREMAPPED_BUFFER_SIZE": "4294967296"},
        id=3,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def status(**changes: object) -> DaemonStatus:
    """A daemon that does its work."""
    base = DaemonStatus(
        version="0.1.0",
        started=NOW - 7200,
        now=NOW,
        state="Following 1 log; all of it is read.",
        reading=True,
        loops=(LoopStatus("follow", NOW - 0.5, fresh=True),),
        files=(FileStatus(LOG, size_bytes=4096, read_bytes=4000, last_written=NOW - 2),),
        problems=(),
        notices=(),
        config_source="/etc/tpuwatch/config.toml",
        store=StoreStatus("/var/lib/tpuwatch/store.sqlite", durable=True, events=1),
        last_launch=launch(),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


PROBLEM = FileProblem("/tmp/tpu_logs/tpu_driver.x", "permission is denied")  # noqa: S108 # where libtpu writes


def queued(name: str, state: str, problem: QueuedProblem | None = None, **changes: object) -> JudgedQueuedResource:
    """A queued resource of a node, with what is wrong with it."""
    resource = QueuedResource(
        name, state, "acme", "us-central2-b", (f"{name}-node",), created=NOW - 86_400.0, detail="No `capacity` <here>"
    )
    one = JudgedQueuedResource(replace(resource, **changes), problem)  # type: ignore[arg-type] # tests name fields
    if problem is None:
        return one
    step = Remedy(f"Look at it: `gcloud compute tpus queued-resources describe {name}`", "https://docs.example.org/q")
    return replace(one, summary=f"It is {state}, which is {problem.value}.", remedy=(step,))


def judgement(verdict: Verdict = Verdict.HEALTHY, **changes: object) -> Judgement:
    """A verdict, with all its parts unless it is a good one."""
    good = Judgement(
        node="train-1",
        verdict=verdict,
        at=NOW - 1,
        confidence=Confidence.HIGH,
        action=Action.NONE,
        summary="The cloud, the runtime and the logs say that the node works.",
        reasons=(
            Reason(Signal.CLOUD, "The Cloud TPU API says READY and HEALTHY.", NOW - 12, frozenset({Source.CLOUD})),
        ),
        since=NOW - 7200,
    )
    if verdict is Verdict.HEALTHY:
        return replace(good, **changes)  # type: ignore[arg-type] # the tests name fields
    bad = replace(
        good,
        confidence=Confidence.MEDIUM,
        action=Action.RESTART_RUNTIME,
        summary="libtpu's runtime has not answered for 12 min while process 4242 holds the TPU.",
        reasons=(
            Reason(
                Signal.RUNTIME, "Port 8431 takes connections and answers nothing.", NOW - 8, frozenset({Source.RUNTIME})
            ),
            Reason(
                Signal.HOST,
                "Process 4242 of alice holds 4 devices and has used no CPU since.",
                NOW - 2,
                frozenset({Source.KERNEL}),
                idle=True,
            ),
            Reason(Signal.LOGS, "The last line of its log was written 12 min ago.", sources=frozenset({Source.TEXT})),
        ),
        contradictions=("The Cloud TPU API says READY and HEALTHY.",),
        missing=("Cloud Monitoring is not read, by configuration.",),
        remedy=(
            Remedy("End process 4242: `kill 4242`.", "https://docs.example.org/holder"),
            Remedy("If it stays, restart the runtime.", "https://docs.example.org/runtime"),
        ),
        since=NOW - 720,
    )
    return replace(bad, **changes)  # type: ignore[arg-type] # the tests name fields


def cloud_node(**changes: object) -> CloudNode:
    """A node as the API shows it."""
    base = CloudNode(
        project="research-7",
        zone="us-central2-b",
        name="train-1",
        state="READY",
        health="HEALTHY",
        symptoms=(Symptom("LOW_MEMORY", NOW - 900, "0", "95 % used"),),
        accelerator="v5litepod-4",
        runtime_version="v2-alpha-tpuv5-lite",
        spot=True,
        queued_resource="train-1-request",
        maintenance=Maintenance("SCHEDULED", "PENDING", NOW + 3600, None),
        created=NOW - 86_400,
        labels=(("team", "vision"),),
        changed=NOW - 7200,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def slice_of_four() -> Slice:
    """Seen from its first worker: one that is silent, one that failed first, and one that was never heard."""
    workers = (
        Worker(0, PeerState.ANSWERING, NOW, own=True),
        Worker(1, PeerState.ANSWERING, NOW - 5, None, Verdict.IDLE, "It rests.", Failure(Cause.CORE_HALTED, NOW - 300)),
        Worker(2, PeerState.SILENT, NOW - 100, NOW - 90),
        Worker(3, PeerState.UNHEARD),
    )
    sentence = "Worker 2 of 4 has been silent for 1 min 30 s. Worker 1 failed first (core_halted, 13:39:14)."
    return Slice(4, workers, sentence, 1, 1)


def node(name: str = "train-1", verdict: Verdict = Verdict.HEALTHY, **changes: object) -> JudgedNode:
    """A watched node."""
    base = JudgedNode(
        node=name,
        project="research-7",
        zone="us-central2-b",
        own=name == "train-1",
        judgement=judgement(verdict, node=name),
        cloud=cloud_node(name=name),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def identity() -> Identity:
    """This machine, with something of each source."""
    return Identity(
        project=Known("research-7", "config"),
        zone=Known("us-central2-b", "metadata"),
        node=Known("train-1", "metadata"),
        worker=Known("0", "metadata"),
        accelerator=Known("v5litepod-4", "metadata"),
        chips=Known("4", "metadata"),
        hosts=Known("1", "metadata"),
    )


def runtime() -> Runtime:
    """One process with four chips, the last of which tells little."""
    chips = [Chip(str(number), (number + 1) * 2**30, 16 * 2**30, 0.2 * number, 1.5) for number in range(3)]
    return Runtime((RuntimePort(8431, (*chips, Chip("3", hbm_used_bytes=2**30)), hlo_queue=2),))


def host(**changes: object) -> Host:
    """A machine on which a process holds the TPU."""
    base = Host(
        boot_id="c0ffee",
        booted=NOW - 86_000,
        holders=(Holder(4242, "alice", "python3 train.py", NOW - 1800, ("/dev/vfio/0", "/dev/vfio/1"), True, 1.5),),
        lock_file=True,
        memory_total_bytes=448 * 2**30,
        memory_available_bytes=400 * 2**30,
        memory_pinned_bytes=4 * 2**30,
        oom_kills=2,
        last_oom_kill=NOW - 3600,
        unseen=("The kernel's log may not be read.",),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


SIGNALS = (
    SignalStatus(
        "cloud",
        NOW - 600,
        NOW - 5,
        Problem.SCOPE,
        "The access token lacks the scope cloud-platform; give the VM that scope.",
    ),
    SignalStatus("runtime", NOW - 8, NOW - 8, None, ""),
    SignalStatus("monitoring", None, None, Problem.OFF, "Cloud Monitoring is not read, by configuration."),
)


def goodput(**changes: object) -> Goodput:
    """A training of three hours and a half that was interrupted three times."""
    seconds = dict.fromkeys(TrainingState, 0.0) | {
        TrainingState.PRODUCTIVE: 9000.0,
        TrainingState.SLOW: 400.0,
        TrainingState.STUCK: 1200.0,
        TrainingState.REPEATED: 700.0,
        TrainingState.STARTUP: 900.0,
        TrainingState.DOWN: 400.0,
    }
    interruptions = (
        Interruption(NOW - 9000, InterruptionReason.FAILED, "exit status 1", 700.0),
        Interruption(NOW - 6000, InterruptionReason.PROGRAM, "hbm_oom_runtime", 500.0),
        Interruption(NOW - 900, InterruptionReason.NODE, "core_halted"),
    )
    training = TrainingAccount("train", "", NOW - 12_600, None, 4, 4000, 2.25, seconds, interruptions)
    base = Goodput(
        NOW - 604_800,
        NOW,
        (training,),
        seconds,
        interruptions,
        Estimate(4066.7, 1391.5, 19_719.5),
        Estimate(600.0),
        Estimate(0.873, 0.6289, 0.9738),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def watching(verdict: Verdict = Verdict.HEALTHY, **changes: object) -> DaemonStatus:
    """A daemon that knows all of its node."""
    all_of_it = {
        "identity": identity(),
        "node": node(verdict=verdict),
        "runtime": runtime(),
        "host": host(),
        "signals": SIGNALS,
    }
    return status(**{**all_of_it, **changes})


@dataclass
class SampleView:
    """Answers with what it holds, and remembers what it was asked."""

    shown: DaemonStatus = field(default_factory=status)
    stored: list[Event] = field(default_factory=list)
    wrong: list[Finding] = field(default_factory=list)
    started: list[Launch] = field(default_factory=list)
    watched: list[JudgedNode] = field(default_factory=list)
    scraped: list[ScrapeTarget] = field(default_factory=list)
    asked: list[dict[str, object]] = field(default_factory=list)
    error: Exception | None = None

    def status(self) -> DaemonStatus:
        if self.error:
            raise self.error
        return self.shown

    def events(
        self,
        *,
        since: float | None = None,
        cause: Cause | None = None,
        history: bool | None = None,
        after_id: int | None = None,
        limit: int = 100,
    ) -> list[Event]:
        asked = {"since": since, "cause": cause, "history": history, "after_id": after_id, "limit": limit}
        self.asked.append(asked if history is not None else {name: asked[name] for name in asked if name != "history"})
        return self.stored

    def last_event_id(self) -> int:
        return max((event.id or 0 for event in self.stored), default=0)

    def findings(self) -> list[Finding]:
        return self.wrong

    def launches(self, limit: int = 100) -> list[Launch]:
        self.asked.append({"limit": limit})
        return self.started

    def goodput(self, *, since: float | None = None, workload: str = "") -> Goodput:
        self.asked.append({"since": since, "workload": workload})
        return self.shown.goodput or Goodput(NOW - 3600, NOW)

    def nodes(self) -> list[JudgedNode]:
        return self.watched

    def targets(self) -> list[ScrapeTarget]:
        return self.scraped


def as_json(document: Any) -> Any:
    """A document as it is sent."""
    return json.loads(dumps(encode(document)))


def received(document: D) -> D:
    """A document as a command gets it from the daemon."""
    return decode(type(document), as_json(document))


def status_document(status: DaemonStatus) -> StatusDocument:
    """The status of a daemon without findings."""
    sentences = restart_sentences(status.restarts, status.now) if status.restarts else []
    return StatusDocument.of(status, present_problems(status, (), (), ()), sentences)
