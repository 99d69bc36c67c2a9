"""Blocks of a minute: ordinary steps, pauses, and all steps that have become long."""

from __future__ import annotations

import math

import pytest

from tpuwatch.progress.blocks import Block, Blocks, StepSample

NOW = 1_790_000_000.0


def blocks_of(*seconds: float, steps: int = 1) -> list[Block]:
    """All blocks that these steps make, each sample so many steps."""
    blocks, at, found = Blocks(), NOW, []
    for number, one in enumerate(seconds, 1):
        at += steps * one
        found += blocks.add(StepSample(at, steps * number, steps, one))
    return found


def test_a_block_is_a_minute_and_at_least_eight_steps() -> None:
    (short,) = blocks_of(*[1.0] * 60)
    assert (short.at, short.step, short.seconds, short.total, short.paused) == (NOW + 60, 60, 1.0, 60.0, 0.0)
    assert [one.step for one in blocks_of(*[30.0] * 17)] == [8, 16]
    assert [one.step for one in blocks_of(*[0.1] * 12, steps=100)] == [600, 1200]


def test_a_long_step_is_a_pause_and_what_it_took_beyond_a_step_is_its_time() -> None:
    first, second = blocks_of(*[1.0] * 100, 81.0, *[1.0] * 10)
    assert (first.seconds, second.seconds) == (1.0, 1.0)
    assert (second.paused, second.total) == (80.0, 121.0)


def test_a_step_that_is_not_so_long_is_no_pause() -> None:
    _, second = blocks_of(*[10.0] * 8, *[10.0] * 7, 24.0)
    assert (second.seconds, second.paused) == (10.0, 0.0)


def test_six_blocks_of_which_most_steps_are_long_are_slow_and_no_pauses() -> None:
    blocks = blocks_of(*[10.0] * 80, *[40.0] * 48)
    assert [one.seconds for one in blocks] == [10.0] * 10 + [40.0] * 6
    assert sum(one.paused for one in blocks) == 0.0


def test_five_blocks_of_which_most_steps_are_long_are_pauses() -> None:
    blocks = blocks_of(*[10.0] * 80, *[40.0] * 40, *[10.0] * 8)
    assert [one.seconds for one in blocks] == [10.0] * 10 + [None] * 5 + [10.0]
    assert sum(one.paused for one in blocks) == 40 * 30.0


def test_the_median_counts_steps_and_not_samples() -> None:
    blocks, found = Blocks(), []
    for steps, seconds in ((2, 5.0), (1, 1.0), (20, 2.0), (1, 9.0)):
        found += blocks.add(StepSample(NOW, 1, steps, seconds))
    assert [one.seconds for one in found] == [2.0]


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_numbers_that_are_no_time_are_left_out(seconds: float) -> None:
    blocks = Blocks()
    assert blocks.add(StepSample(NOW, 1, 1000, seconds)) == []
    assert blocks.usual is None


def test_the_usual_time_is_known_from_the_first_step_on() -> None:
    blocks = Blocks()
    blocks.add(StepSample(NOW, 1, 1, 3.0))
    assert blocks.usual == 3.0


def test_tokens_are_the_median_and_hbm_the_latest() -> None:
    blocks, found = Blocks(), []
    for number in range(8):
        found += blocks.add(
            StepSample(NOW, number, 1, 10.0, tokens=100.0 + number, hbm=None if number == 7 else number)
        )
    assert [(one.tokens, one.hbm) for one in found] == [(103.5, 6)]
