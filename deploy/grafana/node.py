"""One node: what it was judged to be and when, its chips, its host, and the daemon that runs on it."""

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
    timeline_panel,
)

ON = 'zone="$zone", node="$node"'


def node() -> Any:
    """The dashboard."""
    new = new_dashboard(
        "tpuwatch-node",
        "Node",
        "A node's verdicts over time, and the chips and the host of the machine whose daemon is chosen.",
        variables=[
            ("zone", "Zone", "label_values(tpuwatch_verdict, zone)", False),
            ("node", "Node", 'label_values(tpuwatch_verdict{zone="$zone"}, node)', False),
            ("instance", "Daemon on the node", "label_values(tpuwatch_build_info, instance)", False),
        ],
    )
    add_section(
        new,
        "The node, as all daemons that watch it see it",
        timeline_panel(
            "Verdict",
            "What the node was judged to be, and when.",
            Query(f"max by (verdict) (tpuwatch_verdict{{{ON}}} == 1)", "{{verdict}}"),
            "verdicts.md",
            span=12,
        ),
        timeline_panel(
            "State and health that the Cloud TPU API shows",
            "They can say READY and HEALTHY of a node that has been dead for long: compare with the verdict.",
            Query(
                f'max by (shown) (label_replace(tpuwatch_node_state{{{ON}}} == 1, "shown", "$1", "state", "(.*)")'
                f' or label_replace(tpuwatch_node_health{{{ON}}} == 1, "shown", "$1", "health", "(.*)"))',
                "{{shown}}",
            ),
            "verdicts.md",
            span=12,
        ),
        stat_panel(
            "Verdict has held for",
            "Since when the present verdict has held, as far as tpuwatch has observed.",
            Query(f"time() - max(tpuwatch_verdict_since_timestamp_seconds{{{ON}}})"),
            "verdicts.md",
            unit="s",
        ),
        stat_panel(
            "Maintenance notice",
            "1 while the metadata server of the machine, or Kubernetes, announces a maintenance.",
            Query('tpuwatch_maintenance_notice{instance="$instance"}'),
            "runbooks/TpuwatchMaintenanceAhead.md",
            limit=Limit(attention=1),
        ),
        stat_panel(
            "Preemption notice",
            "1 once the metadata server says that the machine is preempted.",
            Query('tpuwatch_preemption_notice{instance="$instance"}'),
            "runbooks/TpuwatchNodePreempted.md",
            limit=Limit(bad=1),
        ),
        stat_panel(
            "Processes that hold the TPU",
            "Processes that hold a TPU device or libtpu's lock file.",
            Query('tpuwatch_tpu_holders{instance="$instance"}'),
            "verdicts.md",
        ),
        stat_panel(
            "Runtime owes an answer for",
            "How long a port of the runtime's metrics has let the daemon wait. A runtime that hangs shows here first.",
            Query('max(tpuwatch_runtime_response_pending_seconds{instance="$instance"}) or vector(0)'),
            "runbooks/TpuwatchRuntimeStuck.md",
            limit=Limit(attention=1, bad=5),
            unit="s",
        ),
        stat_panel(
            "Kernel ended for memory",
            "Processes that the kernel killed because the host's memory ran out, since boot.",
            Query('tpuwatch_host_oom_kills_total{instance="$instance"}'),
            "runbooks/TpuwatchHostOom.md",
            limit=Limit(bad=1),
        ),
    )
    add_section(
        new,
        "Chips",
        series_panel(
            "HBM in use",
            "Of what is available to programs, for each chip. There is no series while no program holds the TPU.",
            [
                Query(
                    'tpuwatch_hbm_used_bytes{instance="$instance"} / tpuwatch_hbm_total_bytes{instance="$instance"}',
                    "chip {{chip}}",
                )
            ],
            "runbooks/TpuwatchHbmNearFull.md",
            limit=Limit(attention=0.9, bad=0.97),
            unit="percentunit",
        ),
        series_panel(
            "TensorCore duty cycle",
            "The share of the latest sampling interval in which the TensorCore was active.",
            [Query('tpuwatch_tensorcore_duty_cycle_ratio{instance="$instance"}', "chip {{chip}}")],
            "verdicts.md",
            unit="percentunit",
        ),
        series_panel(
            "TensorCore idle for",
            "How long ago each TensorCore last ran a program.",
            [Query('tpuwatch_tensorcore_idle_seconds{instance="$instance"}', "chip {{chip}}")],
            "runbooks/TpuwatchJobStuck.md",
            limit=Limit(attention=300, bad=600),
            unit="s",
        ),
        series_panel(
            "Programs that wait for the TensorCores",
            "The runtime's queue. One that is long and does not move is a sign of a hang.",
            [Query('tpuwatch_hlo_queue_programs{instance="$instance"}', "programs")],
            "verdicts.md",
        ),
    )
    add_section(
        new,
        "Training, by the job's own word",
        series_panel(
            "Time of a step",
            "The median of the latest steps, and the baseline. 5 % more that last are a finding.",
            [
                Query('tpuwatch_workload_step_seconds{instance="$instance"}', "latest"),
                Query('tpuwatch_workload_baseline_step_seconds{instance="$instance"}', "baseline"),
            ],
            "runbooks/TpuwatchStepsSlow.md",
            unit="s",
        ),
        series_panel(
            "Time since the latest step",
            "Of the training loop that runs. It has no series where no job reports or prints its steps.",
            [Query('time() - tpuwatch_workload_last_step_timestamp_seconds{instance="$instance"}', "since")],
            "runbooks/TpuwatchStepsStalled.md",
            limit=Limit(attention=600),
            unit="s",
        ),
        series_panel(
            "Waiting for input",
            "Share of the time of the latest steps. Known of loops that send heartbeats.",
            [Query('tpuwatch_workload_input_wait_ratio{instance="$instance"}', "share")],
            "runbooks/TpuwatchInputBound.md",
            limit=Limit(attention=0.2, bad=0.5),
            unit="percentunit",
        ),
    )
    add_section(
        new,
        "Host",
        series_panel(
            "Memory of the host",
            "All of it, what is available to programs, and what is locked, which includes the premapped buffers.",
            [
                Query('tpuwatch_host_memory_total_bytes{instance="$instance"}', "total"),
                Query('tpuwatch_host_memory_available_bytes{instance="$instance"}', "available"),
                Query('tpuwatch_host_memory_pinned_bytes{instance="$instance"}', "locked"),
            ],
            "causes.md",
            unit="bytes",
        ),
        series_panel(
            "Failures by cause, in an hour",
            "What tpuwatch recognised on this machine, in libtpu's logs and the jobs' output.",
            [
                Query(
                    positive('sum by (cause) (increase(tpuwatch_events_total{instance="$instance"}[1h]))', "cause"),
                    "{{cause}}",
                )
            ],
            "causes.md",
            limit=Limit(attention=1),
            stacked=True,
        ),
    )
    add_section(
        new,
        "tpuwatch on this machine",
        series_panel(
            "Time since each signal answered",
            "A signal is a source of evidence. One that does not answer makes the verdict weaker.",
            [Query('time() - tpuwatch_signal_last_answer_timestamp_seconds{instance="$instance"}', "{{signal}}")],
            "runbooks/TpuwatchSignalFailing.md",
            limit=Limit(attention=300),
            unit="s",
        ),
        series_panel(
            "Failed attempts to read a signal",
            "In five minutes, by signal. What is absent, such as a runtime without a job, is no failure.",
            [Query('increase(tpuwatch_signal_failures_total{instance="$instance"}[5m])', "{{signal}}")],
            "runbooks/TpuwatchSignalFailing.md",
            limit=Limit(attention=1),
        ),
        series_panel(
            "Logs read, and not read yet",
            "Bytes a second that are read, and bytes of followed files that are not read yet.",
            [
                Query('rate(tpuwatch_log_read_bytes_total{instance="$instance"}[$__rate_interval])', "read a second"),
                Query('tpuwatch_log_lag_bytes{instance="$instance"}', "not read yet"),
            ],
            "runbooks/TpuwatchLogsNotRead.md",
            unit="bytes",
        ),
        series_panel(
            "Time since each loop completed a turn",
            "A loop that stands still makes the daemon not ready.",
            [Query('time() - tpuwatch_loop_last_success_timestamp_seconds{instance="$instance"}', "{{loop}}")],
            "runbooks/TpuwatchLoopStale.md",
            limit=Limit(attention=60),
            unit="s",
        ),
        series_panel(
            "Its own processor and memory",
            "Share of one core, and resident memory divided by 256 MiB, from which the unit makes it give memory back.",
            [
                Query('rate(process_cpu_seconds_total{instance="$instance"}[$__rate_interval])', "core"),
                Query('process_resident_memory_bytes{instance="$instance"} / 268435456', "memory"),
            ],
            "operations.md",
            limit=Limit(attention=0.5, bad=0.9),
            unit="percentunit",
        ),
        series_panel(
            "Bytes lost, files refused",
            "What was gone before it was read, and files that are not read, by reason.",
            [
                Query('increase(tpuwatch_log_lost_bytes_total{instance="$instance"}[1h])', "bytes lost in an hour"),
                Query('increase(tpuwatch_log_refused_total{instance="$instance"}[1h])', "{{reason}}"),
            ],
            "logs.md",
            limit=Limit(attention=1),
        ),
    )
    return new
