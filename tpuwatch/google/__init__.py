"""Google's services: the Cloud TPU API, the metadata server, Cloud Monitoring, Cloud Storage.

In: requests with a deadline, and credentials.
Out: plain data, or an error of a known kind.
Never: waits without end, or shows a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.google import storage
    from tpuwatch.google.errors import ApiError, ApiFault, PreconditionError, RequestContext, StorageError, explain
    from tpuwatch.google.metadata import (
        DEFAULT_HOST,
        FLAVOR,
        MetadataClient,
        MetadataError,
        metadata_host,
        metadata_url,
    )
    from tpuwatch.google.monitoring import MonitoringConnection, monitoring_call
    from tpuwatch.google.permissions import PermissionsClient
    from tpuwatch.google.storage import Bucket, StoredObject
    from tpuwatch.google.tpu_client import MAX_PAGES, PAGE_SIZE, CloudClient
    from tpuwatch.google.tpu_node import NodeConverter, enum_name, short_name
    from tpuwatch.google.tpu_queued_resource import convert_queued_resource
else:
    __getattr__, __all__ = public_face(__name__, __file__)
