"""Google's services: the Cloud TPU API, the metadata server, Cloud Monitoring, Cloud Storage.

In: requests with a deadline, and credentials.
Out: plain data, or an error of a known kind.
Never: waits without end, or shows a secret.
"""

import os

from tpuwatch.core.lazy import LazyFace

# gRPC reads it when it is loaded. Its own lines on stderr say no more than its errors, which are all explained.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

with LazyFace(__name__):
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
