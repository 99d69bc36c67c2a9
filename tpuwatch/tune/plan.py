"""A plan on disk, and what it makes of an environment.

A plan is decided after a launch and read before the next one, by users who trust the directory that it lies in: it may
set TPU_*, LIBTPU_* and TPUWATCH_* variables, and none that has other code loaded.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.errors import TuneError
from tpuwatch.tune import planform, visibility
from tpuwatch.tune.files import read_whole, write_whole
from tpuwatch.tune.flags import ARGUMENTS, merged_all, whole_flags
from tpuwatch.tune.model import (
    DEFAULT_WORKLOAD,
    SET_VARIABLE,
    WORKLOAD_VARIABLE,
    Decision,
    Plan,
    Setting,
    Step,
    is_workload,
)
from tpuwatch.tune.planform import SUMS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PLANS: Final = "plans"  # in the tune directory
_MOST_FILES: Final = 10_000  # that are looked at there
DROP_BOX: Final = "launches"


@dataclass(frozen=True, slots=True)
class Kept:
    """A variable that is the operator's own: it wins."""

    name: str
    value: str  # the operator's
    ours: str  # what tpuwatch would have set


@dataclass(frozen=True, slots=True)
class Given:
    """What a plan makes of an environment."""

    set: dict[str, str]  # variables to set, the marks among them
    kept: tuple[Kept, ...] = ()
    unset: tuple[str, ...] = ()  # what tpuwatch set for another launch, and this one is not to have


def workload_name(name: str | None, environ: Mapping[str, str]) -> str:
    """The workload that is meant: `name`, else that of the environment's mark, else the default one.

    Raises TuneError for what cannot be a name.
    """
    if name is None:
        name = environ.get(WORKLOAD_VARIABLE) or DEFAULT_WORKLOAD
    if not is_workload(name):
        raise TuneError(
            f"{name[:80]!r} cannot be a workload's name: give up to 64 letters, digits, dots, underlines and dashes, "
            "the first of them a letter or a digit"
        )
    return name


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


def plan_directory(configured: Path | None, environ: Mapping[str, str]) -> Path:
    """The tune directory: the daemon's, where it takes our records; else the user's own, which need not exist yet.

    `configured`: the daemon's; None reads it from the configuration that holds without an option. Raises ConfigError,
    and TuneError where there is no home directory.
    """
    if configured is None:
        from tpuwatch.tune.config import read_config

        configured = read_config(None, environ).tune_dir
    box = configured / DROP_BOX
    # A state directory that may not be entered is like none: pathlib would raise.
    if os.path.isdir(box) and os.access(box, os.W_OK | os.X_OK):  # noqa: PTH112 (as said)
        return configured
    return own_directory(environ)


def own_directory(environ: Mapping[str, str]) -> Path:
    """The user's own tune directory, where there is no daemon. Raises TuneError."""
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    if state.startswith("/"):
        return Path(state, "tpuwatch", "tune")
    try:
        return Path(home if home.startswith("/") else Path.home(), ".local", "state", "tpuwatch", "tune")
    except RuntimeError as error:
        raise TuneError("there is no home directory to keep plans in: set HOME, or XDG_STATE_HOME") from error


def make_plans(directory: Path) -> None:
    """Make a tune directory and the one for plans in it, so that all may read there. Raises TuneError."""
    make_directory(directory)
    make_directory(directory / PLANS)


