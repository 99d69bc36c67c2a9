"""Prometheus metrics, and the main ones for Cloud Monitoring.

In: numbers that the services set.
Out: one scrape, and time series for Cloud Monitoring.
Never: makes a label of a text, a pid or a path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.metrics.cloud_monitoring import CloudMonitoringExport, samples
    from tpuwatch.metrics.registry import Metrics
else:
    __getattr__, __all__ = public_face(__name__, __file__)
