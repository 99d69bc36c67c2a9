"""What `tpuwatch top` shows, and what its keys change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.standins.http_daemon import answering
from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.progress import ProgressSource, TrainingLoop
from tpuwatch.model.signals import Chip, Runtime, RuntimePort
from tpuwatch.model.verdict import Verdict
from tpuwatch.top import Reading, TopView, WatchedDaemon, read_daemon
from tpuwatch.top.text import cells
from tpuwatch.web.client import DaemonAddress

CLOCK = ManualClock()
FLEET = (Verdict.HEALTHY, Verdict.IDLE, Verdict.NODE_STUCK, Verdict.UNKNOWN)


def fleet(size: int) -> SampleView:
    others = [samples.node(f"train-{number}", FLEET[number % 4]) for number in range(2, size + 1)]
    return SampleView(samples.watching(), watched=[samples.node(own=True), *others])


def read(view: SampleView, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    with answering(view, directory, monkeypatch) as address:
        return read_daemon(DaemonAddress(address), CLOCK)


class Shown:
    """A view at a size, and the text of it."""

    def __init__(self, *readings: Reading, size: tuple[int, int] = (80, 24)) -> None:
        self.readings = readings
        self.size = size
        self.view = TopView()
        self.lines = self._draw()

    def press(self, *keys: str) -> str:
        for key in keys:
            assert self.view.press(key)
            self.lines = self._draw()
        return "\n".join(self.lines)

    def _draw(self) -> list[str]:
        lines = self.view.frame(self.readings, *self.size, CLOCK.monotonic())
        assert len(lines) == self.size[1]
        assert max(cells(line.text) for line in lines) <= self.size[0]
        return [line.text for line in lines]

    @property
    def names(self) -> list[str]:
        return [line.split()[0] for line in self.lines if line.startswith("train-") and ":" not in line.split()[0]]


def test_a_fleet_is_a_table_that_is_sorted_and_filtered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(read(fleet(8), tmp_path, monkeypatch))
    assert shown.names == [f"train-{number}" for number in (2, 6, 3, 7, 5, 1, 4, 8)]
    shown.press("s")
    assert shown.names == [f"train-{number}" for number in range(1, 9)]
    shown.press("r")
    assert shown.names[0] == "train-8"
    shown.press("/", *"STUCK")
    assert shown.names == ["train-6", "train-2"]
    shown.press("backspace", "enter", "s")  # which is no letter of the filter any more; among equals by name
    assert shown.names == ["train-2", "train-6"]
    assert "No node has these words" in shown.press("/", "x")
    assert len(Shown(*shown.readings).press("/", "x", "escape").splitlines()) == 24
    assert "8 of 8" in shown.press("escape")


def test_the_chosen_row_is_opened_and_stays_chosen_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(read(fleet(8), tmp_path, monkeypatch))
    shown.press("down", "down", "s")
    assert "train-3: unknown since" in shown.press("enter").replace("us-central2-b/", "")
    assert "8 of 8" in shown.press("escape")
    assert "Chip HBM" in shown.press("home", "enter")  # the own node has all parts
    assert "8 of 8" in shown.press("?", "x", "tab")


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (20, 5), (1, 1), (3, 2)])
def test_a_long_table_scrolls_at_each_size(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(read(fleet(300), tmp_path, monkeypatch), size=size)
    for key in ("s", "end", "page up", "down", "home", "page down", "?", "q", "enter", "end", "page up", "up", "tab"):
        shown.press(key)
    if size == (80, 24):
        shown.press("end")
        assert shown.names[-1] == "train-99"
        assert not shown.view.press("q")


def test_a_node_of_two_daemons_is_there_once_and_a_silent_daemon_is_no_bad_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = read(fleet(3), tmp_path, monkeypatch)
    own = samples.node("train-2", Verdict.COMPILING, own=True)
    other = read(SampleView(samples.watching(node=own), watched=[own]), tmp_path, monkeypatch)
    shown = Shown(watcher, other, Reading("10.0.0.9:9478", error="no daemon answers"))
    assert "4 of 4" in shown.lines[0]
    assert [line for line in shown.lines if line.startswith("train-2 ") and "compiling" in line]
    assert "1 without answer" in shown.lines[0]
    assert [line for line in shown.lines if line.startswith("10.0.0.9:9478") and "no answer" in line]


def test_what_an_ended_daemon_said_last_is_marked_as_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with answering(SampleView(samples.watching(Verdict.RUNTIME_STUCK)), tmp_path, monkeypatch) as address:
        daemon = WatchedDaemon(DaemonAddress(address), 2.0, clock)
        assert daemon.turn() == 2.0
    clock.advance(75)
    assert daemon.turn() == 2.0
    text = "\n".join(line.text for line in TopView().frame([daemon.reading], 80, 40, clock.monotonic()))
    assert "no daemon answers at" in text
    assert "What follows was so 1m15s ago." in text
    assert "train-1: runtime_stuck" in text


def test_a_daemon_that_takes_long_to_answer_is_asked_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()

    class Slow(SampleView):
        def nodes(self) -> list[samples.JudgedNode]:
            clock.advance(3.0)
            return super().nodes()

    with answering(Slow(samples.watching()), tmp_path, monkeypatch) as address:
        assert WatchedDaemon(DaemonAddress(address), 2.0, clock).turn() >= 30.0


def test_no_text_of_a_daemon_reaches_the_screen_as_it_is_not_printable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\n語語\u0301"
    own = samples.node(verdict=Verdict.NODE_STUCK, own=True)
    view = SampleView(
        samples.watching(
            node=own,
            host=samples.host(holders=(samples.Holder(1, bad, bad, None, (bad,)),)),
            runtime=Runtime((RuntimePort(8431, (Chip(bad, 5.0, 0.0, 7.0, -1.0),)),)),
        ),
        wrong=[samples.finding(summary=bad, remedy=(samples.Remedy(bad, bad),))],
        started=[samples.launch(workload=bad)],
        watched=[own, samples.node(f"train-2{bad}", Verdict.GONE)],
    )
    reading = read(view, tmp_path, monkeypatch)
    for size in ((80, 60), (140, 40)):
        shown = Shown(reading, size=size)
        for lines in (
            shown.lines,
            shown.press("enter").splitlines(),
            shown.press("escape", "down", "enter").splitlines(),
        ):
            assert all(line.isprintable() for line in lines)
        assert "owned" in shown.press("escape")


def test_the_training_of_a_node_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = TrainingLoop(
        ProgressSource.OUTPUT, "job.log", None, "", samples.NOW - 60, 1200, samples.NOW - 1440, samples.NOW - 1440
    )
    shown = Shown(read(SampleView(samples.watching(training=(loop,))), tmp_path, monkeypatch))
    assert any(line.startswith(f"   Training: {loop.sentence(samples.NOW)}") for line in shown.lines)
    silent = replace(loop, silent=True)
    shown = Shown(read(SampleView(samples.watching(training=(silent,))), tmp_path, monkeypatch))
    assert any(line.startswith(f"   Last training: {silent.sentence(samples.NOW)}") for line in shown.lines)
