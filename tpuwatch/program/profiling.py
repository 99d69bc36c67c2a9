"""What a profile of a program shows, read by xprof in a child process: where its time goes, and what to change."""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import ConfigError, TpuwatchError, clean, format_size
from tpuwatch.model import Profile, ProfiledOperation, ProfileFigures, ProfileFinding, Remedy
from tpuwatch.program.child import Child, ChildError
from tpuwatch.program.output import OUTPUT
from tpuwatch.program.xspace import NoTraceError, require_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tpuwatch.program.child import ChildLimits

CHILD: Final = Path(__file__).with_name("profile_child.py")
SUFFIX: Final = ".xplane.pb"
MAX_BYTES: Final = 4 << 30  # of one profile's files together
_SHOWN_OPERATIONS: Final = 5
_INPUT_SHARE: Final = 0.05  # from here on xprof itself calls a program input-bound
_OTHER_SHARE: Final = 0.10
_COMPILE_SHARE: Final = 0.01
_IDLE_SHARE: Final = 0.10
_TRANSFER_SHARE: Final = 0.02
_COLLECTIVE_SHARE: Final = 0.15
_FORMATTING_SHARE: Final = 0.10
_COLLECTIVES: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective")
_FORMATTING: Final = ("data formatting", "copy", "copy-start", "copy-done", "transpose", "reshape", "pad")
_LOW_MXU: Final = 0.40
_SLOW_STEP: Final = 2.0  # times the mean
_MANY_STEPS: Final = 5
_TAGS: Final = re.compile(r"<[^>]*>")
_GUIDE: Final = "https://docs.cloud.google.com/tpu/docs/performance-guide"
_DATA: Final = "https://www.tensorflow.org/guide/data_performance"
_PROFILING: Final = "https://docs.jax.dev/en/latest/profiling.html"
_CALLBACKS: Final = "https://docs.jax.dev/en/latest/external-callbacks.html"
_SHARDING: Final = "https://docs.jax.dev/en/latest/sharded-computation.html"
_LAYOUT: Final = "https://openxla.org/xla/tiled_layout"
_KERAS: Final = "https://keras.io/api/models/model_training_apis/"


class ProfileError(TpuwatchError):
    """The profile could not be read."""


def find_profile(path: Path) -> tuple[Path, ...]:
    """The trace files of one profile: the file, or those of the newest profile in a directory that holds any.

    Raises ConfigError where there is none.
    """
    if path.is_dir():
        found = [one for one in path.rglob(f"*{SUFFIX}") if one.is_file()]
        if not found:
            raise ConfigError(f"{path} holds no profile: there is no file *{SUFFIX} in it")
        newest = max(found, key=lambda one: one.stat().st_mtime).parent
        return tuple(sorted(one for one in found if one.parent == newest))
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file or directory")
    if not path.name.endswith(SUFFIX):
        raise ConfigError(f"{path} is no trace: give a file *{SUFFIX}, or a directory of profiles")
    return (path,)


def profile_command(python: str) -> tuple[str, ...]:
    """The command that has this interpreter read a profile."""
    return (python, str(CHILD))


def read_profile(
    files: Sequence[Path],
    *,
    command: Sequence[str],
    limits: ChildLimits,
    environ: Mapping[str, str],
    on_stage: Callable[[str], None],
) -> Profile:
    """Have `command`, the interpreter that has xprof and its script, read copies of the files.

    Raises ProfileError, and ConfigError for files that are too large.
    """
    size = sum(one.stat().st_size for one in files)
    if size > MAX_BYTES:
        raise ConfigError(
            f"the profile has {format_size(size)}; {format_size(MAX_BYTES)} are read: profile fewer steps"
        )
    with tempfile.TemporaryDirectory(prefix="tpuwatch-profile-", ignore_cleanup_errors=True) as name:
        copies = []
        for one in files:
            copies.append(str(Path(name) / one.name))
            try:
                require_trace(one)
                shutil.copyfile(one, copies[-1])
            except NoTraceError as error:
                raise ProfileError(f"{one} is no profile: {error}") from error
            except OSError as error:
                raise ProfileError(f"cannot read {one}: {error.strerror}") from error
        tables = _ask(copies, command, limits, environ, on_stage, Path(name))
    try:
        figures = figures_of(tables)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ProfileError(
            f"xprof says nothing of {files[0]} that is known: {type(error).__name__}: {error}"
        ) from error
    return Profile(tuple(map(str, files)), command[0], figures, tuple(profile_findings(figures)))


