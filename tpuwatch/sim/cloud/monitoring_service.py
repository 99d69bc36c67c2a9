"""Cloud Monitoring's google.monitoring.v3.MetricService, as far as tpuwatch and its tests use it, over one world.

Samples of TPUs come from the world's workloads; what clients write is stored and returned. Methods raise ServiceError,
which the server's interceptor turns into the answer.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.api import metric_pb2
from google.cloud import monitoring_v3
from google.protobuf import any_pb2, empty_pb2
from google.rpc import status_pb2

from tpuwatch.core import code_number
from tpuwatch.sim.cloud import monitoring_filter
from tpuwatch.sim.cloud.monitoring_samples import Recorder, descriptors
from tpuwatch.sim.cloud.monitoring_store import Store, key_of
from tpuwatch.sim.cloud.responses import ServiceError, page_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.sim.cloud.world import World

SERVICE: Final = "google.monitoring.v3.MetricService"
MAX_PAGE: Final = 100_000  # points, or series without points
STATUS_KEY: Final = "grpc-status-details-bin"
_HEADERS: Final = int(monitoring_v3.ListTimeSeriesRequest.TimeSeriesView.HEADERS)
_END: Final = 10**12  # seconds, later than any point


class MonitoringService:
    """The service over one world. It samples the workers at each call and at `look`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._recorder = Recorder(world)
        self._store = Store(world.clock.time)
        self._built_in = descriptors()
        self.look()

    def look(self) -> None:
        """Sample the workers now; a phase that starts and ends between two samples is missed."""
        with self._world.lock:
            self._recorder.record()

    def handler(self) -> grpc.GenericRpcHandler:
        """It, for a grpc server with the Interceptor."""
        methods: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
            "ListTimeSeries": (self._list_series, monitoring_v3.ListTimeSeriesRequest.pb()),
            "CreateTimeSeries": (self._create_series, monitoring_v3.CreateTimeSeriesRequest.pb()),
            "ListMetricDescriptors": (self._list_descriptors, monitoring_v3.ListMetricDescriptorsRequest.pb()),
            "GetMetricDescriptor": (self._get_descriptor, monitoring_v3.GetMetricDescriptorRequest.pb()),
            "CreateMetricDescriptor": (self._create_descriptor, monitoring_v3.CreateMetricDescriptorRequest.pb()),
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    self._locked(method),
                    request_deserializer=request.FromString,
                    response_serializer=lambda message: message.SerializeToString(),
                )
                for name, (method, request) in methods.items()
            },
        )

    def _locked(self, method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def serve(request: Any, context: Any) -> Any:
            with self._world.lock:
                self._recorder.record()
                return method(request, context)

        return serve

    def _list_series(self, request: Any, _: Any) -> Any:
        project = self._project(request.name)
        wanted = monitoring_filter.parse(request.filter)
        metric_type = wanted.metric_type
        if not metric_type:
            raise ServiceError("INVALID_ARGUMENT", 'The filter must name one metric: metric.type = "…".')
        if metric_type not in self._built_in and (project, metric_type) not in self._store.descriptors:
            raise ServiceError("NOT_FOUND", f"Cannot find metric(s) that match type = {metric_type!r}.")
        if request.HasField("aggregation") or request.HasField("secondary_aggregation") or request.order_by:
            raise ServiceError("INVALID_ARGUMENT", "This simulator neither aggregates nor orders: read the points.")
        start, end = _interval(request.interval)
        found = itertools.chain(
            self._recorder.series(metric_type, project, start, end, wanted.matches),
            self._store.series(metric_type, project, start, end, wanted.matches),
        )
        return _page(sorted(found, key=lambda series: key_of(series, project)), request)

    def _create_series(self, request: Any, context: Any) -> Any:
        failures = self._store.write(self._project(request.name), request.time_series)
        if failures:
            message = "; ".join(failures)
            error = ServiceError("INVALID_ARGUMENT", f"One or more TimeSeries could not be written: {message}")
            _attach_summary(context, error, len(request.time_series), failures)
            raise error
        return empty_pb2.Empty()

    def _list_descriptors(self, request: Any, _: Any) -> Any:
        project = self._project(request.name)
        written = {kind: one for (owner, kind), one in self._store.descriptors.items() if owner == project}
        known = {kind: _named(project, one) for kind, one in {**self._built_in, **written}.items()}
        if request.filter:
            wanted = monitoring_filter.parse(request.filter)
            if any(one.field != "metric.type" for one in wanted.comparisons):
                raise ServiceError("INVALID_ARGUMENT", "Descriptors are filtered by metric.type alone.")
            known = {
                kind: one
                for kind, one in known.items()
                if all(comparison.holds({"metric.type": kind}) for comparison in wanted.comparisons)
            }
        names, token = page_of(known, size=request.page_size, token=request.page_token, limit=10_000)
        return monitoring_v3.ListMetricDescriptorsResponse.pb()(
            metric_descriptors=[known[name] for name in names], next_page_token=token
        )

    def _get_descriptor(self, request: Any, _: Any) -> Any:
        parent, _, kind = request.name.partition("/metricDescriptors/")
        project = self._project(parent)
        found = self._store.descriptors.get((project, kind)) or self._built_in.get(kind)
        if found is None:
            raise ServiceError("NOT_FOUND", f"Cannot find the metric {kind[:200]!r}.")
        return _named(project, found)

    def _create_descriptor(self, request: Any, _: Any) -> Any:
        return self._store.describe(self._project(request.name), request.metric_descriptor)

    def _project(self, name: str) -> str:
        found = re.fullmatch(r"projects/([^/]+)", name)
        if found is None:
            raise ServiceError("INVALID_ARGUMENT", f"Name must begin with 'projects/', got: {name[:200]!r}")
        if found[1] not in self._world.projects:
            raise ServiceError("PERMISSION_DENIED", f"Permission monitoring denied, or there is no project {found[1]}.")
        return found[1]


def _interval(interval: Any) -> tuple[float, float]:
    if not interval.HasField("end_time"):
        raise ServiceError("INVALID_ARGUMENT", "Field interval.end_time had an invalid value: it must be given.")
    end = interval.end_time.seconds + interval.end_time.nanos / 1e9
    start = interval.start_time.seconds + interval.start_time.nanos / 1e9 if interval.HasField("start_time") else end
    if start > end:
        raise ServiceError("INVALID_ARGUMENT", "Field interval had an invalid value: it ends before it starts.")
    return start, end


def _page(found: list[Any], request: Any) -> Any:
    """A page of at most so many points, in the series that they are of; of series, where no points are wanted."""
    response = monitoring_v3.ListTimeSeriesResponse.pb()()
    items: dict[str, tuple[Any, Any]] = {}
    for at, series in enumerate(found):
        if request.view == _HEADERS:
            items[f"{at:09}"] = (series, None)
        for point in () if request.view == _HEADERS else series.points:
            items[f"{at:09}/{_END - point.interval.end_time.seconds:012}"] = (series, point)
    names, token = page_of(items, size=request.page_size, token=request.page_token, limit=MAX_PAGE)
    for series, points in itertools.groupby((items[name] for name in names), key=lambda item: id(item[0])):
        del series
        on_page = list(points)
        shown = response.time_series.add()
        shown.CopyFrom(on_page[0][0])
        del shown.points[:]
        shown.points.extend(point for _, point in on_page if point is not None)
    response.next_page_token = token
    return response


def _named(project: str, descriptor: Any) -> Any:
    named = metric_pb2.MetricDescriptor()
    named.CopyFrom(descriptor)
    named.name = f"projects/{project}/metricDescriptors/{descriptor.type}"
    return named


def _attach_summary(context: Any, error: ServiceError, total: int, failures: list[str]) -> None:
    """Attach the number of points written, and the errors of the others."""
    summary = monitoring_v3.CreateTimeSeriesSummary.pb()(
        total_point_count=total, success_point_count=total - len(failures)
    )
    for message in failures:
        one = summary.errors.add(point_count=1)
        one.status.code, one.status.message = code_number(error.code), message
    packed = any_pb2.Any()
    packed.Pack(summary)
    status = status_pb2.Status(code=code_number(error.code), message=error.message, details=[packed])
    context.set_trailing_metadata(((STATUS_KEY, status.SerializeToString()),))
