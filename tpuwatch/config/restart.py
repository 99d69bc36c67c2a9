"""[restart] and [ledger]: which actions are allowed, how often, and where they are recorded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tpuwatch.config.types import (
    BucketName,
    Command,
    Count,
    Endpoint,
    JobSignal,
    OptionalPath,
    Percent,
    Prefix,
    Seconds,
    Section,
    Unit,
    WebAddress,
    YesNo,
)

_WEEK = 604_800  # no window is longer, because the ledger keeps a finished restart for this long


class RestartConfig(Section):
    """What is done about a stuck node. By default tpuwatch only reports and counts what it would have done."""

    mode: Literal["observe", "act"] = Field(
        default="observe",
        description='With "observe" nothing is done. With "act" the actions that are enabled below are taken.',
    )
    checkpoint: YesNo = Field(default=False, description="Ask the job on this machine to write a checkpoint.")
    end_holder: YesNo = Field(default=False, description="End the process on this machine that holds the TPU.")
    restart_runtime: YesNo = Field(default=False, description="Restart the TPU runtime on this machine.")
    restart_node: YesNo = Field(
        default=False,
        description="Stop and start a node of one host through the Cloud TPU API, from another machine. A stop "
        "releases the capacity, so the start may have to wait for it.",
    )
    reset_queued_resource: YesNo = Field(
        default=False, description="Reset the queued resource of a node of several hosts, from another machine."
    )

    confirm_seconds: Seconds = Field(
        default=120.0,
        ge=0,
        le=86_400,
        description="How long a verdict must have held without a break. Twice as long if signals contradict it.",
    )
    confirm_polls: Count = Field(
        default=3, ge=1, le=100, description="How many consecutive answers of the deciding signal must have agreed."
    )
    startup_seconds: Seconds = Field(
        default=300.0, ge=0, le=86_400, description="How long tpuwatch only observes after its own start."
    )
    node_max: Count = Field(default=3, ge=1, le=16, description="The most restarts of one node within its window.")
    node_window_seconds: Seconds = Field(
        default=86_400.0, ge=60, le=_WEEK, description="The window in which the restarts of one node are counted."
    )
    fleet_max: Count = Field(
        default=10, ge=1, le=10_000, description="The most restarts of all nodes within their window."
    )
    fleet_percent: Percent = Field(
        default=10.0,
        ge=0,
        le=100,
        description="The most restarts of all nodes within their window, as a share of the watched nodes. The smaller "
        "of the two limits applies, and one restart is always allowed.",
    )
    fleet_window_seconds: Seconds = Field(
        default=3600.0, ge=60, le=_WEEK, description="The window in which the restarts of all nodes are counted."
    )
    backoff_seconds: Seconds = Field(
        default=600.0,
        ge=1,
        le=86_400,
        description="How long a node is left alone after a restart; doubled with each further restart in its window.",
    )
    max_backoff_seconds: Seconds = Field(
        default=21_600.0, ge=1, le=_WEEK, description="The upper limit of backoff_seconds when it is doubled."
    )
    cooldown_seconds: Seconds = Field(
        default=1800.0, ge=0, le=_WEEK, description="How long a node is left alone after a restart that helped."
    )
    same_cause_seconds: Seconds = Field(
        default=21_600.0,
        ge=0,
        le=_WEEK,
        description="If the same fault returns on the same node within this time after a restart, an operator has to "
        "decide.",
    )
    breaker_failures: Count = Field(
        default=3,
        ge=1,
        le=100,
        description="When this many of the latest restarts have failed within the breaker's window, nothing more is "
        "restarted until `tpuwatch restarts reset-breaker`.",
    )
    breaker_window_restarts: Count = Field(
        default=10,
        ge=1,
        le=1000,
        description="How many of the latest restarts the breaker counts; never fewer than breaker_failures. In a "
        "large fleet some restarts fail because their nodes are broken.",
    )
    breaker_window_seconds: Seconds = Field(
        default=86_400.0, ge=60, le=_WEEK, description="The window in which failed restarts are counted."
    )
    storm_nodes: Count = Field(
        default=3,
        ge=1,
        le=10_000,
        description="From this many bad nodes at once it may be a mass failure, in which nothing is restarted.",
    )
    storm_percent: Percent = Field(
        default=10.0,
        ge=0,
        le=100,
        description="It is a mass failure if they are at least this share of all watched nodes, or of those in the "
        "zone.",
    )

    wait_seconds: Seconds = Field(
        default=600.0,
        ge=0,
        le=86_400,
        description="How long a restart waits for a state in which the node may be stopped.",
    )
    stop_seconds: Seconds = Field(default=900.0, ge=1, le=86_400, description="How long a stop may take.")
    start_seconds: Seconds = Field(default=1800.0, ge=1, le=86_400, description="How long a start may take.")
    verify_seconds: Seconds = Field(
        default=900.0,
        ge=1,
        le=86_400,
        description="How long a node may take after its start to become healthy, and its own tpuwatch to answer.",
    )
    settle_seconds: Seconds = Field(
        default=60.0, ge=0, le=3600, description="How long it must stay healthy before the restart counts as done."
    )
    stale_seconds: Seconds = Field(
        default=30.0,
        ge=1,
        le=600,
        description="How long the Cloud TPU API may go on showing what was. A node must stay healthy for at least so "
        "long too. Values below 30 are for simulators.",
    )
    poll_seconds: Seconds = Field(
        default=5.0,
        ge=0.05,
        le=600,
        description="Time between two requests for the state of a node that is being restarted.",
    )
    stockout_alert_after: Count = Field(
        default=12,
        ge=1,
        le=1000,
        description="After this many refused starts an operator is notified; tpuwatch keeps trying.",
    )
    webhook_url: WebAddress = Field(
        default="",
        repr=False,
        description="Where operators are notified: JSON is POSTed there, with a text that Slack shows. Anybody who "
        "knows the address can post to it, so keep this file readable by tpuwatch alone.",
    )

    checkpoint_command: Command = Field(
        default=(),
        description="With checkpoint = true: the program that asks the job for a checkpoint. It runs as tpuwatch's "
        "own user, with TPUWATCH_NODE, TPUWATCH_VERDICT and TPUWATCH_PIDS (the processes that hold the TPU, separated "
        "by spaces) in its environment. Either this or checkpoint_signal is required.",
    )
    checkpoint_seconds: Seconds = Field(
        default=120.0, ge=1, le=3600, description="How long that program may take before it is killed."
    )
    checkpoint_signal: JobSignal = Field(
        default="",
        description="The signal that is sent instead to the processes that hold the TPU, if they handle it. With "
        "checkpoint = true, either this or checkpoint_command is required.",
    )
    sigint_seconds: Seconds = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="With end_holder = true: how long the process that holds the TPU has to release it after SIGINT, "
        "the first signal. 0 skips the signal, here and in the next two keys.",
    )
    sigterm_seconds: Seconds = Field(
        default=30.0, ge=0, le=3600, description="The same after SIGTERM, the second signal."
    )
    sigquit_seconds: Seconds = Field(
        default=10.0, ge=0, le=3600, description="The same after SIGQUIT, the third signal."
    )
    sigkill_seconds: Seconds = Field(
        default=30.0, ge=1, le=3600, description="The same after SIGKILL, the last signal, which is always sent."
    )
    runtime_command: Command = Field(
        default=(),
        description="The program that restarts the runtime instead of systemctl. With restart_runtime = true, either "
        "this or runtime_unit is required.",
    )
    runtime_unit: Unit = Field(
        default="tpu-runtime.service",
        description="The systemd unit of the runtime, which is restarted with restart_runtime = true and must be "
        "active afterwards. Empty if there is none.",
    )
    runtime_seconds: Seconds = Field(
        default=120.0, ge=1, le=3600, description="How long a restart of the runtime may take."
    )

    @field_validator("checkpoint_signal")
    @classmethod
    def _require_checkpoint_method(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("checkpoint") and not value and not info.data.get("checkpoint_command"):
            raise ValueError("no way to request a checkpoint is configured")
        return value

    @field_validator("runtime_unit")
    @classmethod
    def _require_restart_method(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("restart_runtime") and not value and not info.data.get("runtime_command"):
            raise ValueError("no way to restart the runtime is configured")
        return value

    @property
    def resets(self) -> bool:
        """Return whether the queued resource of a stuck slice may be reset."""
        return self.mode == "act" and self.reset_queued_resource


class LedgerConfig(Section):
    """The record of every restart. Each step is recorded first, so that an interrupted restart is finished."""

    kind: Literal["sqlite", "gcs"] = Field(
        default="sqlite",
        description="Where the ledger is: in a file, for everything that acts from this machine, or in a bucket of "
        "Google Cloud Storage, for several machines.",
    )
    dir: OptionalPath = Field(
        default="",
        description="The directory of that file, on a local disk. Empty: the directory of [state]. Everything that "
        "restarts nodes from this machine must use the same.",
    )
    lease_seconds: Seconds = Field(
        default=60.0,
        ge=10,
        le=3600,
        description="How long the process that drives a restart may be silent before another one takes over. It has to "
        "be longer than two looks at a node and a write, by timeout_seconds here and in [cloud].",
    )
    timeout_seconds: Seconds = Field(
        default=5.0, ge=0.1, le=60, description="How long one read or write may take before it counts as failed."
    )
    bucket: BucketName = Field(
        default="",
        description='With "gcs": the bucket. Everything that restarts nodes with this ledger must name the same '
        "bucket and prefix.",
    )
    prefix: Prefix = Field(default="tpuwatch/", description="The prefix of the names of the ledger's objects.")
    endpoint: Endpoint = Field(
        default="", description="Another server of Cloud Storage's JSON API; empty means Google's own."
    )
    insecure: YesNo = Field(
        default=False, description="Connect to that endpoint without TLS and without credentials. Only for simulators."
    )
