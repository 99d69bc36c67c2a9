"""The files of the tune directory: plans of next launches, and resets of workloads.

A plan is decided after a launch and read before the next one, by users who trust the directory that it lies in: it may
set TPU_*, LIBTPU_* and TPUWATCH_* variables, and none that has other code loaded. Its values become a job's
environment, so each is checked; keys that are unknown are ignored, as a newer tpuwatch may add some.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.config import NEVER_SET
from tpuwatch.core import TuneError, read_trusted, write_atomic
from tpuwatch.model import (
    DEFAULT_WORKLOAD,
    LAUNCH_VARIABLE,
    SET_VARIABLE,
    SUMS_VARIABLE,
    WORKLOAD_VARIABLE,
    Advice,
    Fit,
    SizeDecision,
    SizeStep,
    TunePlan,
    VariableSetting,
    is_workload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLANS: Final = "plans"  # in the tune directory
DROP_BOX: Final = "launches"
VERSION: Final = 1  # of a plan; keys may be added without a new one
MAX_PLAN_BYTES: Final = 1 << 18
_RESET_SUFFIX: Final = ".reset"
_MAX_RESET_BYTES: Final = 64
_MAX_FILES: Final = 10_000  # that are looked at in a directory
_MAX_TEXT: Final = 4000
_MAX_CHARS: Final = {"value": 8192, "generation": 16}  # of texts that have another limit
_MAX_ITEMS: Final = 200
_NAME: Final = re.compile(r"(?:TPU|LIBTPU|TPUWATCH)_[A-Z0-9_]{1,80}")
_REFUSED: Final = NEVER_SET | {WORKLOAD_VARIABLE, SET_VARIABLE, SUMS_VARIABLE, LAUNCH_VARIABLE}  # set at the start
_OPTIONAL: Final = frozenset({"generation"})  # which older plans have not
_OLD_STEPS: Final = {"pinned": "overridden", "stuck": "unsatisfiable"}  # as plans were written before


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


# -- directories


def plan_directory(configured: Path, environ: Mapping[str, str]) -> Path:
    """The tune directory: the daemon's, `configured`, where it takes this user's records; else the user's own, which
    need not exist yet. Raises TuneError where there is no home directory.
    """
    box = configured / DROP_BOX
    # A state directory that may not be entered is like none: pathlib would raise.
    if os.path.isdir(box) and os.access(box, os.W_OK | os.X_OK):  # noqa: PTH112 (see above)
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


def make_plan_directory(directory: Path) -> None:
    """Make a tune directory and the one for plans in it, unless they are there. Raises TuneError."""
    _make_directory(directory)
    _make_directory(directory / PLANS)


def _make_directory(path: Path) -> None:
    """Make a directory that all may read, whatever the umask is, and what is above it by the umask.

    What root makes belongs to the owner of the directory above.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return
        path.chmod(0o755)
        if os.geteuid() == 0:
            above = path.parent.stat()
            os.chown(path, above.st_uid, above.st_gid)
    except OSError as error:
        raise TuneError(f"cannot make the directory {path}: {error.strerror}") from error


# -- plans


def plan_path(directory: Path, workload: str) -> Path:
    """Where the plan of a workload is, in a tune directory."""
    return directory / PLANS / f"{workload_name(workload, {})}.json"


def plan_times(directory: Path) -> dict[str, float]:
    """The workloads that have a plan in a tune directory, and when it was written, in seconds since the epoch."""
    found: dict[str, float] = {}
    with contextlib.suppress(OSError):
        for path in islice((directory / PLANS).iterdir(), _MAX_FILES):
            if path.suffix == ".json" and is_workload(path.stem):
                found[path.stem] = path.lstat().st_mtime
    return found


def write_plan(directory: Path, plan: TunePlan) -> None:
    """Put the plan into its place in the tune directory, whole, on the disk, readable by all. Raises TuneError."""
    path = plan_path(directory, plan.workload)
    try:
        data = dump_plan(plan)
    except FormError as error:
        raise TuneError(f"cannot write {path}: {error}") from error
    make_plan_directory(directory)
    write_atomic(path, data)


def read_plan(directory: Path, workload: str) -> TunePlan | None:
    """The plan of a workload in a tune directory; None where there is none.

    Raises TuneError for one that is damaged, or that others than root, oneself and the directory's owner could have
    written.
    """
    path = plan_path(directory, workload)
    data = read_trusted(path, MAX_PLAN_BYTES)
    if data is None:
        return None
    try:
        plan = load_plan(data)
    except FormError as error:
        raise TuneError(f"{path} is no plan that can be used: {error}; remove it") from error
    if plan.workload != workload:
        raise TuneError(f"{path} is the plan of another workload; remove it")
    return plan


def standing_plans(directory: Path) -> list[TunePlan]:
    """The plans in a tune directory that can be used."""
    plans = []
    for workload in plan_times(directory):
        with contextlib.suppress(TuneError):
            plans.append(read_plan(directory, workload))
    return [plan for plan in plans if plan is not None]


