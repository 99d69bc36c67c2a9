"""The kinds of panel that the dashboards are made of, each with a description, thresholds and where to go from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models import prometheus as prometheus_model

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = "https://tpuwatch.example.com"  # where docs/ is published: the same as in the alerts
DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
COLORS = {
    "healthy": "green",
    "starting": "light-blue",
    "compiling": "blue",
    "idle": "text",
    "job_stuck": "orange",
    "runtime_stuck": "red",
    "node_stuck": "dark-red",
    "maintenance": "yellow",
    "preempted": "purple",
    "gone": "dark-purple",
    "stopped": "semi-dark-red",
    "misconfigured": "dark-orange",
    "unknown": "super-light-blue",
}
# Of what the Cloud TPU API shows; any other word of it is red.
CLOUD_COLORS = {"READY": "green", "HEALTHY": "green", "HEALTH_UNSPECIFIED": "text"}
GOOD, ATTENTION, BAD = "green", "orange", "red"
NODE_PAGE = "/d/tpuwatch-node?var-zone=${__data.fields.zone}&var-node=${__data.fields.node}&${__url_time_range}"


@dataclass(frozen=True, slots=True)
class Query:
    """A query and what its series are called; `code` is what the table's joined fields are distinguished by."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """From which value on a figure is which colour: `attention` and `bad`; none: no figure of it is bad."""

    attention: float | None = None
    bad: float | None = None
    low: bool = False  # small figures are the bad ones

    def steps(self) -> list[model.Threshold]:
        """Return the limits as Grafana orders them: the lowest first, without a value."""
        bounds = [
            (value, color) for value, color in ((self.attention, ATTENTION), (self.bad, BAD)) if value is not None
        ]
        if not self.low:
            return [model.Threshold(None, GOOD), *(model.Threshold(value, color) for value, color in sorted(bounds))]
        steps = [model.Threshold(None, bounds[-1][1])] if bounds else [model.Threshold(None, GOOD)]
        for (value, _), color in zip(
            reversed(bounds), [*(color for _, color in reversed(bounds[:-1])), GOOD], strict=True
        ):
            steps.append(model.Threshold(value, color))
        return steps


NO_LIMIT = Limit()


def stat_panel(
    title: str, description: str, query: Query, doc: str, *, limit: Limit = NO_LIMIT, unit: str = "short", span: int = 4
) -> Any:
    """A single figure, coloured by its limit, over its course."""
    panel = stat.Panel().graph_mode(
        common_model.BigValueGraphMode.AREA if limit == NO_LIMIT else common_model.BigValueGraphMode.NONE
    )
    panel.color_mode(
        common_model.BigValueColorMode.VALUE if limit == NO_LIMIT else common_model.BigValueColorMode.BACKGROUND
    )
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    return _panel(panel, title, description, [query], doc, limit, unit, span, 4)


def series_panel(
    title: str,
    description: str,
    queries: Sequence[Query],
    doc: str,
    *,
    limit: Limit = NO_LIMIT,
    unit: str = "short",
    stacked: bool = False,
    span: int = 12,
    colors: dict[str, str] | None = None,
) -> Any:
    """Figures over time, with a table of the latest and the highest; a limit is drawn as a line."""
    panel = (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(30 if stacked else 8)
        .show_points(common_model.VisibilityMode.NEVER)
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL))
    drawn = (
        common_model.GraphThresholdsStyleMode.DASHED if limit != NO_LIMIT else common_model.GraphThresholdsStyleMode.OFF
    )
    panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(drawn))
    panel.legend(
        common.VizLegendOptions()
        .display_mode(common_model.LegendDisplayMode.TABLE)
        .placement(common_model.LegendPlacement.RIGHT)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    panel.tooltip(
        common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI).sort(common_model.SortOrder.DESCENDING)
    )
    for name, color in (colors or {}).items():
        panel.override_by_name(name, [model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})])
    return _panel(panel, title, description, queries, doc, limit, unit, span, 8)


def timeline_panel(title: str, description: str, query: Query, doc: str, *, span: int = 24, height: int = 8) -> Any:
    """Which values held when: a row for each series, and a bar where it was 1."""
    shown = model.ValueMap({"1": model.ValueMappingResult(text="yes", color=BAD, index=0)})
    panel = (
        statetimeline.Panel()
        .mappings([shown])
        .show_value(common_model.VisibilityMode.NEVER)
        .row_height(0.8)
        .line_width(0)
    )
    for name, color in (COLORS | CLOUD_COLORS).items():
        panel.override_by_name(
            name,
            [
                model.DynamicConfigValue(
                    "mappings", [{"type": "value", "options": {"1": {"text": name, "color": color, "index": 0}}}]
                )
            ],
        )
    return _panel(panel, title, description, [query], doc, NO_LIMIT, "short", span, height)


