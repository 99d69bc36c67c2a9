"""All watched nodes: how many train, which do not, and what goes wrong over the fleet."""

from __future__ import annotations

from typing import Any

from deploy.grafana.panels import (
    COLORS,
    Limit,
    Query,
    add_section,
    new_dashboard,
    positive,
    series_panel,
    stat_panel,
    table_panel,
)
from deploy.grafana.restarts import operator_stats

# Several daemons may watch the same node, and export the same series: max, never sum. For some seconds they
# may differ in its verdict: what counts nodes does not count verdicts.
VERDICT = 'max by (zone, node, verdict) (tpuwatch_verdict{zone=~"$zone"} == 1)'
WELL = "healthy|starting|compiling|idle"
BAD = f'max by (zone, node, verdict) (tpuwatch_verdict{{zone=~"$zone", verdict!~"{WELL}"}} == 1)'


def fleet() -> Any:
    """The dashboard."""
    new = new_dashboard(
        "tpuwatch-fleet",
        "Fleet",
        "All nodes that the scraped daemons watch: which of them do not train, since when, and what goes wrong.",
        variables=[("zone", "Zone", "label_values(tpuwatch_verdict, zone)", True)],
    )
    add_section(
        new,
        "Now",
        stat_panel(
            "Nodes",
            "Watched nodes. A node that several daemons watch counts once.",
            Query(f"count(count by (zone, node) ({VERDICT}))"),
            "verdicts.md",
            span=3,
        ),
        stat_panel(
            "Not training",
            "Nodes whose verdict is none of healthy, starting, compiling and idle.",
            Query(f"count(count by (zone, node) ({BAD})) or vector(0)"),
            "verdicts.md",
            limit=Limit(attention=1),
            span=3,
        ),
        stat_panel(
            "Stuck",
            "Nodes, runtimes and jobs that are stuck.",
            Query(
                'count(max by (zone, node) (tpuwatch_verdict{zone=~"$zone", verdict=~".*_stuck"} == 1)) or vector(0)'
            ),
            "runbooks/TpuwatchNodeStuck.md",
            limit=Limit(bad=1),
            span=3,
        ),
        stat_panel(
            "Cloud says READY, node is dead",
            "Nodes that the Cloud TPU API shows as READY while their runtime or the node is stuck.",
            Query(
                'count(max by (zone, node) (tpuwatch_node_state{zone=~"$zone", state="READY"} == 1)'
                ' and on (zone, node) max by (zone, node) (tpuwatch_verdict{verdict=~"(runtime|node)_stuck"} == 1))'
                " or vector(0)"
            ),
            "runbooks/TpuwatchRuntimeStuck.md",
            limit=Limit(bad=1),
            span=3,
        ),
        *operator_stats(),
        stat_panel(
            "Daemons that are not ready",
            "Daemons that report a problem of their own: a loop that stands still, a store that cannot be written.",
            Query('count(tpuwatch_problems{kind="daemon"} > 0) or vector(0)'),
            "runbooks/TpuwatchNotReady.md",
            limit=Limit(attention=1),
            span=3,
        ),
    )
    add_section(
        new,
        "Node by node",
        table_panel(
            "Nodes that do not train",
            "Verdict, for how long it has held, and what the Cloud TPU API shows. A node leads to its own dashboard.",
            [
                Query(BAD),
                Query(
                    '(time() - max by (zone, node) (tpuwatch_verdict_since_timestamp_seconds{zone=~"$zone"}))'
                    f" and on (zone, node) {BAD}"
                ),
                Query(
                    f'max by (zone, node, state) (tpuwatch_node_state{{zone=~"$zone"}} == 1) and on (zone, node) {BAD}'
                ),
                Query(
                    'max by (zone, node, health) (tpuwatch_node_health{zone=~"$zone"} == 1)'
                    f" and on (zone, node) {BAD}"
                ),
            ],
            "verdicts.md",
            columns={
                "zone": "Zone",
                "node": "Node",
                "verdict": "Verdict",
                "Value #B": "For",
                "state": "State",
                "health": "Health",
            },
            units={"For": "s"},
            sort="For",
        ),
    )
    add_section(
        new,
        "Over time",
        series_panel(
            "Nodes by verdict",
            "How many nodes had which verdict.",
            [Query(f"count by (verdict) ({VERDICT})", "{{verdict}}")],
            "verdicts.md",
            stacked=True,
            colors=COLORS,
        ),
        series_panel(
            "Failures by cause",
            "Failures recognised in libtpu's logs and the jobs' output, in an hour.",
            [
                Query(
                    positive("sum by (cause) (increase(tpuwatch_events_total[1h]))", "cause"),
                    "{{cause}}",
                )
            ],
            "causes.md",
            limit=Limit(attention=1),
            stacked=True,
        ),
        series_panel(
            "Availability",
            "The share of the time of all watched nodes in which they were healthy, starting, compiling or idle.",
            [
                Query(
                    f'sum(increase(tpuwatch_verdict_seconds_total{{verdict=~"{WELL}"}}[1h]))'
                    " / sum(increase(tpuwatch_verdict_seconds_total[1h]))",
                    "available",
                )
            ],
            "verdicts.md",
            limit=Limit(attention=0.95, bad=0.8, low=True),
            unit="percentunit",
        ),
        series_panel(
            "Changes of verdict",
            "Changes to a verdict in an hour. A verdict that changes often is one that the evidence does not settle.",
            [Query("sum by (verdict) (increase(tpuwatch_verdict_changes_total[1h]))", "{{verdict}}")],
            "verdicts.md",
            colors=COLORS,
        ),
        series_panel(
            "Answers of APIs",
            "Requests a second, by gRPC status code, of all daemons: to the Cloud TPU API, Cloud Monitoring, "
            "Cloud Storage and libtpu's runtime metrics.",
            [Query("sum by (code) (rate(tpuwatch_api_requests_total[$__rate_interval]))", "{{code}}")],
            "operations.md",
            unit="reqps",
            stacked=True,
        ),
    )
    add_section(
        new,
        "The daemons",
        table_panel(
            "Daemons",
            "Version, memory, and how long ago it last read logs and asked the Cloud TPU API.",
            [
                Query("max by (instance, version) (tpuwatch_build_info)"),
                Query("max by (instance) (process_resident_memory_bytes) and on (instance) tpuwatch_build_info"),
                Query('time() - max by (instance) (tpuwatch_loop_last_success_timestamp_seconds{loop="logs"})'),
                Query('time() - max by (instance) (tpuwatch_signal_last_answer_timestamp_seconds{signal="cloud"})'),
            ],
            "operations.md",
            columns={
                "instance": "Daemon",
                "version": "Version",
                "Value #B": "Memory",
                "Value #C": "Logs read before",
                "Value #D": "Cloud asked before",
            },
            units={"Memory": "bytes", "Logs read before": "s", "Cloud asked before": "s"},
            sort="Cloud asked before",
        ),
    )
    return new
