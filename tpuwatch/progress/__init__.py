"""How far jobs have come: heartbeats and the steps that output shows.

In: datagrams of any user, and steps of jobs' output.
Out: training loops and their faults.
Never: lets one user speak for another, or silence him.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.progress.service import ProgressService
