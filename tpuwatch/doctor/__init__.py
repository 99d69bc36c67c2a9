"""`tpuwatch doctor`: the checks of everything that tpuwatch and a TPU job need.

In: the machine, the configuration and the answers of Google's services.
Out: a result for each check, with the command that fixes it.
Never: changes anything, or calls a check passed that could not look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.doctor.check import Check
    from tpuwatch.doctor.checks import CHECKS
    from tpuwatch.doctor.environment import Environment
    from tpuwatch.doctor.report import DoctorReport, print_report
    from tpuwatch.doctor.run import is_conclusive, run_checks
else:
    __getattr__, __all__ = public_face(__name__, __file__)
