"""Loops by what is heard of them: when one is slow, bound by its input, or stands still, and when it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.model import Cause, StepReport
from tpuwatch.progress.tracker import (
    FORGET_SECONDS,
    LONGEST_SECONDS,
    MAX_LOOPS,
    MAX_OF_USER,
    ProgressTracker,
    TpuProcess,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

NOW = 1_790_000_000.0


class Run:
    """One process that sends a heartbeat for each step."""

    def __init__(self, tracker: ProgressTracker, *, name: str = "", pid: int = 7) -> None:
        self.tracker, self.name, self.pid = tracker, name, pid
        self.step, self.now = 0, NOW
        self.alive = True
        self.begun: list[Cause] = []

    def steps(self, number: int, seconds: float, waited: float = 0.0, **more: object) -> None:
        for _ in range(number):
            self.step += 1
            self.now += seconds
            said = StepReport(self.step, step_seconds=seconds, input_seconds=waited, **more)  # type: ignore[arg-type]
            assert self.tracker.heartbeat(self.name, said, pid=self.pid, process=1, user="alice", steps=1, at=self.now)
            self.tick(0.0)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.begun += [fault.cause for fault in self.tracker.tick(self.now, self.is_there)]

    def is_there(self, pid: int, process: Hashable) -> bool:
        return self.alive and (pid, process) == (self.pid, 1)


def tracker() -> ProgressTracker:
    return ProgressTracker(stall_seconds=600.0)


def test_slow_steps_are_one_fault_until_they_are_as_before() -> None:
    run = Run(tracker())
    run.steps(30 * 60, 1.0)
    assert run.begun == []
    run.steps(20 * 60, 1.12)
    assert run.begun == [Cause.SLOW_STEPS]
    (loop,) = run.tracker.loops
    assert (loop.step_seconds, round(loop.usual_step_seconds or 0.0, 6)) == (1.12, 1.0)
    assert loop.slowdown is not None
    assert abs(loop.slowdown.step - 1800) <= 60
    assert "1.12 s a step, 12 % slower since step 1" in loop.sentence(run.now)
    assert "usual" not in loop.sentence(run.now)
    run.steps(15 * 60, 1.0)
    assert run.tracker.loops[0].faults == ()
    assert run.tracker.loops[0].slowdown is None
    run.steps(25 * 60, 1.12)
    assert run.begun == [Cause.SLOW_STEPS] * 2


def test_a_slow_down_that_grows_by_half_is_told_again() -> None:
    run = Run(tracker())
    run.steps(300, 60.0)
    run.steps(200, 66.0)
    run.steps(200, 75.0)
    assert run.begun == [Cause.SLOW_STEPS] * 2
    (loop,) = run.tracker.loops
    assert loop.slowdown is not None
    assert round(loop.slowdown.slower, 2) == 0.25


def test_a_gradual_slow_down_is_shown_and_is_no_fault() -> None:
    run = Run(tracker())
    run.steps(400, 60.0)
    for number in range(2000):
        run.steps(1, 60.0 * (1 + 0.25 * number / 2000))
    (loop,) = run.tracker.loops
    assert run.begun == []
    assert loop.slowdown is not None
    assert loop.slowdown.gradual
    assert "slower, gradually, since step" in loop.sentence(run.now)


def test_a_small_difference_or_a_slow_beginning_is_none() -> None:
    run = Run(tracker())
    run.steps(3, 60.0)  # compiles
    run.steps(30 * 60, 1.0)
    run.steps(40 * 60, 1.03)
    assert run.begun == []


def test_nothing_is_slow_where_that_is_switched_off() -> None:
    off = ProgressTracker(stall_seconds=600.0, slower=0.0)
    run = Run(off)
    run.steps(300, 60.0)
    run.steps(200, 75.0)
    assert run.begun == []
    assert run.tracker.loops[0].slowdown is None
    off = ProgressTracker(stall_seconds=600.0, slower=0.0)
    run = Run(off)
    run.steps(300, 60.0)
    off.set_slower(0.05)
    run.steps(160, 75.0)
    assert run.begun == [Cause.SLOW_STEPS]
    off.set_slower(0.0)
    run.steps(1, 75.0)
    assert run.tracker.loops[0].faults == ()


def test_a_loop_that_waits_for_a_fifth_of_its_time_is_bound_by_its_input() -> None:
    run = Run(tracker())
    run.steps(100, 1.0, 0.15)
    assert run.begun == []
    run.steps(60, 1.0, 0.4)
    assert run.begun == [Cause.INPUT_BOUND]
    run.steps(70, 1.0, 0.1)
    assert run.tracker.loops[0].faults == ()


def test_a_loop_that_stands_still_while_its_process_lives() -> None:
    run = Run(tracker())
    run.steps(5, 1.0)
    run.tick(599.0)
    assert run.begun == []
    run.tick(2.0)
    assert run.begun == [Cause.STEPS_STALLED]
    run.steps(1, 1.0)
    assert run.tracker.loops[0].faults == ()


def test_an_evaluation_may_take_as_long_again_as_one_before() -> None:
    run = Run(tracker())
    run.steps(5, 1.0)
    run.tick(580.0)
    run.steps(5, 1.0)  # the evaluation took 581 s
    run.tick(1100.0)
    assert run.begun == []
    run.tick(70.0)
    assert run.begun == [Cause.STEPS_STALLED]


def test_after_the_first_step_it_is_not_known_how_long_one_takes() -> None:
    run = Run(tracker())
    heard = StepReport(1)
    assert run.tracker.heartbeat("", heard, pid=7, process=1, user="alice", steps=1, at=NOW)
    run.tick(LONGEST_SECONDS - 1.0)  # a second compilation
    assert run.begun == []
    run.tick(2.0)
    assert run.begun == [Cause.STEPS_STALLED]


def test_slow_steps_may_take_their_time() -> None:
    run = Run(tracker())
    run.steps(5, 100.0)
    run.tick(1900.0)
    assert run.begun == []
    run.tick(200.0)
    assert run.begun == [Cause.STEPS_STALLED]


def test_a_loop_that_is_done_or_whose_process_has_ended_does_not_stand_still() -> None:
    done = Run(tracker())
    done.steps(5, 1.0)
    done.steps(1, 1.0, done=True)
    done.tick(2000.0)
    ended = Run(tracker())
    ended.steps(5, 1.0)
    ended.alive = False
    ended.tick(2000.0)
    assert done.begun == ended.begun == []
    assert not done.tracker.loops[0].is_running
    assert not ended.tracker.loops[0].is_running
    ended.tick(FORGET_SECONDS)
    assert ended.tracker.loops == ()


def test_a_number_that_is_none_is_a_fault_once() -> None:
    run = Run(tracker())
    run.steps(3, 1.0, nan=("loss",))
    assert run.begun == [Cause.NUMERIC_FAULT]


def test_processes_and_names_are_apart() -> None:
    shared = tracker()
    Run(shared, pid=7).steps(3, 1.0)
    Run(shared, pid=8).steps(5, 1.0)
    Run(shared, pid=8, name="critic").steps(9, 1.0)
    assert sorted((one.pid or 0, one.name, one.step) for one in shared.loops) == [
        (7, "", 3),
        (8, "", 5),
        (8, "critic", 9),
    ]


def test_loops_of_a_user_and_in_all_are_bounded_and_ended_ones_make_room() -> None:
    shared = tracker()

    def say(pid: int, user: str) -> bool:
        return shared.heartbeat("", StepReport(1), pid=pid, process=1, user=user, steps=0, at=NOW)

    assert all(say(pid, "mallory") for pid in range(1, MAX_OF_USER + 1))
    assert not say(1000, "mallory")
    assert say(1001, "alice")
    assert all(say(2000 + number, f"user{number}") for number in range(MAX_LOOPS - MAX_OF_USER - 1))
    assert not say(9000, "bob")
    shared.tick(NOW + 1, lambda pid, _: pid != 2000)
    assert say(9000, "bob")
    assert 2000 not in [loop.pid for loop in shared.loops]


def test_output_tells_steps_and_the_time_between_them() -> None:
    lines = tracker()
    for step in range(10):
        lines.output("/jobs/train.log", StepReport(100 * step), pid=None, process=None, at=NOW + 50 * step)
    (loop,) = lines.loops
    assert (loop.name, loop.step, loop.step_seconds, loop.stepped) == ("train.log", 900, 0.5, NOW + 450)


def test_another_run_in_the_same_output_starts_over_and_another_epoch_of_a_bar_does_not() -> None:
    lines = tracker()
    for at, step in enumerate((900, 1000, 50)):
        lines.output("/jobs/a.log", StepReport(step, step_seconds=1.0), pid=None, process=None, at=NOW + at)
        lines.output("/jobs/b.log", StepReport(step, 1000, step_seconds=1.0), pid=None, process=None, at=NOW + at)
    assert {loop.name: loop.began for loop in lines.loops} == {"a.log": NOW + 2, "b.log": NOW}


def test_output_of_an_unknown_process_never_stands_still() -> None:
    lines = tracker()
    lines.output("/jobs/a.log", StepReport(1), pid=None, process=None, at=NOW)
    assert lines.tick(NOW + 3000, lambda _pid, _process: True) == []


def stands_still(lines: ProgressTracker, *ended: int) -> list[str]:
    """Names of loops that stand still half an hour later, when these processes have ended."""
    lines.tick(NOW + 1800, lambda pid, _process: pid not in ended)
    return [loop.name for loop in lines.loops if Cause.STEPS_STALLED in loop.faults]


def test_output_stands_still_while_all_that_held_the_tpu_at_its_last_step_live() -> None:
    held = [TpuProcess(7, "a", NOW - 60), TpuProcess(8, "b", NOW - 60), TpuProcess(9, "a tool", NOW + 1)]
    for holders, ended, stalled in ((held, (9,), True), (held, (8,), False), (held[:1], (), True), ([], (), False)):
        lines = tracker()
        for step in range(3):
            report = StepReport(step, 1000)
            lines.output("/x/a.log", report, pid=None, process=None, at=NOW + step, holders=holders)
        assert stands_still(lines, *ended) == ["a.log"] * stalled


def test_a_finished_loop_does_not_stand_still_though_its_process_lives() -> None:
    lines = tracker()
    for step in range(1, 4):
        report = StepReport(step, 3, step_seconds=1.0)
        lines.output("/x/a.log", report, pid=None, process=None, at=NOW, holders=[TpuProcess(7, "a", NOW - 60)])
    assert stands_still(lines) == []


def test_a_program_that_steps_in_another_loop_has_left_the_one_before() -> None:
    lines = tracker()
    for name, begun in (("first.log", 0), ("second.log", 100)):
        for step in range(3):
            at = NOW + begun + step
            held = [TpuProcess(7, "a", NOW - 60)]
            lines.output(f"/x/{name}", StepReport(step, 1000), pid=None, process=None, at=at, holders=held)
    assert stands_still(lines) == ["second.log"]
    lines.heartbeat("", StepReport(9), pid=7, process="a", user="alice", steps=1, at=NOW + 1750)
    assert stands_still(lines) == []


def test_a_loop_of_an_unknown_process_runs_as_long_as_a_step_may_take_and_is_forgotten_later() -> None:
    heard = tracker()
    heard.output("/x/a.log", StepReport(9, step_seconds=0.1), pid=None, process=None, at=NOW)
    running = []
    for seconds in (599.0, 601.0, FORGET_SECONDS):
        heard.tick(NOW + seconds, lambda *_: False)
        running += [loop.is_running for loop in heard.loops]
    assert running == [True, False, False]
    heard.output("/x/a.log", StepReport(10, step_seconds=0.1), pid=None, process=None, at=NOW + FORGET_SECONDS)
    heard.tick(NOW + FORGET_SECONDS, lambda *_: False)
    assert [loop.is_running for loop in heard.loops] == [True]
    heard.tick(NOW + 2 * FORGET_SECONDS + 1, lambda *_: False)
    assert heard.loops == ()


def test_a_loop_that_is_done_is_forgotten_though_its_process_lives() -> None:
    run = Run(tracker())
    run.steps(3, 1.0, done=True)
    run.tick(FORGET_SECONDS)
    assert [loop.is_running for loop in run.tracker.loops] == [False]
    run.tick(1.0)
    assert run.tracker.loops == ()
