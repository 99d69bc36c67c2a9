"""Launches of jobs: how they initialised, what failed, and what tuning decides for the next."""

from __future__ import annotations

from typing import Any

from deploy.grafana.panels import (
    Limit,
    Query,
    add_section,
    heatmap_panel,
    new_dashboard,
    positive,
    series_panel,
    stat_panel,
    table_panel,
)

ON = 'instance=~"$instance"'


def launches() -> Any:
    """The dashboard."""
    new = new_dashboard(
        "tpuwatch-launches",
        "Launches and tuning",
        "How long the TPU took to initialise, how large the premapped buffers were, and what the next launch gets.",
        variables=[("instance", "Daemon", "label_values(tpuwatch_build_info, instance)", True)],
    )
    add_section(
        new,
        "In the chosen time",
        stat_panel(
            "Launches",
            "Processes that tried to initialise the TPU.",
            Query(f"sum(increase(tpuwatch_launches_total{{{ON}}}[$__range]))"),
            "logs.md",
        ),
        stat_panel(
            "Failed, killed or silent",
            "Launches that did not come to work on the TPU, as far as their logs say.",
            Query(f'sum(increase(tpuwatch_launches_total{{{ON}, outcome=~"failed|killed|silent"}}[$__range]))'),
            "runbooks/TpuwatchSilentStart.md",
            limit=Limit(attention=1),
        ),
        stat_panel(
            "Slow starts",
            "Launches whose initialisation took longer than it should.",
            Query(f'sum(increase(tpuwatch_launches_total{{{ON}, outcome="slow"}}[$__range]))'),
            "runbooks/TpuwatchSlowStart.md",
            limit=Limit(attention=1),
        ),
        stat_panel(
            "Premapped buffer too small",
            "Allocations that failed because the premapped buffer had no room.",
            Query(f"sum(increase(tpuwatch_premapped_failures_total{{{ON}}}[$__range]))"),
            "runbooks/TpuwatchPremappedExhausted.md",
            limit=Limit(bad=1),
        ),
        stat_panel(
            "Workloads that are tuned",
            "Workloads for which a daemon decides the next launch.",
            Query(f"sum(tpuwatch_tune_workloads{{{ON}}})"),
            "tune.md",
        ),
        stat_panel(
            "Cannot be satisfied",
            "Workloads for which no premapped buffer within the limits and the memory is sufficient.",
            Query(f"sum(tpuwatch_tune_workloads_unsatisfiable{{{ON}}})"),
            "runbooks/TpuwatchTuneUnsatisfiable.md",
            limit=Limit(bad=1),
        ),
    )
    add_section(
        new,
        "How they started",
        series_panel(
            "Launches by outcome, in an hour",
            "How initialisations of the TPU ended, as libtpu's logs show it.",
            [Query(f"sum by (outcome) (increase(tpuwatch_launches_total{{{ON}}}[1h]))", "{{outcome}}")],
            "logs.md",
            stacked=True,
            colors={"ok": "green", "slow": "yellow", "failed": "red", "silent": "orange", "killed": "purple"},
        ),
        heatmap_panel(
            "Time to initialise",
            "As libtpu reports it. The larger the premapped buffer, the longer it takes.",
            Query(f"sum by (le) (increase(tpuwatch_tpu_init_seconds_bucket{{{ON}}}[$__rate_interval]))", "{{le}}"),
            "tune.md",
            unit="s",
        ),
        series_panel(
            "Time of the latest initialisation",
            "Of the latest launch on each machine.",
            [Query(f"tpuwatch_last_init_seconds{{{ON}}}", "{{instance}}")],
            "runbooks/TpuwatchSlowStart.md",
            limit=Limit(attention=15, bad=60),
            unit="s",
        ),
        series_panel(
            "Premapped buffer of the latest launch",
            "What libtpu announced, and the locked memory of the host that holds it.",
            [
                Query(f"tpuwatch_premapped_buffer_bytes{{{ON}}}", "{{instance}}: premapped"),
                Query(f"tpuwatch_host_memory_pinned_bytes{{{ON}}}", "{{instance}}: locked"),
            ],
            "tune.md",
            unit="bytes",
        ),
    )
    add_section(
        new,
        "What went wrong",
        table_panel(
            "Failures by cause and machine, in the chosen time",
            "Each failure counts once, however many logs repeat it.",
            [
                Query(
                    positive(
                        f"round(sum by (instance, cause) (increase(tpuwatch_events_total{{{ON}}}[$__range])))", "cause"
                    )
                )
            ],
            "causes.md",
            columns={"instance": "Daemon", "cause": "Cause", "Value": "Failures"},
            sort="Failures",
            span=12,
            height=8,
        ),
        series_panel(
            "Processes that the kernel ended for memory",
            "In an hour, by machine: the host's memory ran out, not the TPU's.",
            [Query(f"increase(tpuwatch_host_oom_kills_total{{{ON}}}[1h])", "{{instance}}")],
            "runbooks/TpuwatchHostOom.md",
            limit=Limit(bad=1),
        ),
    )
    add_section(
        new,
        "What the next launch gets",
        series_panel(
            "Decisions for the next launch, in a day",
            "Variables whose value changed: set, raised, lowered, taken back since a trial was worse, or left out.",
            [
                Query(
                    positive(
                        f"sum by (variable, direction) (increase(tpuwatch_tune_changes_total{{{ON}}}[1d]))", "variable"
                    ),
                    "{{variable}} {{direction}}",
                )
            ],
            "tune.md",
            stacked=True,
        ),
        series_panel(
            "Workloads without a good plan",
            "No size is sufficient, needs contradict each other, or the plan could not be written.",
            [
                Query(f"sum(tpuwatch_tune_workloads_unsatisfiable{{{ON}}})", "no size is sufficient"),
                Query(f"sum(tpuwatch_tune_conflicts{{{ON}}})", "needs contradict each other"),
                Query(f"sum(tpuwatch_tune_write_failed{{{ON}}})", "could not be written"),
            ],
            "runbooks/TpuwatchTuneUnsatisfiable.md",
            limit=Limit(attention=1),
        ),
    )
    return new
