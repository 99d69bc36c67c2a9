"""The HTTP server: metrics, health, the JSON API, the status page.

In: GET requests, and the view of the daemon.
Out: documents, with secrets taken out.
Never: changes anything.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.web.access import Access
    from tpuwatch.web.client import DaemonAddress, ask_daemon, ask_document, ask_metrics, daemon_address
    from tpuwatch.web.daemon_events import DaemonEvents
    from tpuwatch.web.openapi import MAX_LIMIT, MAX_NODES
    from tpuwatch.web.sentences import tune_sentences
    from tpuwatch.web.server import HttpServer
