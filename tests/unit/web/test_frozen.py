"""The JSON documents stay what they are, key by key: golden files of all of them, as they are served and printed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests import golden
from tests.paths import ROOT
from tests.unit.restart import records
from tests.unit.restart.policy_scenes import situation
from tests.unit.web import samples
from tests.unit.web.samples import NOW, SampleView
from tests.unit.web.test_page import Reader
from tests.unit.web.test_tunes import tuned
from tpuwatch.core.codec import encode
from tpuwatch.core.json_text import dumps
from tpuwatch.metrics import Metrics
from tpuwatch.model.causes import Cause
from tpuwatch.model.documents.logs import DiagnosisDocument, EventDocument
from tpuwatch.model.events import Place
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.launches import Outcome
from tpuwatch.model.probe import Probe, ProbeVerdict
from tpuwatch.model.progress import ProgressSource, Slowdown, SlowdownKind, TrainingLoop
from tpuwatch.model.restart import Breaker, Phase
from tpuwatch.model.signals import (
    Holder,
    Listener,
    Peer,
    PeerVerdict,
    Problem,
    QueuedResource,
    Runtime,
    RuntimePort,
    Signal,
)
from tpuwatch.model.slices import Failure
from tpuwatch.model.status import RestartBudget, RestartsStatus, ScrapeTarget, TuneStatus
from tpuwatch.model.tune import Advice
from tpuwatch.model.verdict import Action, Confidence, Source, Unseen, Verdict
from tpuwatch.model.workload import WorkloadKind
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.web.routes import Routes

GOLDEN = ROOT / "tests" / "unit" / "web" / "documents"

UNSEEN = Unseen(Signal.CLOUD, Problem.DENIED, "The account may not list the nodes.")
WORD = PeerVerdict(
    Verdict.IDLE,
    Action.NONE,
    Confidence.HIGH,
    "No program uses the TPU.",
    frozenset({Signal.HOST}),
    2.0,
    frozenset({Source.KERNEL, Source.CLOUD}),
    WorkloadKind.SERVING,
)
LOOP = TrainingLoop(
    source=ProgressSource.HEARTBEAT,
    name="train",
    pid=4242,
    user="alice",
    began=NOW - 600,
    step=1200,
    stepped=NOW - 12,
    heard=NOW - 11,
    total=5000,
    loss=2.31,
    tokens_per_second=1000.0,
    step_seconds=0.45,
    usual_step_seconds=0.4,
    input_share=0.1,
    faults=(Cause.SLOW_STEPS, Cause.INPUT_BOUND),
    slowdown=Slowdown(SlowdownKind.STEPS, NOW - 300, 1100, 0.12, NOW - 60),
)
STUCK = samples.judgement(
    Verdict.RUNTIME_STUCK, kind=WorkloadKind.TRAINING, suspect_since=NOW - 900, counts_from=NOW - 600
)
NODES = (
    samples.node(judgement=STUCK, slice=samples.slice_of_four(), failure=Failure(Cause.HANG, NOW - 280)),
    samples.node("train-2", peer=Peer(NOW - 300, WORD, NOW - 240, 7, boot_id="c0ffee")),
    samples.node("train-3", judgement=samples.judgement(Verdict.NODE_STUCK, node="train-3", unseen=UNSEEN), cloud=None),
    samples.node("train-4", Verdict.GONE, cloud=None, queued=QueuedResource("request", "WAITING_FOR_RESOURCES")),
    samples.node("train-5", peer=Peer(NOW), cloud=samples.cloud_node(changed_unseen=True, addresses=("10.0.0.5", ""))),
)
EVENT = samples.event(
    history=True,
    places=(Place(b"", "/var/log/job.log", 12, NOW - 59, "E"), Place(b"", "/var/log/other.log", 0, None, "")),
    repeats=3,
    since=NOW - 90,
    spread={"used_bytes": [1, 2]},
    text="password=hunter2hunter2 was wrong",
)
FAILED = samples.launch(
    outcome=Outcome.OK,
    faults={"hbm_oom_runtime": 3.5},
    exit_status=1,
    ended=NOW - 30,
    environment={"TPU_LIBRARY_PATH": "/lib", "API_TOKEN": "hunter2hunter2"},
)
PRINTED = samples.launch(pid=-1, output="/var/log/job.log", cause=Cause.HANG, outcome=Outcome.SILENT, id=None)
HOST = samples.host(
    holders=(
        Holder(
            4242,
            "alice",
            "python3 train.py",
            NOW - 1800,
            ("/dev/vfio/0",),
            True,
            1.5,
            True,
            12.5,
            WorkloadKind.TRAINING,
        ),
        Holder(4243, "bob", "python3", None, ()),
    ),
    listeners=(Listener(8431, NOW - 1700),),
    probe=Probe("p1", NOW - 500, NOW - 490, "c0ffee", ProbeVerdict.WORKS, "The TPU computes right.", "jax"),
)
RUNTIME = Runtime((*samples.runtime().ports, RuntimePort(8432, (), None, Problem.TIMEOUT, "No answer.", NOW - 60)))
RESTARTS = RestartsStatus(
    acts=True,
    read=NOW - 5,
    problem="The disk is full.",
    alarms=("train-9 is stopped: `gcloud compute tpus tpu-vm start train-9` starts it.",),
    breaker=Breaker(NOW - 60, "Three restarts have failed."),
    budget=RestartBudget(2, 3, 3600.0, 86_400.0, "It would be the fourth failure."),
    records=[records.record("a", phase=Phase.DONE), records.full_record("b")],
    decisions=[("us-central2-b/trainer", decide(situation(), PolicySettings()))],
)
TUNED = tuned()
TUNE = TuneStatus(
    acts=True,
    directory="/var/lib/tpuwatch/tune",
    workloads=(
        replace(
            TUNED,
            plan=replace(
                TUNED.plan, decision=replace(TUNED.plan.decision, advice=(Advice("Pin memory.", "https://x.example"),))
            ),
        ),
        replace(tuned("eval"), file="", problem="It may not be written."),
    ),
    problems=("A record is damaged.",),
)
WATCHING = samples.watching(
    node=NODES[0],
    host=HOST,
    runtime=RUNTIME,
    goodput=samples.goodput(),
    training=(LOOP, replace(LOOP, source=ProgressSource.OUTPUT, pid=None, done=True, alive=False)),
    restarts=RESTARTS,
    tune=TUNE,
    problems=(samples.PROBLEM,),
    notices=("Set aside.",),
    last_launch=FAILED,
    host_name="t1v-n-1",
    watches_others=True,
    queued_resources=(
        samples.queued("request", "FAILED", QueuedProblem.ENDED, initiator="SERVICE", valid_until=NOW),
        samples.queued("next", "WAITING_FOR_RESOURCES", spot=True),
    ),
)
FINDINGS = [
    samples.finding(count=3),
    samples.finding(samples.event(Cause.HANG, age=200_000.0, time=None), line=None, details={}, remedy=()),
]
VIEW = SampleView(
    WATCHING,
    [samples.event(), EVENT],
    FINDINGS,
    [FAILED, PRINTED],
    list(NODES),
    [
        ScrapeTarget("http://10.0.0.5:9478", "us-central2-b", "train-5", 0),
        ScrapeTarget("https://proxy:9478/tpu/", "us-central2-b", "train-2", 1),
    ],
)
DARK = SampleView(samples.status(last_launch=None))  # of which next to nothing is known


def served(view: SampleView, path: str) -> str:
    return Routes(view, Metrics(loops=(), refusals=())).respond(f"/api/v1/{path}", accept="").body.decode()


NAMES = ("status", "events", "findings", "goodput", "launches", "nodes", "restarts", "targets", "tune", "peer")
DOCUMENTS = {
    **{name: (lambda name=name: served(VIEW, name)) for name in NAMES},
    **{f"{name}.dark": (lambda name=name: served(DARK, name)) for name in NAMES},
    "diagnose": lambda: dumps(encode(DiagnosisDocument.of(FINDINGS, [FAILED, PRINTED]))),
    "event": lambda: dumps(encode(EventDocument.of(EVENT))),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_is_what_it_was(name: str) -> None:
    golden.holds(GOLDEN / f"{name}.json", f"{json.dumps(json.loads(DOCUMENTS[name]()), indent=1)}\n")


@pytest.mark.parametrize(("name", "path"), [("page", "/"), ("node_page", "/?node=train-1"), ("page.dark", "/")])
def test_the_page_says_what_it_said(name: str, path: str) -> None:
    routes = Routes(DARK if "dark" in name else VIEW, Metrics(loops=(), refusals=()))
    read = Reader(routes.respond(path, accept="").body.decode())
    assert read.open == []
    words = [" ".join(word.split()) for word in read.words]
    golden.holds(GOLDEN / f"{name}.txt", "".join(f"{word}\n" for word in words if word))
