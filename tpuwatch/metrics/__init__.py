"""Prometheus metrics, and the main ones for Cloud Monitoring.

In: numbers that the services set.
Out: one scrape, and time series for Cloud Monitoring.
Never: makes a label of a text, a pid or a path.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.metrics.cloud_monitoring import CloudMonitoringExport, samples
    from tpuwatch.metrics.registry import Metrics
