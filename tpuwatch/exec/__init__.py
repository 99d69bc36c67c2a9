"""`tpuwatch exec`: a command in the foreground, with its output read beside it.

In: a command, and the plan for its launch.
Out: the same output and the same end, findings on standard error, a record of the run.
Never: delays the command, changes its output, or keeps it from starting.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.exec.command import run_command
    from tpuwatch.exec.preparation import PreparedRun, prepare_run
    from tpuwatch.exec.process import CommandError
