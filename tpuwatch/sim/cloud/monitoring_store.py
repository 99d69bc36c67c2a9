"""The series that clients write to the simulated Cloud Monitoring, by the service's rules for custom metrics."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.api import metric_pb2

from tpuwatch.sim.cloud.responses import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_SERIES: Final = 200  # in a call
PERIOD_SECONDS: Final = 5.0  # between two points of a series
PAST_SECONDS: Final = 25 * 3600.0
FUTURE_SECONDS: Final = 300.0
MAX_LABELS: Final = 30
MAX_LABEL_CHARACTERS: Final = 1024
MAX_POINTS: Final = 1_500  # of a series: a day, one a minute
# The resources that custom metrics may be written to, among those that there are, and their labels besides project_id.
RESOURCES: Final = {
    "gce_instance": {"instance_id", "zone"},
    "generic_node": {"location", "namespace", "node_id"},
    "generic_task": {"location", "namespace", "job", "task_id"},
    "global": set[str](),
}
_TYPE: Final = re.compile(r"(custom|workload|external)\.googleapis\.com/[A-Za-z0-9_./-]{1,180}")
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_GAUGE: Final = metric_pb2.MetricDescriptor.GAUGE

Key = tuple[str, tuple[tuple[str, str], ...], str, tuple[tuple[str, str], ...]]


class _Metric(NamedTuple):
    """What the first point of a metric settles for all of its series."""

    kind: int
    value_type: str


class _Stored(NamedTuple):
    series: Any  # without points
    points: deque[Any]  # the newest first


class Store:
    """Written series. Call it under the world's lock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._series: dict[Key, _Stored] = {}
        self._metrics: dict[tuple[str, str], _Metric] = {}  # by project and metric type

    def knows(self, project: str, metric_type: str) -> bool:
        """Whether the metric has been written to."""
        return (project, metric_type) in self._metrics

    def write(self, project: str, batch: Sequence[Any]) -> list[str]:
        """Write one point of each series that may be written; returns why the others were not. Raises ServiceError."""
        if not 1 <= len(batch) <= MAX_SERIES:
            raise _invalid("timeSeries", f"there are {len(batch)}, and 1 to {MAX_SERIES} are allowed.")
        seen: set[Key] = set()
        failures = []
        for index, series in enumerate(batch):
            key = key_of(series, project)
            try:
                self._write(project, key, series, f"timeSeries[{index}]", again=key in seen)
            except ServiceError as error:
                failures.append(error.message)
            seen.add(key)
        return failures

    def series(
        self, metric_type: str, project: str, start: float, end: float, wanted: Callable[[Any], bool]
    ) -> Iterator[Any]:
        """The wanted written series of a metric, with their points from `start` to `end`, the newest first."""
        for (kind, _, _, resource), stored in self._series.items():
            if kind == metric_type and ("project_id", project) in resource and wanted(stored.series):
                series = type(stored.series)()
                series.CopyFrom(stored.series)
                series.points.extend(
                    point for point in stored.points if start <= _seconds(point.interval.end_time) <= end
                )
                yield series

    def _write(self, project: str, key: Key, series: Any, field: str, *, again: bool) -> None:
        if again:
            raise _invalid(
                field,
                "Duplicate TimeSeries encountered. Only one point can be written per TimeSeries per request.",
            )
        _check_labels(series, project, field)
        if _TYPE.fullmatch(series.metric.type) is None:
            raise _invalid(f"{field}.metric.type", f"{series.metric.type[:200]!r} is not the type of a custom metric.")
        if len(series.points) != 1:
            raise _invalid(f"{field}.points", "Only one point can be written per TimeSeries per request.")
        point = series.points[0]
        end = self._check_interval(series, point.interval, f"{field}.points[0].interval")
        metric = self._check_metric(project, series, point, field)
        stored = self._series.get(key)
        if stored is None:
            stored = self._series[key] = _Stored(_head(series, project, metric), deque(maxlen=MAX_POINTS))
        elif end <= (last := _seconds(stored.points[0].interval.end_time)):
            raise ServiceError(
                "INVALID_ARGUMENT",
                "Points must be written in order. One or more of the points specified had an older end time than the "
                f"most recent point.: {field}",
            )
        elif end - last < PERIOD_SECONDS:
            raise ServiceError(
                "INVALID_ARGUMENT",
                "One or more points were written more frequently than the maximum sampling period configured for the "
                f"metric.: {field}",
            )
        stored.points.appendleft(_point(point))

    def _check_interval(self, series: Any, interval: Any, field: str) -> float:
        """The end of the interval, in seconds. Raises ServiceError."""
        if not interval.HasField("end_time"):
            raise _invalid(f"{field}.end_time", "it must be given.")
        end, now = _seconds(interval.end_time), self._now()
        if not now - PAST_SECONDS <= end <= now + FUTURE_SECONDS:
            raise _invalid(
                f"{field}.end_time", "it must be no more than 25 hours in the past and 5 minutes in the future."
            )
        start = _seconds(interval.start_time) if interval.HasField("start_time") else None
        gauge = series.metric_kind in (0, _GAUGE)
        if (gauge and start not in (None, end)) or (not gauge and (start is None or start >= end)):
            raise _invalid(f"{field}.start_time", "a gauge's is its end time, others begin earlier.")
        return end

    def _check_metric(self, project: str, series: Any, point: Any, field: str) -> _Metric:
        """Check the kind and the value against the metric, which its first point settles. Raises ServiceError."""
        written = (point.value.WhichOneof("value") or "").removesuffix("_value").upper()
        if not written:
            raise _invalid(f"{field}.points[0].value", "it must be given.")
        given = _Metric(series.metric_kind or _GAUGE, written)
        metric = self._metrics.setdefault((project, series.metric.type), given)
        if written != metric.value_type:
            raise _invalid(f"{field}.points[0].value", f"the metric's values are {metric.value_type}, not {written}.")
        if given.kind != metric.kind:
            raise _invalid(f"{field}.metric_kind", "the metric's is another.")
        return metric


