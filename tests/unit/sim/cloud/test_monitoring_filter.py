"""The filter language of the simulated Cloud Monitoring."""

from __future__ import annotations

import pytest
from google.cloud import monitoring_v3

from tpuwatch.sim.cloud.monitoring_filter import matches, parse
from tpuwatch.sim.cloud.responses import ServiceError

SERIES = monitoring_v3.TimeSeries.pb()(
    metric={"type": "tpu.googleapis.com/accelerator/duty_cycle", "labels": {"accelerator_id": "3"}},
    resource={"type": "tpu_worker", "labels": {"node_id": 'a "b"', "worker_id": "0", "zone": "us-east5-a"}},
)
TYPE = 'metric.type = "tpu.googleapis.com/accelerator/duty_cycle"'


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (TYPE, True),
        (f"  {TYPE.replace(' ', '')}  ", True),
        (f'{TYPE} AND resource.type = "tpu_worker"', True),
        (f'{TYPE}\nAND resource.labels.node_id = "a \\"b\\"" AND metric.labels.accelerator_id = "3"', True),
        ('resource.labels.nothing = ""', True),
        ('metric.type = "tpu.googleapis.com/accelerator/memory_used"', False),
        (f'{TYPE} AND resource.labels.worker_id = "1"', False),
        ('resource.labels.nothing = "0"', False),
    ],
)
def test_a_series_passes_if_all_comparisons_hold(text: str, passes: bool) -> None:
    assert matches(parse(text), SERIES) is passes


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{TYPE} AND",
        f"{TYPE} OR {TYPE}",
        f"NOT {TYPE}",
        f"({TYPE})",
        "metric.type = tpu",
        'metric.type != "a"',
        'metric.type = "a',
        'metric.type = starts_with("a")',
        'metric.type = "\\q"',
        f'{TYPE} ANDresource.type = "tpu_worker"',
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ServiceError) as refused:
        parse(text)
    assert refused.value.code == "INVALID_ARGUMENT"
