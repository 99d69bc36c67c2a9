from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.core import median, median_low


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_medians_are_those_of_the_standard_library(values: list[float]) -> None:
    assert median(values) == statistics.median(values)
    assert median_low(values) == statistics.median_low(values)


def test_of_nothing_there_is_none() -> None:
    for function in (median, median_low):
        with pytest.raises(IndexError):
            function([])
