"""Finding, reading and judging a configuration file. All that is wrong with it is said at once."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING

from pydantic import ValidationError

from tpuwatch import configfile
from tpuwatch.config.schema import Config, settings, tables
from tpuwatch.configfile import SYSTEM_PATH
from tpuwatch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

_SHOWN = 60  # characters of a wrong value that a message repeats


def load_config(path: Path | None, environ: Mapping[str, str], *, system_path: Path = SYSTEM_PATH) -> Config:
    """The configuration of `path`, else of the file that TPUWATCH_CONFIG names, else of `system_path` if there is one.

    Without any file all is default. Raises ConfigError with one line per problem.
    """
    found = configfile.find(path, environ, system_path)
    return _read(found) if found is not None else Config()


def _read(path: Path) -> Config:
    try:
        config = Config.model_validate(configfile.read(path))
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {_told(problem)}" for problem in error.errors())) from error
    config._source = path  # noqa: SLF001 (its own package; no key of the file can be called so)
    return config


def _told(problem: ErrorDetails) -> str:
    """One line on one problem: which key, what was given, what is allowed."""
    place = problem["loc"]
    name = ".".join(str(part) for part in place[:2])
    if problem["type"] == "extra_forbidden":
        return f"{name} is not a key of tpuwatch; {_instead(name)}"
    given = json.dumps(problem["input"], ensure_ascii=False, default=str)
    given = given if len(given) <= _SHOWN else given[:_SHOWN] + "…"
    if name in {setting.name for setting in settings() if setting.secret}:
        given = "what is given there"
    allowed = {setting.name: setting.allowed for setting in settings()}.get(name, f"a table [{name}]")
    index = "".join(f"[{part}]" for part in place[2:])
    return f"{name}{index} cannot be {given}; give {allowed}"


def _instead(name: str) -> str:
    known = [setting.name for setting in settings()]
    if near := difflib.get_close_matches(name, [*known, *tables()], n=1):
        return f"did you mean {near[0]}?"
    table, dot, _ = name.partition(".")
    here = [each for each in known if each.startswith(f"{table}.")] if dot else list(tables())
    return f"known are {', '.join(here or list(tables()))}"
