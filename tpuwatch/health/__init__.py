"""The judge: from the signals to a verdict on each node, with reasons and what would help. Pure but for its service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.health.judge import judge_node
    from tpuwatch.health.limits import JudgeLimits
    from tpuwatch.health.service import EVERY_SECONDS, JudgeService
else:
    __getattr__, __all__ = public_face(
        __name__,
        {
            "judge": ["judge_node"],
            "limits": ["JudgeLimits"],
            "service": ["EVERY_SECONDS", "JudgeService"],
        },
    )
