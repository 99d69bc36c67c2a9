"""Keeps compiled patterns and literals in a directory: to compile them takes a second or two, to load milliseconds.

A file of another version (of Hyperscan too, which checks that), of another machine, or damaged is as good as none: the
patterns are compiled again. Hyperscan trusts what it loads, so nothing is read that another user can have written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hyperscan

from tpuwatch import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PREFIX: Final = "patterns-"
_KEPT: Final = 12  # files: `diagnose` of short texts, of long ones and `exec` have other rules each
_MAX_BYTES: Final = 64 << 20
_OTHERS: Final = 0o022  # the mode of what others can write to
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """Where commands keep patterns, which need not exist yet; None for a user without a home directory."""
    cache, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    if cache.startswith("/"):
        return Path(cache, "tpuwatch")
    return Path(home, ".cache", "tpuwatch") if home.startswith("/") else None


class KeptPatterns:
    """The compiled patterns of a directory, by what they were compiled from."""

    def __init__(self, directory: Path, patterns: Iterable[str]) -> None:
        """`patterns`: of the rules, in order."""
        made_from = [__version__, os.uname().machine, *patterns]
        self._key = hashlib.blake2b(json.dumps(made_from).encode(), digest_size=16).digest()
        self._path = directory / f"{_PREFIX}{self._key.hex()}"

    def load(self) -> tuple[list[int], hyperscan.Database] | None:
        """What was given to `save`; None if it is not there, or must not or cannot be used."""
        try:
            data = _read(self._path)
            head, _, database = data.partition(b"\n")
            known = json.loads(head)
            if data and known["digest"] == self._digest(database):
                loaded = hyperscan.loadb(database, hyperscan.HS_MODE_BLOCK)
                loaded.scratch = hyperscan.Scratch(loaded)
                loaded.scan(b" ", match_event_handler=_ignore)  # fails where this processor lacks something
                return known["reach"], loaded
        except (OSError, ValueError, TypeError, KeyError, hyperscan.error):
            pass
        return None

    def save(self, reach: list[int], database: hyperscan.Database) -> None:
        """Keep a database, with how far the matches of each pattern reach; or not, where that is not possible."""
        data = hyperscan.dumpb(database)
        head = json.dumps({"digest": self._digest(data), "reach": reach}).encode()
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_own(self._path.parent.stat()):
                _replace(self._path, head + b"\n" + data)
                _drop_old(self._path.parent)

    def _digest(self, database: bytes) -> str:
        return hashlib.blake2b(database, key=self._key, digest_size=16).hexdigest()


def _read(path: Path) -> bytes:
    """What is in the file; nothing if another user can have written it. Raises OSError."""
    descriptor = os.open(path, _READ)
    try:
        entry = os.fstat(descriptor)
        if not (_is_own(entry) and _is_own(path.parent.stat()) and entry.st_size <= _MAX_BYTES):
            return b""
        return os.pread(descriptor, entry.st_size, 0)
    finally:
        os.close(descriptor)


def _is_own(entry: os.stat_result) -> bool:
    return entry.st_uid == os.geteuid() and not entry.st_mode & _OTHERS


def _replace(path: Path, data: bytes) -> None:
    """Replace the file: a reader finds all of the old one or all of the new one."""
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(fresh, _NEW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _drop_old(directory: Path) -> None:
    """Remove all but the latest files."""
    kept = sorted(directory.glob(f"{_PREFIX}*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[_KEPT:]:
        path.unlink(missing_ok=True)


def _ignore(*_: object) -> None:
    """A match in the text that is scanned as a trial."""
