"""What is wrong now, and what was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart import records
from tests.unit.web import samples
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import EXEC, Event, Finding
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.problems import Problems, present_problems
from tpuwatch.model.progress import ProgressSource, TrainingLoop
from tpuwatch.model.restart import Breaker, Phase, Target
from tpuwatch.model.signals import Host
from tpuwatch.model.status import DaemonStatus, RestartsStatus, SignalStatus
from tpuwatch.model.verdict import Unseen, Verdict

NOW = samples.NOW


def fleet(bad: int, good: int) -> list[JudgedNode]:
    stuck = [samples.node(f"bad-{number}", Verdict.NODE_STUCK) for number in range(bad)]
    return [*stuck, *(samples.node(f"good-{number}") for number in range(good))]


def failed(event: Event, **changes: object) -> Launch:
    """The launch that the event is of: it ran for 30 s until then."""
    own = {"started": event.when - 30, "faults": {event.cause.value: 30.0}, "ended": event.when, "workload": "train"}
    return samples.launch(**{**own, "exit_status": 1, **changes})


def later(**changes: object) -> Launch:
    """A launch of the same workload after it, which has come further."""
    return samples.launch(**{"pid": 5000, "started": NOW - 300, "workload": "train", **changes})


def problems(
    finding: Finding | None = None,
    *launches: Launch,
    status: DaemonStatus | None = None,
    nodes: tuple[JudgedNode, ...] | list[JudgedNode] = (),
) -> Problems:
    return present_problems(status or samples.status(), [finding] if finding else [], nodes, launches)


# -- nodes and the daemon


@pytest.mark.parametrize("verdict", [Verdict.NODE_STUCK, Verdict.PREEMPTED, Verdict.STOPPED])
def test_another_node_counts_as_the_own_one_does(verdict: Verdict) -> None:
    own = problems(status=samples.watching(verdict))
    other = problems(status=samples.watching(), nodes=[samples.node(), samples.node("train-2", verdict)])
    assert own.counts == other.counts == {"node": 1, "finding": 0, "daemon": 0, "signal": 0, "queued_resource": 0}
    assert own.headline == f"1 problem: train-1 is {verdict.value}"
    assert other.headline == f"1 problem: us-central2-b/train-2 is {verdict.value}"


def test_many_bad_nodes_are_counted_and_the_worst_come_first() -> None:
    found = problems(nodes=[samples.node("gone", Verdict.GONE), *fleet(9, 290)])
    assert found.headline == "10 problems: 10 of 300 nodes are bad"
    assert [node.judgement.verdict for node in found.nodes] == [Verdict.NODE_STUCK] * 9 + [Verdict.GONE]


def test_a_daemon_that_does_not_do_its_work_is_a_problem() -> None:
    found = problems(status=samples.status(reading=False))
    assert (found.counts["daemon"], found.headline) == (1, "1 problem: tpuwatch is not ready")


def test_a_daemon_that_cannot_store_what_it_read_is_a_problem() -> None:
    status = samples.status()
    full = replace(status, store=replace(status.store, detail="Reading waits: the disk is full."))
    assert problems(status=status).daemon == ()
    assert problems(status=full).daemon == ("Reading waits: the disk is full.",)


def test_all_kinds_stand_in_the_headline() -> None:
    found = present_problems(
        samples.status(reading=False), [samples.finding(), samples.finding()], fleet(1, 0), [samples.launch()]
    )
    assert found.headline == "4 problems: us-central2-b/bad-0 is node_stuck, 2 findings, tpuwatch is not ready"


def test_a_queued_resource_with_a_problem_is_one() -> None:
    found = [samples.queued("q-1", "FAILED", QueuedProblem.ENDED), samples.queued("q-2", "ACTIVE")]
    one = problems(status=samples.status(queued_resources=found))
    assert (one.counts["queued_resource"], one.queued_resources) == (1, (found[0],))
    assert one.headline == "1 problem: queued resource us-central2-b/q-1 is ended"
    two = problems(status=samples.status(queued_resources=[found[0], found[0]]))
    assert two.headline == "2 problems: 2 queued resources have problems"


def test_what_is_unknown_is_no_problem_and_is_not_well() -> None:
    assert problems().headline == "Nothing is wrong"
    found = problems(status=samples.watching(Verdict.UNKNOWN))
    assert (found.total, found.headline) == (0, "Nothing is known to be wrong: train-1 is unknown")
    nodes = [samples.node(), samples.node("a", Verdict.UNKNOWN), samples.node("b", Verdict.UNKNOWN)]
    assert problems(nodes=nodes).headline == "Nothing is known to be wrong: 2 of 3 nodes are unknown"


def out_of_sight(name: str, verdict: Verdict, problem: Problem = Problem.DENIED) -> JudgedNode:
    """A node that the cloud does not show any more."""
    unseen = Unseen(Signal.CLOUD, problem, "The account may not list the nodes: grant it roles/tpu.viewer.")
    return samples.node(name, judgement=samples.judgement(verdict, node=name, unseen=unseen))


def test_one_cause_for_which_many_nodes_are_out_of_sight_is_one_problem() -> None:
    stuck = [out_of_sight(f"bad-{number}", Verdict.NODE_STUCK) for number in range(18)]
    unknown = [out_of_sight(f"good-{number}", Verdict.UNKNOWN) for number in range(9)]
    found = problems(nodes=[samples.node(), *stuck, *unknown])
    assert found.counts == {"node": 18, "finding": 0, "daemon": 0, "signal": 1, "queued_resource": 0}
    (spot,) = found.blind_spots
    assert (spot.signal, spot.problem, spot.last_known, spot.unknown) == (Signal.CLOUD, Problem.DENIED, 18, 9)
    assert found.headline == ("19 problems: 18 of 28 nodes are bad (last known), the signal cloud fails (denied)")


def test_two_causes_are_two_and_a_part_of_the_nodes_is_seen() -> None:
    found = problems(
        nodes=[
            samples.node("seen", Verdict.NODE_STUCK),
            out_of_sight("here", Verdict.NODE_STUCK),
            out_of_sight("there", Verdict.UNKNOWN, Problem.TIMEOUT),
        ]
    )
    assert [(spot.problem, spot.last_known, spot.unknown) for spot in found.blind_spots] == [
        (Problem.DENIED, 1, 0),
        (Problem.TIMEOUT, 0, 1),
    ]
    assert found.headline.startswith("4 problems: 2 of 3 nodes are bad (1 last known), ")


@pytest.mark.parametrize(("watches", "number"), [(True, 1), (False, 0)])
def test_after_a_start_without_sight_it_is_said_that_the_watched_nodes_are_not_known(
    watches: bool, number: int
) -> None:
    """Nodes that match a pattern are not known before the first list: without a word on it all would seem well."""
    failing = SignalStatus("cloud", None, NOW, Problem.DENIED, "The account may not list the nodes.")
    status = replace(samples.watching(), signals=(failing,), watches_others=watches)
    assert problems(status=status).counts["signal"] == number


def test_before_the_first_verdict_nothing_is_called_well() -> None:
    starting = samples.status(signals=(SignalStatus("runtime", None, None, None, ""),))
    found = problems(status=starting)
    assert (found.total, found.judged, found.headline) == (0, False, "No node is judged yet")
    assert problems(status=starting, nodes=[samples.node()]).headline == "Nothing is wrong"
    assert problems(status=replace(starting, reading=False)).headline == "1 problem: tpuwatch is not ready"


# -- findings that are over


def test_a_later_launch_of_the_workload_that_does_well_ends_a_finding() -> None:
    event = samples.event(age=3600)
    found = problems(samples.finding(event), failed(event), later())
    assert (found.findings, found.total, found.headline) == ((), 0, "Nothing is wrong")
    assert found.past[0].why == "A later launch of train (process 5000) does well."


@pytest.mark.parametrize(
    "launch",
    [
        later(workload="serve"),
        later(started=NOW - 7200),  # before it
        later(outcome=Outcome.STARTING),
        later(outcome=Outcome.FAILED, cause=Cause.HANG),
        later(faults={"hang": 9.0}),  # it came up, and then failed
        later(exit_status=1, ended=NOW - 10),
        later(started=NOW - 20),  # the one before failed after 30 s
        later(started=NOW - 300, ended=NOW - 280),
    ],
    ids=["other", "before", "starting", "failed", "faults", "exit", "too_early", "too_short"],
)
def test_any_other_launch_does_not(launch: Launch) -> None:
    event = samples.event(age=3600)
    assert problems(samples.finding(event), failed(event), launch).total == 1


def test_a_launch_that_ended_well_has_come_far_enough() -> None:
    event = samples.event(age=3600)
    short = later(ended=NOW - 295, exit_status=0)
    assert problems(samples.finding(event), failed(event), short).total == 0


def test_a_finding_of_two_workloads_is_over_when_both_do_well() -> None:
    first, last = samples.event(age=3600), samples.event(age=3000, pid=77)
    finding = samples.finding(first, last=last, latest=(first, last))
    both = failed(first), failed(last, pid=77, workload="serve")
    assert problems(finding, *both, later()).total == 1
    assert problems(finding, *both, later(), later(pid=6000, workload="serve")).total == 0


def test_the_number_of_a_process_is_given_again() -> None:
    event = samples.event(age=3600)
    reused = later(pid=4242)  # the same number, later
    assert problems(samples.finding(event), failed(event), reused).total == 0
    assert problems(samples.finding(event), reused).total == 1  # nothing is known of the launch that failed


def test_a_record_without_a_process_is_of_the_launch_that_had_the_fault_then() -> None:
    event = samples.event(age=3600, pid=None)
    other = samples.launch(pid=99, started=event.when - 50, workload="serve")
    assert problems(samples.finding(event), failed(event), other, later()).total == 0
    unclear = failed(event, faults={})
    assert problems(samples.finding(event), unclear, other, later()).total == 1


def test_launches_without_a_name_are_those_of_their_user() -> None:
    event = samples.event(age=3600)
    alone = samples.launch(started=event.when - 30, exit_status=1, ended=event.when)
    assert problems(samples.finding(event), alone, later(workload="")).total == 0
    assert problems(samples.finding(event), alone, later(workload="", user="bob")).total == 1


def test_a_finding_is_over_after_the_configured_time() -> None:
    finding = samples.finding(samples.event(age=3700))
    assert problems(finding, status=samples.status(finding_seconds=3800.0)).total == 1
    found = problems(finding, status=samples.status(finding_seconds=3600.0))
    assert found.total == 0
    assert found.past[0].why == "Not seen for 1 h (`finding_seconds` under [health])."


@pytest.mark.parametrize(
    ("changes", "verdict", "total"),
    [
        ({"phase": Phase.DONE, "entered": NOW - 60}, Verdict.HEALTHY, 0),
        ({"phase": Phase.DONE, "entered": NOW - 60}, Verdict.UNKNOWN, 1),
        ({"phase": Phase.DONE, "entered": NOW - 6000}, Verdict.HEALTHY, 1),  # before it
        ({"phase": Phase.FAILED, "entered": NOW - 60}, Verdict.HEALTHY, 1),
        ({"phase": Phase.DONE, "entered": NOW - 60, "target": Target("lab", "z", "x")}, Verdict.HEALTHY, 1),
    ],
)
def test_a_restart_after_which_the_node_is_well_ends_a_finding(
    changes: dict[str, object], verdict: Verdict, total: int
) -> None:
    own = {"target": Target("research-7", "us-central2-b", "train-1"), **changes}
    restarts = RestartsStatus(acts=True, records=[records.record(**own)])
    status = samples.watching(verdict, restarts=restarts)
    assert problems(samples.finding(samples.event(age=3600)), status=status).total == total


def test_so_does_a_boot() -> None:
    finding = samples.finding(samples.event(age=3600))
    assert problems(finding, status=samples.watching(host=Host("new", NOW - 600))).total == 0
    assert problems(finding, status=samples.watching(host=Host("new", NOW - 9000))).total == 1


def test_what_keeps_tpuwatch_from_restarting_is_a_problem_of_a_daemon_that_is_ready() -> None:
    down = RestartsStatus(acts=True, problem="there is no room", breaker=Breaker(1.0, "Three have failed."))
    status = replace(samples.status(), restarts=down)
    found = problems(status=status)
    assert status.not_ready() == []
    assert (found.counts["daemon"], found.headline) == (
        2,
        "2 problems: the ledger of restarts is down, the breaker is open",
    )
    unrecorded = replace(status, restarts=RestartsStatus(acts=True, alarms=("NODE IS STOPPED: …",)))
    assert problems(status=unrecorded).headline == "1 problem: a restart cannot be recorded"


# -- training loops


def test_a_finding_of_a_training_loop_is_over_when_no_loop_that_runs_has_it() -> None:
    event = samples.event(Cause.SLOW_STEPS, rule="loop-slow")
    loop = TrainingLoop(ProgressSource.HEARTBEAT, "", 7, "alice", NOW - 60, 9, NOW, NOW, faults=(Cause.SLOW_STEPS,))
    held = problems(samples.finding(event), status=samples.status(training=(loop,)))
    assert len(held.findings) == 1
    for loops in ((), (replace(loop, faults=()),), (replace(loop, done=True),)):
        over = problems(samples.finding(event), status=samples.status(training=loops))
        assert [one.why for one in over.past] == ["No training loop that runs has it any more."]


def of_exec(workload: str) -> Finding:
    """A finding that `tpuwatch exec` made in a run of the workload, which is not known to have asked for the TPU."""
    event = samples.event(age=3600, file=f"{EXEC}{workload} (alice)", pid=None)
    return samples.finding(event)


@pytest.mark.parametrize(
    ("workload", "changes", "over"),
    [
        pytest.param("train", {"exit_status": 0}, True, id="a run that ended well"),
        pytest.param("train", {"exit_status": None}, False, id="one that has not ended"),
        pytest.param("serve", {"exit_status": 0}, False, id="a run of another workload"),
    ],
)
def test_a_run_of_the_workload_that_ends_well_ends_what_exec_found(
    workload: str, changes: dict[str, object], *, over: bool
) -> None:
    found = of_exec(workload)
    assert (not problems(found, later(**changes)).findings) is over


def test_what_exec_found_is_of_a_launch_of_its_workload() -> None:
    found = of_exec("train")
    other = replace(failed(found.last), pid=77, workload="serve", started=found.last.when - 5)
    assert not problems(found, failed(found.last), other, later(exit_status=None)).findings
