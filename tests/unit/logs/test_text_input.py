"""Whole texts to diagnose."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import random
import re
import resource
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import pytest

from tpuwatch.logs.text_input import CHUNK_BYTES, STDIN, UnreadableError, size_of, text_chunks

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "żółw and E1120 13:44:20.000001  4242 tpu.cc:7] Ran out of memory\n" * 50


def read(name: str | Path) -> bytes:
    return b"".join(text_chunks(str(name), lambda _: None))


def test_a_file_comes_as_it_is_in_chunks(tmp_path: Path) -> None:
    data = TEXT.encode() * (CHUNK_BYTES // len(TEXT.encode()))
    data += b"x" * (CHUNK_BYTES + 1000 - len(data))
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


WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("encoding", [*WIDE, "utf-8"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_any_encoding_of_unicode_is_read_as_utf_8(tmp_path: Path, encoding: str, mark: str) -> None:
    (tmp_path / "a").write_bytes((mark + TEXT).encode(encoding))
    assert read(tmp_path / "a").decode() == TEXT
    (tmp_path / "a").write_bytes((mark + "x").encode(encoding))
    assert read(tmp_path / "a").decode() == "x"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1251"])
def test_text_that_says_nothing_of_its_encoding_is_left_as_it_is(tmp_path: Path, encoding: str) -> None:
    letters = {"cp1251": "память", "latin-1": "mémoire"}.get(encoding, "pamięć")
    data = f"\x1b[31m{letters}\x1b[0m\r\x07 {letters}\n".encode(encoding) * 1000
    (tmp_path / "a").write_bytes(data)
    assert read(tmp_path / "a") == data


@pytest.mark.parametrize("encoding", [*WIDE, "utf-8"])
@pytest.mark.parametrize("zeros", [4, CHUNK_BYTES + 8])
def test_the_hole_of_a_truncated_file_is_passed_over(tmp_path: Path, encoding: str, zeros: int) -> None:
    (tmp_path / "a").write_bytes(bytes(zeros) + TEXT.encode(encoding))
    assert read(tmp_path / "a").decode() == TEXT
    (tmp_path / "a").write_bytes(b"a line\n" + bytes(zeros) + TEXT.encode())
    assert read(tmp_path / "a").endswith(TEXT.encode())


def test_utf_16_is_cut_anywhere(tmp_path: Path) -> None:
    text = "🐢" * CHUNK_BYTES  # four bytes each, after a mark of two: every chunk ends within one
    (tmp_path / "a").write_bytes(text.encode("utf-16"))
    assert read(tmp_path / "a").decode() == text


def test_broken_utf_16_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("ab".encode("utf-16") + b"\x00\xd8c\x00")
    assert read(tmp_path / "a").decode() == "ab\N{REPLACEMENT CHARACTER}c"


PACK = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": partial(lzma.compress, preset=0)}
packings = pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
Pack = Callable[[bytes], bytes]


@packings
@pytest.mark.parametrize("padding", [0, 4, CHUNK_BYTES])
def test_packed_text_of_several_members(tmp_path: Path, pack: Pack, padding: int) -> None:
    packed = pack(TEXT.encode()) + bytes(padding) + pack(b"more") + bytes(padding)
    (tmp_path / "a").write_bytes(packed)
    taken: list[int] = []
    assert b"".join(text_chunks(str(tmp_path / "a"), taken.append)) == TEXT.encode() + b"more"
    assert taken[-1] == len(packed)


@pytest.mark.slow
@packings
def test_packed_text_that_is_longer_than_a_chunk(tmp_path: Path, pack: Pack) -> None:
    data = random.Random(1).randbytes(2 * CHUNK_BYTES).hex().encode()
    (tmp_path / "a").write_bytes(pack(data))
    assert read(tmp_path / "a") == data
    (tmp_path / "a").write_bytes(pack(TEXT.encode("utf-16-be")))
    assert read(tmp_path / "a").decode() == TEXT


@pytest.mark.slow
@pytest.mark.parametrize("packed", [gzip.open, bz2.open, partial(lzma.open, preset=0)])
def test_a_bomb_takes_no_memory_and_has_an_end(
    tmp_path: Path, packed: Callable[..., BinaryIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    with packed(tmp_path / "a", "wb") as file:
        for _ in range(30):
            file.write(b"boom" * (1 << 18))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(len(chunk) for chunk in text_chunks(str(tmp_path / "a"), lambda _: None)) == 30 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024
    monkeypatch.setattr("tpuwatch.logs.text_input._UNPACKED_BYTES", 10 << 20)
    monkeypatch.setattr("tpuwatch.logs.text_input._UNPACKED_TIMES", 100)
    with pytest.raises(UnreadableError, match=r"cannot read all of .*/a: it unpacks to more than 100 times its size"):
        read(tmp_path / "a")


def test_xz_that_asks_for_too_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(TEXT.encode(), filters=filters, check=lzma.CHECK_NONE))
    block = 12  # its header: two bytes, the filter's id, and one byte for its dictionary
    packed[block + 4] = 38  # 2 GiB
    packed[block + 8 : block + 12] = struct.pack("<I", zlib.crc32(packed[block : block + 8]))
    (tmp_path / "a").write_bytes(packed)
    with pytest.raises(UnreadableError, match="Memory usage limit exceeded"):
        read(tmp_path / "a")


@pytest.mark.slow
@packings
def test_what_is_cut_or_damaged_is_read_up_to_there_and_named(tmp_path: Path, pack: Pack) -> None:
    texts = (random.Random(2).randbytes(CHUNK_BYTES).hex().encode(), b"x")
    damages = {
        "it ends too early": (pack(texts[0])[:-20], pack(texts[1])[:-1], pack(b"x")[:6]),
        "it is damaged": (pack(texts[0]) + b"rubbish", pack(b"x") + pack(b"y")[:4] + b"rubbish" * 9),
    }
    for reason, packed in ((reason, one) for reason, some in damages.items() for one in some):
        (tmp_path / "a.log").write_bytes(packed)
        got = []
        with pytest.raises(UnreadableError, match=rf"^cannot read all of .*/a\.log: {reason}"):
            got.extend(text_chunks(str(tmp_path / "a.log"), lambda _: None))
    (tmp_path / "a.log").write_bytes(pack(texts[0])[:-20])
    chunks = text_chunks(str(tmp_path / "a.log"), lambda _: None)
    assert texts[0].startswith(next(chunks))


NO_TEXTS = {
    "zstd": (b"\x28\xb5\x2f\xfd" + os.urandom(100), "compressed by zstd; `zstd -dc "),
    "zip": (b"PK\x03\x04\x14\0\0\0" + os.urandom(100), "a zip archive; unpack it"),
    "program": (b"\x7fELF\2\1\1" + bytes(9) + b"\3\0\x3e\0" + bytes(100), "a program or library"),
    "core": (b"\x7fELF\2\1\1" + bytes(9) + b"\4\0\x3e\0" + bytes(100), "a core dump"),
    "core of another order": (b"\x7fELF\2\2\1" + bytes(9) + b"\0\4\0\x3e" + bytes(100), "a core dump"),
    "tar": (b"a.log".ljust(257, b"\0") + b"ustar\x0000" + TEXT.encode(), "a tar archive; `tar -xOf "),
    "tar.gz": (gzip.compress(b"a.log".ljust(257, b"\0") + b"ustar\x0000" + TEXT.encode()), "a tar archive"),
    "pickle": (pickle.dumps([*range(1000)]), "an object that Python pickled"),
    "protobuf": (
        b"\n\x0ahello.name" + b"\x12\x02\x08\x01\x18\x05" * 50,
        "no text but binary, as a protobuf message is",
    ),
    "events": (
        b"\x18" + bytes(7) + b"\1\2\3\4\x09" + b"\1" * 8 + b"\x1a\x0dbrain.Event:2" + b"\1\2\3\4",
        "a file of TensorFlow's events",
    ),
    "random": (random.Random(3).randbytes(1 << 20), "no text but binary"),
    "a little that is random": (random.Random(3).randbytes(100), "no text but binary"),
    "random after a mark": (b"\xff\xfe" + random.Random(4).randbytes(100_001), "no text but binary"),
    "zeros": (bytes(3 * CHUNK_BYTES + 1), "empty but for zero bytes"),
}


@pytest.mark.parametrize(("data", "what"), NO_TEXTS.values(), ids=NO_TEXTS)
def test_of_what_is_no_text_it_is_reported_what_it_is(tmp_path: Path, data: bytes, what: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(UnreadableError, match=f"^cannot read .*/a: it is {re.escape(what)}"):
        read(tmp_path / "a")


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
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
