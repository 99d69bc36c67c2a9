"""The walk of a glob: what it finds, what it follows, and how much of it is done at a time."""

from __future__ import annotations

import glob
import os
import random
from pathlib import Path

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.logs.tail import job_glob
from tpuwatch.logs.tail.job_glob import JobGlob
from tpuwatch.logs.tail.sources import Changes, WatchedSource


def make(root: Path, *paths: str) -> None:
    """Empty files, with the directories that they are in."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def found(root: Path, pattern: str) -> set[str]:
    """What a pattern below `root` matches, as paths below it."""
    walk = JobGlob(f"{root}/{pattern}", ManualClock())
    result = {os.path.relpath(path, root) for path in walk.find()}
    assert not walk.unfinished
    return result


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that are read from now on."""
    paths: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr("tpuwatch.logs.tail.job_glob.os.scandir", lambda path: paths.append(path) or scandir(path))
    return paths


def test_a_pattern_matches_what_a_shell_would_match(tmp_path: Path) -> None:
    names = ("a", "b", ".h", "a.log", "b.log", ".c.log", "runs", "x")
    rng = random.Random(1)
    for _ in range(60):
        directory = tmp_path.joinpath(*rng.choices(names[:3] + names[6:], k=rng.randrange(4)))
        directory.mkdir(parents=True, exist_ok=True)
        for name in rng.sample(names, 3):
            if not (directory / name).exists():
                (directory / name).touch() if name.endswith(".log") else (directory / name).mkdir()
    for pattern in (
        "*", "*.log", "**", "**/*.log", "*/*.log", "a/*.log", "a/a.log", "*/a/**/*.log", "**/runs/*.log", "**/runs/**",
        "**/a/**/b/*.log", "**/**/*.log", "[ab]/?.log", "**/.h/*.log", "**/.*.log", "*/runs/a.log", "nothing/*.log",
    ):  # fmt: skip
        matches = glob.iglob(f"{tmp_path}/{pattern}", recursive=True)  # noqa: PTH207 (what it is held against)
        files = {os.path.relpath(path, tmp_path) for path in map(Path, matches) if path.is_file()}
        assert found(tmp_path, pattern) == files, pattern


def test_a_directory_is_no_match(tmp_path: Path) -> None:
    make(tmp_path, "a/b.log/c.log")
    assert found(tmp_path, "**/*.log") == {"a/b.log/c.log"}


def test_links_to_directories_lead_a_double_star_nowhere(tmp_path: Path) -> None:
    make(tmp_path, "logs/a/x.log", "other/y.log")
    for name in ("one", "two"):
        (tmp_path / "logs" / name).symlink_to(".")  # with two of them there are 2**40 ways to x.log
    (tmp_path / "logs" / "a" / "up").symlink_to("..")
    (tmp_path / "logs" / "a" / "other").symlink_to("../../other")
    assert found(tmp_path, "logs/**/*.log") == {"logs/a/x.log"}


def test_a_star_follows_links_to_directories_as_far_as_it_goes(tmp_path: Path) -> None:
    make(tmp_path, "logs/7/x.log", "runs/8/y.log")
    (tmp_path / "logs" / "8").symlink_to("../runs/8")
    assert found(tmp_path, "logs/*/*.log") == {"logs/7/x.log", "logs/8/y.log"}
    assert found(tmp_path, "logs/8/*.log") == {"logs/8/y.log"}


def test_a_file_is_found_by_one_name_and_best_by_its_own(tmp_path: Path) -> None:
    make(tmp_path, "b/x.log", "b/c/y.log")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b" / "a.log").symlink_to("x.log")
    for index in range(20):
        (tmp_path / f"{index}").symlink_to(".")
    assert found(tmp_path, "*/*.log") == {"b/x.log"}
    assert found(tmp_path, "*/*/*.log") == {"b/c/y.log", "0/b/x.log"}  # the latter has no such name of its own
    (tmp_path / "b" / "x.log").rename(tmp_path / "x")
    (tmp_path / "b" / "a.log").unlink()
    (tmp_path / "b" / "a.log").symlink_to("../x")
    assert found(tmp_path, "b/*.log") == {"b/a.log"}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, "a/x.log")
    (tmp_path / "a" / "dangling.log").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    assert found(tmp_path, "*/*.log") == {"a/x.log"}
    assert found(tmp_path, "a/x.log/*.log") == set()


def test_a_walk_pauses_and_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_glob, "WALK_ENTRIES", 10)
    names = [f"{directory}/{file}.log" for directory in range(10) for file in range(10)]
    make(tmp_path, *names)
    walk, clock, changes = JobGlob(f"{tmp_path}/**/*.log", ManualClock()), ManualClock(), Changes()
    watched = WatchedSource(walk, history=True)
    turns = 0
    while not changes.appeared:
        assert watched.due(clock.monotonic(), 1.0)
        watched.scan(clock, changes)
        turns += 1
        assert walk.unfinished == (not changes.appeared)
    assert 10 <= turns <= 13
    assert {os.path.relpath(one.path, tmp_path) for one in changes.appeared} == set(names)
    assert all(one.history for one in changes.appeared)
    assert not watched.due(clock.monotonic(), 1.0)


def test_a_walk_pauses_when_its_time_is_over(tmp_path: Path) -> None:
    class Slow(ManualClock):
        def monotonic(self) -> float:
            self.advance(job_glob.WALK_SECONDS)
            return super().monotonic()

    make(tmp_path, *(f"{file}.log" for file in range(200)))
    walk = JobGlob(f"{tmp_path}/*.log", Slow())
    assert walk.find() == {}
    assert walk.unfinished
    while walk.unfinished:
        assert len(walk.find()) in (0, 200)
    assert len(walk.find()) == 200


def test_the_size_of_a_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_glob, "_MAX_SIZE", 50)
    make(tmp_path, *(f"{directory}/{file}.log" for directory in range(10) for file in range(100)))
    assert 40 <= len(found(tmp_path, "**/*.log")) <= 50


def test_an_unchanged_directory_is_not_read_again(tmp_path: Path, listed: list[str]) -> None:
    clock = ManualClock()
    make(tmp_path, "a/x.log", "b/y.log")
    walk = JobGlob(f"{tmp_path}/*/*.log", clock)
    walk.find()
    before = walk.find()  # again, as timestamps of directories are coarse
    listed.clear()
    assert walk.find() is before
    assert listed == []
    make(tmp_path, "b/z.log")
    os.utime(tmp_path / "b", (1, 1))
    assert len(walk.find()) == 3
    assert listed == [str(tmp_path / "b")]
    clock.advance(job_glob._REREAD_SECONDS)
    walk.find()
    assert len(listed) == 4


def test_a_file_that_took_anothers_name_is_another(tmp_path: Path) -> None:
    make(tmp_path, "x.log", "new")
    walk = JobGlob(f"{tmp_path}/*.log", ManualClock())
    before = walk.find()
    (tmp_path / "new").replace(tmp_path / "x.log")
    after = walk.find()
    assert before.keys() == after.keys()
    assert before != after


def test_directories_are_where_matches_are_or_may_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a/x.log", "b/c/x.log")
    walk = JobGlob(f"{tmp_path}/*/*.log", ManualClock())
    assert walk.directories() == {str(tmp_path): ""}
    walk.find()
    assert walk.directories() == {str(tmp_path): "", str(tmp_path / "a"): ""}
    monkeypatch.setattr(job_glob, "_MAX_WATCHED", 3)
    make(tmp_path, *(f"{number}/x.log" for number in range(10)))
    walk.find()
    assert len(walk.directories()) == 1 + 3
