"""Starting, and starting again: history, cursors, identity."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from tests.unit.logs.sites import HEADER, Site, dull, line, name, numbers

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_there_before_the_first_run_is_history(tmp_path: Path) -> None:
    site = Site(tmp_path, first_run=True)
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name(), line(2))
    site.append(name("ERROR"), HEADER + line(3))
    assert sorted(site.settle()) == [2, 3]
    history = {
        number: file_match.history for number, file_match in zip(numbers(site.matches), site.matches, strict=True)
    }
    assert history == {1: True, 2: False, 3: False}
    site.follower.close()


def test_the_first_reading_marks_all_history_before_any_is_read(tmp_path: Path) -> None:
    site = Site(tmp_path, first_run=True)
    for pid in range(1, 400):
        site.append(name(pid=pid), HEADER + line(pid))
    assert len(site.poll().cursors) == 399  # a crash after this one is kept leaves nothing to be taken for new
    assert len(site.matches) < 399
    site.restart()
    site.settle()
    assert {file_match.history for file_match in site.matches} == {True}
    site.follower.close()


def test_on_later_runs_what_appeared_meanwhile_is_new(site: Site) -> None:
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.follower.close()
    site.append(name(), line(2))
    site.append(name("ERROR"), HEADER + line(3))
    site.restart()
    assert sorted(site.settle()) == [2, 3]
    assert not any(file_match.history for file_match in site.matches)


def test_a_restart_goes_on_where_it_was_though_the_file_was_renamed(site: Site) -> None:
    path = site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.follower.close()
    site.append(name(), line(2))
    path.rename(path.with_name(name() + ".1"))
    site.append(name(), HEADER + line(3))
    site.restart()
    assert sorted(site.settle()) == [2, 3]


def test_a_file_cut_off_while_nobody_followed_is_read_from_its_start(site: Site) -> None:
    path = site.append(name(), HEADER + dull(20) + line(1))
    assert site.settle() == [1]
    site.follower.close()
    path.write_text(HEADER + line(2))
    site.restart()
    assert site.settle() == [2]
    assert site.follower.counters.truncations == 1


def test_a_job_run_again_with_the_same_inode_is_another_file(tmp_path: Path) -> None:
    site = Site(tmp_path, options={"log_dirs": [], "job_globs": [str(tmp_path / "tpu_logs" / "*.out")]})
    banner = "a banner that each run begins with\n" * 20
    path = site.append("job.out", banner + "loss 0.1\n" * 20 + line(1))
    assert site.settle() == [1]
    site.follower.close()
    path.write_text(banner + "loss 0.2\n" * 10 + line(2) + "loss 0.3\n" * 100)  # longer than what was read
    site.restart()
    assert site.settle() == [2]
    site.follower.close()


def test_no_cursor_is_given_while_nothing_moves(site: Site) -> None:
    site.append(name(), HEADER + line(1))
    site.settle()
    site.settle()
    before = len(site.readings)
    site.settle()
    assert [reading.cursors for reading in site.readings[before:]] == [[]] * (len(site.readings) - before)
    site.restart()
    site.settle()
    site.settle()
    assert site.readings[-1].cursors == []


def test_a_cursor_covers_only_what_is_certain(site: Site) -> None:
    site.append(name(pid=os.getpid()), HEADER + line(1) + "more of this record\n" + line(2)[:-9])
    site.poll()
    [cursor] = site.cursors.values()
    assert cursor.offset <= len(HEADER)
    site.restart()
    site.append(name(pid=os.getpid()), line(2)[-9:])
    assert site.settle() == [1, 2]


def test_crashes_at_any_poll_neither_lose_nor_double(site: Site) -> None:
    choice = random.Random(7)
    written = 0
    pending = ""
    started = 0
    for _ in range(300):
        for _ in range(choice.randrange(4)):
            written += 1
            pending += line(written) + dull(choice.randrange(3)) + "continued\n" * choice.randrange(2)
        cut = choice.randrange(len(pending) + 1)
        site.append(name(pid=os.getpid(), started=f"20260921-{started:06d}"), pending[:cut])
        pending = pending[cut:]
        if choice.random() < 0.1 and not pending:
            started += 1
        site.clock.advance(choice.choice([0.0, 0.02, 1.0]))
        site.poll()
        if choice.random() < 0.3:
            site.restart()
    site.append(name(pid=os.getpid(), started=f"20260921-{started:06d}"), pending)
    site.settle()
    assert sorted(numbers(site.matches)) == list(range(1, written + 1))
