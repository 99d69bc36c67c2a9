"""The HTTP server: metrics, health, the JSON API, the status page.

In: GET requests, and the view of the daemon.
Out: documents, with secrets taken out.
Never: changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.web.access import Access
    from tpuwatch.web.client import DaemonAddress, ask_daemon, ask_document, ask_metrics, daemon_address
    from tpuwatch.web.daemon_events import DaemonEvents
    from tpuwatch.web.openapi import MAX_LIMIT, MAX_NODES
    from tpuwatch.web.sentences import tune_sentences
    from tpuwatch.web.server import HttpServer
else:
    __getattr__, __all__ = public_face(__name__, __file__)
