"""A turn over the logs: read, recognise, store, count; and the service that owns it.

In: matches of the followed files, and the records of `tpuwatch exec`.
Out: events, launches and offsets in one transaction, then metrics.
Never: moves an offset whose events are not stored.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.ingest.bad_values import bad_value_events
    from tpuwatch.ingest.double_reports import DoubleReports
    from tpuwatch.ingest.service import LogService
