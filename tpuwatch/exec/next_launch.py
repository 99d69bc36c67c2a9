"""What a run means for the next launch: it is decided here or by the daemon, and told."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import TpuwatchError, format_size
from tpuwatch.exec import foreground
from tpuwatch.model import SIZE, THRESHOLD, Cause, Outcome, Remedy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.exec.preparation import PreparedRun
    from tpuwatch.exec.run_result import RunResult
    from tpuwatch.model import Launch, TunePlan

_CALL_FOR_CHANGE: Final = frozenset(cause.value for cause in Cause if cause.row.calls_for_size)
_DAEMON_SECONDS: Final = 4.0  # in which the daemon has read what the command wrote last, and has decided
_LOOK_SECONDS: Final = 0.1


def needs_decision(launches: Sequence[Launch]) -> bool:
    """Whether one of them went in a way that may have the next one get another buffer."""
    return any(_CALL_FOR_CHANGE & launch.faults.keys() or launch.outcome is Outcome.SLOW for launch in launches)


def decide(prepared: PreparedRun, config: Path | None) -> TunePlan:
    """Decide on the next launch by the user's own records, and write the plan. Raises TpuwatchError."""
    from tpuwatch.config import Config, load_config
    from tpuwatch.launches import read_records
    from tpuwatch.libtpu import log_settings
    from tpuwatch.tune import launches_by_workload, make_plan, read_host, read_resets, write_plan

    assert prepared.directory is not None  # noqa: S101 (a record was just written to it)
    settings = load_config(config, os.environ) if prepared.usable_config else Config()
    try:
        records = read_records(prepared.directory)
    except OSError as error:
        raise TpuwatchError(f"cannot read the records in {prepared.directory}: {error.strerror}") from error
    launches = [launch for record in records for launch in record.launches]
    now = time.time()
    own: Sequence[Launch] = launches_by_workload(launches, read_resets(prepared.directory), now).get(
        prepared.workload, []
    )
    known = prepared.plan.generation if prepared.plan is not None else ""
    host = read_host(
        launches=launches,
        environ=settings.host.environ(os.environ),
        pids=(os.getpid(),),
        stored=known,
        root=prepared.root,
    )
    places = log_settings.places(str(settings.tune.log_dir), settings.logs.paths)
    plan = make_plan(settings, own, host, prepared.workload, now, places)
    write_plan(prepared.directory, plan)
    return plan


def decided_by_daemon(prepared: PreparedRun, launches: Sequence[Launch], *, waits: bool) -> TunePlan | None:
    """What the daemon has decided; where somebody `waits` for it, a moment is left for that. Raises TpuwatchError."""
    answer = await_answer(prepared, launches) if waits else None
    return answer or decided_since(prepared)


def await_answer(prepared: PreparedRun, launches: Sequence[Launch]) -> TunePlan | None:
    """What the daemon decides within a moment about a buffer that had no room; None where it does not.

    Raises TpuwatchError.
    """
    until = time.monotonic() + _DAEMON_SECONDS
    while time.monotonic() < until and not foreground.asked_to_end():
        plan = decided_since(prepared)
        if plan is not None and _remedy((), launches, plan, ()):
            return plan
        time.sleep(_LOOK_SECONDS)
    return None


def decided_since(prepared: PreparedRun) -> TunePlan | None:
    """What the daemon has decided while the command ran, for it reads the logs as they are written; None if nothing.

    Raises TpuwatchError.
    """
    from tpuwatch.tune import read_plan

    assert prepared.directory is not None  # noqa: S101 (a record was just written to it)
    plan = read_plan(prepared.directory, prepared.workload)
    known = prepared.plan
    return plan if plan is not None and known is not None and plan.decided > known.decided else None


def with_decision(
    end: RunResult, launches: Sequence[Launch], plan: TunePlan | None, command: Sequence[str]
) -> RunResult:
    """The result with what is decided as the remedy of a buffer that had no room."""
    if plan is None or end.found is None:
        return end
    findings = tuple(
        replace(one, remedy=_remedy(one.remedy, launches, plan, command))
        if one.cause == Cause.PREMAPPED_EXHAUSTED.value
        else one
        for one in end.found.findings
    )
    return replace(end, found=replace(end.found, findings=findings))


def _remedy(
    remedy: Sequence[Remedy], launches: Sequence[Launch], plan: TunePlan, command: Sequence[str]
) -> tuple[Remedy, ...]:
    from tpuwatch.tune import exec_words, with_size

    failed = next((launch for launch in reversed(launches) if launch.premapped_failures), None)
    if failed is None:
        return tuple(remedy)
    return with_size(remedy, failed, plan.decision, exec_words(plan.workload, shlex.join(command) or "COMMAND"))


def tuning_lines(prepared: PreparedRun, plan: TunePlan | None) -> list[str]:
    """What tuning set, and what it changes for the next launch; empty when it changes nothing."""
    if plan is None:
        return []
    before, after = {} if prepared.plan is None else _values(prepared.plan), _values(plan)
    changed = [name for name in (SIZE, THRESHOLD) if before.get(name) != after.get(name)]
    if not changed:
        return []
    had = [f"{name}={prepared.environ[name]}, {_whose(prepared, name)}" for name in changed if name in prepared.environ]
    gets = " and ".join(_size_text(name, after.get(name)) for name in changed)
    reason = plan.decision.reasons[0] if plan.decision.reasons else ""
    this = f"this launch had {' and '.join(had)}; " if had else ""
    return [" ".join(filter(None, (f"{this}the next one gets {gets}.", reason, plan.decision.conflict)))]


def undecided_message(prepared: PreparedRun, config: Path | None) -> str:
    """Where the next launch gets another buffer perhaps, and the daemon has not come to that yet."""
    words = ["tpuwatch", "tune", "--workload", prepared.workload, *(["--config", str(config)] if config else [])]
    return (
        "what the next launch gets is decided by tpuwatch's daemon, within seconds where it runs; "
        f"`{shlex.join(words)}` shows it."
    )


def _values(plan: TunePlan) -> dict[str, str]:
    return {setting.name: setting.value for setting in plan.settings}


def _whose(prepared: PreparedRun, name: str) -> str:
    return "set by tpuwatch" if name in prepared.given.set else "your own"


def _size_text(name: str, value: str | None) -> str:
    if value is None:
        return f"libtpu's own {name}"
    return f"{name}={value} ({format_size(int(value))})" if value.isdecimal() else f"{name}={value}"
