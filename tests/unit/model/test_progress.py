"""The line about a training loop."""

from __future__ import annotations

import pytest

from tpuwatch.model import Cause, ProgressSource, Slowdown, SlowdownKind, TrainingLoop

NOW = 1_795_183_200.0  # 2026-11-20 14:00 UTC
SLOW = Slowdown(SlowdownKind.STEPS, NOW - 2460, 79_050, 0.12, NOW - 1500)


def loop(slowdown: Slowdown | None, *faults: Cause, done: bool = False) -> TrainingLoop:
    return TrainingLoop(
        ProgressSource.OUTPUT, "train.log", None, "", NOW - 90_000, 81_200, NOW - 2, NOW - 2,
        step_seconds=2.31, usual_step_seconds=2.06, faults=faults, slowdown=slowdown, done=done,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("slowdown", "words"),
    [
        (None, ""),
        (SLOW, ", 12 % slower since step 79050 (13:19, 41 min ago)"),
        (
            Slowdown(SlowdownKind.STEPS, NOW - 90_000, 79_050, 0.214, NOW, gradual=True),
            ", 21 % slower, gradually, since step 79050 (2026-11-19 13:00:00 UTC, 25 h ago)",
        ),
        (
            Slowdown(SlowdownKind.PAUSES, NOW - 3600, 79_050, 0.07, NOW),
            ", 7 % more of the time in pauses since step 79050 (13:00, 1 h ago)",
        ),
    ],
)
def test_a_loop_says_how_much_slower_it_is_and_since_when(slowdown: Slowdown | None, words: str) -> None:
    said = loop(slowdown, *([Cause.SLOW_STEPS] if slowdown else [])).sentence(NOW)
    assert said == f"train.log: step 81200, 2 s ago; 2.31 s a step{words}"


def test_a_loop_that_has_ended_is_not_said_to_be_slow() -> None:
    assert loop(SLOW, done=True).sentence(NOW) == "train.log: ended; last step 81200, 2 s ago"
