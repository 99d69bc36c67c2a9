"""Trials one after another, with children that follow a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.program.compiler import Compiler, NoAnswerError

ASSIGNED = (
    "Assigning buffers to module jit_step\n"
    "did not exceed memory limit for color 0 (4294967296 bytes vs limit of 14224981504 bytes).\n"
    "Global Core Count: 1\n"
)


class ScriptedChild:
    """Reports what it is told; a function among that is called."""

    def __init__(self, *reports: Any) -> None:
        self.process = self
        self.returncode = 0
        self.sent: list[Any] = []
        self.closed = False
        self._reports = reports

    def reports(self) -> Iterator[Any]:
        for one in self._reports:
            yield one() if callable(one) else one

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def close(self) -> bool:
        self.closed = True
        return True


def compiler(logs: Path, *children: ScriptedChild, on_stage: Callable[[str], None] = lambda _: None) -> Compiler:
    left = list(children)
    return Compiler(lambda: left.pop(0), logs, on_stage)  # type: ignore[arg-type,return-value]


def assigns(logs: Path) -> Callable[[], None]:
    def write() -> None:
        with (logs / "tpu_driver.h.u.log.INFO.20261123-100000.1").open("a") as file:
            file.write(ASSIGNED)

    return write


READY = {"stage": "ready"}
FITS = {"trial": {"batch": 8, "fits": True}}


def test_what_a_child_before_was_at_is_not_shown_of_the_next(tmp_path: Path) -> None:
    stages: list[str] = []
    first = ScriptedChild(READY, {"compiling": {"batch": 8}}, assigns(tmp_path), None)
    second = ScriptedChild(None, READY, FITS)
    tried = compiler(tmp_path, first, second, on_stage=stages.append)
    assert tried.trial({"batch": 8}, whole=False, last=True)["needed_bytes"] == 4 << 30
    assert any("4 GiB of HBM are assigned" in stage for stage in stages)
    assert first.closed
    stages.clear()
    tried.trial({"batch": 8}, whole=True)
    assert stages[0] == "fits with batch 8; start"


def test_a_child_does_all_trials_that_end(tmp_path: Path) -> None:
    child = ScriptedChild(READY, FITS, {"compiling": {"batch": 9, "devices": 1}}, {"trial": {"fits": True}})
    tried = compiler(tmp_path, child)
    assert tried.trial({"batch": 8}, whole=True) == {"batch": 8, "fits": True}
    assert tried.trial({"batch": 9}, whole=True) == {"batch": 9, "devices": 1, "fits": True}
    assert child.sent == [{"batch": 8}, {"batch": 9}]


def test_one_that_is_waited_for_is_left_to_go_on(tmp_path: Path) -> None:
    child = ScriptedChild(READY, {"compiling": {"batch": 8}}, assigns(tmp_path), None, None, FITS)
    assert "unfinished" not in compiler(tmp_path, child).trial({"batch": 8}, whole=True)


def test_a_child_that_ends_without_a_word_has_no_answer(tmp_path: Path) -> None:
    for reports in ((), (READY,), (READY, {"error": {"kind": "program"}})):
        with pytest.raises(NoAnswerError) as raised:
            compiler(tmp_path, ScriptedChild(*reports)).trial({"batch": 8}, whole=True)
        assert (raised.value.error is None) == (len(reports) < 2)


ENDS = {
    "arguments": {"f32[1024,1024]": 2, "s32[1024]": 1},
    "outputs": {"f32[1024,1024]": 2},
    "shared": {"f32[1024,1024]": 2},
}


def test_the_parts_of_the_memory_are_known_without_the_code(tmp_path: Path) -> None:
    child = ScriptedChild(READY, {"compiling": {"batch": 8}, "ends": ENDS}, assigns(tmp_path), None)
    trial = compiler(tmp_path, child).trial({"batch": 8}, whole=False, last=True, parts=True)
    assert (trial["arguments_bytes"], trial["outputs_bytes"], trial["shared_bytes"]) == (
        (8 << 20) + 4096,
        8 << 20,
        8 << 20,
    )
    assert trial["temporaries_bytes"] == (4 << 30) - (8 << 20) - 4096


def test_parts_that_are_not_known_without_the_code_are_waited_for(tmp_path: Path) -> None:
    reports = (READY, {"compiling": {"batch": 8}, "ends": None}, assigns(tmp_path), None, {"trial": {"fits": True}})
    trial = compiler(tmp_path, ScriptedChild(*reports)).trial({"batch": 8}, whole=False, last=True, parts=True)
    assert trial == {"batch": 8, "fits": True}
