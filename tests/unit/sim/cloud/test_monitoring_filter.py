"""The filter language of the simulated Cloud Monitoring."""

from __future__ import annotations

import pytest
from google.cloud import monitoring_v3

from tpuwatch.sim.cloud.monitoring_filter import MAX_LENGTH, parse
from tpuwatch.sim.cloud.responses import ServiceError

SERIES = monitoring_v3.TimeSeries.pb()(
    metric={"type": "tpu.googleapis.com/accelerator/duty_cycle", "labels": {"accelerator_id": "3"}},
    resource={"type": "tpu_worker", "labels": {"node_id": 'a "b"', "worker_id": "0", "zone": "us-east5-a"}},
)
TYPE = 'metric.type = "tpu.googleapis.com/accelerator/duty_cycle"'


@pytest.mark.parametrize(
    "text",
    [
        TYPE,
        f"  {TYPE.replace(' ', '')}  ",
        f'{TYPE} AND resource.type = "tpu_worker"',
        f'{TYPE} resource.labels.worker_id="0"',
        f'{TYPE} AND resource.label.worker_id = "0" AND metric.label."accelerator_id" = "3"',
        f'{TYPE}\nAND resource.labels.node_id = "a \\"b\\""',
        'metric.type = starts_with("tpu.googleapis.com/")',
        'resource.labels.zone = one_of("us-east5-b", "us-east5-a")',
        'resource.labels.zone != "us-east5-b"',
        'resource.labels.nothing = ""',
    ],
)
def test_what_passes(text: str) -> None:
    assert parse(text).matches(SERIES)


@pytest.mark.parametrize(
    "text",
    [
        'metric.type = "tpu.googleapis.com/accelerator/memory_used"',
        f'{TYPE} AND resource.labels.worker_id = "1"',
        'resource.labels.zone != one_of("us-east5-b", "us-east5-a")',
        'metric.type = starts_with("compute.")',
        'resource.labels.nothing = "0"',
    ],
)
def test_what_does_not_pass(text: str) -> None:
    assert not parse(text).matches(SERIES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        f"{TYPE} AND",
        f"AND {TYPE}",
        f"{TYPE} OR {TYPE}",
        f"NOT {TYPE}",
        f"({TYPE})",
        "metric.type = tpu",
        'metric.kind = "GAUGE"',
        'metric.type > "a"',
        'metric.type = "a',
        'metric.type = ends_with("a")',
        'metric.type = starts_with("a", "b")',
        'metric.type = "\\q"',
        f'{TYPE}, resource.type = "tpu_worker"',
        f'{TYPE} ANDresource.type = "tpu_worker"',
        'metric.type = "' + "a" * MAX_LENGTH + '"',
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ServiceError) as refused:
        parse(text)
    assert refused.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TYPE, "tpu.googleapis.com/accelerator/duty_cycle"),
        ('metric.type = one_of("a")', "a"),
        ('metric.type = one_of("a", "b")', ""),
        ('metric.type = starts_with("a")', ""),
        ('metric.type != "a"', ""),
        ('resource.type = "tpu_worker"', ""),
    ],
)
def test_the_one_metric_that_is_asked_for(text: str, expected: str) -> None:
    assert parse(text).metric_type == expected
