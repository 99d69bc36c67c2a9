"""What the daemon does about what others have begun, and where it does not know who it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.restart.records import record
from tests.unit.restart.restart_side import NOW, Machine, Side, cloud, finished, half_done, target, turned
from tpuwatch.config.restart import LedgerConfig
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.restart import Breaker, Fleet, Grounds, Lease, Phase, RestartRecord
from tpuwatch.model.signals import Identity, Known
from tpuwatch.model.verdict import Action, Confidence, Verdict
from tpuwatch.restart.unfinished import LEFT_SECONDS


@pytest.mark.parametrize(
    ("identity", "notices", "acts"),
    [
        (Identity(), Answer(None, None, Problem.ABSENT), True),
        (Identity(), Answer(None, None, Problem.TIMEOUT), False),
        (Identity(), Answer(None, None, Problem.UNCONFIGURED), False),
        (Identity(accelerator=Known("v5litepod-8", "metadata")), Answer(None, None, None), False),
        (Identity(node=Known("train-9", "metadata"), zone=Known("us-east5-a", "metadata")), Answer(), True),
        (Identity(node=Known("train-1", "metadata"), zone=Known("us-east5-b", "metadata")), Answer(), True),
        (Identity(node=Known("train-1", "metadata"), zone=Known("us-east5-b", "config")), Answer(), False),
    ],
)
def test_who_does_not_know_where_it_runs_stops_nothing(
    side: Side, identity: Identity, notices: Answer[None], acts: bool
) -> None:
    side.posted = replace(side.posted, identity=identity, notices=notices)
    side.ledger.put(half_done("train-1"))
    side.ledger.put(half_done("train-2"))
    watch = side.watch()
    side.stuck("train-3")
    side.judge("train-1", Verdict.STOPPED, Action.MANUAL, Signal.CLOUD, shown=cloud("train-1", "STOPPED", ""))
    side.nodes["train-1"] = replace(side.nodes["train-1"], own=False)  # by its label it is another one
    turned(watch)
    assert (("train-1", Action.RESTART_NODE) in side.driven) == acts
    if not acts and not identity.node.value:
        assert side.driven == []


@pytest.mark.parametrize("mode", ["act", "observe"])
@pytest.mark.parametrize("phase", [Phase.INTENT, Phase.STOPPING, Phase.STOPPED, Phase.STARTING, Phase.VERIFYING])
def test_what_is_half_done_is_finished_also_by_who_only_observes(side: Side, mode: str, phase: Phase) -> None:
    side.ledger.put(half_done(phase=phase))
    watch = side.watch(mode=mode)
    side.judge("train-1", Verdict.STOPPED, Action.MANUAL, Signal.CLOUD, shown=cloud("train-1", "STOPPED", ""))
    watch.turn()
    side.judge("train-1")
    assert finished(side, watch).phase is Phase.DONE
    assert side.audited()[0][1] == "taken_up"
    assert side.called == []  # what is being done needs no person


def test_what_another_one_drives_is_left_until_its_lease_has_run_out(side: Side) -> None:
    lease = Lease("other/boot/1/2/alive", 60.0)
    side.ledger.put(half_done(lease=lease))
    watch = side.watch()
    side.judge("train-1")
    for beat in range(20):
        side.ledger.put(half_done(lease=lease, tries=beat))
        watch.turn()
        side.clock.advance(15)
    assert side.driven == []
    for _ in range(6):
        watch.turn()
        side.clock.advance(15)
    assert side.driven == [("train-1", Action.RESTART_NODE)]


def test_what_its_driver_has_ended_since_the_ledger_was_read_is_not_taken_up(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command ends its restart and then itself: the daemon may know of the process before it knows of the record."""
    begun = half_done(phase=Phase.VERIFYING, lease=Lease("other/boot/1/2/alive", 60.0))
    side.ledger.put(begun)
    monkeypatch.setattr(Machine, "is_gone", lambda *_: not side.ledger.record().open)
    watch = side.watch()
    side.judge("train-1")
    watch.turn()
    side.ledger.put(replace(begun, phase=Phase.DONE, lease=Lease()))
    turned(watch)
    watch.turn()
    assert side.driven == []
    assert side.audited() == []
    assert side.metric('tpuwatch_restarts_total{action="restart_node",result="done"}') == 0


def test_a_driver_that_gave_up_is_followed_by_another_after_a_while(side: Side) -> None:
    side.outcome = LedgerError("the ledger is asleep")
    side.ledger.put(half_done())
    watch = side.watch()
    side.judge("train-1")
    turned(watch)
    side.outcome = Phase.DONE
    watch.turn()
    assert len(side.driven) == 1
    side.clock.advance(LEFT_SECONDS + 15)
    watch.turn()
    assert finished(side, watch).phase is Phase.DONE
    assert len(side.driven) == 2


