"""After the command's end: the record of the run, the decision on the next launch, and the summary on standard error.

Nothing here changes how the command ended.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import ConfigError, TpuwatchError, encode, format_size
from tpuwatch.exec import foreground
from tpuwatch.exec.messages import PREFIX, print_message
from tpuwatch.exec.preparation import names
from tpuwatch.host import ProcFs
from tpuwatch.model import SIZE, THRESHOLD, Cause, Launch, Outcome, Remedy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpuwatch.exec.found import FoundDocument
    from tpuwatch.exec.preparation import PreparedRun
    from tpuwatch.host import oom
    from tpuwatch.model import Finding, FindingDocument, TunePlan


_PREFIXES: Final = ("TPU_", "LIBTPU_", "TPUWATCH_")
_LAUNCHES: Final = 16  # that a record holds
_NAMES: Final = 100
_OOM_RULES: Final = {"cgroup": "host-oom-cgroup", "machine": "host-oom-machine", "unknown": "host-oom-kernel"}
_FINDINGS: Final = 16  # that a record holds
_CALL_FOR_CHANGE: Final = frozenset({Cause.PREMAPPED_EXHAUSTED.value, Cause.HOST_OOM.value, Cause.SLOW_INIT.value})
_ASKED = {128 + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}  # a user ended it
_SHOWN = 3  # findings
_DAEMON_SECONDS: Final = 4.0  # in which the daemon has read what the command wrote last, and has decided
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class RunResult:
    """How the command ended, and what was seen of it."""

    pid: int
    started: float  # seconds since the epoch
    ended: float
    status: int  # as the shell counts
    oom: oom.OomKill | None  # the command was killed, and the kernel has killed in its cgroup
    found: FoundDocument | None  # what the watcher found; None: it hung or died
    by_signal: bool = False  # a signal ended the command itself, not a process that it waited for


def conclude(prepared: PreparedRun, end: RunResult, config: Path | None, report: Path | None) -> None:
    """Print what was wrong, record the run, decide the next launch where no daemon does, and print that.

    A decision takes longer than all else, and nobody who waits for the cause waits for it, but where the decision is
    what to do about the cause.
    """
    end = with_oom_finding(prepared, end)
    launches = launches_of(prepared, end)
    causes = {one.cause for one in findings_to_report(end)}
    waits = Cause.PREMAPPED_EXHAUSTED.value in causes
    if not waits and causes:
        print_cause(end)
    trouble = write_run(prepared, end, launches)
    plan: TunePlan | None = None
    if not trouble and launches:
        try:
            plan = decide(prepared, config) if prepared.own else decided_by_daemon(prepared, launches, waits=waits)
        except TpuwatchError as error:
            trouble = f"{error}."
    if waits:
        print_cause(with_decision(end, launches, plan, prepared.command))
    if prepared.usable_config and not prepared.own:
        trouble = trouble or config_trouble(config)
    lines = tuning_lines(prepared, plan)
    if lines:
        print_decision(lines)
    if not (prepared.own or lines or trouble) and needs_decision(launches):
        print_message(undecided_message(prepared, config))
    if trouble:
        print_message(trouble)
    if report is not None:
        _write_report(report, _document(prepared, end, plan))


def with_oom_finding(prepared: PreparedRun, end: RunResult) -> RunResult:
    """The result with a kill that the kernel counted as its first finding, unless its log was in the output."""
    if end.oom is None:
        return end
    from tpuwatch.exec.found import NOTHING
    from tpuwatch.launches import RecordedFinding
    from tpuwatch.model import FindingDocument

    found = end.found or NOTHING
    told, recorded = tuple(one for one in found.findings if "killed_pid" in one.details), found.recorded
    if not told:
        finding = _oom_finding(prepared, end, end.oom)
        told = (FindingDocument.of(finding),)
        others_recorded = (one for one in recorded if one.cause != finding.cause.value)
        recorded = (RecordedFinding.of(finding), *others_recorded)
    others = (one for one in found.findings if one.cause != Cause.HOST_OOM.value)
    return replace(end, found=replace(found, findings=(*told, *others), recorded=recorded))


def _oom_finding(prepared: PreparedRun, end: RunResult, kill: oom.OomKill) -> Finding:
    """The finding of such a kill, with the rule by which the kernel's log would show it."""
    from tpuwatch.logs import load_catalogue
    from tpuwatch.model import Event, Finding

    rule = load_catalogue().rule(_OOM_RULES[kill.limit.value])
    seen = f"task_memcg={kill.own}" if kill.own else ""
    details = rule.details((f"oom_memcg={kill.cgroup}," if kill.cgroup else "").encode() + seen.encode())
    if kill.limit_bytes is not None:
        details["limit_bytes"] = kill.limit_bytes
    if end.by_signal:
        details |= {"killed_pid": end.pid, "process": Path(prepared.command[0]).name if prepared.command else ""}
    text = f"oom_kill {kill.kills}"
    event = Event(b"", rule.id, Cause.HOST_OOM, end.ended, end.ended, "", end.pid, kill.file, 0, text, details)
    remedy = rule.remedy_for(details)
    return Finding(Cause.HOST_OOM, 1, event, event, None, details, rule.describe(details), remedy)


