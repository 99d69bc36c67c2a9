"""Restarts as they are shown: metrics, the API's document, and the sentences for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.export import samples as given
from tests.restart import records
from tests.restart.policy_scenes import situation
from tests.restart.records import NOW, record
from tpuwatch.export import restarts
from tpuwatch.export.metrics import Metrics
from tpuwatch.export.page import render
from tpuwatch.export.restart_metrics import MOST_NODES
from tpuwatch.export.view import RestartsStatus
from tpuwatch.health.verdict import Rung
from tpuwatch.restart.policy.decision import Blocked, Decision
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import Settings
from tpuwatch.restart.record import Breaker, Phase, Target

LATER = NOW + 600


def scrape(metrics: Metrics) -> list[str]:
    return metrics.exposition()[0].decode().splitlines()


def observed() -> Decision:
    return decide(situation(), Settings())


def test_known_series_are_there_from_the_start() -> None:
    lines = set(scrape(Metrics(loops=[], refusals=[])))
    for blocked in Blocked:
        assert f'tpuwatch_restarts_blocked_total{{reason="{blocked.value}"}} 0.0' in lines
    for rung in ("checkpoint", "end_holder", "restart_runtime", "restart_node", "reset_queued_resource"):
        assert f'tpuwatch_restarts_begun_total{{action="{rung}"}} 0.0' in lines
        for result in ("done", "failed", "needs_person", "cancelled"):
            assert f'tpuwatch_restarts_total{{action="{rung}",result="{result}"}} 0.0' in lines
    for result in ("sent", "failed", "dropped"):
        assert f'tpuwatch_webhook_messages_total{{result="{result}"}} 0.0' in lines
    assert {"tpuwatch_breaker_open 0.0", "tpuwatch_ledger_up 1.0", "tpuwatch_ledger_errors_total 0.0"} <= lines
    assert {"tpuwatch_restarts_waiting_for_capacity 0.0", 'tpuwatch_restarts_open{phase="stopped"} 0.0'} <= lines


def test_series_of_nodes_are_bounded_and_go_when_the_restart_ends() -> None:
    metrics = Metrics(loops=[], refusals=[])
    many = [record(f"train-{number}", phase=Phase.STOPPED, tries=1) for number in range(MOST_NODES + 5)]
    strange = [record('a"b\n', phase=Phase.STOPPED), replace(many[0], target=Target("lab", "other-zone", "train-0"))]
    metrics.restart_state(records=[*strange, *many], breaker_open=True)
    lines = scrape(metrics)
    labelled = [line for line in lines if line.startswith("tpuwatch_restart_phase_timestamp_seconds{")]
    assert len(labelled) == MOST_NODES - 1  # and not the strange one
    assert len(set(labelled)) == len(labelled)
    assert f'tpuwatch_restarts_open{{phase="stopped"}} {MOST_NODES + 7}.0' in lines
    assert f"tpuwatch_restarts_waiting_for_capacity {MOST_NODES + 6}.0" in lines
    assert "tpuwatch_breaker_open 1.0" in lines
    metrics.restart_state(records=[replace(one, phase=Phase.DONE) for one in many], breaker_open=False)
    lines = scrape(metrics)
    assert not [line for line in lines if line.startswith("tpuwatch_restart_phase_timestamp_seconds{")]
    assert "tpuwatch_restarts_waiting_for_capacity 0.0" in lines


def test_what_is_no_act_of_tpuwatch_is_not_counted_under_a_new_label() -> None:
    metrics = Metrics(loops=[], refusals=[])
    before = len(scrape(metrics))
    metrics.restart_begun(Rung.RECREATE)
    metrics.restart_ended(Rung.NOTHING, Phase.CANCELLED)
    metrics.restart_ended(Rung.RESTART_NODE, Phase.NEEDS_PERSON)
    assert len(scrape(metrics)) == before
    assert 'tpuwatch_restarts_total{action="restart_node",result="needs_person"} 1.0' in scrape(metrics)


def test_the_document_has_what_is_open_first() -> None:
    status = RestartsStatus(
        acts=True,
        read=NOW,
        breaker=Breaker(NOW, "Three restarts have failed."),
        records=[record("a", phase=Phase.DONE), records.full_record("b")],
        decisions=[("trainer", observed())],
    )
    document = restarts.document(status, LATER, 10)
    assert (document["mode"], document["breaker"]["open"]) == ("act", True)
    assert [(one["node"], one["phase"], one["open"]) for one in document["restarts"]] == [
        ("b", "stopped", True),
        ("a", "done", False),
    ]
    assert document["restarts"][0]["driver"] == "process 77 on vm-1"
    assert len(document["restarts"][0]["history"]) == 2
    (decision,) = document["decisions"]
    assert (decision["label"], decision["wanted"], decision["act"]) == ("trainer", "restart_node", None)
    assert (decision["blocked"], decision["person_needed"]) == ("observe", True)
    assert len(restarts.document(status, LATER, 1)["restarts"]) == 1
    nothing = restarts.document(RestartsStatus(acts=False), LATER, 10)
    assert (nothing["mode"], nothing["ledger_read"], nothing["restarts"]) == ("observe", None, [])


def test_people_are_told_what_they_have_to_know_and_nothing_else() -> None:
    assert restarts.lines(RestartsStatus(acts=True, breaker=Breaker(), records=[record(phase=Phase.DONE)]), LATER) == []
    status = RestartsStatus(
        acts=True,
        problem="the ledger is damaged",
        breaker=Breaker(NOW, "Three restarts have failed."),
        records=[record(phase=Phase.STOPPED, note="There is no more capacity.")],
        decisions=[
            ("trainer", observed()),
            ("waiting", replace(observed(), blocked=Blocked.BACKOFF, ask=False)),
            ("broken", replace(observed(), blocked=Blocked.BREAKER)),
        ],
    )
    breaker, ledger, under_way, blocked = restarts.lines(status, LATER)
    assert breaker.startswith("The breaker has been open for 10 min: tpuwatch restarts nothing by itself.")
    assert "`tpuwatch restart --reset-breaker`" in breaker
    assert ledger == "Nothing can be restarted: the ledger is damaged."
    assert under_way == ("train-1: restart node is about to start the node, for 10 min. There is no more capacity.")
    assert blocked == 'trainer: Would stop and start the node, but mode under [restart] is "observe".'


@pytest.mark.parametrize("phase", [phase for phase in Phase if record(phase=phase).open])
def test_there_are_words_for_each_phase(phase: Phase) -> None:
    (line,) = restarts.lines(RestartsStatus(acts=True, records=[record(phase=phase)]), LATER)
    assert line.startswith("train-1: restart node ")


def test_many_are_counted() -> None:
    many = RestartsStatus(
        acts=False,
        records=[record(f"train-{number}", phase=Phase.STARTING) for number in range(30)],
        decisions=[(f"train-{number}", observed()) for number in range(1000)],
    )
    lines = restarts.lines(many, LATER)
    assert len(lines) == 22
    assert lines[10] == "20 more restarts are under way: `/api/v1/restarts` tells of them."
    assert lines[21] == "990 more nodes need a person: `/api/v1/restarts` tells of them."


def test_the_page_shows_it_and_escapes_what_others_wrote() -> None:
    shown = RestartsStatus(acts=True, records=[record(phase=Phase.STARTING, note="<script>")])
    html = render(replace(given.status(), restarts=shown), [], [], [])
    assert "restart node starts the node" in html
    assert "<script>" not in html
    assert "Restarts</h2>" not in render(given.status(), [], [], [])
