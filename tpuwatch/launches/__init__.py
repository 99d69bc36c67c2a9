"""Launches: the processes that initialise the TPU, put together from all that shows them.

In: matches of logs, /proc, and the records of `tpuwatch exec`.
Out: launches with their times, outcome and faults.
Never: trusts a record of a user about the launches of another.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.launches.exec_records import (
        ExecRecord,
        RecordedFinding,
        discard_record,
        make_drop_box,
        read_records,
        take_records,
        trim_records,
        write_record,
    )
    from tpuwatch.launches.life import Life
    from tpuwatch.launches.tracker import MARKS, LaunchTracker, Origin, shows_launch
