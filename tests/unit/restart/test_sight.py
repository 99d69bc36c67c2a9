"""What the threads of drivers see of the nodes: what is judged now, and never what is older than the loop has seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.records import record
from tests.unit.restart.restart_side import NOW, Side, cloud, make_driver, target
from tpuwatch.model.answers import OFF, Answer, Problem, Signal
from tpuwatch.model.restart import Breaker, Fleet, Phase, RestartRecord
from tpuwatch.model.signals import Peer, PeerVerdict
from tpuwatch.model.verdict import Action, Confidence, Reason, Source, Unseen, Verdict
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.service import RestartService
from tpuwatch.restart.workflow.types import PresentEvidence, Standing, Within


@pytest.fixture
def watch(side: Side) -> RestartService:
    made = side.watch()
    side.go.clear()  # the driver waits
    side.stuck("train-1")
    made.turn()
    return made


def now(side: Side, watch: RestartService) -> PresentEvidence:
    return watch._sight.judge_again(side.ledger.record())


def test_a_driver_that_has_just_begun_sees_what_was_decided_on(side: Side, watch: RestartService) -> None:
    assert now(side, watch).standing is Standing.HOLDS
    side.go.set()


def test_what_is_judged_counts_before_the_loop_has_looked_at_it(side: Side, watch: RestartService) -> None:
    side.clock.advance(5)
    side.stuck("train-1")
    assert now(side, watch).standing is Standing.UNKNOWN
    watch.turn()
    assert now(side, watch).standing is Standing.HOLDS
    side.judge("train-1", Verdict.IDLE)
    assert now(side, watch).standing is Standing.RECOVERED
    side.judge("train-1", Verdict.RUNTIME_STUCK, Action.RESTART_RUNTIME, Signal.CLOUD)
    assert now(side, watch).standing is Standing.LAPSED
    side.go.set()


def test_a_node_that_is_out_of_sight_is_not_taken_down_and_not_given_up(side: Side, watch: RestartService) -> None:
    """The verdict is the same, and is the last known one: nobody sees whether it holds."""
    unseen = Unseen(Signal.CLOUD, Problem.DENIED, "The account may not list the nodes.")
    node = side.nodes["train-1"]
    for action in (Action.RESTART_NODE, Action.MANUAL):
        blind = replace(node.judgement, action=action, unseen=unseen)
        side.nodes["train-1"] = replace(node, judgement=blind)
        watch.turn()
        for seconds in (5, 300):
            side.clock.advance(seconds)
            assert now(side, watch).standing is Standing.UNKNOWN
    side.go.set()


def test_a_judge_that_has_stopped_judging_is_no_witness(side: Side, watch: RestartService) -> None:
    side.clock.advance(121)
    watch.turn()
    assert now(side, watch).standing is Standing.UNKNOWN
    side.go.set()


def test_a_breaker_that_has_opened_and_a_ledger_that_is_down_count(side: Side, watch: RestartService) -> None:
    side.ledger.write_fleet(Fleet(Breaker(opened=NOW)), side.ledger.fleet().version)
    side.clock.advance(16)
    side.stuck("train-1")
    watch.turn()
    assert now(side, watch).standing is Standing.LAPSED
    side.ledger.fault = "the ledger cannot be read"
    side.clock.advance(16)
    side.stuck("train-1")
    watch.turn()
    watch.turn()
    found = watch._sight.judge_again(replace(record(signals=("cloud",), cause="node_stuck"), target=target("train-1")))
    assert found.standing is Standing.UNKNOWN
    side.go.set()


@pytest.mark.parametrize(
    ("api", "standing"),
    [
        (Answer(1, NOW, None), Standing.LAPSED),
        (Answer(1, NOW, Problem.TIMEOUT), Standing.UNKNOWN),
        (Answer(), Standing.UNKNOWN),
    ],
    ids=["it is not listed", "the API does not answer now", "the API was never asked"],
)
def test_a_node_that_is_not_watched_is_taken_down_by_nobody_here(
    side: Side, watch: RestartService, api: Answer[int], standing: Standing
) -> None:
    side.posted = replace(side.posted, api=api)
    elsewhere: RestartRecord = replace(side.ledger.record(), target=target("train-7"))
    assert watch._sight.judge_again(elsewhere).standing is standing
    side.go.set()


WORD = PeerVerdict(
    Verdict.RUNTIME_STUCK,
    Action.RESTART_RUNTIME,
    Confidence.HIGH,
    "It hangs.",
    frozenset({Signal.RUNTIME}),
    5.0,
    frozenset({Source.RUNTIME, Source.KERNEL}),
)
STUCK_STILL = Peer(NOW, WORD)


@pytest.mark.parametrize(
    ("peer", "standing"),
    [
        (STUCK_STILL, Standing.HOLDS),
        (Peer(NOW, replace(WORD, verdict=Verdict.IDLE)), Standing.RECOVERED),
        (Peer(NOW, replace(WORD, verdict=Verdict.MISCONFIGURED)), Standing.LAPSED),
        (Peer(NOW, replace(WORD, sources=frozenset({Source.KERNEL}))), Standing.LAPSED),
        (Peer(NOW, replace(WORD, age=300.0)), Standing.UNKNOWN),
        (Peer(NOW), Standing.UNKNOWN),
        (Peer(NOW, None, silent_since=NOW, tries=1), Standing.UNKNOWN),
        (None, Standing.UNKNOWN),
    ],
)
def test_the_word_of_the_nodes_own_tpuwatch_is_asked_anew(side: Side, peer: Peer | None, standing: Standing) -> None:
    assert confirmed(side, WORD.sources, peer) is standing


@pytest.mark.parametrize(
    ("peer", "standing"),
    [
        (Peer(NOW, None, silent_since=NOW, tries=1), Standing.HOLDS),
        (Peer(NOW, None, silent_since=NOW, tries=1, refuses=True), Standing.LAPSED),
        (STUCK_STILL, Standing.LAPSED),
        (None, Standing.UNKNOWN),
    ],
)
def test_so_is_one_that_was_silent(side: Side, peer: Peer | None, standing: Standing) -> None:
    assert confirmed(side, frozenset({Source.NETWORK}), peer) is standing


def confirmed(side: Side, sources: frozenset[Source], peer: Peer | None) -> Standing:
    """How a restart stands that rests on the cloud and on the node's own tpuwatch, by these sources."""
    made = side.watch()
    side.go.clear()
    side.stuck("train-1")
    node = side.nodes["train-1"]
    reasons = (node.judgement.reasons[0], Reason(Signal.PEER, "So it says.", NOW, sources))
    side.nodes["train-1"] = replace(node, judgement=replace(node.judgement, reasons=reasons))
    if peer is not None:
        side.peers[node.label] = peer
    made.turn()
    driver = make_driver(made._drivers, target("train-1"), Action.RESTART_NODE, None, side.posted)
    assert isinstance(driver, Driver)
    present = driver.judge_again(side.ledger.record())
    driver.close()
    side.go.set()
    assert (present.ill, made._sight.judge_again(side.ledger.record()).standing) == (True, Standing.HOLDS)
    return present.standing


