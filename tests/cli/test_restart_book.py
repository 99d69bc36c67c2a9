"""What `tpuwatch restart` tells of its ledger, and what only a person may do with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.restarting import OTHERS, Site, flat, restarting
from tests.restart.records import record
from tpuwatch.health.verdict import Rung
from tpuwatch.restart.record import Attempt, Breaker, Fleet, Lease, Phase, Record, Target


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with restarting(tmp_path, monkeypatch, capsys) as made:
        yield made


def put(site: Site, node: str = "train-1", **fields: Any) -> Record:
    now = site.clock.time()
    made = record(node, **{"requested": now - 60, "entered": now - 30, **fields})
    stored = site.ledger.read(made.target)
    site.ledger.write(made, stored.version if stored else 0)
    return made


def attempt(site: Site, phase: Phase = Phase.DONE, ago: float = 600.0, stops: int = 1) -> Attempt:
    now = site.clock.time()
    return Attempt(Rung.RESTART_NODE, "node_stuck", now - ago - 240, now - ago, phase, stops, "joe@vm")


def test_nothing_is_recorded(site: Site) -> None:
    code, out, err = site.run("--status")
    assert (code, err) == (0, "")
    assert "The breaker is closed." in out
    assert "Nothing is under way." in out
    assert flat(site.run("--history")[1]).startswith("No restart is recorded in ")
    assert not site.state.exists()


def test_status_tells_what_is_under_way_and_what_was(site: Site) -> None:
    put(site, "train-1", phase=Phase.STOPPING, lease=Lease(OTHERS))
    assert site.run("--status")[0] == 0
    put(site, "train-2", phase=Phase.STOPPED, stops=1)
    put(site, "train-3", phase=Phase.NEEDS_PERSON, note="Create it anew.")
    put(site, "train-4", phase=Phase.DONE, history=(attempt(site, ago=30),))
    code, out, _ = site.run("--status")
    told = flat(out)
    assert code == 1  # nobody is at train-2
    assert "train-1 (us-east5-a): stopping for 30 s" in told
    assert "process 12 on elsewhere is at it, as far as is known." in told
    assert "Nobody is at it. train-2 is STOPPED, and stays so until somebody goes on." in told
    assert "To go on: tpuwatch restart projects/lab/locations/us-east5-a/nodes/train-2 " in told
    assert "train-3 (us-east5-a): needs person 30 s ago Create it anew." in told
    assert "Restarts of all nodes within 1 h: 4, of at most 10" in told
    assert max(len(line) for line in out.splitlines() if "projects/" not in line) <= 80
    assert "train-2" not in site.run("--status", "train-1")[1].partition("Under way")[2]


def test_status_as_json(site: Site) -> None:
    put(site, "train-1", phase=Phase.STOPPING, lease=Lease(OTHERS))
    code, out, _ = site.run("--status", "--json")
    document = json.loads(out)
    assert (code, document["breaker"]["opened"], document["restarts_in_window"]) == (0, None, 1)
    (one,) = document["restarts"]
    assert (one["node"], one["phase"], one["driver"], one["alone"]) == (
        "train-1",
        "stopping",
        "process 12 on elsewhere",
        False,
    )


def test_history_is_of_all_or_of_some_the_newest_first(site: Site) -> None:
    past = (attempt(site, ago=600), attempt(site, Phase.FAILED, ago=9000))
    put(site, "train-1", phase=Phase.DONE, entered=past[0].ended, history=past)
    other = (attempt(site, Phase.CANCELLED, ago=3000, stops=0),)
    put(site, "train-2", phase=Phase.CANCELLED, entered=other[0].ended, history=other)
    code, out, _ = site.run("--history")
    assert code == 0
    heads = [line.split(": ")[1] for line in out.splitlines() if not line.startswith(" ")]
    assert heads == ["done after 4 min", "cancelled after 4 min", "failed after 4 min"]
    _, documents = site.json("--history", "train-1")
    assert [one["phase"] for one in documents] == ["done", "failed"]
    assert documents[0]["seconds"] == 240


def test_what_nothing_was_done_for_can_be_cancelled(site: Site) -> None:
    put(site, lease=Lease(OTHERS))
    code, out, _ = site.run("--cancel", "train-1")
    assert (code, out) == (0, "The restart of train-1 is cancelled: nothing was done.\n")
    stored = site.record()
    assert stored is not None
    assert (stored.phase, stored.lease.owner, stored.history[0].phase) == (Phase.CANCELLED, "", Phase.CANCELLED)
    assert site.audit()[-1]["decision"] == "cancel"
    code, out, _ = site.run("--cancel", "train-1")
    assert code == 1
    assert "is over (cancelled): there is nothing to cancel" in flat(out)


@pytest.mark.parametrize("phase", [Phase.INTENT, Phase.STOPPING, Phase.STOPPED, Phase.STARTING, Phase.VERIFYING])
def test_what_may_have_been_begun_cannot(site: Site, phase: Phase) -> None:
    before = put(site, phase=phase)
    code, (document,) = site.json("--cancel", "train-1")
    assert (code, document["outcome"], document["phase"]) == (1, "not_cancelled", phase.value)
    assert "cannot be cancelled any more" in document["note"]
    assert site.record() == before


def test_what_is_not_there_cannot(site: Site) -> None:
    code, out, _ = site.run("--cancel", "train-1")
    assert code == 1
    assert "No restart of train-1 (zone us-east5-a, project lab) is recorded here." in flat(out)


def test_a_record_that_moves_on_is_looked_at_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpuwatch.restart.ledger.sqlite import SqliteLedger

    made = put(site)
    write = SqliteLedger.write

    def later(self: SqliteLedger, value: Record, version: int) -> Any:
        monkeypatch.undo_write()  # type: ignore[attr-defined]
        stored = site.ledger.read(made.target)
        assert stored is not None
        write(self, replace(made, phase=Phase.INTENT), stored.version)
        return write(self, value, version)

    monkeypatch.undo_write = lambda: monkeypatch.setattr(SqliteLedger, "write", write)  # type: ignore[attr-defined]
    monkeypatch.setattr(SqliteLedger, "write", later)
    assert site.run("--cancel", "train-1")[0] == 1
    stored = site.record()
    assert stored is not None
    assert stored.phase is Phase.INTENT


def test_an_open_breaker_is_told_and_closed(site: Site) -> None:
    now = site.clock.time()
    site.ledger.write_fleet(Fleet(Breaker(now - 60, "3 restarts have failed.")), 0)
    code, out, _ = site.run("--status")
    assert code == 1
    assert "The breaker is OPEN, for 1 min" in flat(out)
    code, out, _ = site.run("--reset-breaker")
    assert code == 0
    assert "3 restarts have failed." in flat(out)
    breaker = site.ledger.fleet().fleet.breaker
    assert (breaker.opened, breaker.reset_at) == (None, now)
    assert "@" in breaker.reset_by
    assert site.audit()[-1]["decision"] == "reset_breaker"
    assert site.run("--status")[0] == 0
    assert site.run("--reset-breaker")[1] == "The breaker is closed: nothing is to be done.\n"


def test_failures_that_would_open_it_are_told_and_forgotten(site: Site) -> None:
    for number in range(3):
        failed = attempt(site, Phase.FAILED, ago=100)
        put(site, f"train-{number}", phase=Phase.FAILED, entered=failed.ended, history=(failed,))
    code, out, _ = site.run("--status")
    assert code == 1
    assert "The breaker opens at the next restart" in flat(out)
    assert site.run("--reset-breaker")[0] == 0
    assert site.run("--status")[0] == 0


@pytest.mark.parametrize(("ahead", "closes"), [(90.0, True), (7200.0, False)])
def test_failures_by_a_clock_ahead_are_forgotten_too_or_that_they_are_not_is_told(
    site: Site, ahead: float, closes: bool
) -> None:
    for number in range(3):
        failed = attempt(site, Phase.FAILED, ago=-ahead)
        put(site, f"train-{number}", phase=Phase.FAILED, entered=failed.ended, history=(failed,))
    code, out, _ = site.run("--reset-breaker")
    assert code == (0 if closes else 1)
    assert ("by this machine's clock some failed in the future: 3 restarts have failed" in flat(out)) != closes
    assert site.run("--status")[0] == code


def test_a_ledger_that_cannot_be_read(site: Site) -> None:
    site.state.mkdir()
    (site.state / "ledger.db").write_bytes(b"no database" * 1000)
    for words in (["--status"], ["--history"], ["--cancel", "train-1"], ["--reset-breaker"]):
        code, _, err = site.run(*words)
        assert code == 3
        assert "ledger" in err
    assert Target  # the type of what is asked for
