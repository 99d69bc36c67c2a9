"""The judge: from the signals to a verdict on each node.

In: the answers of all signals, each with its time.
Out: a judgement with its reasons, contradictions and remedies.
Never: takes what is unknown for bad, or acts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.health.judge import judge_node
    from tpuwatch.health.limits import JudgeLimits
    from tpuwatch.health.service import EVERY_SECONDS, JudgeService
else:
    __getattr__, __all__ = public_face(__name__, __file__)
