"""What the checks see of the world: all of it comes from here, so that tests decide what there is."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tpuwatch.doctor import reach
from tpuwatch.doctor.people import Person, myself, names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config

T = TypeVar("T")

MAX_BYTES = 1 << 20  # of any file


def _disk(path: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(path)
    return usage.total, usage.free


@dataclass
class Environment:
    """The machine, the network and the configuration. Paths are absolute and lie below `root`."""

    config: Config
    environ: Mapping[str, str]  # of the shell that the doctor was called from
    clock: Clock
    root: Path = Path("/")
    me: Person = field(default_factory=myself)
    pids: tuple[int, ...] = ()  # look at these processes only; empty: at all that use a TPU
    python: str = ""  # look at this interpreter's packages
    run: Callable[..., reach.Ran | None] = reach.run
    fetch: Callable[..., reach.Reply] = reach.fetch
    disk: Callable[[Path], tuple[int, int]] = _disk  # total and free bytes of a path's file system
    glibc: Callable[[], str] = reach.glibc
    login: Callable[..., Any] | None = None  # stands in for Google's authentication library
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: dict[str, _Once] = field(default_factory=dict)

    def path(self, path: str | Path) -> Path:
        """An absolute path of the machine as it is reached from here."""
        return self.root / str(path).lstrip("/")

    def text(self, path: str | Path) -> str:
        """A file's text, cut at 1 MiB. Raises OSError."""
        with open(self.path(path), "rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")

    def text_or_none(self, path: str | Path) -> str | None:
        """A file's text; None where there is no such file, or it may not be read."""
        try:
            return self.text(path)
        except OSError:
            return None

    def user_name(self, uid: int) -> str:
        """A user's name, or its number where it has none; from files alone, for a server might not answer."""
        files = ("/etc/passwd", "/etc/oslogin_passwd.cache")  # the latter is Google's OS Login's
        known = self.once("users", lambda: names(self.text_or_none(file) or "" for file in files))
        return cut(known.get(uid, str(uid)))

    @property
    def my_name(self) -> str:
        """The name of who the doctor runs as."""
        return self.user_name(self.me.uid)

    @property
    def sudo(self) -> str:
        """What lets the doctor see more; "" where it sees all already."""
        return "sudo tpuwatch doctor" if self.me.uid else ""

    def once(self, key: str, make: Callable[[], T]) -> T:
        """What `make` returns; it is called once however many checks ask. An exception is raised for each of them."""
        with self._lock:
            once = self._made.setdefault(key, _Once(make))
        value: T = once.value()
        return value


class _Once:
    """Calls once, for whoever comes first; the others wait for the same outcome."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None

    def value(self) -> Any:
        with self._lock:
            if not self._done:
                try:
                    self._value = self._make()
                except Exception as error:  # noqa: BLE001 # every check that asks is told the same
                    self._error = error
                self._done = True
        if self._error is not None:
            raise self._error
        return self._value


def expand_home(path: str, environ: Mapping[str, str]) -> str:
    """A path that may begin with ~, by HOME."""
    return environ.get("HOME", "") + path[1:] if path.startswith("~/") else path


def cut(text: str, length: int = 100) -> str:
    """Text of others, short enough for a sentence and without what a terminal would obey."""
    clean = "".join(char if char.isprintable() else " " for char in text[: length + 1])
    return clean if len(clean) <= length else clean[:length] + "…"
