"""The series that clients write to the simulated Cloud Monitoring, by the service's rules for custom metrics."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.api import metric_pb2
from google.cloud import monitoring_v3

from tpuwatch.sim.cloud.responses import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_SERIES: Final = 200  # in a call
PERIOD_SECONDS: Final = 5.0  # between two points of a series
PAST_SECONDS: Final = 25 * 3600.0
FUTURE_SECONDS: Final = 300.0
MAX_LABELS: Final = 30
MAX_LABEL_CHARACTERS: Final = 1024
MAX_STORED: Final = 100_000  # series
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
_INVALID: Final = "INVALID_ARGUMENT"

Key = tuple[str, tuple[tuple[str, str], ...], str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Stored:
    series: Any  # without points
    points: deque[Any]  # the newest first


class Store:
    """Written series and their descriptors. Call it under the world's lock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._now = clock
        self._series: dict[Key, _Stored] = {}
        self.descriptors: dict[tuple[str, str], Any] = {}  # by project and metric type

    def write(self, project: str, batch: Sequence[Any]) -> list[str]:
        """Write one point of each series that may be written; returns why the others were not. Raises ServiceError."""
        if not 1 <= len(batch) <= MAX_SERIES:
            raise ServiceError(
                _INVALID,
                f"Field timeSeries had an invalid value: there are {len(batch)}, and 1 to {MAX_SERIES} are allowed.",
            )
        seen: set[Key] = set()
        failures = []
        for index, series in enumerate(batch):
            key = key_of(series, project)
            try:
                _check_first(key, seen, index)
                self._write(project, key, series, f"timeSeries[{index}]")
            except ServiceError as error:
                failures.append(error.message)
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

    def describe(self, project: str, descriptor: Any) -> Any:
        """Create a descriptor, or give one further labels. Raises ServiceError."""
        _check_type(descriptor.type, "metric_descriptor.type")
        old = self.descriptors.get((project, descriptor.type))
        if old is not None and (old.metric_kind, old.value_type) != (descriptor.metric_kind, descriptor.value_type):
            raise ServiceError(_INVALID, f"The kind and value type of the metric {descriptor.type} cannot be changed.")
        new = metric_pb2.MetricDescriptor()
        new.CopyFrom(descriptor)
        new.name = f"projects/{project}/metricDescriptors/{descriptor.type}"
        self.descriptors[project, descriptor.type] = new
        return new

    def _write(self, project: str, key: Key, series: Any, field: str) -> None:
        _check_labels(series, project, field)
        _check_type(series.metric.type, f"{field}.metric.type")
        if len(series.points) != 1:
            raise ServiceError(
                _INVALID,
                f"Field {field}.points had an invalid value: Only one point can be written per TimeSeries per request.",
            )
        point = series.points[0]
        end = self._check_interval(series, point, field)
        self._describe(project, series, point, field)
        stored = self._series.get(key)
        if stored is None:
            if len(self._series) >= MAX_STORED:
                raise ServiceError("RESOURCE_EXHAUSTED", f"Field {field}: the project has too many time series.")
            stored = self._series[key] = _Stored(_head(series, project), deque(maxlen=MAX_POINTS))
        elif end <= (last := _seconds(stored.points[0].interval.end_time)):
            raise ServiceError(
                _INVALID,
                "Points must be written in order. One or more of the points specified had an older end time than the "
                f"most recent point.: {field}",
            )
        elif end - last < PERIOD_SECONDS:
            raise ServiceError(
                _INVALID,
                "One or more points were written more frequently than the maximum sampling period configured for the "
                f"metric.: {field}",
            )
        stored.points.appendleft(_point(point))

    def _check_interval(self, series: Any, point: Any, field: str) -> float:
        field = f"{field}.points[0].interval"
        if not point.interval.HasField("end_time"):
            raise ServiceError(_INVALID, f"Field {field}.end_time had an invalid value: it must be given.")
        end, now = _seconds(point.interval.end_time), self._now()
        if not now - PAST_SECONDS <= end <= now + FUTURE_SECONDS:
            raise ServiceError(
                _INVALID,
                f"Field {field}.end_time had an invalid value: it must be no more than 25 hours in the past and 5 "
                "minutes in the future.",
            )
        start = _seconds(point.interval.start_time) if point.interval.HasField("start_time") else None
        gauge = series.metric_kind in (0, metric_pb2.MetricDescriptor.GAUGE)
        if (gauge and start not in (None, end)) or (not gauge and (start is None or start >= end)):
            raise ServiceError(
                _INVALID,
                f"Field {field}.start_time had an invalid value: a gauge's is its end time, others begin earlier.",
            )
        return end

    def _describe(self, project: str, series: Any, point: Any, field: str) -> None:
        """Check the kind and the value against the metric's descriptor, which the first point makes."""
        written = (point.value.WhichOneof("value") or "").removesuffix("_value").upper()
        if not written:
            raise ServiceError(_INVALID, f"Field {field}.points[0].value had an invalid value: it must be given.")
        descriptor = self.descriptors.get((project, series.metric.type))
        if descriptor is None:
            descriptor = metric_pb2.MetricDescriptor(
                type=series.metric.type,
                metric_kind=series.metric_kind or metric_pb2.MetricDescriptor.GAUGE,
                value_type=written,
                unit=series.unit,
            )
            self.describe(project, descriptor)
        wanted = metric_pb2.MetricDescriptor.ValueType.Name(descriptor.value_type)
        if written != wanted:
            raise ServiceError(
                _INVALID,
                f"Field {field}.points[0].value had an invalid value: the metric's values are {wanted}, not {written}.",
            )
        if series.metric_kind not in (0, descriptor.metric_kind):
            raise ServiceError(_INVALID, f"Field {field}.metric_kind had an invalid value: the metric's is another.")


