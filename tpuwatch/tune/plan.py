"""The files of the tune directory: plans of next launches, and resets of workloads.

A plan is decided after a launch and read before the next one, by users who trust the directory that it lies in: it may
set TPU_*, LIBTPU_* and TPUWATCH_* variables, and none that has other code loaded. Its values become a job's
environment, so each is checked; keys that are unknown are ignored, as a newer tpuwatch may add some.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import asdict
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
    from collections.abc import Mapping

PLANS: Final = "plans"  # in the tune directory
DROP_BOX: Final = "launches"
VERSION: Final = 1  # of a plan; keys may be added without a new one
MAX_PLAN_BYTES: Final = 1 << 18
_RESET_SUFFIX: Final = ".reset"
_MAX_RESET_BYTES: Final = 64
_MAX_FILES: Final = 10_000  # that are looked at in a directory
_MAX_VALUE: Final = 8192
_MAX_TEXT: Final = 4000
_MAX_GENERATION: Final = 16
_MAX_ITEMS: Final = 200
_NAME: Final = re.compile(r"(?:TPU|LIBTPU|TPUWATCH)_[A-Z0-9_]{1,80}")
_REFUSED: Final = frozenset(
    {
        WORKLOAD_VARIABLE,  # marks are set at the start
        SET_VARIABLE,
        SUMS_VARIABLE,
        LAUNCH_VARIABLE,
        *NEVER_SET,
    }
)
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


# -- plans


def plan_path(directory: Path, workload: str) -> Path:
    """Where the plan of a workload is, in a tune directory."""
    return directory / PLANS / f"{workload_name(workload, {})}.json"


def plan_times(directory: Path) -> dict[str, float]:
    """The workloads that have a plan in a tune directory, and when it was written, in seconds since the epoch."""
    found: dict[str, float] = {}
    try:
        for number, path in enumerate((directory / PLANS).iterdir()):
            if number >= _MAX_FILES:
                break
            if path.suffix == ".json" and is_workload(path.stem):
                found[path.stem] = path.lstat().st_mtime
    except OSError:
        return found
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


def write_reset(directory: Path, workload: str, now: float) -> Path:
    """Exclude the launches of the workload before `now`; returns the file that records it. Raises TuneError."""
    path = reset_path(directory, workload)
    make_directory(path.parent)
    write_atomic(path, f"{now:.3f}\n".encode("ascii"))
    return path


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
    if _number(document, "version") > VERSION:
        raise FormError("a newer tpuwatch wrote it")
    settings = tuple(_setting(item) for item in _list(document, "settings"))
    if len({setting.name for setting in settings}) < len(settings):
        raise FormError("a variable is there twice")
    workload = _text(document, "workload")
    if not is_workload(workload):
        raise FormError("workload is no name")
    decision = _decision(_get(document, "decision"))
    generation = _text(document, "generation", _MAX_GENERATION) if "generation" in document else ""
    return TunePlan(workload, _number(document, "decided"), settings, decision, _text(document, "config"), generation)


def _setting(item: Any) -> VariableSetting:
    name = _text(item, "name")
    if not may_set(name):
        raise FormError(f"{name[:80]} is no variable that it may set")
    return VariableSetting(name, _text(item, "value", _MAX_VALUE), _text(item, "why"))


def _decision(item: Any) -> SizeDecision:
    step = _text(item, "step")
    step = _OLD_STEPS.get(step, step)
    if step not in {known.value for known in SizeStep}:
        raise FormError(f"{step[:80]} is no step")
    reasons = _list(item, "reasons")
    if not all(_is_text(reason, _MAX_TEXT) for reason in reasons):
        raise FormError("reasons are no sentences")
    fit = _get(item, "fit")
    return SizeDecision(
        step=SizeStep(step),
        size_bytes=_size(item, "size_bytes"),
        threshold_bytes=_size(item, "threshold_bytes"),
        reasons=tuple(reasons),
        before_bytes=_size(item, "before_bytes"),
        trial=_get(item, "trial") is True,
        conflict=_text(item, "conflict"),
        need_bytes=_size(item, "need_bytes"),
        ceiling_bytes=_size(item, "ceiling_bytes"),
        fast_bytes=_size(item, "fast_bytes"),
        fit=None if fit is None else _fit(fit),
        advice=tuple(Advice(_text(advice, "do"), _text(advice, "source")) for advice in _list(item, "advice")),
    )


def _fit(item: Any) -> Fit:
    return Fit(
        _number(item, "base_seconds"),
        _number(item, "per_byte_seconds"),
        int(_number(item, "launches")),
        int(_number(item, "left_out")),
        _number(item, "spread_seconds"),
    )


def _get(item: Any, key: str) -> Any:
    if type(item) is not dict or key not in item:
        raise FormError(f"{key} is missing")
    return item[key]


def _text(item: Any, key: str, max_chars: int = _MAX_TEXT) -> str:
    value = _get(item, key)
    if not _is_text(value, max_chars):
        raise FormError(f"{key} is no text")
    return str(value)


def _is_text(value: Any, max_chars: int) -> bool:
    return type(value) is str and len(value) <= max_chars and value.isprintable()


def _number(item: Any, key: str) -> float:
    value = _get(item, key)
    if type(value) not in (int, float) or not abs(value) < 1e15:  # NaN is no number either
        raise FormError(f"{key} is no number")
    return float(value)


def _size(item: Any, key: str) -> int | None:
    value = _get(item, key)
    if value is not None and not (type(value) is int and 0 <= value < 1 << 50):
        raise FormError(f"{key} is no size")
    return value


def _list(item: Any, key: str) -> list[Any]:
    value = _get(item, key)
    if type(value) is not list or len(value) > _MAX_ITEMS:
        raise FormError(f"{key} is no list")
    return value
