"""The slice by what its workers answer: who answers, who failed first, and who is to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.health.scenes import NOW, answered, event, identity, launch, logs, own
from tests.unit.health.situations_peer import ALL_SILENT, FOREIGN, fell_silent, peer_answer, word
from tests.unit.health.situations_workers import REFUSING, UNHEARD, WELL, failing, four, watched
from tpuwatch.health.facts import Facts
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Answer
from tpuwatch.model.causes import Cause
from tpuwatch.model.signals import Evidence, Peer
from tpuwatch.model.slices import Failure, PeerState, Slice
from tpuwatch.model.verdict import Verdict

LOST = event(Cause.HEARTBEAT_LOST, 300.0)


def facts(evidence: Evidence) -> Facts:
    return Facts(evidence, JudgeLimits())


def whole(evidence: Evidence) -> Slice:
    judged = facts(evidence).slice
    assert judged is not None
    return judged


def accused(evidence: Evidence) -> tuple[int | None, int | None]:
    """The one that failed first, and the culprit."""
    judged = whole(evidence)
    return judged.first, judged.culprit


def test_each_worker_is_in_one_state_and_the_own_one_is_among_them() -> None:
    judged = whole(four(own(), WELL, fell_silent(), REFUSING))
    assert [(one.number, one.state.value, one.own) for one in judged.workers] == [
        (0, "answering", True),
        (1, "answering", False),
        (2, "silent", False),
        (3, "refused", False),
    ]
    assert judged.hosts == 4
    assert judged.workers[1].verdict is Verdict.IDLE
    assert judged.workers[2].silent_since == NOW - 240
    assert [one.number for one in judged.those(PeerState.SILENT)] == [2]


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (UNHEARD, PeerState.UNHEARD),
        (replace(WELL, tried=NOW - 3600), PeerState.UNCLEAR),
        (replace(fell_silent(), tried=NOW - 3600), PeerState.UNCLEAR),
        (FOREIGN, PeerState.UNCLEAR),
        (ALL_SILENT, PeerState.UNCLEAR),
        (fell_silent(tries=2), PeerState.ANSWERING),
        (fell_silent(refuses=True, tries=2), PeerState.ANSWERING),
    ],
)
def test_what_does_not_count_as_silence(answer: Answer[Peer], state: PeerState) -> None:
    judged = whole(four(own(), WELL, answer, WELL))
    assert judged.workers[2].state is state
    assert judged.first is None


def test_a_node_with_one_host_is_no_slice_and_without_peers_nobody_is_known() -> None:
    assert facts(own()).slice is None
    judged = whole(own(identity=identity(hosts="4")))
    assert (judged.hosts, judged.workers) == (4, ())
    assert "`enabled` under [peers] is false" in judged.sentence


def test_what_a_daemon_says_of_its_own_machine_is_its_first_fault_but_not_another_workers() -> None:
    halted, later = event(Cause.CORE_HALTED, 200.0), event(Cause.HBM_OOM_RUNTIME, 100.0)
    assert facts(own(logs=logs(later, halted, LOST))).failure == Failure(Cause.CORE_HALTED, NOW - 200)
    assert facts(own(logs=logs(LOST))).failure == Failure(Cause.HEARTBEAT_LOST, NOW - 300)
    assert facts(own(logs=logs(event(Cause.UNKNOWN_FAILURE)))).failure is None
    assert facts(own(logs=logs(replace(halted, history=True)))).failure is None
    came_up = launch(age=50.0)
    assert facts(own(logs=logs(came_up, halted))).failure is None  # what was before it came up is over
    assert facts(watched(WELL, WELL)).failure is None


def test_the_one_that_failed_before_all_others_is_the_culprit() -> None:
    mine = own(logs=logs(event(Cause.DRIVER_ERROR, 100.0)))
    assert accused(four(mine, WELL, failing(Cause.CORE_HALTED, 130), failing(Cause.HEARTBEAT_LOST, 500))) == (2, 2)
    assert accused(four(mine, WELL, failing(Cause.CORE_HALTED, 90), WELL)) == (0, 0)


def test_times_that_are_too_near_show_no_first() -> None:
    one, other = failing(Cause.CORE_HALTED, 130), failing(Cause.DRIVER_ERROR, 131)
    assert accused(four(own(), WELL, one, other)) == (None, None)
    assert "which worker was first is not known" in whole(four(own(), WELL, one, other)).sentence


def test_a_report_of_another_worker_is_no_failure_of_its_own() -> None:
    lost = failing(Cause.HEARTBEAT_LOST, 200)
    assert accused(four(own(logs=logs(LOST)), lost, lost, WELL)) == (None, None)
    assert accused(four(own(logs=logs(LOST)), lost, lost, fell_silent(230.0))) == (3, 3)


def test_a_failure_before_the_last_answer_of_a_silent_one_came_first() -> None:
    silent = fell_silent(200.0)  # it answered 220 s ago
    assert accused(four(own(), silent, failing(Cause.CORE_HALTED, 230), WELL)) == (2, 2)
    assert accused(four(own(), silent, failing(Cause.CORE_HALTED, 210), WELL)) == (None, None)  # between the two
    assert accused(four(own(), silent, failing(Cause.CORE_HALTED, 150), WELL)) == (1, 1)
    assert accused(four(own(), silent, failing(Cause.DEADLINE_EXCEEDED, 230), WELL)) == (1, 1)  # it may follow


def test_a_silent_one_that_told_of_its_failure_before_failed_then() -> None:
    last = replace(word(Verdict.IDLE), failed=Cause.CORE_HALTED, failed_age=100.0)
    silent = answered(Peer(NOW - 220, last, silent_since=NOW - 200, tries=9))
    judged = whole(four(own(), silent, failing(Cause.DRIVER_ERROR, 300), WELL))
    assert (judged.first, judged.workers[1].failure) == (1, Failure(Cause.CORE_HALTED, NOW - 320))


def test_workers_that_fail_alike_have_no_culprit() -> None:
    nan, early = failing(Cause.NUMERIC_FAULT, 100), failing(Cause.NUMERIC_FAULT, 110)
    judged = whole(four(own(), nan, early, nan))
    assert (judged.first, judged.culprit) == (2, None)
    assert "3 workers failed alike (numeric_fault)" in judged.sentence
    assert accused(four(own(), nan, WELL, WELL)) == (1, 1)
    halted = failing(Cause.CORE_HALTED, 100)
    assert accused(four(own(), halted, failing(Cause.CORE_HALTED, 110), halted)) == (2, 2)  # that no program does


def test_a_lie_accuses_the_liar_alone() -> None:
    """Whatever worker 1 says, no other worker is silent, failed or first for it."""
    for liar in (
        failing(Cause.CORE_HALTED, 3000),
        failing(Cause.HEARTBEAT_LOST, 3000),
        peer_answer(Verdict.NODE_STUCK, summary="Worker 2 is dead."),
        UNHEARD,
        fell_silent(),
    ):
        judged = whole(four(own(), liar, WELL, WELL))
        assert judged.culprit in (None, 1)
        assert [one.state for one in judged.workers if one.number != 1] == [PeerState.ANSWERING] * 3
        assert all(one.failure is None for one in judged.workers if one.number != 1)


def test_of_many_workers_those_that_are_not_just_well_are_listed_first() -> None:
    evidence = watched(*[WELL] * 2048)
    asked = {**(evidence.workers or {}), 1500: fell_silent(), 2000: failing(Cause.CORE_HALTED, 500)}
    judged = whole(replace(evidence, workers=asked))
    listed = [one.number for one in judged.listed]
    assert len(listed) == 64
    assert listed[-2:] == [1500, 2000]
    assert listed == sorted(listed)
    assert judged.hosts == 2048