def key_of(series: Any, project: str) -> Key:
    """What makes a series the same series."""
    resource = {"project_id": project, **series.resource.labels}
    return (
        series.metric.type,
        tuple(sorted(series.metric.labels.items())),
        series.resource.type,
        tuple(sorted(resource.items())),
    )


def _invalid(field: str, text: str) -> ServiceError:
    return ServiceError("INVALID_ARGUMENT", f"Field {field} had an invalid value: {text}")


def _check_labels(series: Any, project: str, field: str) -> None:
    kind = series.resource.type
    wanted = RESOURCES.get(kind)
    if wanted is None:
        raise _invalid(f"{field}.resource.type", f"custom metrics cannot be written to {kind[:200]!r}.")
    labels = dict(series.resource.labels)
    if labels.pop("project_id", project) != project or labels.keys() != wanted:
        names = ", ".join(sorted(wanted))
        raise _invalid(f"{field}.resource.labels", f"the labels of {kind} are project_id (as in the request), {names}.")
    if len(series.metric.labels) > MAX_LABELS or not all(map(_LABEL.fullmatch, series.metric.labels)):
        raise _invalid(f"{field}.metric.labels", "bad names, or too many.")
    if any(len(value) > MAX_LABEL_CHARACTERS for value in (*labels.values(), *series.metric.labels.values())):
        raise _invalid(field, "the value of a label is too long.")


def _head(series: Any, project: str, metric: _Metric) -> Any:
    """The series without its points, as it is read."""
    head = type(series)()
    head.CopyFrom(series)
    del head.points[:]
    head.resource.labels["project_id"] = project
    head.metric_kind = metric.kind
    head.value_type = metric_pb2.MetricDescriptor.ValueType.Value(metric.value_type)
    return head


def _point(point: Any) -> Any:
    copy = type(point)()
    copy.CopyFrom(point)
    if not copy.interval.HasField("start_time"):
        copy.interval.start_time.CopyFrom(copy.interval.end_time)
    return copy


def _seconds(timestamp: Any) -> float:
    return float(timestamp.seconds + timestamp.nanos / 1e9)