def _ask(
    copies: Sequence[str],
    command: Sequence[str],
    limits: ChildLimits,
    environ: Mapping[str, str],
    on_stage: Callable[[str], None],
    directory: Path,
) -> Mapping[str, Any]:
    child = Child(command, {"files": copies}, environ=environ, output=directory / OUTPUT, limits=limits)
    tables: Mapping[str, Any] | None = None
    try:
        child.finish()
        for report in child.reports():
            if report is None:
                continue
            if "error" in report:
                raise ProfileError(_sentence(report["error"]))
            on_stage(str(report.get("stage", "")))
            tables = report.get("tables", tables)
    except ChildError as error:
        raise ProfileError(f"xprof could not read the profile: {error}") from error
    finally:
        child.close()
    if tables is None or any(one is None for one in tables.values()):
        raise ProfileError("xprof could not read the profile: it is damaged, or no trace")
    return tables


def _sentence(error: Mapping[str, Any]) -> str:
    message = clean(str(error.get("message", "")), 300)
    if error.get("kind") == "interpreter":
        option = "--python (of advise --profile-python)"
        return f"{message}; install it there (pip install 'tpuwatch[profile]'), or name one that has it: {option}"
    return f"xprof could not read the profile: it is damaged, or no trace ({message})"


def figures_of(tables: Mapping[str, Any]) -> ProfileFigures:
    """The figures in xprof's tables. Raises KeyError, TypeError and the like for what are none."""
    overview, inputs, operations = (
        tables[name] for name in ("overview_page", "input_pipeline_analyzer", "framework_op_stats")
    )
    categories = tables.get("categories") or {}
    everywhere: dict[str, Any] = {}
    for table in overview:
        everywhere.update(table["properties"])
    steps: list[Mapping[str, Any]] = next(
        (one["rows"] for one in overview if one["rows"] and "stepnum" in one["rows"][0]), []
    )
    total = sum(map(_step_ms, steps))
    times = [_step_ms(step) / 1000 for step in steps]
    on_device = int(float(everywhere.get("device_core_count") or 0)) > 0

    def share(word: str) -> float | None:
        names = {name for step in steps for name in step if word in name.lower() and name.endswith("Ms")}
        if not names or not total:
            return None
        return sum(_number(step.get(name)) for step in steps for name in names) / total

    return ProfileFigures(
        hardware=clean(_hardware(everywhere), 60),
        hosts=int(float(everywhere.get("host_count") or 1)),
        steps=len(steps),
        step_seconds=sum(times) / len(times) if times else None,
        slowest_seconds=max(times, default=None),
        input_share=share("infeed"),
        host_share=share("hostcompute"),
        transfer_share=_sum(share("outfeed"), share("hosttransfer")) if on_device else None,
        compile_share=share("compile"),
        other_share=share("other"),
        idle_share=_percent(everywhere.get("device_idle_time_percent")) if on_device else None,
        mxu_share=_mxu(everywhere, categories) if on_device else None,
        categories=_shares(categories.get("picoseconds") or {}),
        operations=_operations(operations[-1]["rows"], on_device=on_device),
        input_operations=_input_operations(inputs),
        conclusion=clean(_TAGS.sub("", str(everywhere.get("input_conclusion") or "")), 300),
    )


def _finding(name: str, number: float, summary: str, change: str, source: str) -> ProfileFinding:
    return ProfileFinding(name, number, summary, (Remedy(change, source),))


def profile_findings(figures: ProfileFigures) -> Iterable[ProfileFinding]:
    """What to change, the largest gain first."""
    found = [one for one in (rule(figures) for rule in _RULES) if one is not None]
    return sorted(found, key=lambda one: -one.number)


