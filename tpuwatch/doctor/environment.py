"""Everything that checks read of the machine and the network, so that tests can replace it. All reads are bounded."""

from __future__ import annotations

import functools
import platform
import shlex
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tpuwatch.config import THIS_MACHINE
from tpuwatch.core import HttpClient, HttpReply, SystemClock, printable
from tpuwatch.doctor.users import User, current_user
from tpuwatch.host import USER_FILES, parse_users

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tpuwatch.config import Config
    from tpuwatch.core import Clock, ConfigError
    from tpuwatch.google import PermissionsClient

T = TypeVar("T")

MAX_BYTES = 1 << 20  # of any file, and of an answer unless its reader says otherwise
SECONDS = 2.0  # for an answer
_MAX_OUTPUT = 1 << 18


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command that has run."""

    code: int
    output: str


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The text of a file, cut at `max_bytes`. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(max_bytes).decode("utf-8", "replace")


def fetch(url: str, **more: Any) -> HttpReply:
    """What is at an address, within SECONDS. Takes what `HttpClient.request` takes, and raises HttpError."""
    return HttpClient(SystemClock()).request(url, **{"seconds": SECONDS, "max_bytes": MAX_BYTES, **more})


def run_command(command: Sequence[str], *, seconds: float = 2.0) -> CommandResult | None:
    """Run a command without input; None if it is not installed or takes longer."""
    try:
        done = subprocess.run(  # noqa: S603 # a fixed command, found on PATH
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return CommandResult(done.returncode, done.stdout[:_MAX_OUTPUT].decode("utf-8", "replace"))


def _no_command(_command: Sequence[str], *, seconds: float = 0.0) -> None:
    """No command is installed; `seconds` is not used."""


def glibc_version() -> str:
    """The version of glibc, "2.31"; "" for another C library."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else ""


@dataclass
class Environment:
    """The machine, the network and the configuration. Paths are absolute and lie below `root`."""

    config: Config
    environ: Mapping[str, str]  # of the calling shell
    clock: Clock
    root: Path = THIS_MACHINE
    config_error: ConfigError | None = None  # why the configuration is the defaults
    me: User = field(default_factory=current_user)
    pids: tuple[int, ...] = ()  # the processes to check; empty: all that use a TPU
    python: str = ""  # the interpreter whose packages to check
    run: Callable[..., CommandResult | None] = run_command
    fetch: Callable[..., HttpReply] = fetch
    disk: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage  # total, used and free bytes
    glibc: Callable[[], str] = glibc_version
    check_credentials: Callable[..., Any] | None = None  # replaces Google's authentication library
    permissions: PermissionsClient | None = None  # replaces the Cloud Resource Manager
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cache: dict[str, _Once] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config, environ: Mapping[str, str], clock: Clock, **more: Any) -> Environment:
        """The machine that the configuration names. Another one than this has no commands that could be run."""
        root = config.host.root
        run = run_command if root == THIS_MACHINE else _no_command
        return cls(config, config.host.environ(environ), clock, root=root, run=run, **more)

    def path(self, path: str | Path) -> Path:
        """An absolute path of the machine, below `root`."""
        return self.root / str(path).lstrip("/")

    def text(self, path: str | Path) -> str:
        """A file's text, cut at 1 MiB. Raises OSError."""
        return read_text(self.path(path))

    def text_or_none(self, path: str | Path) -> str | None:
        """A file's text; None if there is no such file or it cannot be read."""
        try:
            return self.text(path)
        except OSError:
            return None

    def user_name(self, uid: int) -> str:
        """The name of a user, or its uid if it has none; from files only, because a name service might hang."""
        known = self.once("users", lambda: parse_users("\n".join(self.text_or_none(file) or "" for file in USER_FILES)))
        return cut(known.get(uid, str(uid)))

    @property
    def my_name(self) -> str:
        """The name of the user that the doctor runs as."""
        return self.user_name(self.me.uid)

    @property
    def sudo(self) -> str:
        """The command that lets the doctor see more; "" if it runs as root."""
        return "`sudo tpuwatch doctor`" if self.me.uid else ""

    def once(self, key: str, make: Callable[[], T]) -> T:
        """The result of `make`, which is called once for all checks. Its exception is raised for each of them."""
        with self._lock:
            once = self._cache.setdefault(key, _Once(make))
        value: T = once.value()
        return value


class _Once:
    """Calls a function once; all callers get the same outcome."""

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
                except Exception as error:  # noqa: BLE001 # raised for every caller
                    self._error = error
                self._done = True
        if self._error is not None:
            raise self._error
        return self._value


def once(look: Callable[[Environment], T]) -> Callable[[Environment], T]:
    """Decorate a function of the environment, so that it is called once for all checks."""

    @functools.wraps(look)
    def answer(environment: Environment) -> T:
        return environment.once(f"{look.__module__}.{look.__name__}", lambda: look(environment))

    return answer


def expand_home(path: str, environ: Mapping[str, str]) -> str:
    """A path with a leading ~ replaced by HOME."""
    return environ.get("HOME", "") + path[1:] if path.startswith("~/") else path


def export(name: str, value: str) -> str:
    """The command that sets a variable to exactly that."""
    return f"`export {name}={shlex.quote(printable(value))}`"


def cut(text: str, length: int = 100) -> str:
    """Text of others, printable and short enough for a sentence."""
    return printable(text, length)
