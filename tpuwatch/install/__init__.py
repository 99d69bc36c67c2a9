"""`tpuwatch install` and `tpuwatch uninstall`: the systemd units of this environment's tpuwatch.

In: the environment that the command runs from.
Out: units in place and started, or removed.
Never: overwrites a file of somebody else.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.install.host import InstallHost
    from tpuwatch.install.steps import InstallStep, install_steps, leftovers, uninstall_steps
