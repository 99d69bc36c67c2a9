"""The HBM that the compiler assigned, read from a log as libtpu writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuwatch.program.assignment import AssignmentLog

GIB = 1 << 30


def module(*sizes: int, verb: str = "exceeded") -> str:
    """The lines of one module, with its size by each strategy."""
    lines = ["I1123 10:00:00.000001     7 buffer_assignment.cc:3641] Assigning buffers to module jit_step"]
    lines += [
        "I1123 10:00:00.000002     7 buffer_assignment.cc:3861] BufferAssignment strategy (non_sequential: 1, "
        f"sequential: 4) {verb} memory limit for color {color} ({size} bytes vs limit of 14224981504 bytes)."
        for size in sizes
        for color in (0, 1)
    ]
    return "\n".join([*lines, "I1123 10:00:00.000003     7 buffer_assignment.cc:3689] Buffer assignment done.\n"])


ACCEPTED = [
    "I1123 10:00:00.000004     8 deepsea_compiler_base.cc:1350] Global Core Count: 1 replica count: 1\n",
    "I1123 10:00:00.000004     8 llo_log_recorder.cc:92] The input HBM logging buffer size is 1048576 and the adjusted "
    "size after granule alignment is 1048576\n",
]


def written(directory: Path, text: str, pid: int = 4711) -> None:
    with (directory / f"tpu_driver.host.user.log.INFO.20261123-100000.{pid}").open("a") as file:
        file.write(text)


@pytest.mark.parametrize("next_stage", ACCEPTED)
def test_the_least_of_the_strategies_counts_once_the_next_stage_begins(tmp_path: Path, next_stage: str) -> None:
    log = AssignmentLog(tmp_path)
    written(tmp_path, module(9 * GIB, 8 * GIB, 10 * GIB))
    log.look()
    assert (log.needed_bytes, log.accepted) == (8 * GIB, False)
    written(tmp_path, next_stage)
    log.look()
    assert (log.needed_bytes, log.accepted) == (8 * GIB, True)


def test_modules_for_the_sparsecore_come_before_the_programs_own(tmp_path: Path) -> None:
    log = AssignmentLog(tmp_path)
    written(tmp_path, module(2 * GIB, verb="did not exceed") + module(11 * GIB, verb="did not exceed") + ACCEPTED[0])
    log.look()
    assert (log.needed_bytes, log.accepted) == (11 * GIB, True)


def test_what_is_refused_is_not_accepted(tmp_path: Path) -> None:
    log = AssignmentLog(tmp_path)
    written(tmp_path, module(20 * GIB) + "E1123 10:00:00.000004 7 x.cc:1] Failed to verify buffer assignment.\n")
    log.look()
    assert (log.needed_bytes, log.accepted) == (20 * GIB, False)


def test_each_compilation_begins_with_nothing(tmp_path: Path) -> None:
    written(tmp_path, module(8 * GIB) + ACCEPTED[0])
    log = AssignmentLog(tmp_path)
    log.look()
    assert (log.needed_bytes, log.accepted) == (None, False)
    written(tmp_path, module(4 * GIB) + ACCEPTED[0], pid=4712)
    log.look()
    assert (log.needed_bytes, log.accepted) == (4 * GIB, True)
    log.begin()
    log.look()
    assert (log.needed_bytes, log.accepted) == (None, False)


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log = AssignmentLog(tmp_path)
    text = module(8 * GIB)
    cut = text.index("bytes vs") - 5
    for part in (text[:cut], text[cut:] + ACCEPTED[0]):
        written(tmp_path, part)
        log.look()
    assert (log.needed_bytes, log.accepted) == (8 * GIB, True)


def test_a_link_is_not_read_beside_its_file(tmp_path: Path) -> None:
    log = AssignmentLog(tmp_path)
    written(tmp_path, module(8 * GIB))
    (tmp_path / "tpu_driver.INFO.link").symlink_to(next(tmp_path.iterdir()))
    log.look()
    assert len(log.since) == 0
    log.begin()
    assert len(log.since) == 1


def test_a_stage_that_comes_without_an_assignment_says_nothing(tmp_path: Path) -> None:
    log = AssignmentLog(tmp_path)
    written(tmp_path, ACCEPTED[0])
    log.look()
    assert (log.needed_bytes, log.accepted) == (None, False)
