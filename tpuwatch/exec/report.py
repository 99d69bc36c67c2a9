"""What `tpuwatch exec --json FILE` writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuwatch.core import dumps, encode
from tpuwatch.exec.found import NOTHING
from tpuwatch.exec.messages import print_message
from tpuwatch.exec.preparation import PreparedRun, names
from tpuwatch.exec.run_result import RunResult
from tpuwatch.model import FindingDocument, LaunchDocument, TunePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """How the command ended, and what was found in it."""

    launch: str
    workload: str
    started_epoch: float
    ended_epoch: float
    exit_status: int
    host_oom: bool
    read: bool  # whether the rules saw the output
    unread_bytes: int
    given: Mapping[str, str]
    kept: tuple[str, ...]
    findings: tuple[FindingDocument, ...]
    launches: tuple[LaunchDocument, ...]
    next: Mapping[str, str] | None  # variables of the next launch


def write_report(path: Path, prepared: PreparedRun, end: RunResult, plan: TunePlan | None) -> None:
    try:
        path.write_text(dumps(encode(_report(prepared, end, plan)), indent=2) + "\n")
    except OSError as error:
        print_message(f"cannot write {path}: {error.strerror}.")


def _report(prepared: PreparedRun, end: RunResult, plan: TunePlan | None) -> RunReport:
    found = end.found or NOTHING
    return RunReport(
        launch=prepared.launch,
        workload=prepared.workload,
        started_epoch=end.started,
        ended_epoch=end.ended,
        exit_status=end.status,
        host_oom=end.oom is not None,
        read=end.found is not None,
        unread_bytes=found.unread_bytes,
        given={name: prepared.environ[name] for name in names(prepared.given)},
        kept=tuple(kept.name for kept in prepared.given.kept),
        findings=found.findings,
        launches=found.launches,
        next=None if plan is None else {setting.name: setting.value for setting in plan.settings},
    )
