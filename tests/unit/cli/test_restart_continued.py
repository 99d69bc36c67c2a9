"""`tpuwatch restart` of nodes whose restart is in progress, or was left unfinished."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from tests.unit.cli.restarting import OTHER_OWNER, Site, flat, site, target
from tpuwatch.model.restart import Lease, Phase
from tpuwatch.model.verdict import Action
from tpuwatch.restart.operator.report import NodeReporter
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.terminal.restart import RestartDisplay

__all__ = ["site"]  # a fixture


def begun(site: Site, phase: Phase, **fields: Any) -> None:
    """Write a restart that another driver began into the ledger."""
    now = site.clock.time()
    given = {"requested": now, "entered": now, "began": now, "lease": Lease(OTHER_OWNER, 60.0), "stops": 1}
    site.put(phase=phase, **{**given, **fields})


def test_a_restart_whose_driver_is_gone_is_continued_without_a_question(site: Site) -> None:
    node = site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED)
    code, out, _ = site.run("train-1")
    assert (code, site.calls(), node.state) == (0, ["StartNode"], "READY")
    text = flat(out)
    assert "A restart of it is in progress, which someone@vm-1 requested" in text
    assert "Process 12 on elsewhere drives it, as far as is known." in text


@pytest.mark.parametrize(
    ("ending", "code"), [(Phase.DONE, 0), (Phase.NOT_VERIFIED, 3), (Phase.FAILED, 1), (Phase.CANCELLED, 1)]
)
def test_a_restart_with_a_live_driver_is_followed_to_its_end(site: Site, ending: Phase, code: int) -> None:
    """Longer than a lease, and nothing is called or written from here."""
    site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED)
    end = site.clock.monotonic() + 300

    def drive(_: RestartDisplay) -> None:
        if site.clock.monotonic() < end:
            site.renew()
        elif site.record().open:
            site.put(phase=ending, note="That was it.", stops=1)

    site.on_wait = drive
    ended, (document,) = site.json("train-1", "--yes")
    assert (ended, document["outcome"], document["phase"], document["note"]) == (code, ending, ending, "That was it.")
    assert document["seconds"] >= 300
    assert (site.calls(), site.audit()) == ([], [])


def test_each_phase_of_a_restart_that_is_followed_is_a_line_and_its_driver_is_named(site: Site) -> None:
    site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPING)
    phases = iter([Phase.STOPPED, Phase.STARTING, Phase.VERIFYING, Phase.DONE])
    site.on_wait = lambda _: begun(site, next(phases), note="It is well.")
    code, out, _ = site.run("train-1")
    assert code == 0
    assert "Process 12 on elsewhere drives it" in flat(out)
    shown = [line.split()[1] for line in out.splitlines() if line.lstrip().startswith("0:")]
    assert shown == ["stopping", "stopped", "starting", "verifying", "done"]


def test_a_restart_whose_driver_dies_while_it_is_followed_is_continued(site: Site) -> None:
    node = site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED)
    end = site.clock.monotonic() + 120
    site.on_wait = lambda _: site.renew() if site.clock.monotonic() < end else None
    code, (document,) = site.json("train-1")
    assert (code, document["outcome"], site.calls(), node.state) == (0, "done", ["StartNode"], "READY")
    assert [one["result"] for one in site.audit()] == ["resumed", "done"]


def test_what_nothing_was_done_about_is_confirmed_once_its_driver_is_gone(site: Site) -> None:
    node = site.add()
    begun(site, Phase.REQUESTED, stops=0)
    code, _, err = site.run("train-1")
    assert (code, site.calls(), node.boots) == (2, [], 1)
    assert "no terminal to ask on" in err
    assert site.run("train-1", "--yes")[0] == 0
    assert node.boots == 2


def test_who_interrupts_following_is_told_who_continues(site: Site) -> None:
    site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED)

    def interrupt(display: RestartDisplay) -> None:
        display.interrupted = True

    site.on_wait = interrupt
    code, (document,) = site.json("train-1", "--yes")
    assert (code, document["outcome"], document["phase"], site.calls()) == (130, "interrupted", "stopped", [])
    assert document["note"].startswith("Process 12 on elsewhere continues the restart of train-1 (phase stopped).")
    assert f"`tpuwatch restart {target().path}`" in document["note"]
    assert site.record().lease.owner == OTHER_OWNER


def test_of_two_who_begin_at_once_the_second_follows(site: Site) -> None:
    """The other one has written its record while this one was asked."""
    node = site.add()
    phases = iter([Phase.STOPPED, Phase.DONE])
    site.on_wait = lambda _: begun(site, next(phases))
    site.on_confirm = lambda: begun(site, Phase.STOPPING)
    code, out, _ = site.run("train-1")
    assert (code, site.calls(), node.boots) == (0, [], 1)
    assert "Process 12 on elsewhere drives it" in flat(out)


@pytest.mark.parametrize("takes_over", [True, False])
def test_who_interrupts_beside_a_daemon_is_told_whether_it_continues(
    site: Site, monkeypatch: pytest.MonkeyPatch, takes_over: bool
) -> None:
    site.add()
    monkeypatch.setattr(NodeReporter, "daemon_answers", lambda _: True)

    def interrupt(display: RestartDisplay) -> None:
        display.interrupted = site.record().phase is Phase.STOPPING

    def take_over() -> None:
        if takes_over:
            site.put(phase=Phase.STOPPING, lease=Lease(OTHER_OWNER, 60.0))

    site.on_wait, site.on_linger = interrupt, take_over
    began = site.clock.monotonic()
    code, (document,) = site.json("train-1", "--yes")
    assert (code, document["outcome"], document["phase"]) == (130, "interrupted", "stopping")
    assert ("Process 12 on elsewhere continues" in document["note"]) is takes_over
    assert ("train-1 IS BEING STOPPED, and no process drives its restart now." in document["note"]) is not takes_over
    assert f"`tpuwatch restart {target().path}`" in document["note"]
    assert (site.clock.monotonic() - began < 15) is takes_over


def test_a_restart_that_a_daemon_decided_and_did_not_begin_is_taken_over(site: Site) -> None:
    """The stopped node is started: a daemon would leave it to whoever stopped it."""
    node = site.add(bad=False, state="STOPPED")
    begun(site, Phase.REQUESTED, lease=Lease(), stops=0, signals=("cloud", "runtime"))
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls(), node.state) == (0, ["StartNode"], "READY")
    assert "Another daemon decided it; this command takes it over." in flat(out)


def test_a_dry_run_of_a_restart_in_progress_changes_nothing(site: Site) -> None:
    site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED)
    code, out, _ = site.run("train-1", "--dry-run")
    assert (code, site.calls()) == (0, [])
    assert "Process 12 on elsewhere drives it" in flat(out)
    assert site.record().lease.owner == OTHER_OWNER


@pytest.mark.parametrize("alive", [False, True])
def test_an_action_of_the_nodes_own_daemon_ends_with_the_restart(site: Site, alive: bool) -> None:
    """Its record is of another action, and must not be driven as a restart."""
    node = site.add()
    begun(site, Phase.INTENT, action=Action.END_HOLDER, stops=0)

    def renew(_: RestartDisplay) -> None:
        if alive and site.record().action is Action.END_HOLDER:
            site.renew()

    site.on_wait = renew
    code, out, _ = site.run("train-1", "--yes")
    assert "began an action on it less than 1 s ago, which this restart ends: end holder" in flat(out)
    stored = site.record()
    if alive:
        assert (code, node.boots, stored.phase, stored.action) == (1, 1, Phase.INTENT, Action.END_HOLDER)
    else:
        assert (code, site.calls(), stored.phase) == (0, ["StopNode", "StartNode"], Phase.DONE)
        assert [(one.action, one.phase) for one in stored.history] == [
            (Action.RESTART_NODE, Phase.DONE),
            (Action.END_HOLDER, Phase.FAILED),
        ]


def test_a_request_of_the_nodes_own_daemon_is_taken_over(site: Site) -> None:
    site.add()
    begun(site, Phase.REQUESTED, began=0.0, lease=Lease(), stops=0, signals=("cloud", "runtime"))
    code, _, err = site.run("train-1")
    assert code == 2
    assert "no terminal to ask on" in err
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls()) == (0, ["StopNode", "StartNode"])
    assert "The node's own daemon requested it" in flat(out)


def test_a_request_that_was_taken_over_and_not_begun_is_left_to_the_operator(site: Site) -> None:
    """No daemon continues it: its record is the operator's."""
    site.add()
    site.cloud.world.faults.set(InjectedFault(method="StopNode", code="RESOURCE_EXHAUSTED"))
    begun(site, Phase.REQUESTED, began=0.0, lease=Lease(), stops=0, signals=("cloud", "runtime"))
    site.clock.advance(30)

    def interrupt(display: RestartDisplay) -> None:
        display.interrupted = True

    site.on_wait = interrupt
    code, _, _ = site.run("train-1", "--yes", "--reason", "It hangs.")
    left = site.record()
    assert (code, left.phase, left.signals, left.lease) == (130, Phase.REQUESTED, (), Lease())
    assert (left.actor == "someone@vm-1", left.reason, left.requested) == (False, "It hangs.", left.began)
    assert [one.target for one in site.ledger.fleet().fleet.claims] == [target()]


