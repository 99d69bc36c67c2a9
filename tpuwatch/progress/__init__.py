"""How far jobs have come: heartbeats and the steps that output shows, folded into training loops and their faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.progress.service import ProgressService
else:
    __getattr__, __all__ = public_face(__name__, {"service": ["ProgressService"]})
