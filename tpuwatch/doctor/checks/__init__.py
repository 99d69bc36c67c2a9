"""The checks, a module for each area. The order here is the order of the report.

In: the environment that `environment.py` has looked at.
Out: a result for each check.
Never: raises for a fault of the machine: that is a result.
"""

from __future__ import annotations

from tpuwatch.doctor.checks import cloud, configuration, daemon, host, kubernetes, logs, tools, variables, versions

CHECKS = (
    *configuration.CHECKS,
    *cloud.CHECKS,
    *kubernetes.CHECKS,
    *logs.CHECKS,
    *variables.CHECKS,
    *versions.CHECKS,
    *host.CHECKS,
    *daemon.CHECKS,
    *tools.CHECKS,
)
