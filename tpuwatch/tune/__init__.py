"""Tuning: the TPU_* variables of the next launch, decided from what the last ones showed.

In: launches, the host and the bounds of the configuration.
Out: a plan on disk, and the environment of the next launch.
Never: changes a launch that runs, or a variable that the operator has set.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.tune import environment
    from tpuwatch.tune.advice import exec_words, with_plans, with_size, with_sizes
    from tpuwatch.tune.environment import LaunchEnvironment, Prepared, environment_path, prepare
    from tpuwatch.tune.host import read_host
    from tpuwatch.tune.marks import launch_marks
    from tpuwatch.tune.operator import FileChange, reset, write_next
    from tpuwatch.tune.outlook import UNREAD, History, Outlook, TuneContext, look_ahead, read_history
    from tpuwatch.tune.plan import (
        make_plan_directory,
        own_directory,
        plan_directory,
        read_plan,
        read_resets,
        standing_plans,
        workload_name,
        write_plan,
    )
    from tpuwatch.tune.planner import bounds_of, launches_by_workload, make_plan
    from tpuwatch.tune.service import TuneService