@pytest.mark.parametrize(("words", "lines"), [(["--verbose"], 2), ([], 1)])
def test_refused_starts_are_one_line_or_with_verbose_each(site: Site, words: list[str], lines: int) -> None:
    site.add()
    site.cloud.world.faults.set(InjectedFault("StartNode", code="RESOURCE_EXHAUSTED", times=2))
    code, out, _ = site.run("train-1", "--yes", *words)
    assert code == 0
    assert out.count("was refused (RESOURCE_EXHAUSTED)") == lines


def test_text_of_the_ledger_cannot_control_the_terminal(site: Site) -> None:
    site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED, reason="\x1b]0;owned\x07", note="\x1b[2J\r", actor="a\x1b[31mb")
    for _, out, err in (site.run("train-1"), site.restarts(), site.restarts("history")):
        assert "\x1b" not in out + err
        assert "\x07" not in out + err


def test_a_damaged_ledger_is_set_aside_before_anything_is_done(site: Site) -> None:
    """Another driver may be at work: what it has done would be done again."""
    node = site.add()
    site.put(phase=Phase.DONE)
    site.ledger.path.write_bytes(b"What is this? " * 1000)
    code, out, _ = site.run("train-1", "--dry-run")
    assert (code, list(site.state.glob("ledger.db.damaged-*"))) == (3, [])
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls()) == (3, [])
    assert "It is kept under another name, and a new one has begun, with its breaker open." in flat(out)
    assert len(list(site.state.glob("ledger.db.damaged-*"))) == 1
    code, out, _ = site.restarts()
    assert code == 1
    assert "The breaker has been OPEN" in out
    assert (site.run("train-1", "--yes")[0], node.boots) == (0, 2)


