"""The input of diagnose: files, compressed or not, and standard input, as chunks of UTF-8."""

from __future__ import annotations

import codecs
import errno
import os
import re
import shlex
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tpuwatch.core import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

CHUNK_BYTES = 1 << 20
_NEXT_BYTES = 1 << 18  # of a text that is not packed, after its first chunk: that stays in the processor's cache
STDIN = "-"
_XZ_MEMORY = 256 << 20  # the largest preset of xz takes 65 MiB to unpack
_UNPACKED_BYTES = 1 << 30  # to which anything may unpack, and what is larger to so many times its size
_UNPACKED_TIMES = 1000
_HEAD_BYTES = 1 << 16  # by which a text is known

_MARKS = (  # UTF-32's begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE: Final = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")  # without a mark
_ORDINARY = re.compile(r"[\t\n\r -~]")
_HOLE = re.compile("\0{64,}")  # what a crash of the machine leaves in a file that was being written
# Text has tabs, returns and what steers a terminal, and hardly any of the other control characters.
_STRANGE = re.compile("[\0-\x06\x10-\x1a\x1c-\x1f\x7f\N{REPLACEMENT CHARACTER}]")
_STRANGE_ALLOWED, _STRANGE_SHARE = 2, 50  # so many, and one character in so many

_UNPACK = "unpack it, and name the files in it"
_KINDS: Final = (
    (b"\x28\xb5\x2f\xfd", "compressed by zstd; `zstd -dc FILE | tpuwatch diagnose -` reads it"),
    (b"\x04\x22\x4d\x18", "compressed by lz4; `lz4 -dc FILE | tpuwatch diagnose -` reads it"),
    (b"\x1f\x9d", "compressed by compress; `zcat FILE | tpuwatch diagnose -` reads it"),
    (b"PK\x03\x04", f"a zip archive; {_UNPACK}"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"7z\xbc\xaf\x27\x1c", f"a 7z archive; {_UNPACK}"),
    (b"Rar!\x1a\x07", f"a rar archive; {_UNPACK}"),
    (b"LPKSHHRH", "a file of systemd's journal; `journalctl --file=FILE | tpuwatch diagnose -` reads it"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as checkpoints are"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"\x89PNG\r\n\x1a\n", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"%PDF-", "a PDF document; copy its text, and paste it to `tpuwatch diagnose`"),
    (b"\xd4\xc3\xb2\xa1", "recorded network traffic (pcap)"),
)
_ELF, _ELF_ORDER_AT, _ELF_TYPE_AT, _ELF_CORE = b"\x7fELF", 5, 16, 4
_TAR, _TAR_AT = b"ustar", 257
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_TFEVENTS = re.compile(rb".{12}\x09.{8}\x1a\rbrain\.Event:", re.DOTALL)
_PROTOBUF = re.compile(rb"\n[\x01-\x7f][ -~]|\x08[\0-\x7f][\x10-\x1a]")  # a first field that is a text or a number


class UnreadableError(TpuwatchError):
    """A text cannot be read, or not to its end; the message names it and says why."""


class NoSuchFileError(UnreadableError):
    """There is no file of that name: a wrong name, likely."""


class _PackedError(Exception):
    """Compressed data end early, are damaged, or unpack to too much."""


class _NoTextError(Exception):
    """It is no text; the message says what it is."""


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
    shown = "standard input" if name == STDIN else name
    try:
        with _open(name) as file:
            yield from _decoded(_plain(file, progress))
    except _NoTextError as error:
        kind = str(error).replace("FILE", shlex.quote(name))
        raise UnreadableError(f"cannot read {shown}: it is {kind}") from error
    except _PackedError as error:
        raise UnreadableError(f"cannot read all of {shown}: {error}") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoSuchFileError(f"cannot read {shown}: {error.strerror}") from error
    except (OSError, ImportError) as error:  # Python may have been built without lzma
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableError(f"cannot read {shown}: {reason}") from error


def _open(name: str) -> BufferedReader:
    if name == STDIN:
        if sys.stdin is None:  # Python was started without it
            raise OSError(0, "it is closed")
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    if Path(name).is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory; name the files in it")
    return open(name, "rb")


# -- what is compressed


def _plain(file: BufferedReader, progress: Callable[[int], None]) -> Iterator[bytes]:
    """What the file holds, unpacked. Raises _PackedError."""
    taken = given = 0

    def read(size: int = CHUNK_BYTES) -> bytes:
        nonlocal taken
        data = file.read(size)
        taken += len(data)
        progress(taken)
        return data

    data = read()
    packing = next((packing for magic, packing in _PACKINGS if data.startswith(magic)), None)
    if packing is None:
        while data:
            yield data
            data = read(_NEXT_BYTES)
        return
    for unpacked in _unpacked(data, read, *packing()):
        given += len(unpacked)
        if given > max(_UNPACKED_BYTES, _UNPACKED_TIMES * taken):
            raise _PackedError(f"it unpacks to more than {_UNPACKED_TIMES:,} times its size, as no log does")
        yield unpacked


def _unpacked(
    data: bytes, read: Callable[[], bytes], new: Callable[[], Any], damaged: type[Exception]
) -> Iterator[bytes]:
    """The members of a compressed file, one after the other, as far as they are good. `data`: its beginning.

    `new`: a decompressor for a member. `damaged`: what it raises.
    """
    while data:
        unpacker = new()
        while not unpacker.eof:
            if unpacker.needs_input and not (data := data or read()):
                raise _PackedError("it ends too early: it was cut, or is still being written")
            try:
                unpacked = unpacker.decompress(data, CHUNK_BYTES)
            except damaged as error:
                raise _PackedError(f"it is damaged ({error})") from error
            data = b""
            if unpacked:
                yield unpacked
        data = unpacker.unused_data.lstrip(b"\0")
        while not data and (padded := read()):  # members may be padded with zeros
            data = padded.lstrip(b"\0")


class _Gunzip:
    """A decompressor of gzip's format that is used as those of bz2 and lzma are."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: bytes, most: int) -> bytes:
        unpacked = self._member.decompress(self._member.unconsumed_tail + data, most)
        self.needs_input = len(unpacked) < most
        return unpacked


def _gzip() -> tuple[Callable[[], Any], type[Exception]]:
    return _Gunzip, zlib.error


def _bzip2() -> tuple[Callable[[], Any], type[Exception]]:
    import bz2

    return bz2.BZ2Decompressor, OSError


def _xz() -> tuple[Callable[[], Any], type[Exception]]:
    import lzma

    return partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY), lzma.LZMAError


_PACKINGS: Final = ((b"\x1f\x8b", _gzip), (b"BZh", _bzip2), (b"\xfd7zXZ\0", _xz))


# -- what is text, and what is not


def _decoded(data: Iterator[bytes]) -> Iterator[bytes]:
    """Text in any of Unicode's encodings as UTF-8, and other text as it is. Raises _NoTextError."""
    head, zeros = _head(data)
    if not head:
        if zeros:
            raise _NoTextError("empty but for zero bytes")
        return
    placed = bytes(zeros % 4) + head  # a character of UTF-16 and UTF-32 may begin with zeros
    encoding, mark = _encoding(placed)
    wide = encoding in _WIDE
    start = (placed if wide else head)[mark:]
    kind = _kind(head) or _no_text(start, encoding if wide else "latin-1")
    if kind:
        raise _NoTextError(kind)
    if not wide:
        yield start
        yield from data
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(start).encode("utf-8", "replace")
    for chunk in data:
        yield decoder.decode(chunk).encode("utf-8", "replace")


def _head(data: Iterator[bytes]) -> tuple[bytes, int]:
    """The beginning, and how many zeros there were before it: a file that was truncated while written has them."""
    head, zeros = b"", 0
    for chunk in data:
        head = chunk.lstrip(b"\0")
        zeros += len(chunk) - len(head)
        if head:
            break
    return head, zeros


def _encoding(head: bytes) -> tuple[str, int]:
    """The encoding, and the length of the mark that names it."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    if b"\0" in head:
        for encoding in _WIDE:
            try:
                text = codecs.getincrementaldecoder(encoding)().decode(head[:_HEAD_BYTES])
            except UnicodeDecodeError:
                continue
            if 2 * len(_ORDINARY.findall(text)) > len(text):
                return encoding, 0
    return "utf-8", 0


def _no_text(head: bytes, encoding: str) -> str:
    """What is decoded so is no text: a clause; empty if it may well be text."""
    text = _HOLE.sub("", head[:_HEAD_BYTES].decode(encoding, "replace"))
    if len(_STRANGE.findall(text)) <= _STRANGE_ALLOWED + len(text) // _STRANGE_SHARE:
        return ""
    if _TFEVENTS.match(head):
        return "a file of TensorFlow's events (TensorBoard reads it)"
    if _PICKLE.match(head):
        return "an object that Python pickled"
    if _PROTOBUF.match(head):
        return "no text but binary, as a protobuf message is"
    return "no text but binary"


def _kind(head: bytes) -> str:
    """What it is that begins so, where that is certain and no text."""
    if head.startswith(_ELF):
        order: Literal["little", "big"] = "little" if head[_ELF_ORDER_AT : _ELF_ORDER_AT + 1] == b"\1" else "big"
        core = int.from_bytes(head[_ELF_TYPE_AT : _ELF_TYPE_AT + 2], order) == _ELF_CORE
        return "a core dump (gdb reads it)" if core else "a program or library (ELF)"
    if head.startswith(_TAR, _TAR_AT):
        return "a tar archive; `tar -xOf FILE | tpuwatch diagnose -` reads what is in it"
    return next((kind for magic, kind in _KINDS if head.startswith(magic)), "")
