"""The judge's service with the real judge, a real store and a clock that is moved by hand."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.store.make import stored_verdicts
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import StoreError
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.health.service import MAX_CHANGES, MAX_CHANGES_SECONDS, OTHERS_SECONDS, JudgeService
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.signals import CloudNode, Identity, Known, QueuedResource, Snapshot
from tpuwatch.model.verdict import Action, Verdict
from tpuwatch.store import EventStore


class Bench:
    """A judge over what the test posts."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.store = EventStore.open(root, self.clock)
        self.metrics = Metrics(loops=[], refusals=[])
        self.posted = Snapshot()
        self.judging = self.new()

    def new(self, boot_id: str = "boot") -> JudgeService:
        return JudgeService(
            lambda: self.posted,
            limits=JudgeLimits(),
            store=self.store,
            metrics=self.metrics,
            clock=self.clock,
            boot_id=boot_id,
        )

    def cloud(self, **states: str) -> None:
        """The cloud reports each node in its state; `own` is this machine's."""
        now = self.clock.time()
        nodes = {
            f"z/{name}": Answer(CloudNode("p", "z", name, state, "HEALTHY", changed=now), now, None, tried=now)
            for name, state in states.items()
        }
        self.posted = Snapshot(
            identity=Identity(node=Known("own", "metadata"), zone=Known("z", "metadata")),
            cloud=nodes,
            api=Answer(1, now, None),
        )

    def turn(self) -> dict[str, Verdict]:
        self.judging.turn()
        return {status.node: status.judgement.verdict for status in self.judging.nodes}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()


def test_the_own_node_comes_first_and_all_are_judged(bench: Bench) -> None:
    bench.cloud(other="PREEMPTED", own="STOPPED")
    assert list(bench.turn().items()) == [("own", Verdict.STOPPED), ("other", Verdict.PREEMPTED)]
    assert [(status.own, status.project, status.zone) for status in bench.judging.nodes] == [
        (True, "p", "z"),
        (False, "p", "z"),
    ]


def test_the_time_of_all_nodes_is_counted_by_verdict(bench: Bench) -> None:
    def seconds() -> dict[str, float]:
        text = bench.metrics.exposition()[0].decode()
        found = re.findall(r'^tpuwatch_verdict_seconds_total{verdict="(\w+)"} (\S+)$', text, re.MULTILINE)
        return {verdict: float(value) for verdict, value in found if float(value)}

    bench.clock.advance(100)
    bench.cloud(own="STOPPED", other="PREEMPTED", third="PREEMPTED")
    bench.turn()
    assert seconds() == {}  # nobody knows how they were before
    bench.clock.advance(5)
    bench.cloud(own="PREEMPTED", other="PREEMPTED", third="PREEMPTED")
    bench.turn()
    assert seconds() == {"stopped": 5, "preempted": 10}
    bench.clock.advance(2)
    bench.turn()
    assert seconds() == {"stopped": 5, "preempted": 16}


def test_a_machine_of_no_node_of_the_api_is_marked_as_such(bench: Bench) -> None:
    bench.cloud(own="READY", other="READY")
    bench.turn()
    assert [status.in_api for status in bench.judging.nodes] == [True, True]
    place = {"project": Known("p", "metadata"), "zone": Known("z", "metadata")}
    identity = Identity(**place, kubernetes=Known("gke-pool-1", "kubernetes"))
    bench.posted = replace(bench.posted, identity=identity)
    assert "gke-pool-1" in bench.turn()
    assert [status.in_api for status in bench.judging.nodes if status.own] == [False]
    assert {status.in_api for status in bench.judging.nodes if not status.own} == {True}


def test_queued_resources_are_judged_by_the_limit_of_the_configuration(bench: Bench) -> None:
    old = QueuedResource("q-1", "ACCEPTED", "p", "z", ("n1",), created=bench.clock.time() - 90_000)
    bench.cloud(own="READY")
    bench.posted = replace(bench.posted, queued_resources={"z": (old,), "y": ()})
    bench.turn()
    assert [one.problem for one in bench.judging.queued_resources] == [QueuedProblem.OVERDUE]
    assert 'tpuwatch_queued_resource_problems{problem="overdue",zone="z"} 1.0' in bench.metrics.exposition()[0].decode()
    assert 'tpuwatch_queued_resources{state="ACCEPTED",zone="y"} 0.0' in bench.metrics.exposition()[0].decode()
    bench.judging.limits.request_wait_seconds = 0.0
    bench.turn()
    assert [one.problem for one in bench.judging.queued_resources] == [None]


