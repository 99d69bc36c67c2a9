"""`tpuwatch exec`: a command in the foreground, with its output read beside it.

In: a command, and the plan for its launch.
Out: the same output and the same end, findings on standard error, a record of the run.
Never: delays the command, changes its output, or keeps it from starting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.exec.command import run_command
    from tpuwatch.exec.preparation import PreparedRun, prepare_run
    from tpuwatch.exec.process import CommandError
else:
    __getattr__, __all__ = public_face(__name__, __file__)
