"""What holds of every judgement, whatever the signals report."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.unit.health.scenes import NOW, Situation
from tests.unit.health.test_judge import SITUATIONS
from tpuwatch.health.judge import following, judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.health.rules import cloud as cloud_rules
from tpuwatch.model.answers import OFF, Answer, Problem, Signal
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
    Maintenance,
    Monitoring,
    Notices,
    Peer,
    PeerVerdict,
    Runtime,
    RuntimePort,
    Symptom,
)
from tpuwatch.model.verdict import BAD, DESTRUCTIVE, Action, Confidence, Judgement, Source, Verdict
from tpuwatch.model.workload import ModelServer, WorkloadKind

# What becomes of a signal that is lost. "absent" and "gone" are left out: with these a source has answered.
SILENT = tuple(problem for problem in Problem if problem not in (Problem.ABSENT, Problem.GONE))
SIGNALS = ("cloud", "runtime", "host", "logs", "notices", "kubernetes", "monitoring", "peer", "server")
# From harmless to what costs most.
WEIGHT = dict.fromkeys(Action, 0) | {
    Action.END_HOLDER: 1,
    Action.RESTART_RUNTIME: 2,
    Action.RESTART_NODE: 3,
    Action.RESET_QUEUED_RESOURCE: 4,
    Action.RECREATE: 5,
}

ages = st.sampled_from((-100.0, 0.0, 5.0, 50.0, 100.0, 200.0, 400.0, 700.0, 1500.0, 4000.0, 90_000.0))
times = ages.map(lambda age: NOW - age)
maybe_times = st.none() | times
pids = st.integers(100, 103)
states = st.sampled_from(
    ("READY", "READY", "READY", "UNKNOWN", "REPAIRING", "PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "STATE_17")
)
healths = st.sampled_from(("HEALTHY", "", "TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE", "HEALTH_9"))
symptoms = st.builds(
    Symptom, st.sampled_from(("OUT_OF_MEMORY", "EXECUTE_TIMED_OUT", "PROJECT_ABUSE")), maybe_times, st.just("0")
)
maintenances = st.none() | st.builds(
    Maintenance, st.just("SCHEDULED"), st.sampled_from(("PENDING", "ONGOING")), maybe_times, maybe_times
)
nodes = st.builds(
    CloudNode,
    st.just("acme"),
    st.just("zone"),
    st.just("trainer"),
    states,
    healths,
    symptoms=st.lists(symptoms, max_size=2).map(tuple),
    hosts=st.sampled_from((1, 1, 4)),
    spot=st.booleans(),
    queued_resource=st.sampled_from(("", "q-1")),
    maintenance=maintenances,
    changed=maybe_times,
)
chips = st.builds(
    Chip,
    st.just("0"),
    duty_cycle=st.sampled_from((None, 0.0, 0.0, 0.7)),
    idle_seconds=st.sampled_from((None, 1.0, 200.0, 900.0, 900.0, 9000.0)),
)
ports = st.builds(
    RuntimePort,
    st.just(8431),
    st.lists(chips, max_size=2).map(tuple),
    problem=st.none() | st.sampled_from((Problem.TIMEOUT, Problem.FOREIGN)),
    since=maybe_times,
)
runtimes = st.builds(Runtime, st.lists(ports, min_size=1, max_size=2).map(tuple))
holders = st.builds(
    Holder,
    pids,
    st.just("alice"),
    st.just("python"),
    maybe_times,
    st.just(("/dev/vfio/0",)),
    cpu_cores=st.sampled_from((None, 0.0, 0.0, 0.2, 3.0)),
    trusted=st.booleans(),
    blocked_seconds=st.sampled_from((None, None, 0.0, 900.0)),
    kind=st.sampled_from((None, None, *WorkloadKind)),
)
hosts = st.builds(
    Host,
    st.just("boot"),
    maybe_times,
    st.lists(holders, max_size=2).map(tuple),
    memory_total_bytes=st.just(1000),
    memory_available_bytes=st.sampled_from((None, 1, 900)),
    oom_kills=st.sampled_from((0, 1)),
    last_oom_kill=maybe_times,
    listeners=st.sampled_from(((), (Listener(8431, NOW - 9000),), (Listener(8431, NOW - 60),))),
)
launches = st.builds(Launch, pids, times, outcome=st.sampled_from(Outcome), last_heard=maybe_times)
events = st.builds(
    lambda cause, when, pid, history: Event(b"k", "r", cause, when, when, "E", pid, "/f", 0, "text", history=history),
    st.sampled_from(Cause),
    times,
    pids,
    st.booleans(),
)
logs = st.builds(
    Logs,
    st.lists(launches, max_size=2).map(tuple),
    st.lists(events, max_size=3).map(tuple),
    st.frozensets(pids, max_size=3),
)
notices = st.builds(
    Notices, st.sampled_from(("NONE", "NONE", "TERMINATE_ON_HOST_MAINTENANCE")), st.booleans(), maintenances
)
kubernetes = st.builds(
    Notices,
    maintenance=maintenances,
    terminating=st.booleans(),
    conditions=st.sampled_from(((), ("Ready is False (KubeletNotReady)",))),
)
words = st.builds(
    PeerVerdict,
    st.sampled_from(Verdict),
    st.sampled_from(Action),
    st.sampled_from(Confidence),
    st.just("So it is."),
    st.frozensets(st.sampled_from(Signal)),
    st.sampled_from((1.0, 1.0, 90.0)),
    st.frozensets(st.sampled_from(Source)),
)
peers = st.builds(
    Peer, times, st.none() | words, maybe_times, tries=st.sampled_from((0, 1, 3, 9)), refuses=st.booleans()
)
monitorings = st.builds(Monitoring, st.sampled_from((None, 900.0)), maybe_times, st.none() | st.booleans(), maybe_times)


servers = st.builds(ModelServer, st.just("vLLM"), st.sampled_from((0, 3)), st.just(0), maybe_times, maybe_times)


def answers(values: st.SearchStrategy[object]) -> st.SearchStrategy[Answer[object]]:
    """Mostly good ones; some old, some with a problem of any kind."""
    good = st.builds(lambda value: Answer(value, NOW - 3, None, "", NOW - 3), values)
    other = st.builds(
        Answer, st.none() | values, maybe_times, st.none() | st.sampled_from(Problem), st.just("Why."), maybe_times
    )
    return st.one_of(good, good, good, good, st.just(Answer(None, None, Problem.ABSENT, "", NOW - 3)), other)


def identities(name: str) -> st.SearchStrategy[Identity]:
    of_metadata = {
        "project": st.just(Known("acme", "metadata")),
        "node": st.just(Known(name, "metadata")),
        "accelerator": st.sampled_from((Known("v5litepod-4", "metadata"), Known("v3-8", "metadata"), Known())),
        "hosts": st.sampled_from((Known("1", "metadata"), Known("4", "metadata"), Known())),
        "spot": st.sampled_from((Known("no", "metadata"), Known("yes", "metadata"), Known())),
    }
    return st.builds(Identity, **of_metadata)


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    """Evidence as it can be: who knows a node by the API knows its name, and notices come from a metadata
    server that has identified the machine."""
    own = draw(st.booleans())
    return Evidence(
        node="trainer",
        now=NOW,
        own=own,
        identity=draw(identities("trainer")) if own else Identity(),
        cloud=draw(answers(nodes)),
        runtime=draw(answers(runtimes)),
        host=draw(answers(hosts)),
        logs=draw(answers(logs)),
        notices=draw(answers(notices)),
        kubernetes=draw(answers(kubernetes)),
        monitoring=draw(answers(monitorings)),
        peer=draw(answers(peers)),
        server=draw(answers(servers)),
    )


@st.composite
def changed(draw: st.DrawFn) -> Evidence:
    """A situation of the table in which some signals report something else."""
    evidence = draw(st.sampled_from(SITUATIONS)).evidence
    for name in draw(st.lists(st.sampled_from(SIGNALS), max_size=3, unique=True)):
        evidence = replace(evidence, **{name: draw(answers(VALUES[name]))})
    in_cloud = evidence.cloud.value is not None and evidence.own
    noticed = evidence.notices.value is not None
    known = replace(evidence.identity, node=Known("trainer", "metadata"))
    return replace(evidence, identity=known) if evidence.own and (in_cloud or noticed) else evidence


VALUES: dict[str, st.SearchStrategy[object]] = {
    "cloud": nodes,
    "runtime": runtimes,
    "host": hosts,
    "logs": logs,
    "notices": notices,
    "kubernetes": kubernetes,
    "monitoring": monitorings,
    "peer": peers,
    "server": servers,
}
EVIDENCE = st.one_of(evidences(), changed(), changed(), changed())


def without(evidence: Evidence, signal: str, problem: Problem) -> Evidence:
    """The same, had this signal not answered."""
    answer = getattr(evidence, signal)
    return replace(evidence, **{signal: Answer(answer.value, answer.at, problem, "It is silent.", NOW)})


@given(EVIDENCE)
def test_the_same_evidence_gives_the_same_judgement(evidence: Evidence) -> None:
    assert judge_node(evidence, JudgeLimits()) == judge_node(replace(evidence), JudgeLimits())


@given(EVIDENCE, st.lists(st.sampled_from(SILENT), min_size=len(SIGNALS), max_size=len(SIGNALS)))
def test_silence_is_never_bad(evidence: Evidence, problems: list[Problem]) -> None:
    for signal, problem in zip(SIGNALS, problems, strict=True):
        evidence = without(evidence, signal, problem)
    verdict = judge_node(replace(evidence, workers={}), JudgeLimits()).verdict
    assert verdict is Verdict.MISCONFIGURED or verdict not in BAD


def aged(answer: Answer[Any]) -> Answer[Any]:
    """The same answer, hours ago."""
    return replace(answer, at=NOW - 20_000, tried=NOW - 20_000, problem=answer.problem or None)


@given(EVIDENCE)
def test_old_answers_are_never_bad(evidence: Evidence) -> None:
    for signal in SIGNALS:
        evidence = replace(evidence, **{signal: aged(getattr(evidence, signal))})
    workers = {number: aged(answer) for number, answer in (evidence.workers or {}).items()}
    verdict = judge_node(replace(evidence, workers=workers), JudgeLimits()).verdict
    assert verdict is Verdict.MISCONFIGURED or verdict not in BAD


@settings(max_examples=250)
@given(EVIDENCE, st.sampled_from(SIGNALS), st.sampled_from(SILENT))
def test_to_lose_a_signal_never_makes_the_action_more_destructive(
    evidence: Evidence, signal: str, problem: Problem
) -> None:
    # Where the other nodes' tpuwatch are not asked, by configuration, none of them can object.
    assume((signal, problem) != ("peer", Problem.OFF))
    before = judge_node(evidence, JudgeLimits()).action
    after = judge_node(without(evidence, signal, problem), JudgeLimits()).action
    assert WEIGHT[after] <= WEIGHT[before]
    never_asked = judge_node(replace(evidence, **{signal: Answer()}), JudgeLimits()).action
    assert WEIGHT[never_asked] <= WEIGHT[before]


def pids_to_kill(judgement: Judgement) -> set[int]:
    commands = (re.search(r"kill (?:-9 )?([\d ]+)", step.do) for step in judgement.remedy)
    return {int(pid) for found in commands if found for pid in found[1].split()}


def pids_that_hold(evidence: Evidence) -> set[int]:
    return {holder.pid for holder in evidence.host.value.holders} if evidence.host.value else set()


@settings(max_examples=250)
@given(EVIDENCE)
def test_what_is_destructive_is_proven_and_allowed(evidence: Evidence) -> None:
    judgement = judge_node(evidence, JudgeLimits())
    if judgement.action not in DESTRUCTIVE:
        return
    said = {source for reason in judgement.reasons if not reason.idle for source in reason.sources}
    assert len(said - {Source.PROCESS, Source.TEXT}) >= 2
    node = evidence.cloud.value
    if judgement.action is Action.RESTART_NODE:
        assert node is not None
        assert (node.state, node.hosts, node.spot) == ("READY", 1, False)
        assert node.health in ("TIMEOUT", "UNHEALTHY_TENSORFLOW")
        assert evidence.identity.hosts.value in ("", "1")
    if judgement.action is Action.RESET_QUEUED_RESOURCE:
        assert node is not None
        assert node.queued_resource
        assert node.state == "READY"
    if judgement.action in (Action.END_HOLDER, Action.RESTART_RUNTIME):
        assert evidence.own
        assert pids_to_kill(judgement) <= pids_that_hold(evidence)
        assert judgement.verdict in (Verdict.JOB_STUCK, Verdict.RUNTIME_STUCK)


anything = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from((math.nan, math.inf, -math.inf, 1e308, 0.0))
wild_times = st.none() | anything


@st.composite
def nonsense(draw: st.DrawFn) -> Evidence:
    """Numbers and texts that no signal should give."""
    text = st.text(max_size=20)
    cloud = draw(
        st.builds(
            CloudNode,
            text,
            text,
            text,
            states | text,
            healths | text,
            text,
            st.lists(symptoms).map(tuple),
            changed=wild_times,
            hosts=st.integers(),
            maintenance=st.builds(Maintenance, text, text, wild_times, wild_times),
        )
    )
    chip = draw(st.builds(Chip, text, duty_cycle=wild_times, idle_seconds=wild_times))
    port = draw(st.builds(RuntimePort, st.integers(), st.just((chip,)), st.none() | st.integers(), since=wild_times))
    holder = draw(st.builds(Holder, st.integers(), text, text, wild_times, st.just(()), cpu_cores=wild_times))
    host = draw(
        st.builds(
            Host,
            text,
            wild_times,
            st.just((holder,)),
            oom_kills=st.integers(),
            memory_total_bytes=st.integers(),
            memory_available_bytes=st.integers(),
            last_oom_kill=wild_times,
            unseen=st.lists(text).map(tuple),
        )
    )
    launch = draw(st.builds(Launch, st.integers(), anything, last_heard=wild_times, outcome=st.sampled_from(Outcome)))
    event = draw(
        st.builds(
            Event,
            st.just(b""),
            text,
            st.sampled_from(Cause),
            anything,
            wild_times,
            text,
            st.none(),
            text,
            st.integers(),
            text,
        )
    )
    values = {
        "cloud": cloud,
        "runtime": Runtime((port,)),
        "host": host,
        "logs": Logs((launch,), (event,), frozenset({launch.pid})),
        "notices": Notices(draw(text), draw(st.booleans()), cloud.maintenance),
        "peer": Peer(draw(anything), draw(st.none() | words), draw(wild_times), draw(st.integers())),
        "server": ModelServer(draw(text), *draw(st.tuples(st.integers(), st.integers(), wild_times, wild_times))),
        "monitoring": Monitoring(*draw(st.tuples(wild_times, wild_times, st.booleans(), wild_times))),
    }
    given_at = st.one_of(st.just(NOW), wild_times)
    problems = st.none() | st.sampled_from(Problem)
    answers = {
        name: Answer(value, draw(given_at), draw(problems), draw(text), draw(given_at))
        for name, value in values.items()
    }
    who = Identity(hosts=Known(draw(text | st.just("9" * 5000)), "metadata"), node=Known(draw(text), "config"))
    return Evidence(draw(text), NOW, draw(st.booleans()), who, **answers)


@settings(max_examples=200)
@given(nonsense())
def test_nothing_that_signals_report_makes_it_raise(evidence: Evidence) -> None:
    judgement = judge_node(evidence, JudgeLimits())
    assert judgement.action not in DESTRUCTIVE or len(judgement.sources - {Source.PROCESS, Source.TEXT}) >= 2
    for sentence in (judgement.summary, *judgement.missing, *judgement.contradictions):
        assert len(sentence) < 1000
    for reason in judgement.reasons:
        assert len(reason.text) < 1000


@given(st.lists(st.tuples(st.floats(0, 2000), st.sampled_from(SITUATIONS)), min_size=1, max_size=8))
def test_a_verdict_holds_never_since_later_than_it_was_given(steps: list[tuple[float, Situation]]) -> None:
    last = None
    for moved, situation in steps:
        last = following(last, replace(judge_node(situation.evidence, JudgeLimits()), at=NOW + moved))
        assert last.since is not None
        assert last.since <= last.at


# -- the short way to a verdict, for nodes that are well

WELL = Evidence(
    node="trainer",
    now=NOW,
    cloud=Answer(
        CloudNode("acme", "zone", "trainer", "READY", "HEALTHY", changed=NOW - 50), NOW - 3, None, "", NOW - 3
    ),
    monitoring=OFF,
)


@st.composite
def from_elsewhere(draw: st.DrawFn) -> Evidence:
    """A node that is watched from elsewhere: as WELL, but for a thing or two."""
    of_node: dict[str, st.SearchStrategy[object]] = {
        "state": states,
        "health": healths,
        "symptoms": st.lists(symptoms, min_size=1, max_size=2).map(tuple),
        "maintenance": maintenances,
        "changed": maybe_times,
        "created": maybe_times,
        "hosts": st.just(4),
        "spot": st.just(True),
    }
    other = {name: draw(of_node[name]) for name in draw(st.lists(st.sampled_from(sorted(of_node)), max_size=2))}
    assert WELL.cloud.value is not None
    node = replace(WELL.cloud.value, **other)  # type: ignore[arg-type] # as the fields are
    evidence = replace(WELL, cloud=Answer(node, draw(times), None, "", NOW - 3))
    for name in draw(st.lists(st.sampled_from(SIGNALS), max_size=1)):
        evidence = replace(evidence, **{name: draw(answers(st.just(node) if name == "cloud" else VALUES[name]))})
    return evidence


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(evidence=EVIDENCE | from_elsewhere() | from_elsewhere())
def test_the_short_way_to_healthy_comes_to_what_all_rules_come_to(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgement = judge_node(evidence, JudgeLimits())
    with monkeypatch.context() as patch:
        patch.setattr(cloud_rules, "undisputed", lambda _: False)
        assert judge_node(evidence, JudgeLimits()) == judgement


def test_a_node_that_is_well_is_judged_by_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.health.judge.RULES", ())
    assert judge_node(WELL, JudgeLimits()).verdict is Verdict.HEALTHY
    assert judge_node(replace(WELL, own=True), JudgeLimits()).verdict is Verdict.UNKNOWN
