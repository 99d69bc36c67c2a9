"""Compiled patterns are found again by the same rules alone, and only where nobody else can have written them."""

from __future__ import annotations

import os
from pathlib import Path

import hyperscan
import pytest

from tpuwatch.logs.parse.kept_patterns import KeptPatterns, cache_directory

PATTERNS = ["loss is nan", "barrier .* timed out"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "cache"
    KeptPatterns(directory, PATTERNS).save([0, 7], compiled())
    return directory


def compiled() -> hyperscan.Database:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=[pattern.encode() for pattern in PATTERNS], ids=[0, 1], elements=2)
    return database


def loaded(directory: Path, patterns: list[str] = PATTERNS) -> list[int] | None:
    known = KeptPatterns(directory, patterns).load()
    return None if known is None else known[0]


def only_file(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


def test_what_was_kept_finds_what_was_compiled(directory: Path) -> None:
    known = KeptPatterns(directory, PATTERNS).load()
    assert known is not None
    reach, database = known
    found: list[int] = []
    database.scan(b"the barrier of 4 timed out", match_event_handler=lambda number, *_: found.append(number))
    assert (reach, found) == ([0, 7], [1])


def test_other_patterns_find_nothing(directory: Path) -> None:
    assert loaded(directory, PATTERNS[:1]) is None


def test_another_version_finds_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.logs.parse.kept_patterns.__version__", "0")
    assert loaded(directory) is None


@pytest.mark.parametrize("place", [0, 30, 200, -1])
def test_a_damaged_file_is_as_good_as_none(directory: Path, place: int) -> None:
    path = only_file(directory)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert loaded(directory) is None


@pytest.mark.parametrize("content", [b"", b"\n", b"null\n", b"[]\nx", b'{"digest": 1}\n'])
def test_a_foreign_file_is_as_good_as_none(directory: Path, content: bytes) -> None:
    only_file(directory).write_bytes(content)
    assert loaded(directory) is None


def test_a_file_is_for_its_owner_alone(directory: Path) -> None:
    assert (directory.stat().st_mode & 0o777, only_file(directory).stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_to_is_not_loaded(directory: Path, mode: int) -> None:
    only_file(directory).chmod(mode)
    assert loaded(directory) is None


def test_a_directory_that_others_can_write_to_is_not_used(directory: Path) -> None:
    directory.chmod(0o777)
    assert loaded(directory) is None
    only_file(directory).unlink()
    KeptPatterns(directory, PATTERNS).save([0, 7], compiled())
    assert not list(directory.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_not_loaded(directory: Path) -> None:
    os.chown(only_file(directory), 65534, 65534)
    assert loaded(directory) is None


def test_a_link_is_not_followed(directory: Path, tmp_path: Path) -> None:
    path = only_file(directory)
    path.symlink_to(path.rename(tmp_path / "elsewhere"))
    assert loaded(directory) is None


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    KeptPatterns(tmp_path / "file", PATTERNS).save([0, 7], compiled())
    KeptPatterns(tmp_path / "file" / "below", PATTERNS).save([0, 7], compiled())
    assert loaded(tmp_path / "file") is None


def test_a_few_files_are_kept_the_latest(directory: Path) -> None:
    for number in range(14):
        KeptPatterns(directory, [str(number)]).save([number], compiled())
        for age, path in enumerate(sorted(directory.iterdir(), key=lambda path: -path.stat().st_mtime)):
            os.utime(path, (1000 - age, 1000 - age))
    assert [loaded(directory, [str(number)]) for number in range(14)] == [None] * 2 + [[n] for n in range(2, 14)]


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"XDG_CACHE_HOME": "/var/c", "HOME": "/home/u"}, Path("/var/c/tpuwatch")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/u"}, Path("/home/u/.cache/tpuwatch")),
        ({"HOME": "/home/u"}, Path("/home/u/.cache/tpuwatch")),
        ({}, None),
    ],
)
def test_commands_keep_patterns_in_the_users_cache(environ: dict[str, str], directory: Path | None) -> None:
    assert cache_directory(environ) == directory
