"""`tpuwatch doctor`: checks everything that tpuwatch and a TPU job need, and gives the fix for each problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.doctor.check import Check, CheckStatus
    from tpuwatch.doctor.checks import CHECKS
    from tpuwatch.doctor.environment import Environment
    from tpuwatch.doctor.report import count, print_report, report_document
    from tpuwatch.doctor.run import is_conclusive, run_checks
else:
    __getattr__, __all__ = public_face(
        __name__,
        {
            "check": ["Check", "CheckStatus"],
            "checks": ["CHECKS"],
            "environment": ["Environment"],
            "report": ["count", "print_report", "report_document"],
            "run": ["is_conclusive", "run_checks"],
        },
    )
