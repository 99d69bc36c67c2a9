"""tpuwatch's own configuration: whether it can be read, is valid, and says nothing in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConfigDeniedError, capital, installed
from tpuwatch.doctor.check import Area, Check, Result, unknown, warn, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.doctor.environment import Environment

_KEYS: Final = installed("config.example.toml")
_RULES: Final = installed("docs/rules.md")


def configuration(environment: Environment) -> Iterator[Result]:
    """The configuration, by which all other checks go; by the defaults where it could not be loaded."""
    from tpuwatch.config import inconsistencies
    from tpuwatch.logs import load_catalogue

    error = environment.config_error
    if isinstance(error, ConfigDeniedError) or (error is not None and isinstance(error.__cause__, PermissionError)):
        yield unknown(f"{error}. The other checks go by the defaults.", environment.sudo)
    elif error is not None:
        for line in str(error).splitlines():
            yield wrong(f"{line}.", "Correct it: tpuwatch does not start. The other checks go by the defaults.", _KEYS)
    else:
        for sentence in inconsistencies(environment.config):
            what, _, fix = sentence.rpartition(". ")
            yield warn(f"{what}.", fix, _KEYS)
        for refused in load_catalogue(environment.config.logs.rules).refused:
            what, _, fix = str(refused).rpartition("; ")
            yield warn(f"A rule is not used: {what}.", f"{capital(fix)}.", _RULES)


CHECKS = (Check("config_file", "configuration", Area.CONFIGURATION, configuration, fine="It is valid and consistent."),)
