"""What a plan makes of an environment, and that as text for a shell, systemd, docker or a program."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.config import DEFAULT_SOCKET, read_config, stamp
from tpuwatch.core import TuneError, write_atomic
from tpuwatch.libtpu import ARGUMENTS, log_settings, merged_all, whole_flags
from tpuwatch.model import SUMS_VARIABLE, SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.tune.marks import launch_marks, set_by_tpuwatch
from tpuwatch.tune.plan import PLANS, make_plan_directory, may_set, plan_directory, read_plan, workload_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tpuwatch.config import StartConfig


_NO_HISTORY: Final = SizeDecision(
    SizeStep.START, None, None, ("There is no history of this workload yet; libtpu's own size is kept.",)
)


class KeptVariable(NamedTuple):  # in a fifth of the time that a dataclass takes to make: `tpuwatch exec` waits for it
    """A variable that is the operator's own: it wins."""

    name: str
    value: str  # the operator's
    ours: str  # what tpuwatch would have set


class LaunchEnvironment(NamedTuple):
    """What a plan makes of an environment."""

    set: dict[str, str]  # variables to set, the marks among them
    kept: tuple[KeptVariable, ...] = ()
    unset: tuple[str, ...] = ()  # what tpuwatch set for another launch, and this one is not to have


class Prepared(NamedTuple):
    """All that a start needs to know."""

    directory: Path  # the tune directory, which need not exist
    plan: TunePlan
    given: LaunchEnvironment
    warnings: tuple[str, ...]  # sentences for the operator


def prepare(
    workload: str | None,
    environ: Mapping[str, str],
    now: float,
    *,
    config: Path | None = None,
    start: StartConfig | None = None,
    elsewhere: bool = False,
) -> Prepared:
    """The next launch's environment. `now`: seconds since the epoch.

    `start`: what was read of the configuration, else it is read here. `elsewhere`: the launch does not inherit
    `environ`, such as a service's. Raises ConfigError, and TuneError for a workload that is no name; a plan that cannot
    be used is a warning.
    """
    start = start or read_config(config, environ)
    name = workload_name(workload, environ)
    directory = plan_directory(start.tune_dir, environ)
    warnings: list[str] = []
    try:
        plan = read_plan(directory, name)
    except TuneError as error:
        plan = None
        warnings.append(f"{error}.")
    if plan is not None and start.trouble:  # it has what its writer's configuration says
        given = launch_environment(plan, {} if elsewhere else environ)
        return Prepared(directory, plan, given, tuple(warnings))
    if plan is not None and plan.config != stamp(start.path):
        warnings.append("The plan was decided by another state of the configuration; the next one goes by this one.")
    places = log_settings.places(str(start.log_dir), start.log_paths, as_me=not elsewhere)
    visible = log_settings.settings(places, log_mib=start.log_mib, stderr_level=start.stderr_level)
    fresh = TunePlan(name, now, (), _NO_HISTORY, stamp(start.path))
    whole = refresh_plan(plan or fresh, visible.settings, start.overrides)
    given = launch_environment(whole, {} if elsewhere else environ)
    if start.socket != DEFAULT_SOCKET:
        from tpuwatch.workload import SOCKET_VARIABLE  # which takes milliseconds

        if elsewhere or SOCKET_VARIABLE not in environ:
            given.set[SOCKET_VARIABLE] = str(start.socket)
    if not elsewhere:
        variables = {**environ, **given.set}
        warnings += log_settings.hidden(variables)
        if directory == start.tune_dir and log_settings.LOG_DIR not in given.set:  # the daemon's, which reads logs
            warnings += log_settings.unfollowed(variables.get(log_settings.LOG_DIR, ""), start.log_paths)
    return Prepared(directory, whole, given, (*warnings, *visible.warnings))


def refresh_plan(plan: TunePlan, settings: Iterable[VariableSetting], overrides: Mapping[str, str]) -> TunePlan:
    """The plan with `settings` for what makes a launch visible, as it is now and for who starts it, and with the
    overrides that the configuration has now.
    """
    found = {setting.name: setting for setting in plan.settings if setting.name not in log_settings.NAMES}
    found.update((setting.name, setting) for setting in settings)
    return replace(plan, settings=apply_overrides(found.values(), overrides))


def apply_overrides(settings: Iterable[VariableSetting], overrides: Mapping[str, str]) -> tuple[VariableSetting, ...]:
    """The settings with the overrides of the configuration in their place. Flags of an override are joined by the ones
    that are there, except those of the same name."""
    found = {setting.name: setting for setting in settings}
    for name, value in overrides.items():
        flags = found[name].value if name == ARGUMENTS and name in found else ""
        found[name] = VariableSetting(name, merged_all(value, flags), "overrides under [tune] set it.")
    return tuple(found.values())


