"""A turn over the logs: read, recognise, store, count; and the service that owns it.

In: matches of the followed files, and the records of `tpuwatch exec`.
Out: events, launches and offsets in one transaction, then metrics.
Never: moves an offset whose events are not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.ingest.bad_values import bad_value_events
    from tpuwatch.ingest.double_reports import DoubleReports
    from tpuwatch.ingest.service import LogService
else:
    __getattr__, __all__ = public_face(__name__, __file__)