def make_directory(path: Path, *, mode: int = 0o755) -> None:
    """Make a directory of this mode whatever the umask is, and what is above it by the umask, unless it is there.

    What root makes belongs to the owner of the directory above. Raises TuneError.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return
        path.chmod(mode)
        if os.geteuid() == 0:
            above = path.parent.stat()
            os.chown(path, above.st_uid, above.st_gid)
    except OSError as error:
        raise TuneError(f"cannot make the directory {path}: {error.strerror}") from error


# -- on disk


def plan_path(directory: Path, workload: str) -> Path:
    """Where the plan of a workload is, in a tune directory."""
    return directory / PLANS / f"{workload_name(workload, {})}.json"


def planned(directory: Path) -> dict[str, float]:
    """The workloads that have a plan in a tune directory, and when it was written, in seconds since the epoch."""
    found: dict[str, float] = {}
    try:
        for number, path in enumerate((directory / PLANS).iterdir()):
            if number >= _MOST_FILES:
                break
            if path.suffix == ".json" and is_workload(path.stem):
                found[path.stem] = path.lstat().st_mtime
    except OSError:
        return found
    return found


def write_plan(directory: Path, plan: Plan) -> None:
    """Put the plan into its place in the tune directory, whole, on the disk, readable by all. Raises TuneError."""
    path = plan_path(directory, plan.workload)
    try:
        data = planform.dumps(plan)
    except planform.FormError as error:
        raise TuneError(f"cannot write {path}: {error}") from error
    make_plans(directory)
    write_whole(path, data)


def read_plan(directory: Path, workload: str) -> Plan | None:
    """The plan of a workload in a tune directory; None where there is none.

    Raises TuneError for one that is damaged, or that others than root, oneself and the directory's owner could have
    written.
    """
    path = plan_path(directory, workload)
    data = read_whole(path, planform.MAX_BYTES)
    if data is None:
        return None
    try:
        plan = planform.loads(data)
    except planform.FormError as error:
        raise TuneError(f"{path} is no plan that can be used: {error}; remove it") from error
    if plan.workload != workload:
        raise TuneError(f"{path} is the plan of another workload; remove it")
    return plan


# -- what it makes of an environment


def fresh_plan(workload: str, settings: tuple[Setting, ...], now: float, *, config: str = "") -> Plan:
    """What is given when nothing is decided yet: what makes the launch visible; the size is left to libtpu."""
    return Plan(
        workload,
        now,
        settings,
        Decision(Step.START, None, None, ("There is no history of this workload yet; libtpu's own size is kept.",)),
        config,
    )


def renewed(plan: Plan, settings: Iterable[Setting], pins: Mapping[str, str]) -> Plan:
    """The plan with `settings` for what makes a launch visible, as it is now and for who starts it, and with the pins
    that the configuration has now.
    """
    found = {setting.name: setting for setting in plan.settings if setting.name not in visibility.NAMES}
    found.update((setting.name, setting) for setting in settings)
    return replace(plan, settings=pinned(found.values(), pins))


def pinned(settings: Iterable[Setting], pins: Mapping[str, str]) -> tuple[Setting, ...]:
    """The settings with the pins of the configuration in place of them. Flags that are pinned are joined by the ones
    that are there, as far as they say nothing of those."""
    found = {setting.name: setting for setting in settings}
    for name, value in pins.items():
        flags = found[name].value if name == ARGUMENTS and name in found else ""
        found[name] = Setting(name, merged_all(value, flags), "pins under [tune] say so.")
    return tuple(found.values())


def ours(environ: Mapping[str, str]) -> frozenset[str]:
    """The variables that tpuwatch set, and that nobody has changed since. The other ones are the operator's own."""
    names = [name for name in environ.get(SET_VARIABLE, "").split(",") if name in environ]
    sums = environ.get(SUMS_VARIABLE)
    if sums is None:
        return frozenset(names)
    known = dict(zip(environ.get(SET_VARIABLE, "").split(","), sums.split(",")))  # noqa: B905 (others may change them)
    return frozenset(name for name in names if known.get(name) == _sum(environ[name]))


def _sum(value: str) -> str:
    return f"{zlib.crc32(value.encode('utf-8', 'surrogateescape')):08x}"


def environment(plan: Plan, environ: Mapping[str, str]) -> Given:
    """What is to be set for a launch in this environment. What the operator has set already wins; what tpuwatch set for
    an earlier launch is renewed. LIBTPU_INIT_ARGS is merged with what is there.
    """
    mine = ours(environ)
    given: dict[str, str] = {}
    kept: list[Kept] = []
    for setting in plan.settings:
        name, value, own = setting.name, setting.value, environ.get(setting.name)
        if name == ARGUMENTS:
            value = merged_all(own or "", value)
            if set(whole_flags(setting.value)) - set(whole_flags(value)):
                kept.append(Kept(name, own or "", setting.value))
            if value != own or name in mine:
                given[name] = value
        elif own is None or name in mine:
            given[name] = value
        elif own != value:
            kept.append(Kept(name, own, value))
    over = mine - given.keys() - {ARGUMENTS} if SUMS_VARIABLE in environ else ()  # else nobody knows whose it is
    gone = tuple(sorted(filter(planform.may_set, over)))
    return Given({**given, **marks(plan.workload, given)}, tuple(kept), gone)


def marks(workload: str, given: Mapping[str, str]) -> dict[str, str]:
    """The variables that tell whose launch it is and what of its environment is tpuwatch's."""
    return {
        WORKLOAD_VARIABLE: workload,
        SET_VARIABLE: ",".join(given),
        SUMS_VARIABLE: ",".join(_sum(value) for value in given.values()),
    }
