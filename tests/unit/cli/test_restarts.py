"""`tpuwatch restarts`: what the ledger holds, and what only an operator may change in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cli.restarting import OTHER_OWNER, Site, flat, site, target
from tpuwatch.model.restart import Attempt, Breaker, Fleet, Lease, Phase, RestartRecord
from tpuwatch.model.verdict import Action

__all__ = ["site"]  # a fixture


def attempt(site: Site, phase: Phase = Phase.DONE, ago: float = 600.0, stops: int = 1) -> Attempt:
    now = site.clock.time()
    return Attempt(Action.RESTART_NODE, "node_stuck", now - ago - 240, now - ago, phase, stops, "joe@vm")


def test_an_empty_ledger_is_shown_and_no_file_is_created(site: Site) -> None:
    code, out, err = site.restarts()
    assert (code, err) == (0, "")
    assert "The breaker is closed." in out
    assert "Nothing is in progress." in out
    assert flat(site.restarts("history")[1]).startswith("No restart is recorded in ")
    assert not site.state.exists()


def test_status_shows_restarts_in_progress_and_ended_ones(site: Site) -> None:
    site.put("train-1", phase=Phase.STOPPING, lease=Lease(OTHER_OWNER))
    assert site.restarts()[0] == 0
    site.put("train-2", phase=Phase.STOPPED, stops=1)
    site.put("train-3", phase=Phase.NEEDS_OPERATOR, note="Create it again.")
    site.put("train-4", phase=Phase.DONE, history=(attempt(site, ago=30),))
    code, out, _ = site.restarts()
    text = flat(out)
    assert code == 1  # train-2 has no driver
    assert "train-1 (us-east5-a): stopping for 30 s" in text
    assert "Driven by process 12 on elsewhere, as far as is known." in text
    start = "tpuwatch restart projects/lab/locations/us-east5-a/nodes/train-2"
    # First what nobody carries on, and what to do about it.
    assert text.startswith("In progress train-2 (us-east5-a): stopped for 30 s train-2 IS STOPPED")
    assert text.index(start) < text.index("train-1 (us-east5-a)")
    assert "It has no driver." in text
    assert "train-3 (us-east5-a): needs operator 30 s ago Create it again." in text
    assert "Restarts of all nodes within 1 h: 4; tpuwatch itself does at most 10" in text
    assert "train-2" not in site.restarts("train-1")[1].partition("In progress")[2]


def test_why_a_call_failed_is_shown_once(site: Site) -> None:
    site.put(phase=Phase.REQUESTED, tries=2, failure="The stop was refused.", note="The stop was refused.")
    code, out, _ = site.restarts()
    assert (code, flat(out).count("The stop was refused.")) == (1, 1)
    assert "Tried 2 times: The stop was refused." in out


def test_a_call_for_an_operator_is_something_wrong_for_a_day(site: Site) -> None:
    site.put(phase=Phase.NEEDS_OPERATOR, note="Create it again.")
    assert site.restarts()[0] == 1
    code, out, _ = site.restarts("--json")
    document = json.loads(out)
    assert (code, document["restarts"][0]["needs_attention"], document["restarts"][0]["alone"]) == (1, True, False)
    site.clock.advance(86_400)
    assert site.restarts()[0] == 0


def test_commands_to_go_on_name_the_configuration_that_was_named(site: Site) -> None:
    site.put(phase=Phase.STOPPED, stops=1)
    _, out, _ = site.restarts("--config", str(site.config))
    command = f"tpuwatch restart --config {site.config} projects/lab/locations/us-east5-a/nodes/train-1"
    assert command in [line.strip() for line in out.splitlines()]
    _, out, _ = site.restarts("cancel", "train-1", "--config", str(site.config))
    assert command in [line.strip() for line in out.splitlines()]
    site.ledger.write_fleet(Fleet(Breaker(site.clock.time(), "3 restarts have failed.")), 0)
    _, out, _ = site.restarts("--config", str(site.config))
    assert f"tpuwatch restarts --config {site.config} reset-breaker" in [line.strip() for line in out.splitlines()]


def test_history_shows_why_and_what_came_of_it(site: Site) -> None:
    past = replace(attempt(site, Phase.FAILED), reason="It hangs.", note="It runs, but its health is TIMEOUT.")
    site.put(phase=Phase.FAILED, entered=past.ended, history=(past,))
    _, out, _ = site.restarts("history")
    assert "Why: It hangs. Then: It runs, but its health is TIMEOUT." in flat(out)
    _, (document,) = site.restarts_json("history")
    assert (document["reason"], document["note"]) == (past.reason, past.note)


def test_history_lists_the_restarts_of_all_or_some_nodes_the_latest_first(site: Site) -> None:
    past = (attempt(site, ago=600), attempt(site, Phase.FAILED, ago=9000))
    site.put("train-1", phase=Phase.DONE, entered=past[0].ended, history=past)
    other = (attempt(site, Phase.CANCELLED, ago=3000, stops=0),)
    site.put("train-2", phase=Phase.CANCELLED, entered=other[0].ended, history=other)
    code, out, _ = site.restarts("history")
    assert code == 0
    heads = [line.split(": ")[1] for line in out.splitlines() if not line.startswith(" ")]
    assert heads == ["done after 4 min", "cancelled after 4 min", "failed after 4 min"]
    _, documents = site.restarts_json("history", "train-1")
    assert [one["phase"] for one in documents] == ["done", "failed"]
    assert documents[0]["seconds"] == 240


def test_a_restart_for_which_nothing_was_done_can_be_cancelled(site: Site) -> None:
    site.put(lease=Lease(OTHER_OWNER))
    code, out, _ = site.restarts("cancel", "train-1")
    assert (code, out) == (0, "The restart of train-1 is cancelled: nothing was done.\n")
    stored = site.record()
    assert (stored.phase, stored.lease.owner, stored.history[0].phase) == (Phase.CANCELLED, "", Phase.CANCELLED)
    assert site.audit()[-1]["decision"] == "cancel"
    code, out, _ = site.restarts("cancel", "train-1")
    assert code == 1
    assert "has ended (cancelled): there is nothing to cancel" in flat(out)


@pytest.mark.parametrize("phase", [Phase.INTENT, Phase.STOPPING, Phase.STOPPED, Phase.STARTING, Phase.VERIFYING])
def test_a_restart_that_may_have_begun_cannot_be_cancelled(site: Site, phase: Phase) -> None:
    before = site.put(phase=phase)
    code, (document,) = site.restarts_json("cancel", "train-1")
    assert (code, document["outcome"], document["phase"]) == (1, "not_cancelled", phase.value)
    assert "can no longer be cancelled" in document["note"]
    assert site.record() == before


@pytest.mark.parametrize(("owner", "drives"), [(OTHER_OWNER, True), ("", False)])
def test_who_cannot_cancel_is_told_who_continues(site: Site, owner: str, drives: bool) -> None:
    site.put(phase=Phase.STOPPING, lease=Lease(owner))
    _, (document,) = site.restarts_json("cancel", "train-1")
    assert ("Process 12 on elsewhere continues the restart of train-1" in document["note"]) is drives
    assert ("no process drives its restart now" in document["note"]) is not drives
    assert document["note"].endswith(f"`tpuwatch restart {target().path}`")


def test_a_restart_that_is_not_recorded_cannot_be_cancelled(site: Site) -> None:
    code, out, _ = site.restarts("cancel", "train-1")
    assert code == 1
    assert "The ledger has no restart of train-1 (zone us-east5-a, project lab)." in flat(out)


def test_a_restart_that_begins_while_it_is_cancelled_is_not_cancelled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpuwatch.restart.ledger.sqlite import SqliteLedger

    made = site.put()
    write = SqliteLedger.write

    def later(self: SqliteLedger, value: RestartRecord, version: int) -> Any:
        monkeypatch.undo_write()  # type: ignore[attr-defined]
        stored = site.ledger.read(made.target)
        assert stored is not None
        write(self, replace(made, phase=Phase.INTENT), stored.version)
        return write(self, value, version)

    monkeypatch.undo_write = lambda: monkeypatch.setattr(SqliteLedger, "write", write)  # type: ignore[attr-defined]
    monkeypatch.setattr(SqliteLedger, "write", later)
    assert site.restarts("cancel", "train-1")[0] == 1
    assert site.record().phase is Phase.INTENT


def test_an_open_breaker_is_shown_and_reset(site: Site) -> None:
    now = site.clock.time()
    site.ledger.write_fleet(Fleet(Breaker(now - 60, "3 restarts have failed.")), 0)
    code, out, _ = site.restarts()
    assert code == 1
    assert "The breaker has been OPEN for 1 min" in flat(out)
    code, out, _ = site.restarts("reset-breaker")
    assert code == 0
    assert "3 restarts have failed." in flat(out)
    breaker = site.ledger.fleet().fleet.breaker
    assert (breaker.opened, breaker.reset_at) == (None, now)
    assert "@" in breaker.reset_by
    assert site.audit()[-1]["decision"] == "reset_breaker"
    assert site.restarts()[0] == 0
    assert site.restarts("reset-breaker")[1] == "The breaker is closed already: there is nothing to reset.\n"


def test_failures_that_would_open_the_breaker_are_shown_and_reset(site: Site) -> None:
    for number in range(3):
        failed = attempt(site, Phase.FAILED, ago=100)
        site.put(f"train-{number}", phase=Phase.FAILED, entered=failed.ended, history=(failed,))
    code, out, _ = site.restarts()
    assert code == 1
    assert "The breaker opens before the next restart" in flat(out)
    assert site.restarts("reset-breaker")[0] == 0
    assert site.restarts()[0] == 0


@pytest.mark.parametrize(("ahead", "closes"), [(90.0, True), (7200.0, False)])
def test_failures_dated_ahead_are_reset_within_the_clock_skew_else_the_breaker_opens_again(
    site: Site, ahead: float, closes: bool
) -> None:
    for number in range(3):
        failed = attempt(site, Phase.FAILED, ago=-ahead)
        site.put(f"train-{number}", phase=Phase.FAILED, entered=failed.ended, history=(failed,))
    code, out, _ = site.restarts("reset-breaker")
    assert code == (0 if closes else 1)
    assert ("It opens again" in flat(out)) != closes
    assert site.restarts()[0] == code


def test_a_ledger_that_cannot_be_read(site: Site) -> None:
    site.state.mkdir()
    (site.state / "ledger.db").write_bytes(b"no database" * 1000)
    for words in ([], ["history"], ["cancel", "train-1"], ["reset-breaker"]):
        code, _, err = site.restarts(*words)
        assert code == 3
        assert "ledger" in err
    assert len(list(site.state.glob("ledger.db.damaged-*"))) == 1
    assert site.restarts("reset-breaker")[0] == 0


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["cancel"], "the following arguments are required: NODE"),
        (["reset-breaker", "train-1"], "'train-1' is one word too many"),
        (["reset-braker"], "there is no 'reset-braker'; did you mean 'reset-breaker'?"),
        (["train-*"], "'train-*' is not the name of a node"),
        (["--yes"], "there is no option '--yes'"),
    ],
)
def test_wrong_use(site: Site, words: list[str], answer: str) -> None:
    code, _, err = site.restarts(*words)
    assert code == 2
    assert answer in flat(err)


def test_options_may_stand_before_the_action(site: Site) -> None:
    past = attempt(site)
    site.put(phase=Phase.DONE, entered=past.ended, history=(past,))
    code, out, _ = site.restarts("--json", "--config", str(site.config), "history", "train-1")
    assert (code, json.loads(out)["phase"]) == (0, "done")


def test_each_action_has_its_help(site: Site) -> None:
    assert "reset-breaker" in site.restarts("--help")[1]
    for action in ("show", "history", "cancel", "reset-breaker"):
        code, out, _ = site.restarts(action, "--help")
        assert code == 0
        assert f"tpuwatch restarts {action}" in out