def test_the_queued_resource_stands_for_the_state_of_a_node_that_is_not_listed_alone(bench: Bench) -> None:
    bench.cloud(own="READY", other="PREEMPTED")
    now = bench.clock.time()
    waits = Answer(QueuedResource("q-1", "PROVISIONING"), now, None, tried=now)
    gone = Answer(None, None, Problem.GONE, "The zone lists no such node.", now)
    bench.posted = replace(
        bench.posted, cloud={**bench.posted.cloud, "z/new": gone}, queued={"z/other": waits, "z/new": waits}
    )
    bench.turn()
    shown = {one.node: one.queued and one.queued.state for one in bench.judging.nodes}
    assert shown == {"own": None, "other": None, "new": "PROVISIONING"}
    verdicts = {one.node: (one.judgement.verdict, one.judgement.action) for one in bench.judging.nodes}
    assert verdicts["new"] == (Verdict.STARTING, Action.WAIT)
    assert verdicts["other"] == (Verdict.PREEMPTED, Action.WAIT)  # it comes back by itself


def test_changes_are_stored_and_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.cloud(own="STOPPED")
    bench.turn()
    bench.clock.advance(5)
    bench.turn()
    assert [(one.node, one.verdict) for one in stored_verdicts(bench.store)] == [("z/own", Verdict.STOPPED)]
    assert caplog.text.count("z/own is stopped") == 1
    assert 'tpuwatch_verdict_changes_total{verdict="stopped"} 1.0' in bench.metrics.exposition()[0].decode()


def test_since_survives_a_restart_but_not_a_reboot(bench: Bench) -> None:
    bench.cloud(own="STOPPED")
    bench.turn()
    begun = bench.judging.nodes[0].judgement.since
    bench.clock.advance(600)
    bench.cloud(own="STOPPED")
    bench.judging = bench.new()
    bench.turn()
    assert bench.judging.nodes[0].judgement.since == begun
    bench.judging = bench.new("another boot")
    bench.turn()
    assert bench.judging.nodes[0].judgement.since == bench.clock.time()


def test_others_are_judged_again_when_the_cloud_answered_or_after_a_while(bench: Bench) -> None:
    bench.cloud(other="READY")
    bench.turn()
    first = bench.judging.nodes[1]
    bench.clock.advance(5)
    bench.turn()
    assert bench.judging.nodes[1] is first
    bench.cloud(other="READY")
    bench.turn()
    assert bench.judging.nodes[1] is not first
    second = bench.judging.nodes[1]
    bench.clock.advance(OTHERS_SECONDS)
    bench.turn()
    assert bench.judging.nodes[1] is not second


def test_nodes_that_leave_the_list_are_logged_in_one_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def removals() -> list[str]:
        lines = [line for line in caplog.messages if line.startswith("No longer watched")]
        caplog.clear()
        return lines

    bench.cloud(own="READY", a="READY", b="READY", c="READY")
    bench.turn()
    bench.cloud(own="READY", c="STOPPED")
    bench.turn()
    assert removals() == ["No longer watched: z/a, z/b; deleted, or no longer matched by `nodes` under [cloud]."]
    bench.clock.advance(OTHERS_SECONDS)
    bench.turn()
    assert removals() == []
    assert {one.node for one in stored_verdicts(bench.store)} >= {"z/a", "z/b"}  # their verdicts stay
    many = {f"n-{number:03}": "READY" for number in range(500)}
    bench.cloud(own="READY", **many)
    bench.turn()
    assert removals() == ["No longer watched: z/c; deleted, or no longer matched by `nodes` under [cloud]."]
    bench.cloud(own="READY")
    bench.turn()
    (line,) = removals()
    assert "z/n-000, z/n-001, " in line
    assert "n-019 and 480 more; deleted" in line
    assert "n-020" not in line


