from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.standins.machine import Machine
from tpuwatch.host.cpu import Mean, ProcessTree, process_trees
from tpuwatch.host.procfs import ProcFs


def told(*counted: float, every: float = 10.0) -> list[float | None]:
    """What is told as a counter stands so, one look after another."""
    mean = Mean()
    return [mean.add(number * every, one) for number, one in enumerate(counted)]


# -- means


def test_a_mean_takes_two_looks_and_goes_back_a_minute() -> None:
    assert told(0.0, 20.0) == [None, 2.0]
    burst = told(0, 60, *[60] * 10)
    assert all(burst[1:7])
    assert burst[7:] == [0.0] * 5


def test_fluctuating_use_is_reported_as_its_mean() -> None:
    """As of a program that works for ten seconds of every twenty: no more does it work and rest in turn."""
    counted = [float(10 * (number // 2)) for number in range(60)]
    later = set(told(*counted)[8:])
    assert len(later) == 1
    assert later.pop() == pytest.approx(0.5, abs=0.1)


def test_a_small_change_is_not_reported() -> None:
    growth = [10.0] * 7 + [11.0, 9.0] * 10
    assert set(told(*(sum(growth[:number]) for number in range(len(growth))))[1:]) == {1.0}


def test_when_the_counter_decreases_the_last_mean_is_reported_until_there_is_a_new_one() -> None:
    assert told(100.0, 120.0, 50.0, 90.0) == [None, 2.0, 2.0, 4.0]


def test_without_time_in_between_nothing_new_is_reported() -> None:
    assert told(0.0, 20.0, every=0.0) == [None, None]


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(0, 1e9)), max_size=20))
def test_any_clock_and_any_counter_gives_a_mean_or_none(looks: list[tuple[float, float]]) -> None:
    mean = Mean()
    for at, counted in looks:
        one = mean.add(at, counted)
        assert one is None or one >= 0


# -- process trees


def found(machine: Machine, *asked: int) -> dict[int, ProcessTree]:
    processes = ProcFs(machine.root / "proc")
    return dict(process_trees(processes, frozenset(asked), processes.pids()))


def test_a_process_has_its_descendants_cpu_and_that_of_children_which_ended(machine: Machine) -> None:
    machine.process(40, cpu=1.0, reaped=2.0)
    machine.process(41, parent=40, cpu=4.0)
    machine.process(42, parent=41, cpu=8.0)
    machine.process(43, cpu=16.0)
    assert found(machine, 40) == {40: ProcessTree(15.0, frozenset())}


def test_what_is_below_another_head_is_that_ones(machine: Machine) -> None:
    machine.process(40, cpu=1.0)
    machine.process(41, parent=40, cpu=2.0)
    machine.process(42, parent=41, cpu=4.0)
    machine.process(43, parent=42, cpu=8.0)
    assert found(machine, 40, 42) == {40: ProcessTree(3.0, frozenset({42})), 42: ProcessTree(12.0, frozenset())}


def test_a_ring_of_parents_ends(machine: Machine) -> None:
    machine.process(40, parent=41, cpu=1.0)
    machine.process(41, parent=40, cpu=2.0)
    machine.process(42, parent=42, cpu=4.0)
    assert found(machine, 40) == {40: ProcessTree(3.0, frozenset())}


def test_who_has_ended_has_no_family_and_what_is_malformed_is_left_out(machine: Machine) -> None:
    machine.process(40, cpu=1.0)
    machine.process(41, parent=40, cpu=2.0)
    machine.write("proc/41/stat", b"\xff (x) S x")
    assert found(machine, 40, 99) == {40: ProcessTree(1.0, frozenset())}
    assert found(machine) == {}
