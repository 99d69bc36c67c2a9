"""The daemon's side: steps and spans reach the store, and the counters grow by what passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.metrics.test_registry import new, samples
from tests.unit.web import samples as given
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import StoreError
from tpuwatch.goodput.keeper import SAVE_SECONDS, GoodputKeeper
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.causes import Cause
from tpuwatch.model.goodput import NodeSpanKind, TrainingState
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.progress import ProgressSource, TrainingLoop
from tpuwatch.model.verdict import Verdict
from tpuwatch.store import EventStore

WELL = given.node()


class Machine:
    """A keeper on a store, and the time."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.start = self.clock.time()
        self.store = EventStore.open(directory, self.clock)
        self.metrics: Metrics = new()
        self.keeper = self.daemon("one")
        self.step = 0
        self.began = 0.0

    def daemon(self, boot: str, booted: float | None = None) -> GoodputKeeper:
        self.metrics = new()
        began = self.start - 500.0 if booted is None else booted
        self.keeper = GoodputKeeper(self.store, metrics=self.metrics, clock=self.clock, boot_id=boot, booted=began)
        return self.keeper

    def launch(self, pid: int, **changes: object) -> Launch:
        started = self.clock.time()
        one = Launch(pid, started, workload="job", init_seconds=10.0, outcome=Outcome.OK, last_heard=started)
        self.change(one, **changes)
        self.began = 0.0
        return one

    def change(self, launch: Launch, **changes: object) -> None:
        self.store.commit([], [], [replace(launch, **changes)])  # type: ignore[arg-type] # the tests name fields

    def loop(self, **changes: object) -> TrainingLoop:
        now = self.clock.time()
        self.began = self.began or now
        loop = TrainingLoop(ProgressSource.OUTPUT, "job.log", None, "", self.began, self.step, now, now, alive=True)
        return replace(loop, **changes)  # type: ignore[arg-type] # the same

    def passes(self, seconds: int, *, node: JudgedNode | None = WELL) -> None:
        """Seconds without a loop."""
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.keeper.look([], node)

    def trains(self, seconds: int) -> TrainingLoop:
        """A step a second."""
        for _ in range(seconds):
            self.clock.advance(1.0)
            self.step += 1
            loop = self.loop()
            self.keeper.look([loop], WELL)
        return loop

    def counted(self) -> dict[str, float]:
        """The counters that are not 0."""
        names = ("tpuwatch_training_seconds_total", "tpuwatch_interruptions_total")
        found = {name[1]: value for name, value in samples(self.metrics).items() if name[0] in names and value}
        return {name: round(value, 3) for name, value in found.items()}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    with closing(made.store):
        yield made


def test_steps_are_stored_once_a_minute_and_at_the_end(machine: Machine) -> None:
    machine.launch(1)
    machine.trains(int(SAVE_SECONDS) - 1)
    assert machine.store.step_runs() == []
    machine.trains(2)
    [run] = machine.store.step_runs()
    assert (run.first_step, run.looks) == (1, SAVE_SECONDS - 1)
    machine.trains(5)
    machine.keeper.save()
    [run] = machine.store.step_runs()
    assert run.step == 66


def test_the_counters_grow_by_what_passes_and_repeated_steps_come_besides(machine: Machine) -> None:
    first = machine.launch(1)
    machine.passes(20)
    machine.trains(220)
    assert machine.counted() == pytest.approx({"initialisation": 10, "startup": 10, "productive": 220}, abs=1.0)
    machine.change(first, ended=machine.clock.time(), exit_status=1)
    machine.passes(120)
    assert machine.counted() == pytest.approx(
        {"initialisation": 10, "startup": 10, "productive": 220, "down": 120, "failed": 1}, abs=1.0
    )
    machine.launch(2)
    machine.step = 120
    machine.passes(20)
    machine.trains(160)
    assert machine.counted() == pytest.approx(
        {"initialisation": 20, "startup": 20, "productive": 380, "down": 120, "repeated": 100, "failed": 1}, abs=2.0
    )
    found = machine.keeper.latest
    assert found is not None
    assert {state.value: round(seconds) for state, seconds in found.seconds.items() if seconds >= 2} == pytest.approx(
        {"initialisation": 20, "startup": 20, "productive": 280, "down": 120, "repeated": 100}, abs=2
    )


