"""Restarts: what was begun, how it ended, what waits, and whether the ledger can be written."""

from __future__ import annotations

from typing import Any

from deploy.grafana.panels import (
    Limit,
    Query,
    add_section,
    new_dashboard,
    positive,
    series_panel,
    stat_panel,
    table_panel,
)

RESULTS = {
    "done": "green",
    "not_verified": "yellow",
    "failed": "red",
    "needs_operator": "dark-red",
    "cancelled": "text",
}


def operator_stats() -> list[Any]:
    """Figures of what waits for a person: of the fleet, and of restarts."""
    return [
        stat_panel(
            "Need an operator",
            "Nodes for which tpuwatch does nothing more by itself.",
            Query("count(max by (zone, node) (tpuwatch_restart_person_needed)) or vector(0)"),
            "runbooks/TpuwatchPersonNeeded.md",
            limit=Limit(bad=1),
            span=3,
        ),
        stat_panel(
            "Wait for capacity",
            "Nodes that were stopped for a restart and whose start is refused for lack of capacity.",
            Query("max(tpuwatch_restarts_waiting_for_capacity)"),
            "runbooks/TpuwatchWaitingForCapacity.md",
            limit=Limit(bad=1),
            span=3,
        ),
        stat_panel(
            "Breaker open",
            "1 while no restart is begun until `tpuwatch restarts reset-breaker`.",
            Query("max(tpuwatch_breaker_open)"),
            "runbooks/TpuwatchBreakerOpen.md",
            limit=Limit(bad=1),
            span=3,
        ),
    ]


def restarts() -> Any:
    """The dashboard."""
    new = new_dashboard(
        "tpuwatch-restarts",
        "Restarts",
        "Restarts of jobs, runtimes and nodes. Daemons that share a ledger export the same records: figures of the "
        "ledger are the highest of them, never their sum.",
        variables=[],
    )
    add_section(
        new,
        "Now",
        stat_panel(
            "Under way",
            "Open restarts in the ledger.",
            Query("sum(max by (phase) (tpuwatch_restarts_open))"),
            "restart.md",
            limit=Limit(attention=1),
            span=3,
        ),
        *operator_stats(),
        stat_panel(
            "Not recorded",
            "Restarts in the memory of one process alone: only it would start these nodes. Do not end it.",
            Query("max(tpuwatch_restarts_unrecorded)"),
            "runbooks/TpuwatchRestartUnrecorded.md",
            limit=Limit(bad=1),
            span=3,
        ),
        stat_panel(
            "Ledger",
            "1 if every daemon could read and write its ledger at the latest use.",
            Query("min(tpuwatch_ledger_up)"),
            "runbooks/TpuwatchLedgerDown.md",
            limit=Limit(bad=1, low=True),
            span=3,
        ),
        stat_panel(
            "Webhook messages lost",
            "Messages to people that failed for good or were dropped, in the chosen time.",
            Query('sum(increase(tpuwatch_webhook_messages_total{result!="sent"}[$__range]))'),
            "runbooks/TpuwatchWebhookFailing.md",
            limit=Limit(bad=1),
            span=3,
        ),
        stat_panel(
            "API left alone",
            "Daemons that send no requests to the Cloud TPU API for a while, since too many failed.",
            Query("sum(tpuwatch_api_breaker_open)"),
            "runbooks/TpuwatchSignalFailing.md",
            limit=Limit(attention=1),
            span=3,
        ),
    )
    new.with_panel(
        table_panel(
            "Restarts under way",
            "Its phase, how long it has been in it, and the node's verdict. A node leads to its own dashboard.",
            [
                Query("time() - max by (zone, node, phase) (tpuwatch_restart_phase_timestamp_seconds)"),
                Query(
                    "max by (zone, node, verdict) (tpuwatch_verdict == 1)"
                    " and on (zone, node) tpuwatch_restart_phase_timestamp_seconds"
                ),
            ],
            "runbooks/TpuwatchRestartNotFinishing.md",
            columns={"zone": "Zone", "node": "Node", "phase": "Phase", "Value #A": "For", "verdict": "Verdict"},
            units={"For": "s"},
            sort="For",
        )
    )
    add_section(
        new,
        "Over time",
        series_panel(
            "Begun, in a day",
            "Actions that daemons began because of a verdict.",
            [Query("sum by (action) (increase(tpuwatch_restarts_begun_total[1d]))", "{{action}}")],
            "restart.md",
            stacked=True,
        ),
        series_panel(
            "Ended, in a day, by result",
            "not_verified: the node was restarted, and nothing has said that it works again.",
            [Query("sum by (result) (increase(tpuwatch_restarts_total[1d]))", "{{result}}")],
            "runbooks/TpuwatchRestartFailing.md",
            stacked=True,
            colors=RESULTS,
        ),
        series_panel(
            "How long restarts took, in a day",
            "From the record to the end: nine of ten took no longer, by action.",
            [
                Query(
                    "histogram_quantile(0.9, sum by (action, le) (increase(tpuwatch_restart_seconds_bucket[1d])))",
                    "{{action}}",
                )
            ],
            "restart.md",
            unit="s",
        ),
        series_panel(
            "Open restarts by phase",
            "As the ledger has them.",
            [Query("max by (phase) (tpuwatch_restarts_open)", "{{phase}}")],
            "restart.md",
            stacked=True,
        ),
        series_panel(
            "Why nothing was done, in a day",
            "Decisions not to take the action that a verdict calls for; `observe`: it would have been taken.",
            [
                Query(
                    positive("sum by (reason) (increase(tpuwatch_restarts_blocked_total[1d]))", "reason"),
                    "{{reason}}",
                )
            ],
            "restart.md",
            stacked=True,
        ),
        series_panel(
            "Ledger errors",
            "Failures to read or write the ledger, in an hour, by daemon.",
            [Query("increase(tpuwatch_ledger_errors_total[1h])", "{{instance}}")],
            "runbooks/TpuwatchLedgerDown.md",
            limit=Limit(attention=1),
        ),
        series_panel(
            "Peers",
            "Watched nodes by what their own tpuwatch answers. A silent peer is evidence of a stuck node.",
            [Query("max by (state) (tpuwatch_peers)", "{{state}}")],
            "restart.md",
        ),
    )
    return new
