"""The picture of the launches."""

from __future__ import annotations

import math

from tests.unit.web import samples
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Outcome
from tpuwatch.web.launch_chart import MOST, launch_chart, launch_tone, launch_words

GIB = 1 << 30


def test_bars_are_as_long_as_launches_took_and_the_newest_is_at_the_right() -> None:
    chart = launch_chart(
        [
            samples.launch(init_seconds=20.0, premapped_bytes=4 * GIB),
            samples.launch(init_seconds=10.0, premapped_bytes=8 * GIB),
        ]
    )
    assert chart is not None
    old, new = chart.bars
    assert old.x < new.x
    assert new.height == 2 * old.height
    assert old.buffer_height == 2 * new.buffer_height
    assert [line.words for line in chart.lines] == ["20 s", "8 GiB"]
    assert chart.summary == "2 launches, initialised in 10 s to 20 s, 0 failed"


def test_a_launch_that_failed_is_marked_and_one_that_was_slow_is_not() -> None:
    failed = samples.launch(outcome=Outcome.FAILED, cause=Cause.HANG, init_seconds=None)
    later = samples.launch(faults={"hbm_oom_runtime": 60.0})
    slow = samples.launch(outcome=Outcome.SLOW, faults={Cause.SLOW_INIT.value: 41.0})
    assert [launch_tone(one) for one in (failed, later, slow, samples.launch())] == ["bad", "bad", "warn", "good"]
    assert [launch_words(one) for one in (failed, later, slow)] == ["failed: hang", "ok, then hbm_oom_runtime", "slow"]
    chart = launch_chart([failed, later])
    assert chart is not None
    assert chart.bars[1].height > 0


def test_one_launch_is_no_picture_and_many_are_the_latest() -> None:
    assert launch_chart([samples.launch()]) is None
    chart = launch_chart([samples.launch(pid=number) for number in range(100)])
    assert chart is not None
    assert [bar.launch.pid for bar in chart.bars] == [*range(MOST - 1, -1, -1)]
    assert chart.bars[-1].x + chart.bars[-1].width <= 100


def test_numbers_that_logs_may_hold_stay_within_the_picture() -> None:
    for number in (math.inf, math.nan, 1e308, 0.0, -5.0):
        chart = launch_chart(
            [samples.launch(init_seconds=number, premapped_bytes=-1), samples.launch(premapped_bytes=2**200)]
        )
        assert chart is not None
        for bar in chart.bars:
            assert 0 <= bar.y <= bar.y + bar.height <= chart.height
            assert 0 <= bar.buffer_y <= bar.buffer_y + bar.buffer_height <= chart.height