def test_while_tpuwatch_ends_or_reloads_nothing_is_taken_down(side: Side, watch: RestartService) -> None:
    watch._drivers.stop()
    assert now(side, watch).standing is Standing.UNKNOWN
    side.go.set()


def test_a_restart_that_was_given_up_is_counted_and_audited_as_what_it_was(side: Side) -> None:
    side.outcome = Phase.CANCELLED
    made = side.watch()
    side.stuck("train-1")
    made.turn()
    assert made._drivers.join(30)
    withdrawn = replace(side.ledger.record(), action=Action.NONE, history=())
    side.judge("train-1", shown=cloud("train-1"))
    made._drivers._results = [replace(one, record=withdrawn) for one in made._drivers._results]
    made.turn()
    assert side.metric('tpuwatch_restarts_total{action="restart_node",result="cancelled"}') == 1
    assert side.audited()[-1] == ("restart_node", "cancelled", None)
    assert side.called == []


def test_after_the_start_the_nodes_own_tpuwatch_is_listened_to(side: Side) -> None:
    side.posted = replace(side.posted, asked=Answer((), NOW, None))
    made = side.watch()
    side.judge("train-1")
    runs = record("train-1", phase=Phase.VERIFYING, entered=NOW, boot_id="before")
    listen = made._sight.judge_again
    assert listen(runs).within is Within.SILENT
    side.nodes["train-1"] = replace(side.nodes["train-1"], peer=Peer(NOW + 9, None, boot_id="after"))
    assert (listen(runs).within, listen(runs).heard) == (Within.ANSWERS, "its own tpuwatch answers, in another boot")
    made._drivers.stop()
    assert listen(runs).within is Within.ANSWERS
    assert listen(replace(runs, target=target("train-7"))).within is Within.UNASKED
    side.posted = replace(side.posted, asked=OFF)
    assert listen(runs).within is Within.UNASKED


def test_the_record_keeps_the_boot_in_which_the_node_was_stuck(side: Side) -> None:
    side.go.clear()
    made = side.watch()
    side.stuck("train-1")
    side.nodes["train-1"] = replace(side.nodes["train-1"], peer=Peer(NOW, None, boot_id="before"))
    made.turn()
    assert side.ledger.record().boot_id == "before"
    side.go.set()


def test_what_is_not_verified_is_counted_as_that_and_a_person_is_told_once(side: Side) -> None:
    side.outcome = Phase.NOT_VERIFIED
    made = side.watch(breaker_failures=1)
    side.stuck("train-1")
    made.turn()
    assert made._drivers.join(30)
    side.judge("train-1")
    for _ in range(3):
        made.turn()
    assert side.metric('tpuwatch_restarts_total{action="restart_node",result="not_verified"}') == 1
    assert side.audited()[-1] == ("restart_node", "not_verified", None)
    assert [one["event"] for one in side.called] == ["restart_not_verified"]
    side.clock.advance(3601)
    side.stuck("train-1")
    made.turn()
    assert side.audited()[-1] == ("restart_node", "begun", None)  # neither the same cause twice nor a failure
    assert side.metric("tpuwatch_breaker_open") == 0
