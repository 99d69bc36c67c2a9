"""Steps as they are seen: sums that stay exact, a bounded number of spans, and pauses among ordinary steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpuwatch.goodput.recorder import MAX_PAUSES, MAX_RUNS, MAX_SPANS, StepRecorder
from tpuwatch.model.goodput import StepRun
from tpuwatch.model.progress import ProgressSource, TrainingLoop

LOOP = TrainingLoop(ProgressSource.OUTPUT, "job.log", None, "", 100.0, 1, 100.0, 100.0)


def at(step: int, time: float, **changes: object) -> TrainingLoop:
    return replace(LOOP, step=step, stepped=time, heard=time, **changes)  # type: ignore[arg-type] # tests name fields


def whole(run: StepRun) -> float:
    """All seconds of a run."""
    spans = sum(span.ordinary_seconds + span.pause_seconds for span in run.spans)
    return spans + sum(pause.seconds for pause in run.pauses)


def recorded(times: list[float]) -> StepRun:
    """The run of a loop that made its steps at these times."""
    recorder = StepRecorder(0.0)
    for step, time in enumerate(times, 1):
        recorder.look([at(step, time)])
    [run] = recorder.runs()
    return run


def test_a_pause_is_kept_by_itself_and_the_rest_is_ordinary() -> None:
    times = [100.0 + 2 * step for step in range(50)]
    times += [times[-1] + 62.0 + 2 * step for step in range(50)]
    run = recorded(times)
    [pause] = run.pauses
    assert (pause.step, pause.seconds, pause.until) == (51, 60.0, times[50])
    assert (run.step_seconds, run.step, run.looks, run.first_step) == (2.0, 100, 99, 1)
    assert whole(run) == pytest.approx(times[-1] - times[0])


def test_steps_that_all_become_slow_are_no_pauses_for_long() -> None:
    times = [100.0 + step for step in range(100)]
    times += [times[-1] + 5.0 * (step + 1) for step in range(400)]
    run = recorded(times)
    assert len(run.pauses) <= 16  # half of what the running median remembers
    assert whole(run) == pytest.approx(times[-1] - times[0])


def test_many_steps_in_a_look_that_are_a_bit_slower_are_no_pause() -> None:
    recorder = StepRecorder(0.0)
    for look in range(100):
        recorder.look([at(20 * look + 1, 100.0 + look + 0.12 * max(0, look - 50))])
    [run] = recorder.runs()
    assert (run.pauses, run.stride) == ((), 20)


def test_spans_are_bounded_and_lose_no_second() -> None:
    recorder, now, step = StepRecorder(0.0), 100.0, 1
    for number in range(120_000):
        now, step = now + (6.0 if number % 700 else 200.0), step + 1
        recorder.look([at(step, now)])
    [run] = recorder.runs()
    assert len(run.spans) <= MAX_SPANS
    assert len(run.pauses) <= MAX_PAUSES
    assert whole(run) == pytest.approx(now - run.began)
    assert sum(span.steps for span in run.spans) == run.step - run.first_step


def test_more_pauses_than_are_kept_are_counted_with_their_spans() -> None:
    times, now = [], 100.0
    for number in range(40 * (MAX_PAUSES + 20)):
        now += 20.0 + number / 1000 if number % 40 == 20 else 1.0
        times.append(now)
    run = recorded(times)
    assert len(run.pauses) == MAX_PAUSES
    assert sum(span.pause_seconds for span in run.spans) > 0
    assert whole(run) == pytest.approx(times[-1] - times[0])


def test_steps_that_begin_again_are_another_run_that_continues() -> None:
    recorder = StepRecorder(0.0)
    for epoch in range(2):
        for step in range(1, 6):
            recorder.look([at(step, 100.0 + 10 * epoch + step, total=5)])
    first, second = recorder.changed()
    assert (first.step, first.done, first.continues) == (5, True, False)
    assert (second.step, second.done, second.continues) == (5, True, True)


def test_a_loop_that_is_done_may_go_on() -> None:
    recorder = StepRecorder(0.0)
    for loop, done in ((at(1, 100.0), False), (at(2, 101.0, done=True), True), (at(3, 160.0), False)):
        recorder.look([loop])
        assert [run.done for run in recorder.changed()] == [done]
        recorder.saved([LOOP])


def test_what_is_saved_is_not_given_again_until_it_changes() -> None:
    recorder = StepRecorder(0.0)
    recorder.look([at(1, 100.0)])
    assert len(recorder.changed()) == 1
    recorder.saved([LOOP])
    assert recorder.changed() == []
    recorder.look([at(2, 101.0)])
    assert [run.step for run in recorder.changed()] == [2]
    recorder.saved([])
    assert recorder.runs() == []


def test_the_number_of_loops_is_bounded() -> None:
    recorder = StepRecorder(0.0)
    recorder.look([at(1, 100.0, name=str(number)) for number in range(MAX_RUNS + 10)])
    assert len(recorder.runs()) == MAX_RUNS
