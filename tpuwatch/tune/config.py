"""The keys of the configuration that a start needs, read without what makes a whole configuration costly to read.

`tpuwatch exec` and `tpuwatch env` have no quarter of a second for it. A key that is not used here is not looked at;
`tpuwatch config check` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tpuwatch import configfile
from tpuwatch.configfile import SYSTEM_PATH
from tpuwatch.errors import ConfigError
from tpuwatch.tune.model import PAGE_BYTES, SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_DIRECTORY: Final = Path("/var/lib/tpuwatch")

_PIN: Final = r"(TPU|LIBTPU)_[A-Z0-9_]{1,60}"
NEVER_SET: Final = frozenset({"TPU_LIBRARY_PATH"})  # names code that is loaded: only the job's own environment may
_MAX_VALUE_CHARS: Final = 4096


@dataclass(frozen=True, slots=True)
class StartConfig:
    """What [tune] says of a start. The defaults are those of tpuwatch.config.tune."""

    path: Path | None = None  # the file that it was read from; None if all is default
    tune_dir: Path = STATE_DIRECTORY / "tune"  # the daemon's
    log_dir: Path = Path("/tmp/tpu_logs")  # noqa: S108 (where libtpu writes)
    log_mib: int = 1024
    stderr_level: int = -1
    pins: Mapping[str, str] = field(default_factory=dict)


def read_config(path: Path | None, environ: Mapping[str, str], *, system_path: Path = SYSTEM_PATH) -> StartConfig:
    """The configuration of `path`, else of the file that TPUWATCH_CONFIG names, else of `system_path` if there is one.

    Raises ConfigError.
    """
    found = configfile.find(path, environ, system_path)
    return _start(found, configfile.read(found)) if found is not None else StartConfig()


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
            ("tune", "pins", tune, _are_pins),
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
        tune.get("pins", {}),
    )


def _table(path: Path, tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name} is no table; `tpuwatch config check` says what is wrong")
    return cast("Mapping[str, Any]", table)


def _is_absolute(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value


def _is_whole(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _are_pins(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) and is_pin(name, text) for name, text in value.items())


def is_pin(name: str, value: str) -> bool:
    """Whether a variable may be pinned, and to this value."""
    if not re.fullmatch(_PIN, name) or name in NEVER_SET or not value.isprintable() or len(value) > _MAX_VALUE_CHARS:
        return False
    return name != SIZE or (re.fullmatch("[0-9]{1,15}", value) is not None and int(value) % PAGE_BYTES == 0)