def test_a_node_that_was_never_seen_has_not_left(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.cloud(own="READY")
    never: Answer[CloudNode] = Answer(detail="It is not known where to ask.")
    bench.posted = replace(bench.posted, cloud={**bench.posted.cloud, "never": never})
    bench.turn()
    bench.cloud(own="READY")
    assert set(bench.turn()) == {"own"}
    assert "No longer watched" not in caplog.text


def test_a_node_of_which_only_the_zone_is_known_has_that(bench: Bench) -> None:
    never: Answer[CloudNode] = Answer(detail="It has not been asked for yet.")
    bench.cloud(own="READY")
    bench.posted = replace(bench.posted, cloud={**bench.posted.cloud, "far/never": never})
    bench.turn()
    assert [(node.zone, node.node, node.label) for node in bench.judging.nodes] == [
        ("z", "own", "z/own"),
        ("far", "never", "far/never"),
    ]


def test_a_node_that_is_not_watched_any_more_is_forgotten(bench: Bench) -> None:
    bench.cloud(other="READY")
    bench.turn()
    bench.cloud()
    assert set(bench.turn()) == {"own"}
    assert 'node="other"' not in bench.metrics.exposition()[0].decode()
    bench.clock.advance(3600)
    bench.cloud(other="READY")
    bench.turn()
    assert bench.judging.nodes[1].judgement.since == bench.clock.time()


def test_what_the_store_does_not_take_is_offered_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.store._connection.execute("PRAGMA query_only = 1")
    bench.cloud(own="STOPPED")
    assert bench.turn() == {"own": Verdict.STOPPED}
    assert "cannot write the store" in caplog.text
    bench.turn()
    assert caplog.text.count("own is stopped") == 1
    bench.store._connection.execute("PRAGMA query_only = 0")
    bench.turn()
    assert len(stored_verdicts(bench.store)) == 1


def test_a_flood_of_changes_is_logged_in_short(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.cloud(**{f"n{number}": "STOPPED" for number in range(100)})
    bench.turn()
    assert caplog.text.count(" is stopped ") == 20
    assert "and 81 more nodes changed" in caplog.text
    assert len(stored_verdicts(bench.store)) == 101


STATES = ("STOPPED", "PREEMPTED")


def flap(bench: Bench, seconds: int) -> None:
    """The own node changes with each poll."""
    for number in range(seconds // 30):
        bench.clock.advance(30)
        bench.cloud(own=STATES[number % 2], other="STOPPED")
        bench.turn()


def rows(bench: Bench, node: str) -> list[str]:
    return [one.summary for one in stored_verdicts(bench.store, node)]


@pytest.mark.slow
def test_one_that_flaps_is_logged_and_stored_only_so_often(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.cloud(own="STOPPED")
    bench.turn()
    assert len(rows(bench, "z/own")) == 1
    flap(bench, 24 * 3600)
    most = (MAX_CHANGES + 1) * 24 + 1
    assert MAX_CHANGES * 24 - 1 <= len(rows(bench, "z/own")) <= most
    assert MAX_CHANGES * 24 - 1 <= sum("own is " in line for line in caplog.messages) <= most
    assert len(rows(bench, "z/other")) == 1  # what one does is not held against others
    omitted = [
        int(found[1]) for text in caplog.messages if (found := re.search(r"(\d+) changes? of its verdict", text))
    ]
    counted = sum("own is " in line for line in caplog.messages) + sum(omitted)
    assert 24 * 3600 / 30 - 120 <= counted <= 24 * 3600 / 30 + 1  # all but those of the last hour are accounted for
    assert sum("left out before this: there were too many" in row for row in rows(bench, "z/own")) == len(omitted)


def test_after_the_flapping_what_holds_is_logged_and_stored(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    flap(bench, 45 * 30)  # an odd number: it ends as it began
    assert len(rows(bench, "z/own")) == MAX_CHANGES
    bench.clock.advance(30)
    bench.cloud(own="READY")
    assert bench.turn()["own"] is bench.judging.nodes[0].judgement.verdict  # what is shown is not held back
    final = bench.judging.nodes[0].judgement
    caplog.clear()
    bench.clock.advance(MAX_CHANGES_SECONDS)
    bench.cloud(own="READY")
    bench.turn()
    assert f"{45 + 1 - MAX_CHANGES} changes of its verdict were left out" in rows(bench, "z/own")[0]
    last = stored_verdicts(bench.store, "z/own")[0]
    assert (last.verdict, last.since) == (final.verdict, final.since)
    caplog.clear()
    bench.clock.advance(60)
    bench.turn()
    assert "left out" not in caplog.text


def test_a_store_that_cannot_be_read_does_not_keep_it_from_judging(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> None:
        raise StoreError("the store is damaged")

    monkeypatch.setattr(bench.store, "last_verdicts", broken)
    bench.judging = bench.new()
    bench.cloud(own="STOPPED")
    assert bench.turn() == {"own": Verdict.STOPPED}
    assert "the store is damaged" in caplog.text
