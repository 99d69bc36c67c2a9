"""What the daemon shows and does while its ledger can be read, and cannot be written."""

from __future__ import annotations

from tests.unit.restart.restart_side import NOW, Side, finished, half_done, target, turned
from tpuwatch.model.answers import Signal
from tpuwatch.model.restart import Breaker, Claim, Fleet, Phase
from tpuwatch.model.status import ledger_down
from tpuwatch.model.verdict import Action, Verdict
from tpuwatch.restart.driver import Progress
from tpuwatch.restart.service import RestartService
from tpuwatch.restart.unfinished import LEFT_SECONDS
from tpuwatch.restart.watched_ledger import IDLE_SECONDS
from tpuwatch.web.routes import restarts_document
from tpuwatch.web.sentences import restart_sentences

UP, UNRECORDED = "tpuwatch_ledger_up", "tpuwatch_restarts_unrecorded"
NO_ROOM = "the ledger cannot be written: there is no room"


def under_way(side: Side) -> RestartService:
    """A daemon that restarts train-1."""
    watch = side.watch()
    side.go.clear()
    side.stuck("train-1")
    watch.turn()
    return watch


def test_a_restart_that_cannot_be_recorded_is_shown_everywhere(side: Side) -> None:
    watch = under_way(side)
    side.ledger.write_fault = NO_ROOM
    record = half_done(shown="STOPPED")
    watch._drivers.on_progress(Progress(record, "", 9.0, NO_ROOM))
    for _ in range(3):
        watch.turn()
        side.clock.advance(LEFT_SECONDS)
    assert (side.metric(UP), side.metric(UNRECORDED)) == (0, 1)
    (called,) = [one for one in side.called if one["event"] == "restart_unrecorded"]
    assert called["sentence"].startswith("NODE IS STOPPED: ")
    assert "tpu-vm start train-1" in called["text"]
    assert called["reason"] == NO_ROOM
    document = restarts_document(watch.status, side.clock.time(), 10)
    assert document.ledger_problem == ledger_down(NO_ROOM)
    assert document.unrecorded[0].startswith("NODE IS STOPPED: ")
    assert restart_sentences(watch.status, side.clock.time())[0].startswith("NODE IS STOPPED: ")
    assert watch.is_unrecorded
    # Nobody is called for what is being done: of all that is said of the node this is one.
    assert [one["event"] for one in side.called] == ["restart_unrecorded"]
    assert ("restart_node", "unrecorded", None) in side.audited()
    side.ledger.write_fault = ""
    watch._drivers.on_progress(Progress(record, "", 9.0))
    side.clock.advance(LEFT_SECONDS)
    watch.turn()
    assert (side.metric(UP), side.metric(UNRECORDED), watch.status.problem) == (1, 0, "")
    assert not watch.is_unrecorded
    side.go.set()
    finished(side, watch)


def test_a_ledger_that_was_not_written_is_down_until_it_is(side: Side) -> None:
    """That it can be read is not enough."""
    watch = side.watch()
    side.ledger.write_fleet(Fleet(Breaker(reset_at=1.0)), 0)
    watch.turn()
    side.ledger.write_fault = NO_ROOM
    for _ in range(5):
        side.stuck("train-1")
        watch.turn()
        assert (side.metric(UP), watch.status.problem) == (0, NO_ROOM)
        side.clock.advance(LEFT_SECONDS)
    assert side.audited()[-1] == ("restart_node", "blocked", "no_ledger")
    assert side.driven == []
    side.ledger.write_fault = ""
    side.stuck("train-1")
    turned(watch)
    assert (side.metric(UP), watch.status.problem) == (1, "")
    assert side.driven == [("train-1", Action.RESTART_NODE)]


def test_what_others_left_down_is_finished_though_another_record_cannot_be_written(side: Side) -> None:
    """train-0 is asked for by somebody who has left, which is to be written; train-1 is down."""
    side.ledger.put(half_done("train-0", phase=Phase.REQUESTED, stops=0, requested=NOW - 9000))
    side.ledger.put(half_done("train-1"))
    side.ledger.write_fleet(Fleet(claims=(Claim(target("train-1"), NOW),)), 0)
    watch = side.watch()
    side.ledger.write_fault = NO_ROOM
    side.judge("train-0")
    side.judge("train-1", Verdict.STOPPED, Action.MANUAL, Signal.CLOUD)
    for _ in range(3):
        turned(watch)
        side.clock.advance(LEFT_SECONDS + 15)
    assert side.metric(UP) == 0
    assert {node for node, _ in side.driven} == {"train-1"}


def test_it_is_tried_once_an_hour_whether_it_can_be_written(side: Side) -> None:
    """While nothing is wrong nothing else would show it before a node is stuck."""
    side.ledger.write_fleet(Fleet(Breaker(reset_at=1.0)), 0)
    watch = side.watch()
    side.judge("train-1")
    watch.turn()
    before = side.ledger.writes
    side.ledger.write_fault = NO_ROOM
    for _ in range(11):
        side.clock.advance(IDLE_SECONDS / 12)
        watch.turn()
    assert (side.metric(UP), side.ledger.writes) == (1, before)
    side.clock.advance(IDLE_SECONDS / 12)
    watch.turn()
    assert (side.metric(UP), watch.status.problem) == (0, NO_ROOM)
    side.ledger.write_fault = ""
    side.clock.advance(LEFT_SECONDS)
    watch.turn()
    assert (side.metric(UP), side.ledger.writes) == (1, before + 1)
