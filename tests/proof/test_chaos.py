"""What breaks things on purpose, in small: it holds, and it reports where it does not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.chaos import fleet_inside
from tests.proof.chaos.calls import Calls
from tests.proof.chaos.fleet import ACT, OBSERVE, Day, Plan, table
from tests.proof.chaos.fleet_time import Agenda, Task
from tests.proof.chaos.races import Races

SMALL = Plan(nodes=60, hours=5.0, troubles=25, seed=3, outage_hour=2.0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("tpuwatch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def test_in_a_day_of_a_fleet_nothing_is_restarted_for_nothing() -> None:
    account = Day(SMALL, ACT).live()
    assert account.violations == [], table({"it acts": account})
    assert account.restarts > 5
    assert account.fixed == 1.0
    assert account.beside > Day(SMALL, None).live().beside


def test_one_that_only_observes_touches_nothing() -> None:
    account = Day(SMALL, OBSERVE).live()
    assert (account.violations, account.restarts) == ([], 0)
    assert account.asked["observe"] > 5


def test_without_regard_to_storms_an_outage_makes_restarts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_inside, "OUTAGE_COUNT", 10_000)  # nor of peers that are silent
    account = Day(SMALL, replace(ACT, storm_nodes=10_000)).live()
    assert any("for nothing: outage" in one for one in account.violations)


def test_an_error_in_a_task_of_the_fleet_is_raised() -> None:
    agenda = Agenda()

    def work(task: Task) -> None:
        task.pause(1.0)
        raise LookupError("gone")

    agenda.spawn(work)
    with pytest.raises(LookupError, match="gone"):
        agenda.run(agenda.now + 10.0)


def test_calls_that_fail_cost_no_second_stop(tmp_path: Path) -> None:
    tally = Calls(tmp_path, every=60, long_seconds=900.0).run()
    assert tally.faults == []
    assert tally.rows["black hole after work"]["done"] >= 1
    assert tally.rows["operation never ends"]["waits, and says so"] == 3


def test_of_watchers_that_race_one_restarts_a_node(tmp_path: Path) -> None:
    tally = Races(tmp_path, faults=4, seed=1, waves=1, processes=2, watchers=3).run()
    assert tally.faults == []
    assert (tally.counts["stops"], tally.counts["starts"]) == (4, 4)