def key_of(series: Any, project: str) -> Key:
    """What makes a series the same series."""
    resource = {"project_id": project, **series.resource.labels}
    return (
        series.metric.type,
        tuple(sorted(series.metric.labels.items())),
        series.resource.type,
        tuple(sorted(resource.items())),
    )


def _check_first(key: Key, seen: set[Key], index: int) -> None:
    if key in seen:
        raise ServiceError(
            _INVALID,
            f"Field timeSeries[{index}] had an invalid value: Duplicate TimeSeries encountered. Only one point can be "
            "written per TimeSeries per request.",
        )
    seen.add(key)


def _check_type(name: str, field: str) -> None:
    if _TYPE.fullmatch(name) is None:
        raise ServiceError(
            _INVALID, f"Field {field} had an invalid value of {name[:200]!r}: it is not the type of a custom metric."
        )


def _check_labels(series: Any, project: str, field: str) -> None:
    wanted = RESOURCES.get(series.resource.type)
    if wanted is None:
        raise ServiceError(
            _INVALID,
            f"Field {field}.resource.type had an invalid value of {series.resource.type[:200]!r}: custom metrics "
            "cannot be written to it.",
        )
    labels = dict(series.resource.labels)
    if labels.pop("project_id", project) != project or labels.keys() != wanted:
        raise ServiceError(
            _INVALID,
            f"Field {field}.resource.labels had an invalid value: the labels of {series.resource.type} are project_id "
            f"(as in the request), {', '.join(sorted(wanted))}.",
        )
    if len(series.metric.labels) > MAX_LABELS or not all(map(_LABEL.fullmatch, series.metric.labels)):
        raise ServiceError(_INVALID, f"Field {field}.metric.labels had an invalid value: bad names, or too many.")
    if any(len(value) > MAX_LABEL_CHARACTERS for value in (*labels.values(), *series.metric.labels.values())):
        raise ServiceError(_INVALID, f"Field {field}: the value of a label is too long.")


def _head(series: Any, project: str) -> Any:
    """The series without its points, as it is read."""
    head = monitoring_v3.TimeSeries.pb()()
    head.CopyFrom(series)
    del head.points[:]
    head.resource.labels["project_id"] = project
    head.metric_kind = series.metric_kind or metric_pb2.MetricDescriptor.GAUGE
    value = series.points[0].value.WhichOneof("value").removesuffix("_value").upper()
    head.value_type = metric_pb2.MetricDescriptor.ValueType.Value(value)
    return head


def _point(point: Any) -> Any:
    copy = type(point)()
    copy.CopyFrom(point)
    if not copy.interval.HasField("start_time"):
        copy.interval.start_time.CopyFrom(copy.interval.end_time)
    return copy


def _seconds(timestamp: Any) -> float:
    return float(timestamp.seconds + timestamp.nanos / 1e9)
