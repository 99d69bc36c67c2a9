"""What breaks things on purpose, in small: it holds, and it would tell if it did not."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof.chaos import fleet_inside
from tests.proof.chaos.calls import Calls
from tests.proof.chaos.fleet import ACT, OBSERVE, Account, Day, Plan, is_false, most_within, table
from tests.proof.chaos.fleet_cloud import Ail, Down
from tests.proof.chaos.fleet_time import Agenda, Killed, Task
from tests.proof.chaos.races import Races

SMALL = Plan(nodes=60, hours=5.0, troubles=25, seed=3, outage_hour=2.0)


@functools.cache
def acted() -> Account:
    """The day on which it acts, lived once: it is long."""
    return Day(SMALL, ACT).live()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("tpuwatch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def test_in_a_day_of_a_fleet_nothing_is_restarted_for_nothing() -> None:
    account = acted()
    assert account.violations == [], table({"it acts": account})
    assert account.restarts > 5
    assert account.mended == 1.0
    assert account.beside > Day(SMALL, None).live().beside


def test_the_same_seed_is_the_same_day() -> None:
    assert Day(SMALL, ACT).live() == acted()


def test_one_that_only_tells_touches_nothing() -> None:
    account = Day(SMALL, OBSERVE).live()
    assert (account.violations, account.restarts) == ([], 0)
    assert account.asked["observe"] > 5


def test_without_regard_to_storms_an_outage_makes_restarts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_inside, "OUTAGE_COUNT", 10_000)  # nor of peers that are silent
    account = Day(SMALL, replace(ACT, storm_nodes=10_000)).live()
    assert any("for nothing: outage" in one for one in account.violations)


def test_what_is_for_nothing() -> None:
    assert [is_false(Down("n", ail, 1, worked)) for ail, worked in ((None, 30.0), (None, 600.0))] == [False, True]
    assert is_false(Down("n", Ail.LIE, 1, 600.0))
    assert is_false(Down("n", Ail.MAINTENANCE, 1, 0.0))
    assert not is_false(Down("n", Ail.BROKEN, 1, 0.0))


def test_the_most_within_a_window_that_slides() -> None:
    assert most_within([], 10.0) == 0
    assert most_within([30.0, 1.0, 9.0, 10.0, 11.0], 10.0) == 3
    assert most_within([1.0, 11.0], 10.0) == 1


def test_tasks_wait_by_the_agenda_and_die_where_they_stand() -> None:
    agenda, seen = Agenda(), []
    began = agenda.now

    def work(task: Task) -> None:
        try:
            for _ in range(3):
                task.pause(60.0)
                seen.append(agenda.now - began)
        except Killed:
            seen.append(-1.0)
            raise

    first, second = agenda.spawn(work), agenda.spawn(work)
    agenda.after(90.0, first.kill)
    agenda.run(began + 1000.0)
    assert seen == [60.0, 60.0, -1.0, 120.0, 180.0]
    assert not first.alive
    assert not second.alive
    assert agenda.now - began == 1000.0


def test_an_error_in_a_task_is_no_silence() -> None:
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