def launch_environment(plan: TunePlan, environ: Mapping[str, str]) -> LaunchEnvironment:
    """What is to be set for a launch in this environment. What the operator has set already wins; what tpuwatch set for
    an earlier launch is renewed. LIBTPU_INIT_ARGS is merged with what is there.
    """
    mine = set_by_tpuwatch(environ)
    given: dict[str, str] = {}
    kept: list[KeptVariable] = []
    for setting in plan.settings:
        name, value, own = setting.name, setting.value, environ.get(setting.name)
        if name == ARGUMENTS:
            value = merged_all(own or "", value)
            if set(whole_flags(setting.value)) - set(whole_flags(value)):
                kept.append(KeptVariable(name, own or "", setting.value))
            if value != own or name in mine:
                given[name] = value
        elif own is None or name in mine:
            given[name] = value
        elif own != value:
            kept.append(KeptVariable(name, own, value))
    over = mine - given.keys() - {ARGUMENTS} if SUMS_VARIABLE in environ else ()  # else its origin is unknown
    gone = tuple(sorted(filter(may_set, over)))
    return LaunchEnvironment({**given, **launch_marks(plan.workload, given)}, tuple(kept), gone)


# -- as text


_ESCAPED: Final = str.maketrans({char: f"\\{char}" for char in '\\"`$'})
_STEPS: Final = {
    SizeStep.START: "start",
    SizeStep.KEEP: "keep",
    SizeStep.GROW: "grow",
    SizeStep.SHRINK: "shrink",
    SizeStep.BACK: "back to the last good one",
    SizeStep.OVERRIDDEN: "overridden by the configuration",
    SizeStep.UNSATISFIABLE: "no allowed one will do",
}


def render(plan: TunePlan, given: LaunchEnvironment, form: str) -> str:
    """The environment that `given` is, as `form` (shell, systemd, json or docker), with the plan's words on it.

    Raises TuneError for a value that the format cannot carry.
    """
    why = {setting.name: setting.why for setting in plan.settings}
    if form == "json":
        return _json(plan, given, why)
    if form == "shell":
        return _shell(plan, given, why)
    lines = [f"# {line}" for line in _heading(plan)]
    for name, value in given.set.items():
        if not value.isprintable():
            raise TuneError(f"{name} cannot be written to an environment file: its value is not one printable line")
        # systemd reads it in double quotes, where a backslash goes before the four characters that the shell would see;
        # for docker, all up to the end of the line is the value.
        quoted = f'"{value.translate(_ESCAPED)}"' if form == "systemd" else value
        lines += [f"# {why[name]}"] if name in why else []
        lines.append(f"{name}={quoted}")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Put the text at `path`, in one step, on the disk, readable by all. Raises TuneError; the old file then stays."""
    write_atomic(path, text.encode("utf-8", "surrogateescape"))


def environment_path(directory: Path, workload: str) -> Path:
    """Where the environment file of a workload is, in a tune directory."""
    return directory / PLANS / f"{workload_name(workload, {})}.env"


def write_environment(directory: Path, plan: TunePlan) -> None:
    """Write the plan's environment file for systemd into the tune directory. Raises TuneError."""
    text = render(plan, launch_environment(plan, {}), "systemd")
    make_plan_directory(directory)
    write(environment_path(directory, plan.workload), text)


def _shell(plan: TunePlan, given: LaunchEnvironment, why: Mapping[str, str]) -> str:
    """For `eval`. The comments come last and each assignment has its end: without quotes round the $(…) all of it
    becomes one line, and works all the same.
    """
    import shlex  # `tpuwatch exec` does without

    lines = [f"unset {name};" for name in given.unset]
    lines += [f"export {name}={shlex.quote(value)};" for name, value in given.set.items()]
    lines += [f"# {line}" for line in _heading(plan)]
    lines += [f"# {name}: {why[name]}" for name in given.set if name in why]
    lines += [f"# {kept.name} is kept as it is set; tpuwatch would have {kept.ours}" for kept in given.kept]
    return "\n".join(lines) + "\n"


def _json(plan: TunePlan, given: LaunchEnvironment, why: Mapping[str, str]) -> str:
    decision = plan.decision
    tuned = {name: value for name, value in given.set.items() if name in why}
    document = {
        "workload": plan.workload,
        "decided_epoch": plan.decided,
        "step": decision.step.value,
        "reasons": list(decision.reasons),
        "conflict": decision.conflict,
        "set": [{"name": name, "value": value, "why": why[name]} for name, value in tuned.items()],
        "marks": {name: value for name, value in given.set.items() if name not in why},
        "unset": list(given.unset),
        "kept": [kept._asdict() for kept in given.kept],
    }
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _heading(plan: TunePlan) -> Iterator[str]:
    from tpuwatch.core import format_time

    yield f"The next launch of the workload {plan.workload}, as tpuwatch decided it at {format_time(plan.decided)}."
    yield f"Premapped buffer: {_decision_text(plan.decision)}."
    yield from plan.decision.reasons
    if plan.decision.conflict:
        yield plan.decision.conflict


def _decision_text(decision: SizeDecision) -> str:
    size = "libtpu's own size" if decision.size_bytes is None else f"{decision.size_bytes} bytes"
    trial = ", on trial" if decision.trial else ""
    return f"{_STEPS[decision.step]}, {size}{trial}"