def _hardware(everywhere: Mapping[str, Any]) -> str:
    """The kind of chip where the trace names it: of TPUs the hardware's type is only "TPU"."""
    kind, chip = (str(everywhere.get(name) or "") for name in ("hardware_type", "device_type"))
    return chip if chip and kind in ("", "TPU") else kind or "unknown"


def _mxu(everywhere: Mapping[str, Any], categories: Mapping[str, Any]) -> float | None:
    """As the chip's counters say, else by the FLOPs of what it ran. 0 is what a trace without either says."""
    counted = _percent(everywhere.get("mxu_utilization_percent"))
    return counted or _number(categories.get("flops_share")) or None


def _shares(times: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    whole = sum(map(_number, times.values()))
    found = [(clean(str(name), 60), _number(time) / whole) for name, time in times.items() if whole]
    return tuple(sorted(found, key=lambda one: -one[1]))


def _sum(*shares: float | None) -> float | None:
    known = [one for one in shares if one is not None]
    return sum(known) if known else None


def _step_ms(step: Mapping[str, Any]) -> float:
    if "stepTimeMs" in step:
        return _number(step["stepTimeMs"])
    return sum(_number(value) for name, value in step.items() if name.endswith("Ms"))


def _number(value: Any) -> float:
    number = float(value or 0.0)
    return number if math.isfinite(number) else 0.0


def _percent(value: Any) -> float | None:
    return None if value is None else _number(str(value).rstrip("%")) / 100


def _operations(rows: Sequence[Mapping[str, Any]], *, on_device: bool) -> tuple[ProfiledOperation, ...]:
    where = "Device" if on_device else "Host"
    column = "device_total_self_time_percent" if on_device else "host_total_self_time_percent"
    found = [
        ProfiledOperation(clean(str(row["operation"]), 120), clean(str(row["type"]), 60), where, _number(row[column]))
        for row in rows
        if row["host_or_device"] == where and row["type"] != "IDLE"
    ]
    return tuple(sorted(found, key=lambda one: -one.share)[:_SHOWN_OPERATIONS])


def _input_operations(tables: Sequence[Mapping[str, Any]]) -> tuple[ProfiledOperation, ...]:
    rows: list[Mapping[str, Any]] = next(
        (one["rows"] for one in tables if one["rows"] and "selfTimeInPercent" in one["rows"][0]), []
    )
    found = [
        ProfiledOperation(
            clean(str(row["opName"]), 120), clean(str(row["category"]), 60), "Host", _number(row["selfTimeInPercent"])
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda one: -one.share)[:_SHOWN_OPERATIONS])


def _no_steps(figures: ProfileFigures) -> ProfileFinding | None:
    if figures.steps:
        return None
    change = "Mark the steps: `jax.profiler.StepTraceAnnotation` or `tf.profiler.experimental.Trace`."
    reason = "The trace marks no steps, so nothing is known of where a step's time goes."
    return _finding("no_steps", 0.0, reason, change, _PROFILING)


def _waits_for_input(figures: ProfileFigures) -> ProfileFinding | None:
    share = figures.input_share
    if share is None or share < _INPUT_SHARE:
        return None
    slowest = figures.input_operations[:1]
    named = f"; {slowest[0].name} takes {slowest[0].share:.0%} of the pipeline's time" if slowest else ""
    reason = f"{share:.0%} of the steps' time is spent waiting for input{named}."
    change = (
        "Let the pipeline work ahead and in parallel: `prefetch(tf.data.AUTOTUNE)` at its end, `num_parallel_calls` "
        "for `map` and `interleave`, `cache` where the data fits in memory; read files in parallel."
    )
    return _finding("waits_for_input", share, reason, change, _DATA)


def _between_steps(figures: ProfileFigures) -> ProfileFinding | None:
    share = figures.other_share
    if share is None or share < _OTHER_SHARE:
        return None
    reason = f"{share:.0%} of the steps' time is Python between the steps: callbacks, logging, fetching results."
    change = (
        "Run several steps for each call: `steps_per_execution` in Keras, `jax.lax.scan` or fewer fetches of results "
        "in JAX; log every so many steps."
    )
    return _finding("between_steps", share, reason, change, _KERAS)


def _compiles(figures: ProfileFigures) -> ProfileFinding | None:
    share = figures.compile_share
    if share is None or share < _COMPILE_SHARE:
        return None
    reason = f"{share:.0%} of the steps' time is spent compiling, which each new shape takes."
    return _finding(
        "compiles",
        share,
        reason,
        "Keep shapes the same: pad, and drop the last partial batch (drop_remainder).",
        _GUIDE,
    )


def _uneven(figures: ProfileFigures) -> ProfileFinding | None:
    mean, slowest = figures.step_seconds, figures.slowest_seconds
    if not mean or slowest is None or figures.steps < _MANY_STEPS or slowest < _SLOW_STEP * mean:
        return None
    reason = f"The slowest step took {slowest / mean:.1f} times the mean of {mean * 1000:.1f} ms."
    change = "Look at that step in xprof's trace viewer: a checkpoint, an evaluation, a compile, slow input?"
    return _finding("uneven_steps", 1 - mean / slowest, reason, change, _PROFILING)


def _idle(figures: ProfileFigures) -> ProfileFinding | None:
    share = figures.idle_share
    if share is None or share < _IDLE_SHARE:
        return None
    reason = f"The device is idle for {share:.0%} of the time."
    change = "Give it more to do at once: a larger batch, several steps for each call, input that is ready."
    return _finding("device_idle", share, reason, change, _GUIDE)


def _low_mxu(figures: ProfileFigures) -> ProfileFinding | None:
    """Its number is the time in which the device works and the matrix units do not: not what others explain."""
    share = figures.mxu_share
    if share is None or share >= _LOW_MXU:
        return None
    others = (figures.idle_share, figures.input_share, figures.transfer_share)
    working = max(0.0, 1 - share - sum(one or 0.0 for one in others))
    reason = f"The matrix units are used for {share:.0%} of what they could do."
    change = "Use bfloat16, a batch that is a multiple of 64 or 128 per core, and features that are multiples of 128."
    return _finding("low_mxu", working, reason, change, _GUIDE)


def _host_transfers(figures: ProfileFigures) -> ProfileFinding | None:
    share = figures.transfer_share
    if share is None or share < _TRANSFER_SHARE:
        return None
    reason = f"{share:.0%} of the steps' time the device passes values to the host: callbacks, outfeeds."
    change = "Return values with the step's results and fetch them every so many steps, in the place of callbacks."
    return _finding("host_transfers", share, reason, change, _CALLBACKS)


def _collectives(figures: ProfileFigures) -> ProfileFinding | None:
    return _of_kind(
        "collectives",
        figures,
        _COLLECTIVES,
        _COLLECTIVE_SHARE,
        "exchanging values with other devices",
        "Give each device more to compute for what it exchanges: a larger batch a device, another axis to share over, "
        "gradients in bfloat16; and keep what is exchanged most within a slice.",
        _SHARDING,
    )


def _formatting(figures: ProfileFigures) -> ProfileFinding | None:
    return _of_kind(
        "data_formatting",
        figures,
        _FORMATTING,
        _FORMATTING_SHARE,
        "copying values into another layout",
        "Keep the order of sides from one operation to the next: fewer transposes and reshapes between products, and "
        "minor sides that fill tiles (tpuwatch advise shows them).",
        _LAYOUT,
    )


def _of_kind(
    name: str, figures: ProfileFigures, kinds: tuple[str, ...], least: float, doing: str, change: str, source: str
) -> ProfileFinding | None:
    """A share of the device's operations that some kinds of them take."""
    share = sum(one for kind, one in figures.categories if kind in kinds) * (1 - (figures.idle_share or 0.0))
    if share < least:
        return None
    return _finding(name, share, f"The device spends {share:.0%} of the time {doing}.", change, source)


_RULES: Final = (
    _no_steps,
    _waits_for_input,
    _idle,
    _between_steps,
    _host_transfers,
    _collectives,
    _formatting,
    _low_mxu,
    _compiles,
    _uneven,
)
