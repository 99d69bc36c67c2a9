"""The archive: files that are bounded and redacted, and a manifest of what is in it and what is not."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.core import TpuwatchError, dumps, iso

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.support.redactor import Redactor

MAX_BYTES: Final = 20 << 20  # of all files before they are packed
_MAX_FILE: Final = 4 << 20
_MANIFEST: Final = "manifest.json"


class Archive:
    """Files in memory, and what could not be had."""

    def __init__(self, name: str, redactor: Redactor, now: float) -> None:
        """`name` of the directory in which the files are; `now` in seconds since the epoch."""
        self._name = name
        self._redactor = redactor
        self._now = now
        self._files: dict[str, bytes] = {}
        self._described: list[dict[str, Any]] = []
        self._missing: list[dict[str, str]] = []

    def add_text(self, name: str, what: str, text: str) -> None:
        """A file of text; its end where it is too long."""
        if len(text) > 2 * _MAX_FILE:  # what is taken out makes it shorter, or a little longer
            text = text[-2 * _MAX_FILE :].partition("\n")[2]
        data = self._redactor.text(text).encode("utf-8", "replace")
        room = self._room()
        cut = len(data) > room
        if cut:
            data = data[len(data) - room :].partition(b"\n")[2]
        self._add(name, what, data, "the end of it" if cut else "")

    def add_json(self, name: str, what: str, document: Any) -> None:
        """A JSON document; of its lists the first entries where it is too long."""
        document = self._redactor.document(document)
        left, room = 1 << 20, self._room()
        data = _packed(document)
        while len(data) > room and left > 1:
            left //= 2
            data = _packed(_cut(document, left))
        if len(data) > room:
            self.miss(name, what, "it is too large")
        else:
            self._add(name, what, data, f"{left} entries of each list at most" if left < 1 << 20 else "")

    def miss(self, name: str, what: str, why: object) -> None:
        """A file that is not there, and why, a sentence."""
        self._missing.append({"name": name, "what": what, "why": self._redactor.text(str(why))})

    def manifest(self) -> dict[str, Any]:
        """What is in it, what is not, and how much was taken out."""
        return {
            "tpuwatch": __version__,
            "created": iso(self._now),
            "files": self._described,
            "missing": self._missing,
            "taken_out": {kind: number for kind, number in sorted(self._redactor.taken.items()) if number},
        }

    def pack(self) -> bytes:
        """The .tar.gz."""
        packed = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=self._now) as stream,
            tarfile.open(fileobj=stream, mode="w") as tar,
        ):
            for name, data in ((_MANIFEST, _packed(self.manifest())), *self._files.items()):
                entry = tarfile.TarInfo(f"{self._name}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(self._now)
                tar.addfile(entry, io.BytesIO(data))
        return packed.getvalue()

    def _add(self, name: str, what: str, data: bytes, cut: str) -> None:
        self._files[name] = data
        self._described.append({"name": name, "what": what, "bytes": len(data), "cut": cut or None})

    def _room(self) -> int:
        return max(0, min(_MAX_FILE, MAX_BYTES - sum(map(len, self._files.values()))))


def write_archive(path: Path, data: bytes) -> None:
    """Write a file that nobody else may read. Under sudo it belongs to who called that. Raises TpuwatchError: there is
    one already, or it cannot be written."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise TpuwatchError(f"{path} exists already: name another file with `-o FILE`") from None
    except OSError as error:
        raise TpuwatchError(f"{path} cannot be written: {error.strerror}; name another file with `-o FILE`") from error
    try:
        with open(descriptor, "wb") as file:
            user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
            if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
                os.fchown(file.fileno(), int(user), int(group))
            file.write(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise TpuwatchError(f"{path} cannot be written: {error.strerror}; name another file with `-o FILE`") from error


def _packed(document: Any) -> bytes:
    return f"{dumps(document, indent=1)}\n".encode("utf-8", "replace")


def _cut(value: Any, length: int) -> Any:
    """The document with at most so many entries in each list."""
    if isinstance(value, dict):
        return {key: _cut(one, length) for key, one in value.items()}
    return [_cut(one, length) for one in value[:length]] if isinstance(value, list) else value
