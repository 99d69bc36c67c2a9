"""What the command is given, and what its operator is told before it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.errors import TuneError
from tpuwatch.tune.model import LAUNCH_VARIABLE, SET_VARIABLE
from tpuwatch.tune.plan import Given, marks, own_directory, plan_directory, workload_name
from tpuwatch.tune.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tpuwatch.tune.model import Plan

_SHOWN: Final = 100  # characters of a value
_TOLD: Final = 3  # faults in values


class Beginning(NamedTuple):  # in a fifth of the time that a dataclass takes to make
    """A launch as it begins."""

    launch: str  # its id
    workload: str
    environ: dict[str, str]  # of the command
    given: Given
    plan: Plan | None  # None: nothing is tuned
    directory: Path | None  # the tune directory; None where there is none
    own: bool  # whether that is the user's own, so that nobody but us decides
    notes: tuple[str, ...]  # sentences for the operator


def begin(
    name: str | None, environ: Mapping[str, str], now: float, *, config: Path | None, tune: bool = True
) -> Beginning:
    """Put the environment together. `now`: seconds since the epoch.

    Raises ConfigError for a configuration that cannot be used, and TuneError for a name that is none.
    """
    workload = workload_name(name, environ)
    notes: list[str] = []
    plan, directory = None, None
    given = Given(marks(workload, {}))
    if tune:
        prepared = prepare(workload, environ, now, config=config)
        plan, given, directory = prepared.plan, prepared.given, prepared.directory
        notes += prepared.warnings
    else:
        directory = _directory(config, environ)
    notes += _kept(given)
    notes += _faults({key: value for key, value in environ.items() if key not in given.set})
    launch = os.urandom(12).hex()
    whole = {key: value for key, value in environ.items() if key not in given.unset}
    whole.update(given.set, **{LAUNCH_VARIABLE: launch})
    own = directory is not None and directory == _own(environ)
    return Beginning(launch, workload, whole, given, plan, directory, own, tuple(notes))


def names(given: Given) -> tuple[str, ...]:
    """The variables that tpuwatch set, without its marks."""
    return tuple(name for name in given.set.get(SET_VARIABLE, "").split(",") if name)


def _directory(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    from tpuwatch.tune.config import read_config

    try:
        return plan_directory(read_config(config, environ).tune_dir, environ)
    except TuneError:
        return None


def _own(environ: Mapping[str, str]) -> Path | None:
    try:
        return own_directory(environ)
    except TuneError:
        return None


def _kept(given: Given) -> Iterator[str]:
    """What the operator has set himself, in one line."""
    if given.kept:
        told = ", ".join(f"{kept.name}={_shown(kept.value)} (not {_shown(kept.ours)})" for kept in given.kept)
        yield f"your own {told} {'stays' if len(given.kept) == 1 else 'stay'}."


def _faults(environ: Mapping[str, str]) -> Iterator[str]:
    """Values among the operator's own that libtpu takes for something else."""
    if not any("TPU" in name.upper() and not name.startswith("TPUWATCH_") for name in environ):
        return
    from tpuwatch.tune.variables import judge_all

    for _, fault in judge_all(environ)[:_TOLD]:
        yield f"{fault.text} Right would be: {fault.fix}"


def _shown(text: str) -> str:
    clean = "".join(char if char.isprintable() else " " for char in text[: _SHOWN + 1])
    return clean if len(clean) <= _SHOWN else clean[:_SHOWN] + "…"
