"""How far jobs have come: heartbeats and the steps that output shows.

In: datagrams of any user, and steps of jobs' output.
Out: training loops and their faults.
Never: lets one user speak for another, or silence him.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.progress.service import ProgressService
else:
    __getattr__, __all__ = public_face(__name__, __file__)
