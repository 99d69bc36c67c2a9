"""The input of diagnose: files, compressed or not, and standard input, as chunks of UTF-8."""

from __future__ import annotations

import codecs
import errno
import gzip
import os
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tpuwatch.core import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

CHUNK_BYTES = 1 << 20
STDIN = "-"
_GZIP = b"\x1f\x8b"
_BOMS = (
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # written by redirections of Windows shells


class UnreadableError(TpuwatchError):
    """A text cannot be read; the message names it and says why."""


def size_of(name: str) -> int:
    """The size of the file in bytes, 0 if it is not known before it is read."""
    try:
        return 0 if name == STDIN else Path(name).stat().st_size
    except OSError:
        return 0


def text_chunks(name: str, progress: Callable[[int], None]) -> Iterator[bytes]:
    """The text of a file, or of standard input for `-`, decompressed.

    `progress` is called with the number of bytes read from the file. Raises UnreadableError.
    """
    try:
        with _open(name) as file:
            yield from _decoded(_plain(file, progress))
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableError(f"cannot read {'standard input' if name == STDIN else name}: {reason}") from error


def _open(name: str) -> BufferedReader:
    if name == STDIN:
        if sys.stdin is None:  # Python was started without it
            raise FileNotFoundError(0, "it is closed")
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    if Path(name).is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory; name the files in it")
    return open(name, "rb")


def _plain(file: BufferedReader, progress: Callable[[int], None]) -> Iterator[bytes]:
    source: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(_GZIP) else file
    while chunk := source.read(CHUNK_BYTES):
        yield chunk
        if file.seekable():
            progress(file.tell())


def _decoded(data: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-16 with a byte order mark becomes UTF-8; anything else is unchanged."""
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
