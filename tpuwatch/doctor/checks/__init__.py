"""The checks, a module for each area. The order here is the order of the report."""

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
