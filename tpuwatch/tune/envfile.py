"""The next launch's environment as text: for a shell, for systemd's EnvironmentFile=, for docker's --env-file, JSON.

What is set comes with the decision that set it. A format refuses what it cannot carry.
"""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING, Final

from tpuwatch.errors import TuneError
from tpuwatch.tune.files import write_whole
from tpuwatch.tune.model import Step
from tpuwatch.tune.plan import PLANS, environment, make_plans, marks, workload_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.tune.model import Decision, Plan
    from tpuwatch.tune.plan import Given

_ESCAPED: Final = str.maketrans({char: f"\\{char}" for char in '\\"`$'})
_STEPS: Final = {
    Step.START: "start",
    Step.KEEP: "keep",
    Step.GROW: "grow",
    Step.SHRINK: "shrink",
    Step.BACK: "back to the last good one",
    Step.PINNED: "pinned",
    Step.STUCK: "no allowed one will do",
}


def render(plan: Plan, given: Given, form: str) -> str:
    """The environment that `given` is, as `form` (shell, systemd, json or docker), with the plan's words on it.

    Raises TuneError for a value that the format cannot carry.
    """
    if form == "json":
        return _json(plan, given)
    if form == "shell":
        return _shell(plan, given)
    quote = _systemd if form == "systemd" else _docker
    lines = [f"# {line}" for line in _heading(plan)]
    why = _reasons(plan)
    for name, value in given.set.items():
        lines += [f"# {why[name]}"] if name in why else []
        lines.append(f"{name}={quote(name, value)}")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Put the text at `path`, in one step, on the disk, readable by all. Raises TuneError; the old file then stays."""
    write_whole(path, text.encode("utf-8", "surrogateescape"))


def environment_path(directory: Path, workload: str) -> Path:
    """Where the environment file of a workload is, in a tune directory."""
    return directory / PLANS / f"{workload_name(workload, {})}.env"


def write_environment(directory: Path, plan: Plan) -> Path:
    """Write the plan's environment file for systemd into the tune directory; its path. Raises TuneError."""
    path = environment_path(directory, plan.workload)
    text = render(plan, environment(plan, {}), "systemd")
    make_plans(directory)
    write(path, text)
    return path


def _shell(plan: Plan, given: Given) -> str:
    """For `eval`. The comments come last and each assignment has its end: without quotes round the $(…) all of it
    becomes one line, and works all the same.
    """
    lines = [f"unset {name};" for name in given.unset]
    lines += [f"export {name}={shlex.quote(value)};" for name, value in given.set.items()]
    why = _reasons(plan)
    lines += [f"# {line}" for line in _heading(plan)]
    lines += [f"# {name}: {why[name]}" for name in given.set if name in why]
    lines += [f"# {kept.name} is kept as it is set; tpuwatch would have {kept.ours}" for kept in given.kept]
    return "\n".join(lines) + "\n"


def _systemd(name: str, value: str) -> str:
    """As systemd reads it: in double quotes a backslash goes before the four characters that the shell would see."""
    _require_line(name, value)
    return f'"{value.translate(_ESCAPED)}"'


def _docker(name: str, value: str) -> str:
    """As docker reads it: all up to the end of the line is the value."""
    _require_line(name, value)
    return value


def _require_line(name: str, value: str) -> None:
    if not value.isprintable():
        raise TuneError(f"{name} cannot be written to an environment file: its value is not one printable line")


def _json(plan: Plan, given: Given) -> str:
    decision = plan.decision
    why = {setting.name: setting.why for setting in plan.settings}
    tuned = {name: value for name, value in given.set.items() if name in why}
    document = {
        "workload": plan.workload,
        "decided_epoch": plan.decided,
        "step": decision.step.value,
        "reasons": list(decision.reasons),
        "conflict": decision.conflict,
        "set": [{"name": name, "value": value, "why": why[name]} for name, value in tuned.items()],
        "marks": {name: given.set[name] for name in marks(plan.workload, {}) if name in given.set},
        "unset": list(given.unset),
        "kept": [{"name": kept.name, "value": kept.value, "ours": kept.ours} for kept in given.kept],
    }
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _heading(plan: Plan) -> Iterator[str]:
    decided = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(plan.decided))
    yield f"The next launch of the workload {plan.workload}, as tpuwatch decided it at {decided}."
    yield f"Premapped buffer: {_told(plan.decision)}."
    yield from plan.decision.reasons
    if plan.decision.conflict:
        yield plan.decision.conflict


def _told(decision: Decision) -> str:
    size = "libtpu's own size" if decision.size_bytes is None else f"{decision.size_bytes} bytes"
    trial = ", on trial" if decision.trial else ""
    return f"{_STEPS[decision.step]}, {size}{trial}"


def _reasons(plan: Plan) -> dict[str, str]:
    return {setting.name: setting.why for setting in plan.settings}