def test_another_run_of_the_daemon_counts_nothing_again(machine: Machine) -> None:
    first = machine.launch(1)
    machine.passes(20)
    machine.trains(100)
    machine.change(first, ended=machine.clock.time(), exit_status=1)
    machine.launch(2)
    machine.step = 50
    machine.passes(20)
    machine.trains(100)
    machine.keeper.save()
    machine.daemon("one")
    machine.trains(120)
    assert machine.counted() == pytest.approx({"productive": 120}, abs=2.0)


def test_a_stuck_verdict_is_stored(machine: Machine) -> None:
    machine.passes(10)
    stuck = given.node(judgement=given.judgement(Verdict.RUNTIME_STUCK, since=machine.clock.time() - 5.0))
    machine.passes(10, node=stuck)
    machine.passes(10)
    machine.keeper.save()
    found = [(one.since, one.until) for one in machine.store.node_spans() if one.kind is NodeSpanKind.STUCK]
    assert found == [(machine.start + 5.0, machine.start + 20.0)]


def test_a_loop_that_stands_still_is_stuck_and_no_other(machine: Machine) -> None:
    machine.launch(1)
    machine.passes(20)
    loop = machine.trains(100)
    for _ in range(600):
        machine.clock.advance(1.0)
        machine.keeper.look([replace(loop, faults=(Cause.STEPS_STALLED,))], WELL)
    found = machine.keeper.latest
    assert found is not None
    assert found.seconds[TrainingState.STUCK] == pytest.approx(600, abs=1.5)
    machine.trains(61)
    found = machine.keeper.latest
    assert found is not None
    assert found.seconds[TrainingState.STUCK] == pytest.approx(600, abs=1.5)
    assert found.seconds[TrainingState.PAUSE] == pytest.approx(0, abs=1.5)


def test_maintenance_is_stored_and_a_verdict_that_nothing_shows_is_none(machine: Machine) -> None:
    machine.passes(3, node=given.node(verdict=Verdict.MAINTENANCE))
    unseen = given.judgement(Verdict.NODE_STUCK, unseen=given.judgement().unseen)
    machine.passes(3, node=given.node(judgement=replace(unseen, unseen=object())))  # type: ignore[arg-type] # any
    machine.passes(3, node=None)
    machine.keeper.save()
    kinds = [one.kind for one in machine.store.node_spans()]
    assert sorted(kinds) == [NodeSpanKind.MAINTENANCE, NodeSpanKind.WATCHED]


def test_a_new_boot_is_watched_from_its_beginning_on(machine: Machine) -> None:
    machine.passes(10)
    machine.keeper.save()
    machine.clock.advance(600.0)
    machine.daemon("two", machine.clock.time() - 100.0)
    machine.passes(10)
    machine.keeper.save()
    machine.daemon("two", machine.clock.time() - 110.0)
    machine.passes(10)
    machine.keeper.save()
    spans = [(one.since - machine.start, one.until - machine.start, one.boot_id) for one in machine.store.node_spans()]
    assert spans == [(0.0, 10.0, "one"), (510.0, 620.0, "two"), (620.0, 630.0, "two")]


def test_what_the_store_does_not_take_is_offered_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("full")

    machine.launch(1)
    machine.trains(20)
    with monkeypatch.context() as patched:
        patched.setattr(machine.store, "save_steps", full)
        machine.keeper.save()
    assert machine.store.step_runs() == []
    machine.keeper.save()
    assert len(machine.store.step_runs()) == 1
    assert samples(machine.metrics)[("tpuwatch_store_errors_total",)] == 1
