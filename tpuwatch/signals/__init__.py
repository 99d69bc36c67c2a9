"""The signals: what is known of a node, and the loops that ask each of its sources.

In: the cloud, the runtime, the host, the metadata server, peers.
Out: one snapshot with the latest answer of each.
Never: judges, or lets one source delay another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.signals.cloud import CloudSignal
    from tpuwatch.signals.identity import IdentitySignal, ask_metadata, kubernetes_node, metrics_ports
    from tpuwatch.signals.kubernetes import KubernetesSignal, in_cluster
    from tpuwatch.signals.monitoring import MonitoringSignal
    from tpuwatch.signals.probe import PROBE_FILE, leave_probe, probe_event, read_probe
    from tpuwatch.signals.queued_resources import zone_queued_resources
    from tpuwatch.signals.runtime import RuntimeSignal
    from tpuwatch.signals.service import SignalsService
    from tpuwatch.signals.watch import Watch, watches
else:
    __getattr__, __all__ = public_face(__name__, __file__)
