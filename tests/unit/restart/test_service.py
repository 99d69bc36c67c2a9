"""When the daemon looks into the ledger, what it begins and what it leaves alone, and what it reports of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.records import record
from tests.unit.restart.restart_side import BEGUN, NOW, ZONE, Side, cloud, finished, half_done, target, turned
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.restart import Blocked, Breaker, Fleet, Lease, Phase
from tpuwatch.model.verdict import Action, Confidence, Unseen, Verdict
from tpuwatch.restart.notify import MAX_LINES
from tpuwatch.restart.unfinished import LEFT_SECONDS
from tpuwatch.restart.workflow.step import ended

NEEDED = f'tpuwatch_restart_person_needed{{node="train-1",zone="{ZONE}"}}'

# -- while nothing is wrong


def test_the_ledger_is_read_once_and_never_again_while_all_is_well(side: Side) -> None:
    watch = side.watch()
    for number in range(200):
        for node in range(5):
            side.judge(f"train-{node}", *((Verdict.IDLE,) if number % 2 else ()))
        watch.turn()
        side.clock.advance(5)
    assert (side.ledger.reads, side.ledger.writes) == (1, 0)
    assert side.audited() == side.called == []
    assert not (side.root / "audit.jsonl").exists()


def test_a_ledger_that_another_process_has_written_is_read_at_the_next_turn(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator has left the restart of a node that nobody watches: it is not left half done for an hour."""
    stamps = iter([1, 1, 1, 2, 2, 2, 2, 2])
    monkeypatch.setattr(side.ledger, "stamp", lambda: next(stamps))
    watch = side.watch()
    watch.turn()
    side.ledger.put(replace(record("left", phase=Phase.STOPPED, stops=1), lease=Lease()))
    for _ in range(2):
        watch.turn()
    assert (side.ledger.reads, side.driven) == (1, [])
    watch.turn()
    assert (side.ledger.reads, side.driven) == (2, [("left", Action.RESTART_NODE)])


def test_a_node_that_somebody_stopped_for_good_costs_one_reading(side: Side) -> None:
    watch = side.watch()
    watch.turn()
    for _ in range(100):
        side.judge("train-1", Verdict.STOPPED, Action.MANUAL, Signal.CLOUD, shown=cloud("train-1", "STOPPED", ""))
        watch.turn()
        side.clock.advance(5)
    assert (side.ledger.reads, side.ledger.writes) == (2, 0)
    assert len(side.called) == 1


def test_a_node_that_stays_stuck_is_looked_up_ever_more_rarely(side: Side) -> None:
    watch = side.watch(mode="observe")
    reads = []
    for _ in range(3):
        before = side.ledger.reads
        for _ in range(120):
            side.stuck("train-1")
            assert watch.turn() <= 5
            side.clock.advance(5)
        reads.append(side.ledger.reads - before)
    assert reads[0] > 30
    assert reads[2] <= 600 / 30 + 1


# -- acting


def test_what_is_proven_is_recorded_then_done_once(side: Side) -> None:
    watch = side.watch()
    side.go.clear()
    side.stuck("train-1")
    watch.turn()
    (claim,) = side.ledger.fleet().fleet.claims
    begun = side.ledger.record()
    assert (begun.phase, begun.cause, begun.signals) == (Phase.REQUESTED, "node_stuck", ("cloud", "runtime"))
    assert (claim.target, claim.began) == (begun.target, begun.requested)
    assert begun.lease.owner
    for _ in range(5):  # it is under way
        side.clock.advance(5)
        side.stuck("train-1")
        watch.turn()
    side.go.set()
    assert finished(side, watch).phase is Phase.DONE
    duration = 'tpuwatch_restart_seconds_{}{{action="restart_node"}}'
    assert (side.metric(duration.format("count")), side.metric(duration.format("sum"))) == (1, 25)
    assert side.driven == [("train-1", Action.RESTART_NODE)]
    assert side.metric(BEGUN) == side.metric('tpuwatch_restarts_total{action="restart_node",result="done"}') == 1
    assert [one[1:] for one in side.audited()] == [("begun", None), ("blocked", "under_way"), ("done", None)]
    side.clock.advance(5)
    side.stuck("train-1")
    watch.turn()
    assert side.audited()[-1] == ("restart_node", "blocked", "same_cause")
    assert side.called[-1]["blocked"].value == "same_cause"
    assert len(side.driven) == 1


