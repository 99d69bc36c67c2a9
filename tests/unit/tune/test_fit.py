"""The line through starts: exact where they are, and hardly moved by a few that are far off."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.tune.histories import GIB
from tpuwatch.model.tune import Fit
from tpuwatch.tune.fit import at, fit_line, largest_within, typical

QUICK = settings(deadline=None, derandomize=True, database=None)
SIZES = (1, 2, 4, 8, 16)


def line(base: float, slope: float, *sizes: float) -> list[tuple[int, float]]:
    """Starts on a line: seconds without a buffer and for each GiB."""
    return [(int(size * GIB), base + slope * size) for size in sizes]


def test_starts_on_a_line_give_that_line() -> None:
    fit = fit_line(line(2.0, 1.5, 4, 8, 16))
    assert fit is not None
    assert fit.base_seconds == pytest.approx(2.0)
    assert fit.per_byte_seconds * GIB == pytest.approx(1.5)
    assert (fit.launches, fit.left_out) == (3, 0)
    assert fit.spread_seconds == pytest.approx(0.0)
    assert at(fit, 6 * GIB) == pytest.approx(11.0)


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param([], id="none"),
        pytest.param(line(2.0, 1.5, 4), id="one"),
        pytest.param(line(2.0, 1.5, 4, 4, 4), id="one-size"),
        pytest.param(line(2.0, 1.5, 16, 16.25), id="sizes-too-near-to-each-other"),
    ],
)
def test_one_size_shows_no_slope(starts: list[tuple[int, float]]) -> None:
    assert fit_line(starts) is None


def test_no_buffer_is_a_size_too() -> None:
    fit = fit_line([(0, 3.0), (4 * GIB, 7.0)])
    assert fit is not None
    assert fit.base_seconds == pytest.approx(3.0)


def test_a_slow_start_is_left_out_and_counted() -> None:
    fit = fit_line([*line(2.0, 1.0, 4, 4, 8, 8, 16), (8 * GIB, 70.0)], left_out=2)
    assert fit is not None
    assert (fit.launches, fit.left_out) == (5, 3)
    assert fit.per_byte_seconds * GIB == pytest.approx(1.0)


def test_of_two_starts_with_one_size_the_faster_counts() -> None:
    assert typical([(GIB, 40.0), (GIB, 5.0), (4 * GIB, 6.0)]) == {GIB: 5.0, 4 * GIB: 6.0}


@pytest.mark.parametrize(
    ("base", "slope", "size"),
    [
        pytest.param(3.0, 1.0, 12 * GIB, id="within"),
        pytest.param(20.0, 1.0, 0, id="never"),
        pytest.param(3.0, 0.0, None, id="flat"),
        pytest.param(3.0, -1.0, None, id="falling"),
        pytest.param(3.0, 1e-300, None, id="as-good-as-flat"),
    ],
)
def test_the_largest_size_in_time(base: float, slope: float, size: int | None) -> None:
    assert largest_within(Fit(base, slope / GIB, 2, 0, 0.0), 15.0) == size


@given(st.floats(0.5, 10.0), st.floats(0.1, 3.0), st.integers(0, 1 << 32))
@QUICK
def test_some_slow_starts_hardly_move_it(base: float, slope: float, seed: int) -> None:
    rng = random.Random(seed)
    starts = [
        (size, seconds * rng.uniform(0.98, 1.02)) for _ in range(5) for size, seconds in line(base, slope, *SIZES)
    ]
    for size in SIZES[: rng.randint(0, 5)]:  # at most two of the seven starts with a size
        starts += [(size * GIB, rng.uniform(40.0, 400.0)) for _ in range(rng.randint(1, 2))]
    fit = fit_line(starts)
    assert fit is not None
    assert at(fit, 8 * GIB) == pytest.approx(base + slope * 8, rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 1 << 50), st.floats(0.0, 86_400.0)), max_size=30), st.randoms())
@QUICK
def test_the_order_does_not_matter(starts: list[tuple[int, float]], rng: random.Random) -> None:
    shuffled = starts[:]
    rng.shuffle(shuffled)
    assert fit_line(shuffled) == fit_line(starts)
