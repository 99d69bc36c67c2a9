"""What libtpu reads and serves: its variables, flags, log settings and runtime metrics; TPUs by name.

In: names, values and messages as libtpu has them.
Out: what they mean.
Never: loads libtpu.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.libtpu import log_settings, metrics_proto
    from tpuwatch.libtpu.accelerators import (
        GENERATIONS,
        chips_of,
        chips_of_host,
        counted,
        default_topology,
        devices_per_chip,
        generation,
        hosts_of,
        unit,
    )
    from tpuwatch.libtpu.flags import ARGUMENTS, UNBUFFERED, merged_all, whole_flags
    from tpuwatch.libtpu.log_settings import LOG_DIR, LogFacts, unbuffered
    from tpuwatch.libtpu.metrics_proto import (
        GET_METRIC,
        LIST_METRICS,
        ListSupportedMetricsRequest,
        ListSupportedMetricsResponse,
        MetricRequest,
        MetricResponse,
    )
    from tpuwatch.libtpu.metrics_values import HBM_TOTAL, HLO_QUEUE, METRICS, Readings, chips, readings, total
    from tpuwatch.libtpu.variables import (
        MEASURED,
        MIB_UP_TO,
        PARTITIONS,
        TUNED_VARIABLES,
        beyond_memory,
        half_of,
        is_tpu_name,
        items,
        judge_value,
        judge_values,
        leading_integer,
        meant,
        meant_bytes,
        premapped_bytes,
        product,
    )
