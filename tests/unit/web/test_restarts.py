"""Restarts as they are shown: the API's document, and the sentences for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart import records
from tests.unit.restart.policy_scenes import situation
from tests.unit.restart.records import NOW, record
from tests.unit.web import samples as given
from tpuwatch.model.restart import Blocked, Breaker, Phase, RestartDecision
from tpuwatch.model.status import RestartsStatus
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.web.page import render
from tpuwatch.web.routes import restarts_document
from tpuwatch.web.sentences import restart_sentences

LATER = NOW + 600


def observed() -> RestartDecision:
    return decide(situation(), PolicySettings())


def test_the_limit_is_one_of_nodes() -> None:
    status = RestartsStatus(acts=True, records=[record("a", phase=Phase.DONE), records.full_record("b")])
    assert [one.node for one in restarts_document(status, LATER, 1).restarts] == ["b"]


def test_sentences_report_only_what_an_operator_should_know() -> None:
    assert (
        restart_sentences(RestartsStatus(acts=True, breaker=Breaker(), records=[record(phase=Phase.DONE)]), LATER) == []
    )
    status = RestartsStatus(
        acts=True,
        problem="the ledger is damaged",
        breaker=Breaker(NOW, "Three restarts have failed."),
        records=[record(phase=Phase.STOPPED, note="There is no more capacity.")],
        decisions=[
            ("trainer", observed()),
            ("waiting", replace(observed(), blocked=Blocked.BACKOFF, needs_operator=False)),
            ("broken", replace(observed(), blocked=Blocked.BREAKER)),
        ],
    )
    breaker, ledger, under_way, blocked = restart_sentences(status, LATER)
    assert breaker.startswith("The breaker has been open for 10 min: tpuwatch restarts nothing by itself.")
    assert "`tpuwatch restarts reset-breaker`" in breaker
    assert ledger == "The ledger of restarts is DOWN: the ledger is damaged. Nothing new is restarted."
    assert under_way == ("train-1: restart node is about to start the node, for 10 min. There is no more capacity.")
    assert blocked == 'trainer: Would stop and start the node, but mode under [restart] is "observe".'


@pytest.mark.parametrize("phase", [phase for phase in Phase if record(phase=phase).open])
def test_there_are_words_for_each_phase(phase: Phase) -> None:
    (line,) = restart_sentences(RestartsStatus(acts=True, records=[record(phase=phase)]), LATER)
    assert line.startswith("train-1: restart node ")


def test_many_are_counted() -> None:
    many = RestartsStatus(
        acts=False,
        records=[record(f"train-{number}", phase=Phase.STARTING) for number in range(30)],
        decisions=[(f"train-{number}", observed()) for number in range(1000)],
    )
    lines = restart_sentences(many, LATER)
    assert len(lines) == 22
    assert lines[10] == "20 more restarts are under way: `/api/v1/restarts` lists them."
    assert lines[21] == "990 more nodes need a person: `/api/v1/restarts` lists them."


def test_the_page_shows_it_and_escapes_what_others_wrote() -> None:
    shown = RestartsStatus(acts=True, records=[record(phase=Phase.STARTING, note="<script>")])
    html = render(replace(given.status(), restarts=shown), [], [], [])
    assert "restart node starts the node" in html
    assert "&lt;script&gt;" in html
    assert html.count("<script>") == 1  # ours
    assert "Restarts</h2>" not in render(given.status(), [], [], [])
