"""Whole texts to diagnose."""

from __future__ import annotations

import gzip
import io
import os
import resource
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tpuwatch.logs.text_input import CHUNK_BYTES, STDIN, UnreadableError, size_of, text_chunks

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "żółw and E1120 13:44:20.000001  4242 tpu.cc:7] Ran out of memory\n" * 50


def read(name: str | Path) -> bytes:
    return b"".join(text_chunks(str(name), lambda _: None))


def test_a_file_comes_as_it_is_in_chunks(tmp_path: Path) -> None:
    data = os.urandom(CHUNK_BYTES + 1000)
    (tmp_path / "a").write_bytes(data)
    taken: list[int] = []
    pieces = list(text_chunks(str(tmp_path / "a"), taken.append))
    assert b"".join(pieces) == data
    assert [len(piece) for piece in pieces] == [CHUNK_BYTES, 1000]
    assert taken[-1] == size_of(str(tmp_path / "a")) == len(data)


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_a_very_small_file(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(b"x\ny"[:size])
    assert read(tmp_path / "a") == b"x\ny"[:size]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-8"])
def test_what_windows_writes_is_read_as_utf_8(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding.endswith(("-le", "-be")) else ""
    (tmp_path / "a").write_bytes((mark + TEXT).encode(encoding))
    assert read(tmp_path / "a").decode() == TEXT


def test_utf_16_is_cut_anywhere(tmp_path: Path) -> None:
    text = "🐢" * CHUNK_BYTES  # four bytes each, after a mark of two: every chunk ends within one
    (tmp_path / "a").write_bytes(text.encode("utf-16"))
    assert read(tmp_path / "a").decode() == text


def test_broken_utf_16_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("ab".encode("utf-16") + b"\x00\xd8c\x00")
    assert read(tmp_path / "a").decode() == "ab\N{REPLACEMENT CHARACTER}c"


def test_gzip_of_several_members(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT.encode()) + gzip.compress(b"more")
    (tmp_path / "a").write_bytes(packed)
    taken: list[int] = []
    assert b"".join(text_chunks(str(tmp_path / "a"), taken.append)) == TEXT.encode() + b"more"
    assert taken[-1] == len(packed)


def test_a_gzip_bomb_takes_no_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a", "wb") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(len(chunk) for chunk in text_chunks(str(tmp_path / "a"), lambda _: None)) == 300 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"\x1f\x8b", id="only the magic"),
        pytest.param(gzip.compress(TEXT.encode())[:-20], id="cut"),
        pytest.param(gzip.compress(b"x") + b"rubbish", id="rubbish after it"),
    ],
)
def test_damaged_gzip_is_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "a.gz").write_bytes(damage)
    with pytest.raises(UnreadableError, match=r"^cannot read .*/a\.gz: \S"):
        read(tmp_path / "a.gz")


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"cannot read .*/none: No such file or directory"):
        read(tmp_path / "none")
    with pytest.raises(UnreadableError, match="it is a directory; name the files in it"):
        read(tmp_path)
    assert size_of(str(tmp_path / "none")) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="no permission stops root")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(TEXT)
    (tmp_path / "a").chmod(0)
    with pytest.raises(UnreadableError, match="Permission denied"):
        read(tmp_path / "a")


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(TEXT,))
    writer.start()
    assert read(tmp_path / "pipe").decode() == TEXT
    writer.join(30)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(TEXT.encode()))
    with open(tmp_path / "a") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert read(STDIN).decode() == TEXT
        assert size_of(STDIN) == 0
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it when the shell has closed it
    with pytest.raises(UnreadableError, match="cannot read standard input: it is closed"):
        read(STDIN)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"no descriptor")))
    with pytest.raises(UnreadableError, match="cannot read standard input"):
        read(STDIN)
