"""Cloud Monitoring's google.monitoring.v3.MetricService, as far as tpuwatch uses it, over one world.

Samples of TPUs come from the world's workloads; what clients write is stored and returned. Methods raise ServiceError,
which the server's interceptor turns into the answer.
"""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.cloud import monitoring_v3
from google.protobuf import empty_pb2

from tpuwatch.core import code_number
from tpuwatch.sim.cloud import monitoring_filter
from tpuwatch.sim.cloud.monitoring_samples import METRICS, Recorder
from tpuwatch.sim.cloud.monitoring_store import Store, key_of
from tpuwatch.sim.cloud.responses import ServiceError, generic_handler, page_of

if TYPE_CHECKING:
    import grpc

    from tpuwatch.sim.cloud.world import World

SERVICE: Final = "google.monitoring.v3.MetricService"
MAX_PAGE: Final = 100_000  # points
_FULL: Final = int(monitoring_v3.ListTimeSeriesRequest.TimeSeriesView.FULL)
_END: Final = 10**12  # seconds, later than any point


class MonitoringService:
    """The service over one world. It samples the workers at each read and at `look`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._recorder = Recorder(world)
        self._store = Store(world.clock.time)
        self.look()

    def look(self) -> None:
        """Sample the workers now; a phase that starts and ends between two samples is missed."""
        with self._world.lock:
            self._recorder.record()

    def handler(self) -> grpc.GenericRpcHandler:
        """It, for a grpc server with the Interceptor."""
        return generic_handler(
            self._world,
            SERVICE,
            {
                "ListTimeSeries": (self._list_series, monitoring_v3.ListTimeSeriesRequest.pb()),
                "CreateTimeSeries": (self._create_series, monitoring_v3.CreateTimeSeriesRequest.pb()),
            },
        )

    def _list_series(self, request: Any) -> Any:
        self._recorder.record()
        project = self._project(request.name)
        wanted = monitoring_filter.parse(request.filter)
        metric_type = wanted.get("metric.type", "")
        if not metric_type:
            raise ServiceError("INVALID_ARGUMENT", 'The filter must name one metric: metric.type = "…".')
        if metric_type not in METRICS and not self._store.knows(project, metric_type):
            raise ServiceError("NOT_FOUND", f"Cannot find metric(s) that match type = {metric_type!r}.")
        aggregates = request.HasField("aggregation") or request.HasField("secondary_aggregation")
        if aggregates or request.order_by or request.view != _FULL:
            raise ServiceError("INVALID_ARGUMENT", "This simulator neither aggregates nor orders: read the points.")
        start, end = _interval(request.interval)
        matches = partial(monitoring_filter.matches, wanted)
        found = itertools.chain(
            self._recorder.series(metric_type, project, start, end, matches),
            self._store.series(metric_type, project, start, end, matches),
        )
        return _page(sorted(found, key=lambda series: key_of(series, project)), request)

    def _create_series(self, request: Any) -> Any:
        failures = self._store.write(self._project(request.name), request.time_series)
        if failures:
            message = f"One or more TimeSeries could not be written: {'; '.join(failures)}"
            summary = _summary(len(request.time_series), failures)
            raise ServiceError("INVALID_ARGUMENT", message, details=[summary])
        return empty_pb2.Empty()

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
    """A page of at most so many points, in the series that they are of."""
    response = monitoring_v3.ListTimeSeriesResponse.pb()()
    items = {
        f"{at:09}/{_END - point.interval.end_time.seconds:012}": (at, point)
        for at, series in enumerate(found)
        for point in series.points
    }
    names, token = page_of(items, request, MAX_PAGE)
    for at, points in itertools.groupby((items[name] for name in names), key=lambda item: item[0]):
        shown = response.time_series.add()
        shown.CopyFrom(found[at])
        del shown.points[:]
        shown.points.extend(point for _, point in points)
    response.next_page_token = token
    return response


def _summary(total: int, failures: list[str]) -> Any:
    """The number of points written, and the errors of the others."""
    summary = monitoring_v3.CreateTimeSeriesSummary.pb()(
        total_point_count=total, success_point_count=total - len(failures)
    )
    for message in failures:
        one = summary.errors.add(point_count=1)
        one.status.code, one.status.message = code_number("INVALID_ARGUMENT"), message
    return summary
