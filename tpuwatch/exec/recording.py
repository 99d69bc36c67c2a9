"""What a run leaves behind: its record for the daemon and for tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.exec.preparation import names
from tpuwatch.exec.run_result import findings_to_report
from tpuwatch.host import ProcFs
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from tpuwatch.exec.preparation import PreparedRun
    from tpuwatch.exec.run_result import RunResult
    from tpuwatch.model import Launch

_PREFIXES: Final = ("TPU_", "LIBTPU_", "TPUWATCH_")
_LAUNCHES: Final = 16  # that a record holds
_NAMES: Final = 100
_FINDINGS: Final = 16  # that a record holds


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