@pytest.mark.parametrize(("created", "restarts"), [(NOW - 60, True), (NOW - 9000, False)])
def test_a_node_that_was_created_again_owes_nothing_of_the_former_one(
    side: Side, created: float, restarts: bool
) -> None:
    """A colleague deleted the former node while it was restarted, and created it again."""
    lost = half_done(requested=NOW - 7900, began=NOW - 7900)
    side.ledger.put(replace(ended(lost, Phase.NEEDS_OPERATOR, "Node train-1 is gone.", NOW - 7600), lease=Lease()))
    watch = side.watch()
    shown = cloud("train-1", health="TIMEOUT", created=created)
    side.judge("train-1", Verdict.NODE_STUCK, Action.RESTART_NODE, Signal.CLOUD, Signal.RUNTIME, shown=shown)
    turned(watch)
    (label, decision) = watch.status.decisions[0]
    assert (label, decision.blocked) == (f"{ZONE}/train-1", None if restarts else Blocked.NEEDS_OPERATOR)
    assert side.driven == ([("train-1", Action.RESTART_NODE)] if restarts else [])
    assert decision.use is not None
    assert decision.use.node == (0 if restarts else 1)
    assert side.needed() == [] or not restarts


def test_of_two_who_decide_at_once_one_does_it(side: Side) -> None:
    watch = side.watch()
    side.stuck("train-1")
    other = replace(record(requested=NOW), target=target("train-1"), lease=Lease("other/boot/1/2/y", 60.0))
    side.ledger.before_write = lambda: side.ledger.put(other)
    watch.turn()
    assert side.driven == []
    assert side.ledger.record() == other
    assert side.metric(BEGUN) == 0
    assert side.audited() == [("restart_node", "blocked", "under_way")]


