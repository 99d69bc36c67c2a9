"""Finding and parsing the configuration file, without validation. Light, for commands that must start fast."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import ConfigDeniedError, ConfigError, other_author

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "TPUWATCH_CONFIG"
SYSTEM_PATH: Final = Path("/etc/tpuwatch/config.toml")
_MAX_BYTES: Final = 1 << 20


def find(path: Path | None, environ: Mapping[str, str], system_path: Path = SYSTEM_PATH) -> Path | None:
    """`path`, else the file that TPUWATCH_CONFIG names, else `system_path` if there is one, else None.

    Raises ConfigError if it cannot be determined whether the system file exists, ConfigDeniedError if this user may not
    read it. A file that was named is not opened.
    """
    if path is None and environ.get(VARIABLE):
        return Path(environ[VARIABLE])
    if path is not None or not _exists(system_path):
        return path
    if not os.access(system_path, os.R_OK):
        raise _denied(system_path)
    return system_path


def read(path: Path) -> Mapping[str, Any]:
    """The tables of the file. Raises ConfigError, also where others can change the file, for it names what is run."""
    import tomli  # only where there is a file

    if changed := other_author(path):
        raise ConfigError(f"the configuration {path} is not used: {changed}; {own(path)}")
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_BYTES} bytes: give a configuration file")
        return tomli.loads(raw.decode())
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration file {path}: give the path of one, or leave it out") from error
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (at byte {error.start}): save it as UTF-8") from error
    except (tomli.TOMLDecodeError, RecursionError) as error:  # the latter for lists in lists in lists …
        raise ConfigError(f"{path}: not TOML: {error}") from error


def own(path: Path) -> str:
    """The command after which nobody else can change the file."""
    return (
        f"look at what is in it, then `sudo chown root {path}` and `sudo chmod go-w {path}`, and the same for the "
        "directory if others can change that"
    )


def stamp(path: Path | None) -> str:
    """The state of a configuration file: another one after each change of it. Empty for no file."""
    if path is None:
        return ""
    name = os.path.abspath(path).encode("unicode_escape").decode()  # noqa: PTH100 (the text is all that is wanted)
    try:
        entry = path.stat()
    except OSError:
        return f"{name} is missing"
    return f"{name} {entry.st_mtime_ns} {entry.st_size}"


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError as error:
        raise _denied(path) from error
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from error
    return True


def _denied(path: Path) -> ConfigDeniedError:
    return ConfigDeniedError(f"this user may not read the configuration file {path}")
