"""One followed file: cuts anywhere in it, its last line, holes, and what it costs."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from tests.logs.sites import DEAD_PID, HEADER, dull, line, name, numbers, scanner
from tpuwatch.clock import ManualClock
from tpuwatch.logs.files import HEAD_BYTES, LogFile, libtpu_file
from tpuwatch.logs.parser import LogParser, StreamKind
from tpuwatch.logs.tail import CHUNK_BYTES, Sighting, Tail
from tpuwatch.model import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    Open = Callable[..., Tail]


def parser(file: LogFile, offset: int, state: Mapping[str, Any]) -> LogParser:
    return LogParser(scanner(), file.kind, now=0.0, offset=offset, state=state)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / name()
    path.touch()
    return path


@pytest.fixture
def follow(log: Path, clock: ManualClock) -> Iterator[Open]:
    tails: list[Tail] = []

    def open_tail(cursor: Cursor | None = None, kind: StreamKind | None = None) -> Tail:
        entry = log.stat()
        cursor = cursor or Cursor(str(log), entry.st_dev, entry.st_ino, b"", 0)
        file = libtpu_file(str(log)) if kind is None else LogFile(str(log), kind)
        tails.append(Tail(os.open(log, os.O_RDONLY), file, cursor, parser, clock))
        return tails[-1]

    yield open_tail
    for tail in tails:
        tail.close()


def append(log: Path, data: str | bytes) -> None:
    with log.open("ab") as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


def drain(tail: Tail) -> list[Sighting]:
    found = tail.check()
    while tail.unread:
        found += tail.read(1 << 30)
    return found


def settle(tail: Tail) -> list[Sighting]:
    return drain(tail) + (tail.rest(0.0) or [])


TEXT = (HEADER + line(1) + "unprefixed: Größe ✓ 日本語\n\n" + line(2) + dull(1) + line(3)).encode()


@pytest.mark.parametrize("cut", range(0, len(TEXT), 3))
def test_a_cut_at_any_byte_neither_loses_nor_doubles(log: Path, follow: Open, cut: int) -> None:
    tail = follow()
    append(log, TEXT[:cut])
    found = drain(tail)
    append(log, TEXT[cut:])
    assert numbers(found + settle(tail)) == [1, 2, 3]


@pytest.mark.parametrize("cut", range(0, len(TEXT), 7))
def test_a_tail_taken_up_again_at_any_byte_neither_loses_nor_doubles(log: Path, follow: Open, cut: int) -> None:
    append(log, TEXT[:cut])
    tail = follow()
    found = drain(tail)
    append(log, TEXT[cut:])
    assert numbers(found + settle(follow(tail.cursor()))) == [1, 2, 3]


def test_one_byte_at_a_time(log: Path, follow: Open) -> None:
    tail, found = follow(), list[Sighting]()
    for at in range(len(TEXT)):
        append(log, TEXT[at : at + 1])
        found += drain(tail)
    assert numbers(found + settle(tail)) == [1, 2, 3]


def test_a_file_that_ends_mid_line_at_a_multiple_of_4096(log: Path, follow: Open) -> None:
    text = HEADER.encode()
    while len(text) <= 3 * 4096:
        text += line(len(text)).encode()
    tail, found = follow(), list[Sighting]()
    for start in range(0, len(text), 4096):  # as a buffering writer flushes
        append(log, text[start : start + 4096])
        found += settle(tail)
    expected = [int(words.split()[-1]) for words in text.splitlines() if b"TESTEVENT" in words]
    assert numbers(found) == expected


def test_the_last_record_waits_for_quiet(log: Path, follow: Open, clock: ManualClock) -> None:
    tail = follow()
    append(log, HEADER + line(1))
    assert drain(tail) == []
    assert tail.unsettled
    clock.advance(0.04)
    assert tail.rest(0.05) is None
    clock.advance(0.02)
    assert numbers(tail.rest(0.05) or []) == [1]
    assert tail.rest(0.05) is None
    assert not tail.unsettled


def test_a_file_that_was_quiet_before_it_was_opened_need_not_wait(log: Path, follow: Open, clock: ManualClock) -> None:
    append(log, HEADER + line(1) + line(2).rstrip())
    os.utime(log, (clock.time() - 3600, clock.time() - 3600))
    tail = follow()
    drain(tail)
    assert numbers(tail.rest(0.05) or []) == [1, 2]  # and its process is gone


def test_a_wall_clock_that_jumps_changes_nothing(log: Path, follow: Open, clock: ManualClock) -> None:
    tail = follow()
    append(log, HEADER + line(1))
    drain(tail)
    clock.wall -= 1e6
    clock.advance(0.04)
    clock.wall += 1e9
    assert tail.rest(0.05) is None
    clock.advance(0.02)
    assert numbers(tail.rest(0.05) or []) == [1]


def test_a_file_from_the_future_settles_as_any_other(log: Path, follow: Open, clock: ManualClock) -> None:
    append(log, HEADER + line(1))
    os.utime(log, (clock.time() + 1e8, clock.time() + 1e8))
    tail = follow()
    drain(tail)
    assert tail.rest(0.05) is None
    clock.advance(0.06)
    assert numbers(tail.rest(0.05) or []) == [1]


def test_a_processs_end_is_told_by_its_number(follow: Open) -> None:
    tail = follow()
    for pid, ended in ((os.getpid(), False), (1, False), (DEAD_PID, True), (10**9 * 9, True)):
        tail.renamed(libtpu_file(name(pid=pid)))
        assert tail.ended is ended, pid


def test_a_jobs_file_has_not_ended_before_its_name_is_gone(follow: Open) -> None:
    tail = follow(kind=StreamKind.TEXT)
    assert not tail.ended
    tail.unlisted = True
    assert tail.ended


def test_a_head_grows_with_its_file(log: Path, follow: Open) -> None:
    tail = follow()
    append(log, HEADER)
    drain(tail)
    assert tail.cursor().head == HEADER.encode()
    append(log, dull(50))
    drain(tail)
    assert tail.cursor().head == (HEADER + dull(50)).encode()[:HEAD_BYTES]
    assert tail.restarts == 0


def test_a_cursor_with_a_short_head_fits_its_grown_file(log: Path, follow: Open) -> None:
    append(log, HEADER + line(1))
    first = follow()
    assert numbers(settle(first)) == [1]
    append(log, dull(50) + line(2))
    second = follow(first.cursor())
    assert numbers(settle(second)) == [2]
    assert second.restarts == 0


@pytest.mark.parametrize("text", ["other\n" + dull(20), HEADER[:20], ""])
def test_a_cursor_of_another_file_with_the_same_inode_is_not_used(log: Path, follow: Open, text: str) -> None:
    append(log, HEADER + dull(10))
    first = follow()
    drain(first)
    cursor = first.cursor()
    log.write_text(text + line(2))
    second = follow(cursor)
    assert numbers(settle(second)) == [2]
    assert second.restarts == 1


def test_files_that_only_begin_alike_are_told_apart_by_what_stands_before_the_offset(log: Path, follow: Open) -> None:
    append(log, HEADER + dull(20) + line(1))
    first = follow()
    assert numbers(settle(first)) == [1]
    cursor = first.cursor()
    log.write_text(HEADER + dull(19) + line(2) + line(3) * 20)
    assert numbers(settle(follow(cursor))) == [2] + [3] * 20


def test_history_is_what_stands_below_the_cursors_mark(log: Path, follow: Open) -> None:
    append(log, HEADER + line(1))
    cursor = Cursor(str(log), log.stat().st_dev, log.stat().st_ino, b"", 0, history_until=log.stat().st_size)
    append(log, line(2))
    tail = follow(cursor)
    assert [sighting.history for sighting in settle(tail)] == [True, False]
    assert tail.cursor().history_until == cursor.history_until


def test_what_is_written_anew_is_no_history(log: Path, follow: Open) -> None:
    append(log, HEADER + dull(20))
    cursor = Cursor(str(log), log.stat().st_dev, log.stat().st_ino, b"", 0, history_until=log.stat().st_size)
    tail = follow(cursor)
    settle(tail)
    os.truncate(log, 0)
    append(log, line(1))
    assert [sighting.history for sighting in settle(tail)] == [False]


def test_a_cursor_is_given_only_when_it_moved(log: Path, follow: Open) -> None:
    tail = follow()
    append(log, HEADER + line(1))
    settle(tail)
    assert tail.moved_cursor() is not None
    assert tail.moved_cursor() is None
    assert follow(tail.reported).moved_cursor() is None


def test_a_read_takes_one_chunk_at_most(log: Path, follow: Open) -> None:
    tail = follow()
    append(log, dull(1) * 40_000)
    tail.check()
    tail.read(1 << 30)
    assert tail.bytes_read == CHUNK_BYTES
    tail.read(1000)
    assert tail.bytes_read == CHUNK_BYTES + 1000


def test_a_line_without_end_takes_bounded_memory(log: Path, follow: Open) -> None:
    size = 64 << 20
    with log.open("wb") as stream:
        for _ in range(size >> 20):
            stream.write(b"x" * (1 << 20))
        stream.write(b"\n" + line(1).encode())
    tail = follow()
    tracemalloc.start()
    found = settle(tail)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert numbers(found) == [1]
    assert peak < 8 << 20


def test_nothing_but_a_hole_is_passed_at_once(log: Path, follow: Open) -> None:
    tail = follow()
    os.truncate(log, 1 << 40)
    assert drain(tail) == []
    assert tail.bytes_read == 0
    assert tail.position == 1 << 40
    append(log, line(1))
    assert numbers(settle(tail)) == [1]
    assert tail.bytes_read < 10_000


def test_a_file_that_shrinks_between_look_and_read_does_no_harm(log: Path, follow: Open) -> None:
    tail = follow()
    append(log, HEADER + line(1))
    tail.check()
    os.truncate(log, 0)
    assert tail.read(1 << 20) == []
    assert tail.bytes_read == 0
    tail.check()
    assert tail.unread == 0