# -- resets


def read_resets(directory: Path) -> dict[str, float]:
    """The workloads that were reset, in a tune directory, and when: seconds since the epoch. Files that hold no time,
    or that others could have written, are left out. Raises TuneError where the directory cannot be looked into."""
    found: dict[str, float] = {}
    try:
        names = [path.name for path in (directory / PLANS).iterdir()][:_MAX_FILES]
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError as error:
        raise TuneError(f"cannot look into {directory / PLANS}: {error.strerror}") from error
    for name in names:
        workload = name.removesuffix(_RESET_SUFFIX)
        if workload != name and is_workload(workload):
            at = _read_reset(directory / PLANS / name)
            if at is not None:
                found[workload] = at
    return found


def reset_path(directory: Path, workload: str) -> Path:
    """Where the reset of a workload is, in a tune directory."""
    return directory / PLANS / f"{workload}{_RESET_SUFFIX}"


def write_reset(directory: Path, workload: str, now: float) -> None:
    """Exclude the launches of the workload before `now`. Raises TuneError."""
    make_plan_directory(directory)
    write_atomic(reset_path(directory, workload), f"{now:.3f}\n".encode("ascii"))


def _read_reset(path: Path) -> float | None:
    try:
        raw = read_trusted(path, _MAX_RESET_BYTES)
        at = float(raw) if raw is not None else math.nan
    except (TuneError, ValueError):
        return None
    return at if math.isfinite(at) else None


# -- a plan as JSON


class FormError(ValueError):
    """The plan cannot be used; the message is a clause with the reason."""


def may_set(name: str) -> bool:
    """Whether a plan may set a variable of this name."""
    return _NAME.fullmatch(name) is not None and name not in _REFUSED


def dump_plan(plan: TunePlan) -> bytes:
    """The plan as JSON. Raises FormError for one that could not be read again."""
    try:
        data = json.dumps({"version": VERSION, **asdict(plan)}, indent=1, allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise FormError("it holds a number that is none") from error
    load_plan(data)
    return data


def load_plan(data: bytes) -> TunePlan:
    """Read a plan. Raises FormError."""
    if len(data) > MAX_PLAN_BYTES:
        raise FormError(f"it is larger than {MAX_PLAN_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormError("it is no JSON") from error
    if _number("version", _get(document, "version")) > VERSION:
        raise FormError("a newer tpuwatch wrote it")
    plan: TunePlan = _read(TunePlan, document)
    if len({setting.name for setting in plan.settings}) < len(plan.settings):
        raise FormError("a variable is there twice")
    if not is_workload(plan.workload):
        raise FormError("workload is no name")
    return plan


def _read(kind: Any, document: Any) -> Any:
    """The dataclass of that kind, from a table of its fields."""
    found = {}
    for field in fields(kind):
        if field.name in _OPTIONAL and field.name not in document:
            continue
        found[field.name] = _READERS[str(field.type)](field.name, _get(document, field.name))
    return kind(**found)


def _get(document: Any, name: str) -> Any:
    if type(document) is not dict or name not in document:
        raise FormError(f"{name} is missing")
    return document[name]


def _text(name: str, value: Any) -> str:
    if type(value) is not str or len(value) > _MAX_CHARS.get(name, _MAX_TEXT) or not value.isprintable():
        raise FormError(f"{name} is no text")
    return value


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e15:  # NaN is no number either
        raise FormError(f"{name} is no number")
    return float(value)


def _size(name: str, value: Any) -> int | None:
    if value is not None and not (type(value) is int and 0 <= value < 1 << 50):
        raise FormError(f"{name} is no size")
    return value


def _step(name: str, value: Any) -> SizeStep:
    step = _text(name, value)
    try:
        return SizeStep(_OLD_STEPS.get(step, step))
    except ValueError as error:
        raise FormError(f"{step[:80]} is no step") from error


def _setting(_: str, value: Any) -> VariableSetting:
    setting: VariableSetting = _read(VariableSetting, value)
    if not may_set(setting.name):
        raise FormError(f"{setting.name[:80]} is no variable that it may set")
    return setting


def _list_of(read: Callable[[str, Any], Any]) -> Callable[[str, Any], tuple[Any, ...]]:
    def read_all(name: str, value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > _MAX_ITEMS:
            raise FormError(f"{name} is no list")
        return tuple(read(name, one) for one in value)

    return read_all


# By the types of the fields, as they are written in `model.tune`.
_READERS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "str": _text,
    "float": _number,
    "int": lambda name, value: int(_number(name, value)),
    "int | None": _size,
    "bool": lambda _, value: value is True,
    "tuple[str, ...]": _list_of(_text),
    "SizeStep": _step,
    "Fit | None": lambda _, value: None if value is None else _read(Fit, value),
    "SizeDecision": lambda _, value: _read(SizeDecision, value),
    "tuple[Advice, ...]": _list_of(lambda _, value: _read(Advice, value)),
    "tuple[VariableSetting, ...]": _list_of(_setting),
}
