"""`tpuwatch exec`: a command in the foreground, with its output read beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.exec.command import run_command
    from tpuwatch.exec.preparation import PreparedRun, prepare_run
    from tpuwatch.exec.process import CommandError
else:
    __getattr__, __all__ = public_face(
        __name__,
        {
            "command": ["run_command"],
            "preparation": ["PreparedRun", "prepare_run"],
            "process": ["CommandError"],
        },
    )