def _document(prepared: PreparedRun, end: RunResult, plan: TunePlan | None) -> Mapping[str, Any]:
    from tpuwatch.exec.found import NOTHING

    found = end.found or NOTHING
    return {
        "launch": prepared.launch,
        "workload": prepared.workload,
        "started_epoch": end.started,
        "ended_epoch": end.ended,
        "exit_status": end.status,
        "host_oom": end.oom is not None,
        "read": end.found is not None,
        "unread_bytes": found.unread_bytes,
        "given": {name: prepared.environ[name] for name in names(prepared.given)},
        "kept": [kept.name for kept in prepared.given.kept],
        "findings": [encode(one) for one in found.findings],
        "launches": [encode(one) for one in found.launches],
        "next": None if plan is None else {setting.name: setting.value for setting in plan.settings},
    }


def _write_report(path: Path, document: Mapping[str, Any]) -> None:
    from tpuwatch.core import dumps

    try:
        path.write_text(dumps(document, indent=2) + "\n")
    except OSError as error:
        print_message(f"cannot write {path}: {error.strerror}.")


def launches_of(prepared: PreparedRun, end: RunResult) -> tuple[Launch, ...]:
    """The command's launches, with all that we know and their logs do not."""
    launches = end.found.records[-_LAUNCHES:] if end.found is not None else ()
    environment = {key: value for key, value in prepared.environ.items() if key.startswith(_PREFIXES)}
    boot_id = ProcFs(prepared.root / "proc").boot_id()
    for launch in launches:
        launch.environment = launch.environment or environment
        launch.workload = prepared.workload
        launch.boot_id = boot_id
        launch.ended = max(end.ended, launch.started)
        if launch.pid == end.pid or len(launches) == 1:
            launch.exit_status = end.status
            if end.oom is not None:
                launch.faults.setdefault(Cause.HOST_OOM.value, launch.ended - launch.started)
    return launches


def write_run(prepared: PreparedRun, end: RunResult, launches: tuple[Launch, ...]) -> str:
    """Leave the record of the run. A sentence on what went wrong, empty if nothing did."""
    if prepared.directory is None:
        return "this run is not recorded: there is no directory to keep it in; set HOME or XDG_STATE_HOME."
    from tpuwatch.exec.found import NOTHING
    from tpuwatch.launches import ExecRecord, trim_records, write_record

    found = end.found or NOTHING
    causes = dict.fromkeys(finding.cause for finding in found.findings)
    reported = {finding.cause for finding in findings_to_report(end)}
    record = ExecRecord(
        id=prepared.launch,
        workload=prepared.workload,
        started=end.started,
        ended=max(end.started, end.ended),
        exit_status=end.status,
        launches=launches,
        given=names(prepared.given)[:_NAMES],
        kept=tuple(kept.name for kept in prepared.given.kept)[:_NAMES],
        causes=tuple(causes)[:_NAMES],
        findings=tuple(one for one in found.recorded if one.cause in reported)[:_FINDINGS],
    )
    try:
        write_record(prepared.directory, record)
        if prepared.own:
            trim_records(prepared.directory)
    except OSError as error:
        return f"this run is not recorded: {prepared.directory}: {error.strerror or error}."
    return ""


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


def config_trouble(config: Path | None) -> str:
    """What is wrong with the whole configuration, of which a start reads a part; empty where nothing is."""
    from tpuwatch.config import load_config

    try:
        load_config(config, os.environ)
    except ConfigError as error:
        first, *more = str(error).splitlines()
        others = f" ({len(more)} more)" if more else ""
        return f"{first.rstrip('.')}{others}. `tpuwatch config check` shows it; the command ran all the same."
    return ""


def decided_since(prepared: PreparedRun) -> TunePlan | None:
    """What the daemon has decided while the command ran, for it reads the logs as they are written; None if nothing.

    Raises TpuwatchError.
    """
    from tpuwatch.tune import read_plan

    assert prepared.directory is not None  # noqa: S101 (a record was just written to it)
    plan = read_plan(prepared.directory, prepared.workload)
    known = prepared.plan
    return plan if plan is not None and known is not None and plan.decided > known.decided else None


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
    import shlex

    from tpuwatch.tune import exec_words, with_size

    failed = next((launch for launch in reversed(launches) if launch.premapped_failures), None)
    if failed is None:
        return tuple(remedy)
    return with_size(remedy, failed, plan.decision, exec_words(plan.workload, shlex.join(command) or "COMMAND"))


def needs_decision(launches: Sequence[Launch]) -> bool:
    """Whether one of them went in a way that may have the next one get another buffer."""
    return any(_CALL_FOR_CHANGE & launch.faults.keys() or launch.outcome is Outcome.SLOW for launch in launches)


def findings_to_report(end: RunResult) -> list[FindingDocument]:
    """The findings to print: those of a command that failed without being interrupted."""
    found = end.found.findings if end.found is not None and end.status else ()
    return [one for one in found if not (end.status in _ASKED and one.cause == Cause.INTERRUPTED.value)]


def print_cause(end: RunResult) -> None:
    """Why the command failed, and what to do."""
    from tpuwatch.terminal import Console, print_finding

    findings = findings_to_report(end)
    try:
        console = Console(sys.stderr, prefix=PREFIX)
        if findings:
            console.line(f"the command ended with status {end.status}.", style="bold")
        for number, finding in enumerate(findings[:_SHOWN], 1):
            print_finding(console, finding, number=number)
        if len(findings) > _SHOWN:
            console.line(f"There are {len(findings) - _SHOWN} more; `tpuwatch diagnose` lists them.", style="dim")
    except (OSError, ValueError, AttributeError):
        return


def print_decision(lines: Sequence[str]) -> None:
    """What the next launch gets, and why."""
    from tpuwatch.terminal import Console

    try:
        console = Console(sys.stderr, prefix=PREFIX)
        for line in lines:
            console.line(line, hang=3)
    except (OSError, ValueError, AttributeError):
        return


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
