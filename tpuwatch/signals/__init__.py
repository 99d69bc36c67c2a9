"""The signals: what is known of a node, and the loops that ask each of its sources.

In: the cloud, the runtime, the host, the metadata server, peers.
Out: one snapshot with the latest answer of each.
Never: judges, or lets one source delay another.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.signals.cloud import CloudSignal, Watch, watches
    from tpuwatch.signals.identity import IdentitySignal, ask_metadata, kubernetes_node
    from tpuwatch.signals.kubernetes import KubernetesSignal, in_cluster
    from tpuwatch.signals.monitoring import MonitoringSignal
    from tpuwatch.signals.probe import PROBE_FILE, leave_probe, probe_event, read_probe
    from tpuwatch.signals.runtime import RuntimeSignal, metrics_ports
    from tpuwatch.signals.service import SignalsService
