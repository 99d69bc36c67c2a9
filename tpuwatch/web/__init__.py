"""The HTTP server: metrics, health, the JSON API, the status page.

In: GET requests, and the view of the daemon.
Out: documents, with secrets taken out.
Never: changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.web import log_documents, serializers
    from tpuwatch.web.access import Access
    from tpuwatch.web.client import DaemonAddress, ask_daemon, ask_metrics, daemon_address, reading_documents
    from tpuwatch.web.daemon_events import DaemonEvents
    from tpuwatch.web.log_documents import diagnosis, event
    from tpuwatch.web.routes import MAX_LIMIT, MAX_NODES
    from tpuwatch.web.serializers import tune_sentences
    from tpuwatch.web.server import HttpServer
else:
    __getattr__, __all__ = public_face(
        __name__,
        {
            "access": ["Access"],
            "client": ["DaemonAddress", "ask_daemon", "ask_metrics", "daemon_address", "reading_documents"],
            "daemon_events": ["DaemonEvents"],
            "routes": ["MAX_LIMIT", "MAX_NODES"],
            "log_documents": ["diagnosis", "event"],
            "serializers": ["tune_sentences"],
            "server": ["HttpServer"],
        },
        submodules=["log_documents", "serializers"],
    )
