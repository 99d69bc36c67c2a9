"""What `tpuwatch tune --json` prints; docs/tune.md tells its form."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tpuwatch.export import jsonable
from tpuwatch.jsontext import times
from tpuwatch.tune.deciding import bounds_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tpuwatch.cli.tune_history import History
    from tpuwatch.cli.tune_next import Act
    from tpuwatch.cli.tune_outlook import Outlook
    from tpuwatch.config import Config


def document(
    config: Config, history: History, directory: Path, outlooks: Iterable[Outlook], acts: Iterable[Act], *, dry: bool
) -> dict[str, Any]:
    """All that is known and decided. Sizes are bytes, durations seconds."""
    return {
        "mode": config.tune.mode,
        "directory": str(directory),
        "source": {"kind": history.kind, "where": history.where},
        "bounds": asdict(bounds_of(config)),
        "workloads": [_workload(outlook) for outlook in outlooks],
        "written": [] if dry else [str(act.path) for act in acts],
        "would_write": [str(act.path) for act in acts] if dry else [],
    }


def _workload(outlook: Outlook) -> dict[str, Any]:
    plan, decision, standing = outlook.plan, outlook.plan.decision, outlook.standing
    return {
        "workload": plan.workload,
        **times("decided", plan.decided),
        **asdict(decision),
        "settings": [asdict(setting) for setting in plan.settings],
        "environment": {
            "set": outlook.given.set,
            "kept": [asdict(kept) for kept in outlook.given.kept],
        },
        "unusable": outlook.unusable,
        "standing": None if standing is None else {**times("decided", standing.decided), "same": outlook.stands},
        "host": asdict(outlook.host),
        "warnings": list(outlook.warnings),
        **times("reset", outlook.reset),
        "launches": [jsonable.launch(launch) for launch in outlook.launches],
    }
