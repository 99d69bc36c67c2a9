"""The keys of the configuration that a start needs, read without the cost of validating a whole configuration.

`tpuwatch exec` and `tpuwatch env` have no quarter of a second for that. Keys that are not used here are ignored;
`tpuwatch config check` checks them.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tpuwatch.config import file
from tpuwatch.config.file import SYSTEM_PATH
from tpuwatch.core import ConfigError
from tpuwatch.model import PAGE_BYTES, SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

THIS_MACHINE: Final = Path("/")  # the root of the machine that tpuwatch runs on
STATE_DIRECTORY: Final = Path("/var/lib/tpuwatch")
SOCKET_NAME: Final = "heartbeats.socket"
DEFAULT_SOCKET: Final = STATE_DIRECTORY / SOCKET_NAME  # where a job looks by itself

_OVERRIDE: Final = r"(TPU|LIBTPU)_[A-Z0-9_]{1,60}"
NEVER_SET: Final = frozenset({"TPU_LIBRARY_PATH"})  # names code that is loaded: only the job's own environment may
_MAX_VALUE_CHARS: Final = 4096
_DEFAULT_SLOW_SECONDS: Final = 15.0
_DEFAULT_PATHS: Final = (Path("/tmp/tpu_logs"), Path("/tmp"))  # noqa: S108 (where libtpu writes)


class StartConfig(NamedTuple):  # in a fifth of the time that a dataclass takes to make: `tpuwatch exec` waits for it
    """The part of the configuration that concerns a start. The defaults are those of the whole configuration."""

    path: Path | None = None  # the file that it was read from; None if all is default
    tune_dir: Path = STATE_DIRECTORY / "tune"  # the daemon's
    log_dir: Path = Path("/tmp/tpu_logs")  # noqa: S108 (where libtpu writes)
    log_mib: int = 1024
    stderr_level: int = -1
    overrides: Mapping[str, str] = MappingProxyType({})
    rules: tuple[Path, ...] = ()  # of [logs], as far as it can be used: a run is watched all the same
    slow_init_seconds: float = _DEFAULT_SLOW_SECONDS  # the same
    log_paths: tuple[Path, ...] = _DEFAULT_PATHS  # the same: the directories that the daemon follows
    socket: Path = DEFAULT_SOCKET  # the same: of heartbeats
    root: Path = THIS_MACHINE  # the same: of the machine
    trouble: str = ""  # why the file could not be used: then all is default


def read_config(path: Path | None, environ: Mapping[str, str], *, system_path: Path = SYSTEM_PATH) -> StartConfig:
    """The configuration of `path`, else of the file that TPUWATCH_CONFIG names, else of `system_path` if there is one.

    Raises ConfigError.
    """
    found = file.find(path, environ, system_path)
    return _start(found, file.read(found)) if found is not None else StartConfig()


def usable_config(path: Path | None, environ: Mapping[str, str], *, system_path: Path = SYSTEM_PATH) -> StartConfig:
    """The same; the defaults, with the trouble, where the file cannot be used: a job starts all the same."""
    try:
        return read_config(path, environ, system_path=system_path)
    except ConfigError as error:
        return StartConfig(trouble=str(error))


def _start(path: Path, tables: Mapping[str, Any]) -> StartConfig:
    default = StartConfig()
    tune, state = _table(path, tables, "tune"), _table(path, tables, "state")
    wrong = [
        f"{table}.{key}"
        for table, key, given, right in (
            ("state", "dir", state, _is_absolute),
            ("tune", "dir", tune, lambda value: value == "" or _is_absolute(value)),
            ("tune", "log_dir", tune, _is_absolute),
            ("tune", "log_mib", tune, lambda value: _is_whole(value, 1, 1_048_576)),
            ("tune", "stderr_level", tune, lambda value: _is_whole(value, -1, 4)),
            ("tune", "overrides", tune, _are_overrides),
        )
        if key in given and not right(given[key])
    ]
    if wrong:
        raise ConfigError(f"{path}: {', '.join(wrong)} cannot be used; `tpuwatch config check` says what is wrong")
    state_dir = Path(state.get("dir", STATE_DIRECTORY))
    return StartConfig(
        path,
        Path(tune["dir"]) if tune.get("dir") else state_dir / "tune",
        Path(tune.get("log_dir", default.log_dir)),
        tune.get("log_mib", default.log_mib),
        tune.get("stderr_level", default.stderr_level),
        tune.get("overrides", {}),
        *_logs(tables),
        socket=_socket(tables, state_dir),
        root=_root(tables),
    )


def _table(path: Path, tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name} is no table; `tpuwatch config check` says what is wrong")
    return cast("Mapping[str, Any]", table)


def _logs(tables: Mapping[str, Any]) -> tuple[tuple[Path, ...], float, tuple[Path, ...]]:
    """[logs] rules, slow_init_seconds and paths; their defaults where they cannot be used."""
    try:
        logs = tables.get("logs", {})
        return (
            tuple(map(Path, logs.get("rules", ()))),
            float(logs.get("slow_init_seconds", _DEFAULT_SLOW_SECONDS)),
            tuple(map(Path, logs.get("paths", _DEFAULT_PATHS))),
        )
    except (ValueError, TypeError, AttributeError):
        return (), _DEFAULT_SLOW_SECONDS, _DEFAULT_PATHS


def _socket(tables: Mapping[str, Any], state_dir: Path) -> Path:
    """[workload] socket, else the one in the directory of [state]."""
    workload = tables.get("workload")
    given = workload.get("socket") if isinstance(workload, dict) else None
    return Path(given) if isinstance(given, str) and _is_absolute(given) else state_dir / SOCKET_NAME


def _root(tables: Mapping[str, Any]) -> Path:
    """[host] root."""
    host = tables.get("host")
    given = host.get("root") if isinstance(host, dict) else None
    return Path(given) if isinstance(given, str) and _is_absolute(given) else THIS_MACHINE


def _is_absolute(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value


def _is_whole(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _are_overrides(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(text, str) and is_override(name, text) for name, text in value.items()
    )


def is_override(name: str, value: str) -> bool:
    """Whether the configuration may set this variable, and to this value."""
    if (
        not re.fullmatch(_OVERRIDE, name)
        or name in NEVER_SET
        or not value.isprintable()
        or len(value) > _MAX_VALUE_CHARS
    ):
        return False
    return name != SIZE or (re.fullmatch("[0-9]{1,15}", value) is not None and int(value) % PAGE_BYTES == 0)
