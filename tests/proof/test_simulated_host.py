"""The truth about sizes on a simulated host: the documented rules, one by one."""

from __future__ import annotations

import random

import pytest

from tests.proof.bench.simulated_host import GIB, MIB, SHAPES, Machine, Workload, World, random_world
from tpuwatch.model.tune import PAGE_BYTES


def shape(generation: str) -> int:
    return next(n for n, one in enumerate(SHAPES) if (one.generation, one.chips) == (generation, 4))


def world(
    *bursts: tuple[int, ...],
    generation: str = "v5e",
    bend: float = 0.0,
    noise: float = 0.0,
    scatter: float = 0.0,
    job: int = 10 * GIB,
) -> World:
    """A host on which an initialisation takes 3 s and 0.5 s for each GiB; sizes of transfers in bytes."""
    machine = Machine(SHAPES[shape(generation)], 3.0, 0.5, bend, noise, 20.0, 10 * GIB)
    return World(machine, Workload(bursts or ((GIB,),), scatter, job), ())


def test_a_burst_needs_room_for_all_that_is_under_way_at_once() -> None:
    one = world((2 * GIB, 2 * GIB, 2 * GIB), (GIB,))
    assert not one.works(6 * GIB - PAGE_BYTES)
    assert one.works(6 * GIB)
    assert not one.works(None)  # 4 GiB


def test_room_is_lost_between_buffers() -> None:
    one = world((2 * GIB, 2 * GIB, 2 * GIB), scatter=0.1)
    assert not one.works(6 * GIB)
    assert one.works(7 * GIB)


def test_larger_transfers_than_the_threshold_go_round_the_region() -> None:
    one = world((6 * GIB,), (3 * GIB, 3 * GIB))
    assert one.works(3 * GIB - PAGE_BYTES)  # all are larger than the region: the threshold's default
    assert not one.works(4 * GIB)
    assert one.works(6 * GIB)
    assert one.works(4 * GIB, 2 * GIB)
    assert one.share(4 * GIB, 2 * GIB) == 0.0
    assert one.share(4 * GIB) == 0.5
    assert one.share(6 * GIB) == 1.0


def test_without_a_region_there_is_nothing_to_fail() -> None:
    one = world((6 * GIB, 3 * GIB), generation="v4")
    assert one.size(None) == 0
    assert one.works(None)
    assert one.works(0)
    assert not one.works(7 * GIB)


def test_the_host_must_hold_region_and_job() -> None:
    one = world((GIB,), job=world().machine.free_bytes - 4 * GIB)
    assert one.works(4 * GIB)
    assert not one.works(4 * GIB + PAGE_BYTES)


def test_what_runs_beside_it_takes_memory() -> None:
    alone = world().machine
    beside = Machine(
        alone.shape, 3.0, 0.5, 0.0, 0.0, 20.0, 10 * GIB, neighbours=(GIB, 2 * GIB), neighbour_bytes=5 * GIB
    )
    assert alone.free_bytes - beside.free_bytes == 13 * GIB


def test_pinning_takes_time_by_the_size() -> None:
    machine = world().machine
    assert [machine.seconds(gib * GIB) for gib in (0, 4, 24)] == [3.0, 5.0, 15.0]
    assert world(bend=0.5).machine.seconds(32 * GIB) == 3.0 + 16.0 * 1.5


def test_what_noise_hides_is_neither_surely_fast_nor_slow() -> None:
    assert [world().fast(gib * GIB) for gib in (24, 25)] == [True, False]
    noisy = world(noise=0.1)
    assert [noisy.fast(gib * GIB) for gib in (21, 24, 27, 28)] == [True, True, True, False]
    assert [noisy.fast(gib * GIB, surely=True) for gib in (21, 24)] == [True, False]


def test_to_work_is_better_than_to_be_fast() -> None:
    one = world((8 * GIB,) * 4, (30 * GIB, GIB))
    assert one.rank(64 * GIB) == (True, False)
    assert one.rank(None) == (True, True)  # all large ones go round it
    other = world((2 * GIB,) * 16)
    assert other.rank(None) == (False, True)
    assert other.rank(32 * GIB) == (True, False)
    assert not other.is_worse(32 * GIB)
    assert other.is_worse(25 * GIB)  # neither, and the default is fast
    assert one.is_worse(64 * GIB)


def test_nothing_is_good_that_makes_transfers_slower_than_they_were() -> None:
    one = world((GIB,) * 6)
    assert one.works(6 * GIB, PAGE_BYTES)
    assert one.fast(6 * GIB)
    assert not one.is_good(6 * GIB, PAGE_BYTES)
    assert one.is_good(6 * GIB)
    fine = world((GIB,) * 3)
    assert fine.is_worse(4 * GIB, PAGE_BYTES)  # the default does all that, and faster transfers


def test_the_best_is_the_smallest_that_does_both() -> None:
    assert world((GIB,) * 6).best(40 * GIB) == (6 * GIB, None)
    assert world((GIB,) * 3).best(40 * GIB) == (None, None)
    many = (128 * MIB,) * 240
    assert world(many).best(40 * GIB) == (30 * GIB, None)  # slow, but it works


def test_the_best_has_a_threshold_where_no_size_works_alone() -> None:
    one = world((128 * MIB,) * 240, (GIB,), (MIB,) * 10)
    size, threshold = one.best(4 * GIB)
    assert threshold == 128 * MIB - PAGE_BYTES
    assert one.works(size, threshold)
    assert not one.works(size)


def test_worlds_are_the_same_for_the_same_dice_and_differ_widely() -> None:
    worlds = [random_world(random.Random(seed)) for seed in range(300)]
    assert worlds == [random_world(random.Random(seed)) for seed in range(300)]
    assert {one.machine.shape for one in worlds} == set(SHAPES)
    assert 0.5 < sum(one.is_good(None) for one in worlds) / 300 < 0.8
    assert any(one.guesses for one in worlds)
    assert any(one.machine.neighbours for one in worlds)
    for one in worlds:
        assert one.workload.job_bytes <= one.machine.free_bytes - GIB
        assert all(transfer % PAGE_BYTES == 0 for burst in one.workload.bursts for transfer in burst)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_a_world_is_no_worse_than_the_default(seed: int) -> None:
    one = random_world(random.Random(seed))
    assert not one.is_worse(*one.best(32 * GIB))
