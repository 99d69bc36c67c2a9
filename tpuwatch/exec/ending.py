"""After the command's end: what is left for the next launch. Nothing here changes how the command ended."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.errors import TpuwatchError
from tpuwatch.exec.beginning import names
from tpuwatch.model import Cause, Launch, Outcome
from tpuwatch.processes import ProcFs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tpuwatch.exec.beginning import Beginning
    from tpuwatch.tune.model import Plan

_PREFIXES: Final = ("TPU_", "LIBTPU_", "TPUWATCH_")
_LAUNCHES: Final = 16  # that a record holds
_NAMES: Final = 100
_CALLS: Final = frozenset({Cause.PREMAPPED_EXHAUSTED.value, Cause.HOST_OOM.value, Cause.SLOW_INIT.value})
_FIELDS: Final = frozenset(field.name for field in fields(Launch))


@dataclass(frozen=True, slots=True)
class End:
    """How the command ended, and what was seen of it."""

    pid: int
    started: float  # seconds since the epoch
    ended: float
    status: int  # as the shell counts
    oom: bool  # the kernel killed something meanwhile, and the command was killed
    found: Mapping[str, Any] | None  # what the watcher found; None: it hung or died


def launches_of(begun: Beginning, end: End) -> tuple[Launch, ...]:
    """The command's launches, with all that we know and their logs do not."""
    told = end.found.get("records", ()) if end.found is not None else ()
    launches = [_launch(one) for one in told][-_LAUNCHES:]
    environment = {key: value for key, value in begun.environ.items() if key.startswith(_PREFIXES)}
    boot_id = ProcFs().boot_id()
    for launch in launches:
        launch.environment = launch.environment or environment
        launch.workload = begun.workload
        launch.boot_id = boot_id
        launch.ended = max(end.ended, launch.started)
        if launch.pid == end.pid or len(launches) == 1:
            launch.exit_status = end.status
            if end.oom:
                launch.faults.setdefault(Cause.HOST_OOM.value, launch.ended - launch.started)
    return tuple(launches)


def keep(begun: Beginning, end: End, launches: tuple[Launch, ...]) -> str:
    """Leave the record of the run. A sentence on what went wrong, empty if nothing did."""
    if begun.directory is None:
        return "nothing is remembered of this run: there is no directory to keep it in; set HOME or XDG_STATE_HOME."
    from tpuwatch.tune.records import Record, trim, write_record

    causes = [finding["cause"] for finding in end.found.get("findings", ())] if end.found is not None else []
    if end.oom and Cause.HOST_OOM.value not in causes:
        causes.insert(0, Cause.HOST_OOM.value)
    record = Record(
        id=begun.launch,
        workload=begun.workload,
        started=end.started,
        ended=max(end.started, end.ended),
        exit_status=end.status,
        launches=launches,
        given=names(begun.given)[:_NAMES],
        kept=tuple(kept.name for kept in begun.given.kept)[:_NAMES],
        causes=tuple(causes)[:_NAMES],
    )
    try:
        write_record(begun.directory, record)
        if begun.own:
            trim(begun.directory)
    except OSError as error:
        return f"nothing is remembered of this run: {begun.directory}: {error.strerror or error}."
    return ""


def decide(begun: Beginning, config: Path | None) -> Plan:
    """Decide on the next launch by the user's own records, and write the plan. Raises TpuwatchError."""
    from tpuwatch.config import load_config
    from tpuwatch.tune import visibility
    from tpuwatch.tune.deciding import make_plan, workloads
    from tpuwatch.tune.host import read_host
    from tpuwatch.tune.plan import write_plan
    from tpuwatch.tune.records import read_records
    from tpuwatch.tune.resets import read_resets

    assert begun.directory is not None  # noqa: S101 (a record was just written to it)
    settings = load_config(config, os.environ)
    try:
        records = read_records(begun.directory)
    except OSError as error:
        raise TpuwatchError(f"cannot read the records in {begun.directory}: {error.strerror}") from error
    launches = [launch for record in records for launch in record.launches]
    now = time.time()
    own: Sequence[Launch] = workloads(launches, read_resets(begun.directory), now).get(begun.workload, [])
    known = begun.plan.generation if begun.plan is not None else ""
    host = read_host(launches=launches, environ=os.environ, pids=(os.getpid(),), standing=known)
    places = visibility.places(str(settings.tune.log_dir))
    plan = make_plan(settings, own, host, begun.workload, now, places)
    write_plan(begun.directory, plan)
    return plan


def decided_since(begun: Beginning) -> Plan | None:
    """What the daemon has decided while the command ran, for it reads the logs as they are written; None if nothing.

    Raises TpuwatchError.
    """
    from tpuwatch.tune.plan import read_plan

    assert begun.directory is not None  # noqa: S101 (a record was just written to it)
    plan = read_plan(begun.directory, begun.workload)
    known = begun.plan
    return plan if plan is not None and known is not None and plan.decided > known.decided else None


def calls_for_another(launches: Sequence[Launch]) -> bool:
    """Whether one of them went in a way that may have the next one get another buffer."""
    return any(_CALLS & launch.faults.keys() or launch.outcome is Outcome.SLOW for launch in launches)


def _launch(document: Mapping[str, Any]) -> Launch:
    known = {name: value for name, value in document.items() if name in _FIELDS}
    known["outcome"] = Outcome(known["outcome"])
    known["cause"] = Cause(known["cause"]) if known.get("cause") else None
    return Launch(**known)
