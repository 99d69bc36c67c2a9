"""A training whose truth is known: launches with crashes, hangs, slow steps, evaluations, and a machine that is away.

The generator is seeded and shares nothing with the code under test: it makes steps one by one and books each second.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tpuwatch.goodput.recorder import StepRecorder
from tpuwatch.model.goodput import NodeSpan, NodeSpanKind, StepRun, TrainingState
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.progress import ProgressSource, TrainingLoop

START = 1_790_000_000.0
State = TrainingState


@dataclass(frozen=True)
class Plan:
    """The course of a training. Steps are numbered from 1."""

    seed: int = 0
    steps: int = 4000
    seconds: float = 3.0  # a step
    noise: float = 0.01
    crashes: tuple[int, ...] = (900, 1750, 2900)  # the last step of each launch but the last one
    graceful: tuple[int, ...] = ()  # of these, those that save before they end: nothing is repeated
    save_every: int = 200
    save_seconds: float = 12.0
    evaluate_every: int = 500
    evaluate_seconds: float = 90.0
    slow: tuple[int, int, float] = (2000, 2400, 1.3)  # from, until, times
    hang_at: int | None = 1234  # in the second launch
    hang_seconds: float = 1200.0
    hang_ends: bool = False  # the hang is the end of that launch
    away_after: int | None = 1  # the launch after which the machine is away
    away_seconds: float = 1800.0
    print_every: int = 1  # steps
    one_loop: bool = False  # to tpuwatch all launches are one loop, as long as their steps go on


@dataclass
class Simulated:
    """The training as tpuwatch sees it, and the truth."""

    launches: list[Launch] = field(default_factory=list)
    runs: list[StepRun] = field(default_factory=list)
    spans: list[NodeSpan] = field(default_factory=list)
    truth: dict[TrainingState, float] = field(default_factory=lambda: dict.fromkeys(TrainingState, 0.0))
    now: float = START

    @property
    def total(self) -> float:
        return self.now - START

    def pass_in(self, state: TrainingState, seconds: float) -> None:
        """The training was in that state for so long."""
        self.truth[state] += seconds
        self.now += seconds


def simulate(plan: Plan) -> Simulated:
    """Play the plan."""
    dice, found = random.Random(plan.seed), Simulated()
    seen = _Seen(plan)
    saved, number, boot = 0, 0, START - 1000.0
    while saved < plan.steps:
        number += 1
        began = found.now
        found.pass_in(State.INITIALISATION, init := dice.uniform(20, 40))
        found.pass_in(State.STARTUP, dice.uniform(35, 75) + dice.uniform(60, 120))
        end = plan.crashes[number - 1] if number <= len(plan.crashes) else plan.steps
        saved, hung = _Steps(plan, found, dice, seen, is_second=number == 2).make(saved, end)
        done = saved >= plan.steps
        if not done and not hung:
            found.pass_in(State.ENDING, dice.uniform(5, 20))
        ended = found.now
        launch = Launch(100 + number, began, init_seconds=init, outcome=Outcome.OK, workload="job", ended=ended)
        launch.boot_id, launch.last_heard, launch.exit_status = str(boot), ended, 0 if done else 1
        found.launches.append(launch)
        if not done:
            found.pass_in(State.DOWN, dice.uniform(90, 230))
        if plan.away_after == number:
            found.spans.append(NodeSpan(NodeSpanKind.WATCHED, boot, found.now, str(boot)))
            found.pass_in(State.CAPACITY, plan.away_seconds)
            boot = found.now
            found.pass_in(State.DOWN, dice.uniform(30, 60))
    found.spans.append(NodeSpan(NodeSpanKind.WATCHED, boot, found.now, str(boot)))
    found.runs = seen.runs
    return found


class _Seen:
    """What tpuwatch sees: the last printed step, once a second, of a loop that is another one if it begins again."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._recorder = StepRecorder(START - 1000.0)
        self._loop: TrainingLoop | None = None
        self._looked = float("-inf")
        self._ended: list[StepRun] = []

    def made(self, step: int, now: float) -> None:
        if step % self._plan.print_every or now - self._looked < 1.0:
            return
        self._looked = now
        if self._loop is not None and step < self._loop.step - 10:
            self._end()
        began = now if self._loop is None else self._loop.began
        self._loop = TrainingLoop(ProgressSource.OUTPUT, "job.log", None, "", began, step, now, now)
        self._recorder.look([self._loop])

    def launch_ends(self) -> None:
        if not self._plan.one_loop:
            self._end()

    def _end(self) -> None:
        self._ended += self._recorder.changed()
        self._recorder.saved(())
        self._loop = None

    @property
    def runs(self) -> list[StepRun]:
        return [*self._ended, *self._recorder.changed()]


class _Steps:
    """The steps of one launch."""

    def __init__(self, plan: Plan, found: Simulated, dice: random.Random, seen: _Seen, *, is_second: bool) -> None:
        self._plan, self._found, self._dice, self._is_second = plan, found, dice, is_second
        self._seen = seen
        self._booked: list[tuple[int, TrainingState, float]] = []  # by the step that a second belongs to

    def make(self, saved: int, end: int) -> tuple[int, bool]:
        """Make the steps after `saved` until `end`; returns the last one that is kept, and whether it hung."""
        plan, kept, hung = self._plan, saved, False
        for step in range(saved + 1, end + 1):
            if self._is_second and step == plan.hang_at:
                now = self._found.now
                self._found.spans.append(NodeSpan(NodeSpanKind.STUCK, now + 600, now + plan.hang_seconds))
                self._found.pass_in(State.STUCK, plan.hang_seconds)
                if hung := plan.hang_ends:
                    break
            self._make(step)
            if step % plan.save_every == 0 or (step == end and step in (*plan.graceful, plan.steps)):
                kept = step
            if step < end:
                self._pause_after(step)
        for step, state, seconds in self._booked:
            self._found.truth[state if step <= kept else State.REPEATED] += seconds
        self._seen.launch_ends()
        return kept, hung

    def _make(self, step: int) -> None:
        plan = self._plan
        seconds = plan.seconds * (1.0 + self._dice.gauss(0.0, plan.noise))
        if plan.slow[0] <= step < plan.slow[1]:
            self._book(step, State.SLOW, seconds * (plan.slow[2] - 1.0))
        self._book(step, State.PRODUCTIVE, seconds)
        self._seen.made(step, self._found.now)

    def _pause_after(self, step: int) -> None:
        plan = self._plan
        for every, seconds in ((plan.save_every, plan.save_seconds), (plan.evaluate_every, plan.evaluate_seconds)):
            if step % every == 0:
                self._book(step + 1, State.PAUSE, seconds)

    def _book(self, step: int, state: TrainingState, seconds: float) -> None:
        self._booked.append((step, state, seconds))
        self._found.now += seconds
