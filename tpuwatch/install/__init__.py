"""`tpuwatch install` and `tpuwatch uninstall`: the systemd units of this environment's tpuwatch.

In: the environment that the command runs from.
Out: units in place and started, or removed.
Never: overwrites a file of somebody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.install.host import InstallHost
    from tpuwatch.install.steps import InstallStep, install_steps, leftovers, uninstall_steps
else:
    __getattr__, __all__ = public_face(__name__, __file__)
