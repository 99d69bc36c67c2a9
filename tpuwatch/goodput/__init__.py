"""Goodput: where the time of trainings goes, second by second, over all their launches.

In: launches, the steps of training loops as they are seen, and how the node was.
Out: the account of each training: seconds by state, interruptions, and the figures from them.
Never: calls time productive in which no step was seen, or causes an act.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.goodput.goodput import goodput_of
    from tpuwatch.goodput.keeper import GoodputKeeper
    from tpuwatch.goodput.stored import stored_goodput
else:
    __getattr__, __all__ = public_face(__name__, __file__)
