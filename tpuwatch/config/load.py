"""Finding, reading and judging a configuration file. All that is wrong with it is said at once."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import tomli
from pydantic import ValidationError

from tpuwatch.config.schema import Allowed, Config, Section
from tpuwatch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

VARIABLE = "TPUWATCH_CONFIG"
SYSTEM_PATH = Path("/etc/tpuwatch/config.toml")
_SHOWN = 60  # characters of a wrong value that a message repeats


def load_config(path: Path | None, environ: Mapping[str, str], *, system_path: Path = SYSTEM_PATH) -> Config:
    """The configuration of `path`, else of the file that TPUWATCH_CONFIG names, else of `system_path` if there is one.

    Without any file all is default. Raises ConfigError with one line per problem.
    """
    if path is None and environ.get(VARIABLE):
        path = Path(environ[VARIABLE])
    if path is None:
        return _read(system_path) if _exists(system_path) else Config()
    return _read(path)


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The keys of a table, in their order."""
    return section.model_fields


def sections() -> dict[str, type[Section]]:
    """The tables of the file, in their order."""
    return {name: section.annotation for name, section in Config.model_fields.items()}  # type: ignore[misc]  # all are
