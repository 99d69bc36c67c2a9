"""Pauses that take more of the time than before."""

from __future__ import annotations

import json

from tpuwatch.progress.blocks import Block
from tpuwatch.progress.pauses import PauseDetector


def after(*paused: float) -> PauseDetector:
    """The detector after blocks of a minute with so many seconds in pauses."""
    detector = PauseDetector(0.05)
    for number, seconds in enumerate(paused):
        detector.add(Block(60.0 * number, number, 1.0, 60.0 + seconds, seconds))
    return detector


QUIET = [0.0, 0.0, 6.0] * 120  # six hours: 3 %
LONGER = [0.0, 0.0, 24.0] * 40  # two hours: 12 %


def test_longer_pauses_are_told_with_their_onset() -> None:
    alarm = after(*QUIET, *LONGER).alarm
    assert alarm is not None
    assert abs(alarm.step - 360) <= 5
    assert 0.05 < alarm.more < 0.12


def test_it_is_over_when_pauses_are_as_before() -> None:
    assert after(*QUIET, *LONGER, *QUIET[:150]).alarm is None


def test_one_long_pause_is_an_event_and_no_slow_down() -> None:
    assert after(*QUIET, 1200.0, *QUIET[:60]).alarm is None


def test_what_is_usual_is_none() -> None:
    assert after(*[0.0, 0.0, 24.0] * 300).alarm is None
    evaluations = ([0.0] * 90 + [600.0]) * 8
    assert after(*evaluations).alarm is None


def test_nothing_is_told_in_the_first_hours() -> None:
    assert after(*QUIET[:100], *LONGER).alarm is None


def test_it_goes_on_from_its_stored_state() -> None:
    detector = PauseDetector.of(json.loads(json.dumps(after(*QUIET).state())), 0.05)
    for number, seconds in enumerate(LONGER, 1000):
        detector.add(Block(60.0 * number, number, 1.0, 60.0 + seconds, seconds))
    assert detector.alarm is not None
    again = PauseDetector.of(json.loads(json.dumps(detector.state())), 0.05)
    assert again.alarm is not None
    assert again.alarm.step == detector.alarm.step
