"""`tpuwatch restart` of nodes that somebody else is at, or was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.restarting import OTHERS, Site, flat, restarting, target
from tests.restart.records import record
from tpuwatch.cli.restart_show import Show
from tpuwatch.health.verdict import Rung
from tpuwatch.restart.record import Lease, Phase
from tpuwatch.sim.cloud.faults import Fault


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with restarting(tmp_path, monkeypatch, capsys) as made:
        yield made


def begun(site: Site, phase: Phase, **fields: Any) -> None:
    """A restart that somebody else has begun, as the ledger of this machine knows it."""
    now = site.clock.time()
    given = {"phase": phase, "requested": now, "entered": now, "began": now, "lease": Lease(OTHERS, 60.0), "stops": 1}
    site.ledger.write(record(**{**given, **fields}), 0)


def test_a_restart_that_another_one_left_is_carried_on_without_a_question(site: Site) -> None:
    node = site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED)
    code, out, _ = site.run("train-1")
    assert (code, site.calls(), node.state) == (0, ["StartNode"], "READY")
    told = flat(out)
    assert "A restart of it is under way, which someone@vm-1 wanted" in told
    assert "driven by process 12 on elsewhere. If that one does nothing for 60 s, this one takes over." in told


def test_one_that_lives_is_left_alone_and_named(site: Site) -> None:
    site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED)

    def renew(_: Show) -> None:
        stored = site.ledger.read(target())
        assert stored is not None
        site.ledger.write(stored.record, stored.version)

    site.waited = renew
    code, (document,) = site.json("train-1", "--yes")
    assert (code, document["outcome"], document["phase"], site.calls()) == (1, "held", "stopped", [])
    assert [one["result"] for one in site.audit()] == ["resumed", "held"]
    assert "driven by process 12 on elsewhere" in document["note"]


def test_what_a_daemon_decided_and_left_is_the_operators_own_once_he_wants_it(site: Site) -> None:
    """A daemon would leave a node to those who stopped it meanwhile."""
    node = site.add(bad=False, state="STOPPED")
    begun(site, Phase.REQUESTED, lease=Lease(), stops=0, witnesses=("cloud", "runtime"))
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls(), node.state) == (0, ["StartNode"], "READY")
    assert "It is what another daemon decided, which is taken up now." in flat(out)


def test_a_dry_run_of_one_that_is_under_way(site: Site) -> None:
    site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED)
    code, out, _ = site.run("train-1", "--dry-run")
    assert (code, site.calls()) == (0, [])
    assert "Process 12 on elsewhere is at it" in flat(out)
    stored = site.record()
    assert stored is not None
    assert stored.lease.owner == OTHERS


@pytest.mark.parametrize("alive", [False, True])
def test_what_the_nodes_own_daemon_has_begun_on_it_ends_with_the_restart(site: Site, alive: bool) -> None:
    """Its record is not one of a stop: to drive it as one would be wrong."""
    node = site.add()
    begun(site, Phase.INTENT, rung=Rung.END_HOLDER, stops=0)

    def renew(_: Show) -> None:
        stored = site.ledger.read(target())
        assert stored is not None
        if alive and stored.record.rung is Rung.END_HOLDER:
            site.ledger.write(stored.record, stored.version)

    site.waited = renew
    code, out, _ = site.run("train-1", "--yes")
    assert "has begun something on it less than 1 s ago, which ends with this restart: end holder" in flat(out)
    stored = site.record()
    assert stored is not None
    if alive:
        assert (code, node.boots, stored.phase, stored.rung) == (1, 1, Phase.INTENT, Rung.END_HOLDER)
    else:
        assert (code, site.calls(), stored.phase) == (0, ["StopNode", "StartNode"], Phase.DONE)
        assert [(one.rung, one.phase) for one in stored.history] == [
            (Rung.RESTART_NODE, Phase.DONE),
            (Rung.END_HOLDER, Phase.FAILED),
        ]


def test_the_request_of_a_nodes_own_daemon_is_taken_up(site: Site) -> None:
    site.add()
    begun(site, Phase.REQUESTED, began=0.0, lease=Lease(), stops=0, witnesses=("cloud", "runtime"))
    code, _, err = site.run("train-1")
    assert code == 2
    assert "no terminal to ask on" in err
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls()) == (0, ["StopNode", "StartNode"])
    assert "request of the node's own daemon" in flat(out)


def test_a_request_that_was_taken_up_is_the_operators_own(site: Site) -> None:
    """A daemon finishes what daemons decided; what he leaves before anything is done is left to him."""
    site.add()
    site.cloud.world.faults.set(Fault(method="StopNode", code="RESOURCE_EXHAUSTED"))
    begun(site, Phase.REQUESTED, began=0.0, lease=Lease(), stops=0, witnesses=("cloud", "runtime"))
    site.clock.advance(30)

    def interrupt(show: Show) -> None:
        show.interrupted = True

    site.waited = interrupt
    code, _, _ = site.run("train-1", "--yes", "--reason", "It hangs.")
    left = site.record()
    assert left is not None
    assert (code, left.phase, left.witnesses, left.lease) == (130, Phase.REQUESTED, (), Lease())
    assert (left.actor == "someone@vm-1", left.reason, left.requested) == (False, "It hangs.", left.began)
    assert [one.target for one in site.ledger.fleet().fleet.claims] == [target()]


def test_control_c_leaves_it_as_it_stands_and_says_how_to_go_on(site: Site) -> None:
    node = site.add()

    def interrupt(show: Show) -> None:
        show.interrupted = node.state == "STOPPING"

    site.waited = interrupt
    code, (document,) = site.json("train-1", "--yes")
    assert (code, document["outcome"], document["phase"]) == (130, "interrupted", "stopping")
    assert f"tpuwatch restart {target().path}" in document["note"]
    assert "stays stopped until somebody goes on" in document["note"]
    site.waited = lambda _: None
    assert site.run("train-1")[0] == 0
    assert (node.state, site.calls()) == ("READY", ["StopNode", "StartNode"])


def test_a_start_without_capacity_is_told_at_each_try(site: Site) -> None:
    site.add()
    site.cloud.world.faults.set(Fault("StartNode", code="RESOURCE_EXHAUSTED", times=2))
    code, out, _ = site.run("train-1", "--yes")
    assert code == 0
    assert flat(out).count("The start of node train-1 was refused (RESOURCE_EXHAUSTED).") == 2


def test_what_others_wrote_cannot_speak_to_the_terminal(site: Site) -> None:
    site.add(bad=False, state="STOPPED")
    begun(site, Phase.STOPPED, reason="\x1b]0;owned\x07", note="\x1b[2J\r", actor="a\x1b[31mb")
    for words in (["train-1"], ["--status"], ["--history"]):
        _, out, err = site.run(*words)
        assert "\x1b" not in out + err
        assert "\x07" not in out + err
