"""The detector on a table of synthetic series, with seeds: what is told, how soon, and what is not."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tpuwatch.progress.blocks import Block
from tpuwatch.progress.detector import Alarm, Detector

SEEDS = range(5)
Shape = Callable[[int], float]  # the log of how many times the baseline a block takes


class Case(NamedTuple):
    """A series of blocks, and what is told of it."""

    shape: Shape
    sigma: float
    blocks: int
    told: tuple[int, int] | None  # the first and last block in which the alarm may be told; None: none is
    slower: float = 0.0
    gradual: bool = False


def step(size: float, first: int = 120, last: int = 10_000) -> Shape:
    """Slower by `size` from one block to another."""
    return lambda block: math.log1p(size) if first <= block < last else 0.0


def ramp(size: float, blocks: int, first: int = 120) -> Shape:
    """Slower by `size`, little by little."""
    return lambda block: math.log1p(size * min(1.0, max(0, block - first) / blocks))


def offset(size: float, then: float) -> Shape:
    """A small lasting offset, and a slow-down long after it."""
    return lambda block: math.log1p(then) if block >= 400 else math.log1p(size) if block >= 60 else 0.0


def two_lengths(size: float, blocks: int) -> Shape:
    """Steps of two lengths, in turns of so many blocks: a fourth of the blocks is slow."""
    return lambda block: math.log1p(size) if (block // blocks) % 4 == 3 else 0.0


def by_day(size: float) -> Shape:
    """Slower by day: blocks of a minute."""
    return lambda block: size * math.sin(2 * math.pi * block / 1440)


CASES = {
    "nothing": Case(lambda _: 0.0, 0.01, 3000, None),
    "much noise": Case(lambda _: 0.0, 0.05, 3000, None),
    "5 %": Case(step(0.055), 0.004, 200, (134, 150), 0.055),
    "10 %": Case(step(0.10), 0.01, 200, (132, 146), 0.10),
    "20 %": Case(step(0.20), 0.01, 200, (128, 134), 0.20),
    "22 % for 87 min under noise of 4.85 %": Case(step(0.22, last=207), 0.0485, 260, (128, 150), 0.22),
    "21 % after an offset of 2 %": Case(offset(0.02, 0.21), 0.006, 500, (408, 416), 0.20),
    "six minutes": Case(step(0.30, last=126), 0.01, 300, None),
    "3 %": Case(step(0.03), 0.006, 600, None),
    "little by little": Case(ramp(0.25, 240), 0.006, 400, (150, 360), 0.10, gradual=True),
    "little by little, not much": Case(ramp(0.07, 240), 0.006, 400, None),
    "steps of two lengths": Case(two_lengths(0.08, 5), 0.004, 3000, None),
    "slower by day": Case(by_day(0.035), 0.006, 5000, None),
}


def alarms(case: Case, seed: int) -> list[tuple[int, Alarm]]:
    """The alarms, each with the number of the block in which it is told."""
    rng, detector, found = random.Random(seed), Detector(0.05), []
    told = 0.0
    for number in range(case.blocks):
        seconds = 2.0 * math.exp(rng.gauss(0.0, case.sigma) + case.shape(number))
        detector.add(Block(60.0 * (number + 1), number + 1, seconds, 60.0, 0.0))
        if detector.alarm is not None and detector.alarm.told != told:
            told = detector.alarm.told
            found.append((number, detector.alarm))
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_what_is_told_of_a_series(name: str, seed: int) -> None:
    case = CASES[name]
    found = alarms(case, seed)
    if case.told is None:
        assert found == []
        return
    number, alarm = found[0]
    assert case.told[0] <= number <= case.told[1]
    assert alarm.gradual is case.gradual
    if not case.gradual:
        assert alarm.slower == pytest.approx(case.slower, abs=max(0.02, case.sigma))
        assert abs(alarm.step - (400 if "offset" in name else 120)) <= 3


def detector_after(shape: Shape, blocks: int, **more: float) -> Detector:
    """The detector after so many blocks without noise."""
    detector = Detector(0.05)
    for number in range(blocks):
        detector.add(Block(60.0 * number, number, 2.0 * math.exp(shape(number)), 60.0, 0.0, **more))
    return detector


def test_a_slow_down_is_over_after_ten_blocks_below_half_of_the_effect() -> None:
    passing = step(0.2, last=200)
    assert detector_after(passing, 204).alarm is not None
    assert detector_after(passing, 212).alarm is None


def test_more_tokens_in_a_step_are_no_slow_down() -> None:
    detector = Detector(0.05)
    for number in range(200):
        longer = 1.5 if number >= 100 else 1.0
        detector.add(Block(60.0 * number, number, 2.0 * longer, 60.0, 0.0, tokens=1e6 * longer))
    assert detector.alarm is None
    assert detector.baseline_seconds == pytest.approx(3.0)


def test_a_block_of_pauses_alone_is_left_out() -> None:
    detector = detector_after(lambda _: 0.0, 100)
    before = detector.state()
    detector.add(Block(1e6, 1, None, 60.0, 60.0))
    assert detector.state() == before


def test_the_pace_since_the_onset_is_the_new_baseline_once_it_is_accepted() -> None:
    detector = detector_after(step(0.2), 160)
    assert detector.alarm is not None
    detector.accept(detector.alarm)
    assert detector.alarm is None
    for number in range(160, 200):
        detector.add(Block(60.0 * number, number, 2.4, 60.0, 0.0))
    assert detector.alarm is None
    assert detector.baseline_seconds == pytest.approx(2.4)


@pytest.mark.parametrize("blocks", [2, 15, 100, 125, 160, 700])
def test_a_detector_goes_on_from_its_stored_state(blocks: int) -> None:
    shape = step(0.1, last=640)
    one = detector_after(shape, blocks)
    other = Detector.of(json.loads(json.dumps(one.state())), 0.05)
    for number in range(blocks, 1000):
        for detector in (one, other):
            detector.add(Block(60.0 * number, number, 2.0 * math.exp(shape(number)), 60.0, 0.0))
        assert (one.alarm is None) == (other.alarm is None)
    assert one.baseline_seconds == pytest.approx(other.baseline_seconds, rel=1e-4)


@pytest.mark.parametrize("state", [{}, {"alarm": [1]}, {"mean": "x"}])
def test_what_is_no_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError, TypeError)):
        Detector.of({**Detector(0.05).state(), **state} if state else {}, 0.05)