def test_observing_says_once_what_would_have_been_done(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    watch = side.watch(mode="observe")
    for _ in range(20):
        side.stuck("train-1")
        watch.turn()
        side.clock.advance(5)
    assert side.driven == []
    assert side.ledger.writes == 0
    assert side.audited() == [("restart_node", "blocked", "observe")]
    assert side.metric('tpuwatch_restarts_blocked_total{reason="observe"}') == 1
    assert side.metric(NEEDED) == 1
    (call,) = side.called
    assert (call["event"], call["node"], call["verdict"]) == ("person_needed", "train-1", "node_stuck")
    assert caplog.text.count("Would stop and start the node") == 1
    assert watch.status.decisions[0][0] == f"{ZONE}/train-1"
    side.judge("train-1")
    watch.turn()
    assert side.needed() == []
    side.stuck("train-1")
    watch.turn()
    assert side.metric('tpuwatch_restarts_blocked_total{reason="observe"}') == 2
    assert len(side.called) == 1  # a person knows


def test_the_last_known_verdict_is_no_evidence_and_what_was_decided_before_stands(side: Side) -> None:
    """A node that is out of sight is not restarted on what was seen of it, however long that has held."""
    watch = side.watch()
    for _ in range(300):
        side.clock.advance(5)
        side.judge("train-2", Verdict.NODE_STUCK, Action.MANUAL, Signal.CLOUD)
        watch.turn()
    assert len(side.needed()) == len(side.called) == 1
    lost = Unseen(Signal.CLOUD, Problem.DENIED, "The account may not list the nodes.")
    side.stuck("train-1")
    for name in ("train-1", "train-2"):
        node = side.nodes[name]
        side.nodes[name] = replace(node, judgement=replace(node.judgement, unseen=lost))
    for _ in range(300):
        watch.turn()
        side.clock.advance(5)
    assert side.driven == []
    assert side.ledger.writes == 0
    assert [label for label, _ in watch.status.decisions] == [f"{ZONE}/train-2"]
    assert len(side.needed()) == 1
    side.judge("train-2")
    side.stuck("train-1")  # sight is back
    turned(watch)
    assert side.driven == [("train-1", Action.RESTART_NODE)]
    assert side.needed() == []
    assert len(side.called) == 1


def test_what_concerns_all_nodes_is_one_call_and_few_lines(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    watch = side.watch(storm_nodes=3)
    for number in range(100):
        side.stuck(f"train-{number}")
    watch.turn()
    assert side.metric('tpuwatch_restarts_blocked_total{reason="storm"}') == len(side.audited()) == 100
    assert len(caplog.messages) == MAX_LINES + 1
    assert caplog.messages[-1] == "… and 80 more decisions; the audit has them all."
    assert [one["blocked"].value for one in side.called] == ["storm"]


def test_a_breaker_is_opened_once_and_nothing_is_done_then(side: Side) -> None:
    for node in ("a", "b", "c"):
        side.ledger.put(
            replace(record(requested=NOW - 900, entered=NOW - 800, phase=Phase.FAILED, stops=1), target=target(node))
        )
    watch = side.watch(breaker_failures=3)
    for _ in range(4):
        side.stuck("train-1")
        watch.turn()
        side.clock.advance(5)
    breaker = side.ledger.fleet().fleet.breaker
    assert breaker.opened == NOW
    assert side.metric("tpuwatch_breaker_open") == 1
    assert side.audited().count(("open_breaker", "done", None)) == 1
    assert [one["event"] for one in side.called] == ["breaker_opened"]
    assert side.driven == []
    side.judge("train-1")
    side.ledger.write_fleet(Fleet(Breaker(reset_at=side.clock.time())), side.ledger.fleet().version)
    side.clock.advance(61)
    watch.turn()
    assert side.metric("tpuwatch_breaker_open") == 0


def test_without_a_ledger_nothing_is_done_and_that_is_reported(side: Side) -> None:
    watch = side.watch()
    side.ledger.fault = "the ledger cannot be read"
    side.stuck("train-1")
    watch.turn()
    assert side.metric("tpuwatch_ledger_up") == 0
    assert side.metric("tpuwatch_ledger_errors_total") == 1
    assert side.audited() == [("restart_node", "blocked", "no_ledger")]
    assert watch.status.problem == "the ledger cannot be read"
    side.ledger.fault = ""
    side.clock.advance(LEFT_SECONDS)
    side.stuck("train-1")
    watch.turn()
    assert finished(side, watch).phase is Phase.DONE
    assert side.metric("tpuwatch_ledger_up") == 1


# -- the own node


def test_the_own_node_is_asked_for_and_never_stopped(side: Side) -> None:
    side.is_own("train-1")
    watch = side.watch()
    for _ in range(140):
        side.stuck("train-1")
        watch.turn()
        side.clock.advance(5)
    asked = side.ledger.record()
    assert (asked.phase, asked.lease, asked.cause, asked.boot_id) == (
        Phase.REQUESTED, Lease(), "node_stuck", "boot-1",
    )  # fmt: skip
    assert side.clock.time() - asked.requested <= 300 + 5
    assert side.ledger.writes == 3  # asked for, and renewed
    assert side.metric("tpuwatch_restart_requests_total") == 1
    assert side.driven == []
    side.judge("train-1")
    side.clock.advance(15)
    watch.turn()
    taken_back = side.ledger.record()
    assert (taken_back.phase, taken_back.action) == (Phase.CANCELLED, Action.NONE)
    side.clock.advance(5)
    side.stuck("train-1")
    watch.turn()
    assert side.ledger.record().phase is Phase.REQUESTED  # what was taken back is no restart that did not help


@pytest.mark.parametrize(("mode", "seconds"), [("observe", 0), ("act", 600)])
def test_who_cannot_be_helped_by_others_calls_a_person(side: Side, mode: str, seconds: float) -> None:
    side.is_own("train-1")
    watch = side.watch(mode=mode)
    for _ in range(150):
        side.stuck("train-1")
        watch.turn()
        side.clock.advance(5)
    (call,) = side.called
    assert (call["blocked"].value, call["time_epoch"]) == ("own_node", NOW + seconds)


def test_nobody_is_called_before_the_second_signal_had_its_time(side: Side) -> None:
    side.is_own("train-1")
    watch = side.watch(confirm_seconds=120.0)
    for seconds in range(0, 1100, 10):
        if seconds < 300:
            side.judge("train-1", Verdict.NODE_STUCK, Action.MANUAL, Signal.CLOUD, confidence=Confidence.LOW)
        else:
            side.stuck("train-1")
        watch.turn()
        assert bool(side.needed()) == (seconds >= 300 + 120 + 600)
        side.clock.advance(10)
    assert [one[:2] for one in side.audited()] == [
        ("manual", "nothing"),
        ("restart_node", "blocked"),
        ("restart_node", "requested"),
        ("restart_node", "blocked"),
    ]
    (call,) = side.called
    assert (call["blocked"].value, call["time_epoch"]) == ("own_node", NOW + 300 + 120 + 600)


def test_a_call_for_a_person_is_reported_when_it_is_one(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    watch = side.watch(confirm_seconds=120.0)
    for _ in range(100):
        side.judge("train-1", Verdict.NODE_STUCK, Action.MANUAL, Signal.CLOUD, confidence=Confidence.LOW)
        watch.turn()
        side.clock.advance(10)
    assert [one[:2] for one in side.audited()] == [("manual", "nothing"), ("manual", "nothing")]
    assert [one["time_epoch"] for one in side.called] == [NOW + 120 + 600]
    assert [(one.levelname, "operator is needed" in one.getMessage()) for one in caplog.records] == [("WARNING", True)]
