"""Every part of every template, with content and without: what no test renders may not even compile to a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.unit.restart.records import record
from tests.unit.template_branches import Branches
from tests.unit.web import samples, test_tunes
from tests.unit.web.samples import NOW
from tests.unit.web.test_restarts import observed
from tpuwatch.core.loop import LoopStatus
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import CauseConfidence, Remedy
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.launches import Outcome
from tpuwatch.model.progress import ProgressSource, TrainingLoop
from tpuwatch.model.restart import Attempt, Phase, Target
from tpuwatch.model.signals import Chip, Holder, Host, Runtime, RuntimePort
from tpuwatch.model.status import FileStatus, RestartsStatus, ScrapeTarget, SignalStatus, TuneStatus
from tpuwatch.model.tune import SizeDecision, SizeStep
from tpuwatch.model.verdict import Action, Reason, Verdict
from tpuwatch.web import document, page
from tpuwatch.web.fleet import ROWS, FleetQuery


@pytest.fixture
def branches(monkeypatch: pytest.MonkeyPatch) -> Branches:
    """Of the templates of the pages."""
    found = Branches()
    environment = document._environment.__wrapped__()
    found.watch(environment)
    monkeypatch.setattr(document, "_environment", lambda: environment)
    return found


def every_page() -> Iterator[str]:
    """Pages with all that there is to show, and pages with little or nothing."""
    yield page.render(samples.status(), [], [], [])
    yield page.render(samples.status(host_name="vm-1", loops=(), files=(), signals=()), [], [], [])
    yield from pages_of_nodes()
    yield from pages_of_findings()
    yield from pages_of_this_machine()
    yield from pages_of_launches()
    yield from pages_of_fleets()
    yield from pages_about_one_node()


def pages_of_nodes() -> Iterator[str]:
    full = samples.node(verdict=Verdict.RUNTIME_STUCK)
    judgement = full.judgement
    bare = replace(judgement, reasons=(), contradictions=(), missing=(), remedy=(), since=None)
    idle = Reason(Signal.HOST, "It rests.", None, frozenset(), idle=True)
    cloud = samples.cloud_node(
        symptoms=(), accelerator="", runtime_version="", spot=False, queued_resource="", maintenance=None, changed=None
    )
    quiet = replace(samples.cloud_node(), symptoms=(replace(samples.cloud_node().symptoms[0], at=None),))
    assert quiet.maintenance is not None
    quiet = replace(quiet, maintenance=replace(quiet.maintenance, start=None), health_description="It is ill.")
    for one in (
        full,
        samples.node(),
        replace(full, slice=samples.slice_of_four()),
        replace(full, slice=replace(samples.slice_of_four(), workers=())),
        replace(full, judgement=bare, cloud=None),
        replace(samples.node(), judgement=replace(samples.judgement(), reasons=(), since=None), cloud=cloud),
        replace(full, judgement=replace(judgement, reasons=(idle,), remedy=(Remedy("Wait.", ""),)), cloud=quiet),
    ):
        yield page.render(samples.watching(node=one), [], [], [])


def pages_of_findings() -> Iterator[str]:
    one = samples.finding()
    often = samples.finding(samples.event(age=3900), last=samples.event(age=60), count=12, line=None, remedy=())
    over = samples.finding(samples.event(Cause.PREMAPPED_EXHAUSTED, age=7200))
    doubted = [replace(one, confidence=CauseConfidence.LIKELY) for one in (samples.finding(), over)]
    yield page.render(samples.status(finding_seconds=5000.0), doubted, [], [])
    came_up = samples.launch(started=NOW - 30, pid=7)
    yield page.render(samples.status(finding_seconds=5000.0), [one, often, over], [came_up, samples.launch()], [])
    nowhere = samples.finding(samples.event(age=float("-inf")))
    yield page.render(samples.status(), [nowhere], [], [])
    events = [samples.event(age=age, id=number) for number, age in enumerate(range(600, 60, -60))]
    more = [samples.event(repeats=4, history=True, pid=None, id=None), samples.event(text="")]
    yield page.render(samples.status(), [], [], events + more)


def pages_of_this_machine() -> Iterator[str]:
    chips = (
        *samples.runtime().ports[0].chips,
        Chip("4", 15.9 * 2**30, 16 * 2**30, 0.99, 0.0),  # type: ignore[arg-type] # nearly full
        Chip("5"),
        Chip("6", hbm_used_bytes=2**30),
    )
    ports = (
        RuntimePort(8431, chips, hlo_queue=2),
        RuntimePort(8432, problem=Problem.TIMEOUT, detail="No answer."),
        RuntimePort(8433),
    )
    loop = TrainingLoop(ProgressSource.HEARTBEAT, "train", 4711, "me", NOW - 60, 343, NOW - 1, NOW - 1)
    signals = (*samples.SIGNALS, SignalStatus("peers", None, None, None, ""))
    own = samples.watching(
        runtime=Runtime(ports),
        training=(loop, replace(loop, pid=4243, faults=(Cause.STEPS_STALLED,))),
        signals=signals,
        loops=(LoopStatus("follow", None, fresh=False),),
        files=(FileStatus(samples.LOG, 0, 0, None), samples.status().files[0]),
        problems=(samples.PROBLEM,),
        notices=("A notice.",),
    )
    yield page.render(own, [], [], [])
    for changes in ({}, {"time_to_recover": None}, {"time_between_interruptions": None}):
        yield page.render(samples.status(goodput=samples.goodput(**changes)), [], [], [])
    for host in (
        Host(boot_id="c0ffee", booted=None, holders=(), lock_file=False),
        samples.host(
            holders=(Holder(4243, "", "", None, (), False, None), *samples.host().holders),
            last_oom_kill=None,
            unseen=(),
        ),
    ):
        yield page.render(samples.watching(host=host, runtime=Runtime(())), [], [], [])
    ended = Attempt(Action.RESTART_NODE, "node_stuck", NOW - 900, NOW - 600, Phase.DONE, 1, "bob", "It hung.")
    records = [
        record(phase=Phase.DONE, history=(ended, replace(ended, phase=Phase.FAILED, note="Twice."))),
        record(phase=Phase.STARTING, requested=NOW - 90, history=()),
    ]
    yield page.render(samples.status(restarts=RestartsStatus(acts=True, records=records)), [], [], [])


def pages_of_launches() -> Iterator[str]:
    launches = [
        samples.launch(workload="train"),
        samples.launch(init_seconds=None, premapped_bytes=None, outcome=Outcome.FAILED, id=None, started=NOW - 600),
        *(samples.launch(pid=number, started=NOW - 1000 * number) for number in range(2, 14)),
    ]
    yield page.render(samples.status(), [], launches, [])
    yield page.render(samples.status(), [], launches[1:2], [])
    tuned = test_tunes.tuned()
    unsure = SizeDecision(SizeStep.KEEP, None, None, ())
    bare = replace(tuned, plan=replace(tuned.plan, decision=unsure, settings=()), problem="It cannot be written.")
    yield page.render(samples.status(tune=test_tunes.status(tuned, bare, problems=("No room.",))), [], [], [])
    yield page.render(samples.status(tune=TuneStatus(False, "/plans")), [], [], [])
    many = [test_tunes.tuned(f"job-{number}") for number in range(21)]
    yield page.render(samples.status(tune=test_tunes.status(*many)), [], [], [])


def pages_of_fleets() -> Iterator[str]:
    fleet = [samples.node(f"n-{number}") for number in range(2 * ROWS + 5)]
    fleet[1] = samples.node("n-1", Verdict.GONE, cloud=None, zone="us-east5-b", own=True)
    fleet[2] = replace(fleet[2], judgement=replace(fleet[2].judgement, since=None))
    for query in ({}, {"page": "2"}, {"find": "nobody"}, {"verdict": "gone", "zone": "us-east5-b", "sort": "node"}):
        yield page.render(samples.status(), [], [], [], fleet, fleet=FleetQuery.parse(query))
    yield page.render(samples.status(), [], [], [], [samples.node("alone")])
    many = tuple(f"n-{number}" for number in range(9))
    queued = (
        samples.queued("ended", "FAILED", QueuedProblem.ENDED, nodes=many),
        samples.queued("lost", "", QueuedProblem.NOT_FOUND, created=None),
        *(samples.queued(f"q-{number}", "ACCEPTED") for number in range(30)),
    )
    yield page.render(samples.status(queued_resources=queued), [], [], [])


def pages_about_one_node() -> Iterator[str]:
    node = samples.node("train-2", Verdict.NODE_STUCK)
    decision = observed()
    decisions = [(node.label, decision)]
    target = ScrapeTarget("http://10.0.0.2:9478", node.zone, node.node, 0)
    records = [record("train-2", target=Target("lab", node.zone, "train-2"))]
    for restarts, targets in (
        (RestartsStatus(acts=False, records=records, decisions=decisions), [target, replace(target, url="x:1")]),
        (RestartsStatus(acts=False, decisions=[(node.label, replace(decision, needs_operator=False))]), [target]),
        (None, []),
    ):
        yield page.render_nodes(samples.status(restarts=restarts), [node], targets)


def test_every_section_is_rendered_with_and_without_content(branches: Branches) -> None:
    pages = list(every_page())
    assert {path.name for path in (document.Path(document.__file__).parent / "templates").iterdir()} == {
        branch.partition(":")[0] for branch in branches.known
    } | WITHOUT_BRANCHES
    assert sorted(branches.known - branches.taken) == []
    assert all(html.rstrip().endswith("</html>") for html in pages)


WITHOUT_BRANCHES = {"identity.html", "restarts.html", "signals.html"}
