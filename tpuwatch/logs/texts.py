"""Whole texts to diagnose: files, compressed or not, and standard input, as chunks of UTF-8."""

from __future__ import annotations

import codecs
import gzip
import os
import stat
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tpuwatch.errors import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK_BYTES = 1 << 20
STDIN = "-"
_GZIP = b"\x1f\x8b"
_BOMS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))  # what Windows shells redirect into files


class UnreadableError(TpuwatchError):
    """A text cannot be read; the message names it and says why."""


def size_of(name: str) -> int:
    """Bytes of the file as it lies there, 0 where that cannot be told before it is read."""
    try:
        return 0 if name == STDIN else Path(name).stat().st_size
    except OSError:
        return 0


def chunks(name: str, progress: Callable[[int], None]) -> Iterator[bytes]:
    """The text of a file, or of standard input for `-`, decompressed. `progress` is told how many bytes of the file were taken.

    Raises UnreadableError.
    """
    try:
        with _open(name) as file:
            yield from _decoded(_plain(file, progress))
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableError(f"cannot read {name}: {reason}") from error


def _open(name: str) -> BinaryIO:
    if name == STDIN:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    file = open(name, "rb")
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISDIR(mode):
        file.close()
        raise IsADirectoryError(0, "it is a directory; name the files in it")
    return file


def _plain(file: BinaryIO, progress: Callable[[int], None]) -> Iterator[bytes]:
    taken = _Taken(file, progress)
    head = taken.peek(2)
    source: BinaryIO = gzip.GzipFile(fileobj=taken) if head == _GZIP else taken  # type: ignore[assignment] # it reads like one
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def _decoded(data: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16 with a byte order mark becomes UTF-8; all else goes through as it is."""
    first = next(data, b"")
    encoding = next((name for bom, name in _BOMS if first.startswith(bom)), None)
    if encoding is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from data
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first[2:]).encode("utf-8", "replace")
    for chunk in data:
        yield decoder.decode(chunk).encode("utf-8", "replace")


class _Taken:
    """A binary file that tells how far it was read; enough of one for GzipFile."""

    def __init__(self, file: BinaryIO, progress: Callable[[int], None]) -> None:
        self._file = file
        self._progress = progress
        self._taken = 0
        self._head = b""

    def peek(self, size: int) -> bytes:
        self._head = self._file.read(size)
        return self._head

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        data = head + self._file.read(size - len(head) if size > len(head) else size)
        self._taken += len(data)
        self._progress(self._taken)
        return data