def test_what_an_operator_asked_for_and_nobody_began_is_left_to_him(side: Side) -> None:
    side.ledger.put(half_done(phase=Phase.REQUESTED, stops=0, actor="someone@vm-1"))
    watch = side.watch()
    for _ in range(10):
        side.judge("train-1")
        watch.turn()
        side.clock.advance(60)
    assert side.driven == []
    assert side.ledger.writes == 0


def test_what_an_operator_asked_for_and_has_left_holds_nothing_up_for_ever(side: Side) -> None:
    side.ledger.put(half_done(phase=Phase.REQUESTED, stops=0, actor="someone@vm-1"))
    watch = side.watch(mode="observe")
    side.clock.advance(601)
    side.judge("train-1")
    watch.turn()
    given_up = side.ledger.record()
    assert (given_up.phase, given_up.note[:13]) == (Phase.CANCELLED, "The operator ")
    assert side.audited() == [("restart_node", "given_up", None)]
    assert side.driven == []


@pytest.mark.parametrize(
    ("age", "restart", "verdict", "phase"),
    [
        (60, {}, Verdict.NODE_STUCK, Phase.DONE),
        (60, {}, Verdict.UNKNOWN, Phase.REQUESTED),
        (60, {}, Verdict.HEALTHY, Phase.CANCELLED),
        (60, {"mode": "observe"}, Verdict.NODE_STUCK, Phase.CANCELLED),
        (60, {"restart_node": False}, Verdict.NODE_STUCK, Phase.CANCELLED),
        (700, {}, Verdict.NODE_STUCK, Phase.CANCELLED),
        (700, {}, Verdict.UNKNOWN, Phase.CANCELLED),
    ],
    ids=["called for", "not seen yet", "well", "observe", "switched off", "old", "old and not seen"],
)
def test_what_a_watcher_decided_and_did_not_begin(
    side: Side, age: float, restart: dict[str, Any], verdict: Verdict, phase: Phase
) -> None:
    side.ledger.put(decided(NOW - age))
    watch = side.watch(**restart)
    if verdict is Verdict.NODE_STUCK:
        side.stuck("train-1")
    else:
        side.judge("train-1", verdict)
    turned(watch)
    assert (side.driven == [("train-1", Action.RESTART_NODE)]) == (phase is Phase.DONE)
    assert side.ledger.record().phase is phase
    assert (("restart_node", "given_up", None) in side.audited()) == (phase is Phase.CANCELLED)


def decided(at: float) -> RestartRecord:
    """What another watcher decided on, and has no driver for."""
    return half_done(
        phase=Phase.REQUESTED, stops=0, requested=at, entered=at, cause="node_stuck", signals=("cloud", "runtime")
    )


def test_what_a_watcher_decided_by_a_clock_a_little_ahead_is_begun(side: Side) -> None:
    side.ledger.put(decided(NOW + 100))
    watch = side.watch()
    side.stuck("train-1")
    turned(watch)
    assert side.driven == [("train-1", Action.RESTART_NODE)]


def test_what_a_watcher_decided_on_a_node_that_nobody_watches_any_more_holds_no_budget_for_ever(side: Side) -> None:
    side.ledger.put(half_done("train-9", phase=Phase.REQUESTED, stops=0, signals=("cloud", "host")))
    watch = side.watch()
    side.judge("train-1")
    watch.turn()
    assert side.ledger.writes == 0
    side.clock.advance(700)
    watch.turn()
    assert side.ledger.record("train-9").phase is Phase.CANCELLED
    assert side.audited() == [("restart_node", "given_up", None)]


def test_what_a_watcher_decided_is_not_begun_over_an_open_breaker(side: Side) -> None:
    side.ledger.put(decided(NOW))
    side.ledger.write_fleet(Fleet(Breaker(opened=NOW)), 0)
    watch = side.watch()
    side.stuck("train-1")
    turned(watch)
    assert side.driven == []
    given_up = side.ledger.record()
    assert given_up.phase is Phase.CANCELLED
    assert "the breaker is open" in given_up.note


def test_an_act_on_a_machine_is_finished_there_and_given_up_elsewhere(side: Side) -> None:
    side.ledger.put(half_done(action=Action.END_HOLDER, phase=Phase.INTENT))
    watch = side.watch()
    side.judge("train-1")
    watch.turn()
    assert side.driven == []
    side.clock.advance(4000)
    side.judge("train-1")
    watch.turn()
    assert side.ledger.record().phase is Phase.FAILED
    assert side.audited() == [("end_holder", "given_up", None)]

    side.is_own("train-1")
    side.ledger.put(half_done(action=Action.END_HOLDER, phase=Phase.INTENT))
    own = side.watch()
    side.judge("train-1")
    own.turn()
    assert finished(side, own).phase is Phase.DONE
    assert side.driven == [("train-1", Action.END_HOLDER)]