def table_panel(
    title: str,
    description: str,
    queries: Sequence[Query],
    doc: str,
    *,
    columns: dict[str, str],
    units: dict[str, str] | None = None,
    sort: str,
    span: int = 24,
    height: int = 9,
) -> Any:
    """What holds now, a row for each set of labels that the queries share; `columns` names fields and their headings.

    A field is a label, or "Value #A" for the value of the first query; fields that are not named are hidden.
    """
    panel = table.Panel().sort_by([common.TableSortByFieldState().display_name(sort).desc(True)]).filterable(True)
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    fields = list(columns)
    hidden = ["Time", *(f"Value #{chr(ord('A') + number)}" for number in range(len(queries)))]
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {name: True for name in hidden if name not in columns},
                "indexByName": {name: place for place, name in enumerate(fields)},
                "renameByName": columns,
            },
        )
    )
    for heading, unit in (units or {}).items():
        panel.override_by_name(heading, [model.DynamicConfigValue("unit", unit)])
    if "node" in columns:
        link = {"title": "${__data.fields.node}: all that is known of it", "url": NODE_PAGE, "targetBlank": False}
        panel.override_by_name(columns["node"], [model.DynamicConfigValue("links", [link])])
    if "verdict" in columns:
        colors = {verdict: {"color": color, "index": place} for place, (verdict, color) in enumerate(COLORS.items())}
        cell = {"type": "color-text"}
        panel.override_by_name(
            columns["verdict"],
            [
                model.DynamicConfigValue("mappings", [{"type": "value", "options": colors}]),
                model.DynamicConfigValue("custom.cellOptions", cell),
            ],
        )
    built = _panel(panel, title, description, [], doc, NO_LIMIT, "short", span, height)
    for number, query in enumerate(queries):
        target = _target(query).instant().format(prometheus_model.PromQueryFormat.TABLE).ref_id(chr(ord("A") + number))
        built.with_target(target)
    return built


def heatmap_panel(title: str, description: str, query: Query, doc: str, *, unit: str, span: int = 12) -> Any:
    """The buckets of a histogram over time."""
    panel = heatmap.Panel().calculate(False)
    panel.color(heatmap.HeatmapColorOptions().mode(heatmap_model.HeatmapColorMode.SCHEME).scheme("Oranges").steps(32))
    panel.y_axis(heatmap.YAxisConfig().unit(unit))
    built = _panel(panel, title, description, [], doc, NO_LIMIT, unit, span, 8)
    built.with_target(_target(query).format(prometheus_model.PromQueryFormat.HEATMAP).ref_id("A"))
    return built


def new_dashboard(
    uid: str, title: str, description: str, *, variables: Sequence[tuple[str, str, str, bool]]
) -> dashboard.Dashboard:
    """An empty dashboard that leads to the others; `variables` are name, label, query, and whether it takes several."""
    new = (
        dashboard.Dashboard(f"tpuwatch / {title}")
        .uid(uid)
        .description(description)
        .tags(["tpuwatch"])
        .time("now-6h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(
            dashboard.DashboardLink("tpuwatch")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(["tpuwatch"])
            .as_dropdown(False)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for name, label, query, several in variables:
        variable = (
            dashboard.QueryVariable(name).label(label).datasource(DATASOURCE).query({"query": query, "refId": name})
        )
        variable.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)
        if several:
            variable.multi(True).include_all(True).all_value(".*")
            variable.current(model.VariableOption(text=["All"], value=["$__all"], selected=True))
        new.with_variable(variable)
    return new


def positive(query: str, label: str) -> str:
    """Return the query's series that are above 0, and where there is none, one that says so."""
    return f'{query} > 0 or label_replace(vector(0), "{label}", "none", "", "")'


def add_section(new: dashboard.Dashboard, heading: str, *panels: Any) -> None:
    """Add a heading and its panels."""
    new.with_row(dashboard.Row(heading))
    for panel in panels:
        new.with_panel(panel)


def _panel(
    panel: Any,
    title: str,
    description: str,
    queries: Sequence[Query],
    doc: str,
    limit: Limit,
    unit: str,
    span: int,
    height: int,
) -> Any:
    panel.title(title).description(description).datasource(DATASOURCE).unit(unit).span(span).height(height)
    panel.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(limit.steps()))
    panel.links(
        [
            dashboard.DashboardLink("What to do")
            .type(model.DashboardLinkType.LINK)
            .url(f"{DOCS}/{doc}")
            .target_blank(True)
        ]
    )
    for number, query in enumerate(queries):
        panel.with_target(_target(query).ref_id(chr(ord("A") + number)))
    return panel


def _target(query: Query) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(DATASOURCE).expr(query.expr).legend_format(query.legend or "__auto")
