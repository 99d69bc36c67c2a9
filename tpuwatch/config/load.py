"""Finding, reading and validating a configuration file. All problems are reported at once."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from tpuwatch.config import file
from tpuwatch.config.file import SYSTEM_PATH
from tpuwatch.config.schema import HALF_TLS, SHORT_LEASE, Config, config_keys, tables
from tpuwatch.core import ConfigError, other_author

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

_MAX_SHOWN_CHARS = 60  # of a wrong value in a message
# Tables, keys and values that were renamed: a message names the new one instead of guessing.
RENAMED_KEYS: Final = {
    "agents": "peers",
    "cloud.alpha": "cloud.use_v2alpha1",
    "restart.breaker_last": "restart.breaker_window_restarts",
    "restart.capacity_tries": "restart.stockout_alert_after",
    "restart.longest_backoff_seconds": "restart.max_backoff_seconds",
    "tune.least_mib": "tune.min_mib",
    "tune.most_mib": "tune.max_mib",
    "tune.pins": "tune.overrides",
}
RENAMED_VALUES: Final = {("tune.mode", "apply"): "act"}


def load_config(path: Path | None, environ: Mapping[str, str], *, system_path: Path = SYSTEM_PATH) -> Config:
    """The configuration of `path`, else of the file that TPUWATCH_CONFIG names, else of `system_path` if there is one.

    Without a file, every key has its default. Raises ConfigError with one line per problem.
    """
    found = file.find(path, environ, system_path)
    return _read(found) if found is not None else Config()


def _read(path: Path) -> Config:
    try:
        config = Config.model_validate(file.read(path))
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {_describe(problem)}" for problem in error.errors())) from error
    trusted = {0, os.geteuid(), path.stat().st_uid}
    for key in ("checkpoint_command", "runtime_command"):
        for run in _files(getattr(config.restart, key)):
            if changed := other_author(run, trusted):
                raise ConfigError(f"{path}: restart.{key}: {changed}; {file.own(run)}")
    config._source = path  # noqa: SLF001 (its own package; no key of the file can be called so)
    return config


def _files(command: Sequence[str]) -> Iterator[Path]:
    """The program, and the files among its arguments: a shell or an interpreter runs what one of these holds."""
    for place, word in enumerate(map(Path, command)):
        with contextlib.suppress(PermissionError):  # this user may not look at it
            if not place or (word.is_absolute() and word.is_file()):
                yield word


def _describe(problem: ErrorDetails) -> str:
    """One line on one problem: which key, what was given, what is allowed."""
    if problem["type"] in (SHORT_LEASE, HALF_TLS):
        return problem["msg"]
    place = problem["loc"]
    name = ".".join(str(part) for part in place[:2])
    if problem["type"] == "extra_forbidden":
        if renamed := RENAMED_KEYS.get(name):
            return f"{name} is now {renamed}"
        return f"{name} is not a key of tpuwatch; {_suggest(name)}"
    if renamed := RENAMED_VALUES.get((name, str(problem["input"]))):
        return f'{name} = "{problem["input"]}" is now "{renamed}"'
    given = json.dumps(problem["input"], ensure_ascii=False, default=str)
    given = given if len(given) <= _MAX_SHOWN_CHARS else given[:_MAX_SHOWN_CHARS] + "…"
    if name in {setting.name for setting in config_keys() if setting.secret}:
        given = "the given value"
    allowed = {setting.name: setting.allowed for setting in config_keys()}.get(name, f"a table [{name}]")
    index = "".join(f"[{part}]" for part in place[2:])
    return f"{name}{index} cannot be {given}; give {allowed}"


def _suggest(name: str) -> str:
    """The nearest key, else the keys that there are."""
    known = [setting.name for setting in config_keys()]
    if near := difflib.get_close_matches(name, [*known, *tables()], n=1):
        return f"did you mean {near[0]}?"
    table, dot, _ = name.partition(".")
    here = [each for each in known if each.startswith(f"{table}.")] if dot else list(tables())
    return f"known are {', '.join(here or list(tables()))}"