def test_where_the_ledger_cannot_be_read_a_stopped_node_is_the_first_that_is_said(site: Site) -> None:
    site.add(bad=False, state="STOPPED")
    site.state.mkdir()
    site.ledger.path.mkdir()
    code, (document,) = site.json("train-1", "--yes")
    assert (code, document["outcome"]) == (3, "unknown")
    assert document["note"].startswith("train-1 IS STOPPED. Start it: `gcloud compute tpus tpu-vm start train-1 ")


def test_a_ledger_that_breaks_while_the_node_is_down_leaves_it_running(site: Site) -> None:
    node = site.add()

    def spoil(_: RestartDisplay) -> None:
        if node.state == "STOPPED" and site.ledger.path.is_file():
            site.ledger.path.unlink()
            site.ledger.path.mkdir()

    site.on_wait = spoil
    code, out, _ = site.run("train-1", "--yes")
    assert (code, node.state, site.calls()) == (3, "READY", ["StopNode", "StartNode"])
    text = flat(out)
    assert text.index("NODE IS STOPPED: the restart of train-1 cannot be recorded") < text.index("has ended (done)")
    assert text.count("NODE IS STOPPED: ") == 1  # the log says it too
    assert "The restart of train-1 has ended (done), and that is not recorded. Node train-1 was restarted in" in text
    assert "gcloud compute tpus tpu-vm start train-1 --zone=" in text
    assert "The record is in the ledger" not in text


def test_who_interrupts_what_cannot_be_recorded_is_told_that_the_node_is_down(site: Site) -> None:
    node = site.add()
    site.cloud.world.faults.set(InjectedFault("StartNode", code="RESOURCE_EXHAUSTED", times=50))

    def spoil(display: RestartDisplay) -> None:
        if node.state == "STOPPED" and site.ledger.path.is_file():
            site.ledger.path.unlink()
            site.ledger.path.mkdir()
        display.interrupted = site.calls().count("StartNode") > 3

    site.on_wait = spoil
    code, (document,) = site.json("train-1", "--yes")
    assert (code, document["outcome"], node.state) == (130, "interrupted", "STOPPED")
    assert document["note"].startswith("NODE IS STOPPED: ")


@pytest.mark.slow
def test_a_ledger_that_can_only_be_read_is_reported_by_the_status(site: Site) -> None:
    site.add()
    assert site.run("train-1", "--yes")[0] == 0
    assert site.restarts()[0] == 0
    writing = sqlite3.connect(site.ledger.path, isolation_level=None)
    writing.execute("BEGIN IMMEDIATE")
    code, out, _ = site.restarts()
    assert code == 1
    assert "The ledger of restarts is DOWN" in flat(out)
    assert "it is being written by process" in flat(out)
    document = json.loads(site.restarts("--json")[1])
    assert "being written by process" in document["ledger_problem"]
    writing.close()
    assert json.loads(site.restarts("--json")[1])["ledger_problem"] is None