def test_a_request_is_taken_up_by_who_sees_the_same(side: Side) -> None:
    watch = side.watch()
    side.judge("train-1")
    watch.turn()
    side.ledger.put(
        replace(
            record(cause="node_stuck", signals=("cloud", "host"), sources=("cloud", "kernel")),
            target=target("train-1"),
            requested=NOW,
            entered=NOW,
        )
    )
    side.judge("train-1")
    watch.turn()
    assert side.driven == []  # here it is well
    side.clock.advance(5)
    side.judge("train-1", Verdict.NODE_STUCK, Action.MANUAL, Signal.CLOUD, confidence=Confidence.MEDIUM)
    watch.turn()
    done = finished(side, watch)
    assert (set(done.signals), set(done.sources)) == ({"cloud", "host"}, {"cloud", "kernel"})
    assert side.driven == [("train-1", Action.RESTART_NODE)]


@pytest.mark.parametrize("other", ["stuck", "well", "own", "of another queue"])
def test_a_queued_resource_is_not_reset_under_its_other_nodes(side: Side, other: str) -> None:
    if other == "own":
        side.is_own("train-2")
    watch = side.watch(reset_queued_resource=True)
    proven = (Verdict.NODE_STUCK, Action.RESET_QUEUED_RESOURCE, Signal.CLOUD, Signal.RUNTIME)
    side.judge("train-1", *proven, shown=cloud("train-1", "READY", "TIMEOUT", hosts=4, queued_resource="q"))
    queue = "r" if other == "of another queue" else "q"
    shown = cloud("train-2", "READY", "TIMEOUT", hosts=4, queued_resource=queue)
    side.judge("train-2", *proven[:1], Action.WAIT, shown=shown)
    if other in ("well", "of another queue"):
        side.judge("train-2", shown=replace(shown, health="HEALTHY"))
    turned(watch)
    acts = other in ("stuck", "of another queue")
    assert side.driven == ([("train-1", Action.RESET_QUEUED_RESOURCE)] if acts else [])
    assert ("reset_queued_resource", "blocked", "hosts") in side.audited() or acts


def test_what_ends_while_it_stops_is_noted_too(side: Side) -> None:
    side.go.clear()
    side.ledger.put(half_done())
    watch = side.watch()
    side.judge("train-1")
    assert not watch.drives
    watch.turn()
    assert watch.drives
    side.go.set()
    watch.stop()
    assert side.audited() == [("restart_node", "taken_up", None), ("restart_node", "done", None)]
    assert not watch._drivers.is_busy


def test_the_ledger_is_not_taken_from_what_is_half_done_and_nobody_drives_now(side: Side) -> None:
    side.outcome = LedgerError("the ledger is asleep")
    side.ledger.put(half_done())
    watch = side.watch()
    side.judge("train-1")
    turned(watch)
    watch.turn()
    assert not watch._drivers.is_busy
    assert watch.drives
    side.outcome = Phase.DONE
    side.clock.advance(LEFT_SECONDS + 15)
    watch.turn()
    finished(side, watch)
    assert not watch.drives


def test_in_a_ledger_of_many_what_was_begun_here_is_finished_here_though_it_is_watched_no_more(side: Side) -> None:
    watch = side.watch()
    watch._unfinished._config = watch._unfinished._config.model_copy(
        update={"ledger": LedgerConfig(kind="gcs", bucket="ours")}
    )
    side.ledger.put(half_done("train-1", lease=Lease(), actor=watch._starter.actor))
    side.ledger.put(half_done("train-2", lease=Lease(), actor="tpuwatch@elsewhere"))
    turned(watch)
    assert side.driven == [("train-1", Action.RESTART_NODE)]


@pytest.mark.parametrize(("ahead", "reported"), [(60.0, []), (3600.0, [("restart_node", "blocked", "clock")])])
def test_a_restart_that_ended_by_a_wrong_clock_keeps_no_report_back(
    side: Side, ahead: float, reported: list[tuple[str, str, str]]
) -> None:
    side.ledger.put(half_done(phase=Phase.DONE, cause="node_stuck", entered=NOW + ahead))
    watch = side.watch()
    side.stuck("train-1")
    watch.turn()
    assert side.audited() == reported
    assert len(side.called) == len(reported)
    assert side.driven == []


@pytest.mark.parametrize("watcher", ["drives it", "has not begun"])
def test_the_nodes_own_daemon_takes_back_what_a_watcher_has_taken_up_and_not_begun(side: Side, watcher: str) -> None:
    side.is_own("train-1")
    watch = side.watch()
    lease = Lease("other/boot/1/2/alive" if watcher == "drives it" else "", 60.0)
    grounds = Grounds("node_stuck", Action.MANUAL, NOW, watch._starter.actor, NOW, ("host", "runtime"))
    side.ledger.put(replace(decided(NOW), began=NOW, lease=lease, actor="tpuwatch@other", grounds=grounds))
    side.stuck("train-1")
    watch.turn()
    assert side.ledger.record().phase is Phase.REQUESTED
    side.judge("train-1")
    watch.turn()
    assert side.ledger.record().phase is Phase.CANCELLED
    side.ledger.put(replace(decided(NOW), began=NOW, lease=lease, grounds=replace(grounds, requester="someone else")))
    watch.turn()
    assert side.ledger.record().phase is Phase.REQUESTED
