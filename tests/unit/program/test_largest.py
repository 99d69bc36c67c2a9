"""The search for the largest batch that fits: right, and with few compilations that succeed, for these cost minutes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.program.largest import MAX_TRIALS, Need, largest_batch

AVAILABLE = 16_000
STEP = 8


def searched(
    need: Callable[[int], int],
    *,
    at_most: int = 65_536,
    step: int = STEP,
    shown: bool = True,
    code: int = 0,
    confirm: bool = True,
) -> tuple[int | None, list[tuple[int, bool]]]:
    """What the search finds, and what it tries. `shown`: whether the compiler says how much is needed; `code`: what it
    finds out at the end alone."""
    search = largest_batch(step, at_most, confirm=confirm)
    tried: list[tuple[int, bool]] = []
    ask = next(search)
    while True:
        batch = ask.batch or 0
        needed = need(batch) + (code if ask.whole else 0)
        fits = needed <= AVAILABLE
        tried.append((batch, fits and ask.whole))
        try:
            ask = search.send(Need(fits, needed if shown else None, AVAILABLE if shown else None, whole=ask.whole))
        except StopIteration as end:
            return end.value, tried


def right(need: Callable[[int], int], *, at_most: int = 65_536, step: int = STEP) -> int | None:
    return max((batch for batch in range(step, at_most + 1, step) if need(batch) <= AVAILABLE), default=None)


def test_a_need_that_is_a_line_takes_one_compilation_that_succeeds() -> None:
    found, tried = searched(lambda batch: 1000 + 130 * batch)
    assert found == 112
    assert [batch for batch, whole in tried if whole] == [112]
    assert len(tried) <= 3


def test_weights_that_take_most_of_the_memory_cost_one_more_refusal() -> None:
    found, tried = searched(lambda batch: 15_000 + 13 * batch)
    assert found == 72
    assert sum(whole for _, whole in tried) == 1
    assert len(tried) <= 4


@pytest.mark.parametrize(
    "need",
    [
        lambda batch: 1000 + batch * batch,
        lambda batch: 9000 + int(100 * batch**0.5),
        lambda batch: 1000 + batch // 64 * 9000,
        lambda batch: 16_000 if batch <= 24 else 16_001,
    ],
    ids=["square", "root", "steps", "edge"],
)
def test_a_need_that_is_no_line_is_bisected(need: Callable[[int], int]) -> None:
    found, tried = searched(need)
    assert found == right(need)
    assert sum(whole for _, whole in tried) == 1
    assert len(tried) < MAX_TRIALS


def test_nothing_fits() -> None:
    assert searched(lambda _: 20_000)[0] is None


def test_all_that_is_allowed_fits() -> None:
    found, tried = searched(lambda _: 1, at_most=100)
    assert found == 96
    assert tried == [(96, True)]


def test_what_needs_little_is_left_behind_in_leaps() -> None:
    found, tried = searched(lambda batch: 100 + batch)
    assert found == 15_896
    assert len(tried) <= 5


def test_code_that_has_no_room_in_the_end_is_a_refusal() -> None:
    assert searched(lambda batch: 1000 + 130 * batch, code=500)[0] == 104


def test_without_confirmation_nothing_is_waited_for() -> None:
    found, tried = searched(lambda batch: 1000 + 130 * batch, confirm=False)
    assert found == 112
    assert not any(whole for _, whole in tried)


def test_a_compiler_that_says_no_numbers_is_bisected() -> None:
    found, tried = searched(lambda batch: 1000 + 130 * batch, shown=False)
    assert found == 112
    assert len(tried) <= 10


@given(
    weights=st.integers(0, 17_000),
    slope=st.integers(1, 5000),
    bend=st.floats(0.3, 2.0),
    step=st.sampled_from([1, 8, 64]),
    at_most=st.integers(64, 20_000),
)
def test_it_is_right_wherever_the_need_grows(weights: int, slope: int, bend: float, step: int, at_most: int) -> None:
    def need(batch: int) -> int:
        return weights + int(slope * batch**bend)

    found, tried = searched(need, at_most=at_most, step=step)
    assert found == right(need, at_most=at_most, step=step)
    assert len(tried) < MAX_TRIALS
    assert sum(whole for _, whole in tried) <= 1, "what is compiled to its end is the answer"
    assert len(set(tried)) == len(tried), "nothing is compiled twice so"
