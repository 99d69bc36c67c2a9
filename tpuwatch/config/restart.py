"""[restart] and [ledger]: what may be done about a stuck node, how often, and where that is recorded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tpuwatch.config.section import Section
from tpuwatch.config.types import (  # noqa: TC001 (pydantic reads them)
    BucketName,
    Command,
    Count,
    Endpoint,
    JobSignal,
    OptionalPath,
    Percent,
    Prefix,
    Seconds,
    Unit,
    WebAddress,
    YesNo,
)

_WEEK = 604_800  # no window is longer: so long the ledger keeps what has ended


class Restart(Section):
    """What is done about a node that is stuck. As it comes, tpuwatch only says and counts what it would have done."""

    mode: Literal["observe", "act"] = Field(
        default="observe",
        description='With "observe" nothing is done. With "act" those acts are done that are switched on below.',
    )
    checkpoint: YesNo = Field(default=False, description="Ask the job on this machine to write a checkpoint.")
    end_holder: YesNo = Field(default=False, description="End the process on this machine that holds the TPU.")
    restart_runtime: YesNo = Field(default=False, description="Restart the TPU runtime on this machine.")
    restart_node: YesNo = Field(
        default=False,
        description="Stop and start a node of one host through the Cloud TPU API, from another machine. A stop gives "
        "the capacity back, so that the start may have to wait for it.",
    )
    reset_queued_resource: YesNo = Field(
        default=False, description="Reset the queued resource of a node of several hosts, from another machine."
    )

    confirm_seconds: Seconds = Field(
        default=120.0,
        ge=0,
        le=86_400,
        description="How long a verdict must have held without a break. Twice as long where witnesses contradict it.",
    )
    confirm_polls: Count = Field(
        default=3, ge=1, le=100, description="How many answers of the witness that decides must have said the same."
    )
    startup_seconds: Seconds = Field(
        default=300.0, ge=0, le=86_400, description="How long tpuwatch only looks on after its own start."
    )
    node_max: Count = Field(default=3, ge=1, le=16, description="Restarts of one node within its window.")
    node_window_seconds: Seconds = Field(
        default=86_400.0, ge=60, le=_WEEK, description="The window in which the restarts of one node are counted."
    )
    fleet_max: Count = Field(default=10, ge=1, le=10_000, description="Restarts of all nodes within their window.")
    fleet_percent: Percent = Field(
        default=10.0,
        ge=0,
        le=100,
        description="Restarts of all nodes within their window, as a share of the nodes that are watched. The smaller "
        "of the two numbers holds, and one restart is always allowed.",
    )
    fleet_window_seconds: Seconds = Field(
        default=3600.0, ge=60, le=_WEEK, description="The window in which the restarts of all nodes are counted."
    )
    backoff_seconds: Seconds = Field(
        default=600.0,
        ge=1,
        le=86_400,
        description="How long a node is left alone after a restart; doubled with each one more within its window.",
    )
    longest_backoff_seconds: Seconds = Field(
        default=21_600.0, ge=1, le=_WEEK, description="The longest that this becomes."
    )
    cooldown_seconds: Seconds = Field(
        default=1800.0, ge=0, le=_WEEK, description="How long a node is left alone after a restart that helped."
    )
    same_cause_seconds: Seconds = Field(
        default=21_600.0,
        ge=0,
        le=_WEEK,
        description="If the same fault is back on the same node within this time after a restart, a person is asked.",
    )
    breaker_failures: Count = Field(
        default=3,
        ge=1,
        le=100,
        description="When so many of the latest restarts have failed within the breaker's window, nothing is restarted "
        "any more, until `tpuwatch restart --reset-breaker`.",
    )
    breaker_last: Count = Field(
        default=10,
        ge=1,
        le=1000,
        description="How many restarts the latest are; never fewer than breaker_failures. Of many that help some may "
        "fail: their nodes are broken, and no restart helps those.",
    )
    breaker_window_seconds: Seconds = Field(
        default=86_400.0, ge=60, le=_WEEK, description="The window in which failed restarts are counted."
    )
    storm_nodes: Count = Field(
        default=3,
        ge=1,
        le=10_000,
        description="From so many nodes that are bad at once on it may be a storm: then nothing is restarted.",
    )
    storm_percent: Percent = Field(
        default=10.0,
        ge=0,
        le=100,
        description="It is a storm if they are at least this share of all watched nodes, or of those in the zone.",
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
        default=900.0, ge=1, le=86_400, description="How long a node may take until it is well after its start."
    )
    settle_seconds: Seconds = Field(
        default=60.0, ge=0, le=3600, description="How long it must be well until the restart counts as done."
    )
    poll_seconds: Seconds = Field(
        default=5.0, ge=0.05, le=600, description="Time between two looks at a node that is being restarted."
    )
    capacity_tries: Count = Field(
        default=12,
        ge=1,
        le=1000,
        description="After so many starts that were refused a person is called; tpuwatch goes on trying all the same.",
    )
    webhook_url: WebAddress = Field(
        default="",
        repr=False,
        description="Where a person is called: JSON is POSTed there, with a text that Slack shows. Whoever knows the "
        "address can write there, so keep this file readable by tpuwatch alone.",
    )

    checkpoint_command: Command = Field(
        default=(),
        description="With checkpoint = true: the program that asks the job for a checkpoint. It runs as tpuwatch's own "
        "user, with TPUWATCH_NODE, TPUWATCH_VERDICT and TPUWATCH_PIDS (who holds the TPU, with spaces between) in its "
        "environment. This or checkpoint_signal has to be given.",
    )
    checkpoint_seconds: Seconds = Field(
        default=120.0, ge=1, le=3600, description="How long that program may take until it is ended."
    )
    checkpoint_signal: JobSignal = Field(
        default="",
        description="The signal that is sent in its place to whoever holds the TPU, if he handles it. With "
        "checkpoint = true, this or checkpoint_command has to be given.",
    )
    sigint_seconds: Seconds = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="How long who holds the TPU has to let it go after SIGINT, the first signal that it gets with "
        "end_holder = true. With 0 the signal is left out, here and in the next two keys.",
    )
    sigterm_seconds: Seconds = Field(default=30.0, ge=0, le=3600, description="The same after SIGTERM, the second one.")
    sigquit_seconds: Seconds = Field(default=10.0, ge=0, le=3600, description="The same after SIGQUIT, the third one.")
    sigkill_seconds: Seconds = Field(
        default=30.0, ge=1, le=3600, description="The same after SIGKILL, the last one, which is always sent."
    )
    runtime_command: Command = Field(
        default=(),
        description="The program that restarts the runtime in place of systemctl. With restart_runtime = true, this "
        "or runtime_unit has to be given.",
    )
    runtime_unit: Unit = Field(
        default="tpu-runtime.service",
        description="The systemd unit of the runtime, which is restarted with restart_runtime = true, and has to be "
        "active afterwards. Empty where there is none.",
    )
    runtime_seconds: Seconds = Field(
        default=120.0, ge=1, le=3600, description="How long a restart of the runtime may take."
    )

    @field_validator("checkpoint_signal")
    @classmethod
    def _some_way_to_checkpoint(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("checkpoint") and not value and not info.data.get("checkpoint_command"):
            raise ValueError("nothing says how to ask for a checkpoint")
        return value

    @field_validator("runtime_unit")
    @classmethod
    def _some_way_to_restart(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("restart_runtime") and not value and not info.data.get("runtime_command"):
            raise ValueError("nothing says how to restart the runtime")
        return value


class Ledger(Section):
    """Every restart, written before it is done, so that one broken off is finished. Without it none is begun."""

    kind: Literal["sqlite", "gcs"] = Field(
        default="sqlite",
        description="What it is: a file, for everything that acts from this machine, or a bucket of Google Cloud "
        "Storage, for several machines.",
    )
    dir: OptionalPath = Field(
        default="",
        description="The directory of that file, on a local disk. Empty: the directory of [state]. Whatever restarts "
        "nodes from this machine has to use the same.",
    )
    lease_seconds: Seconds = Field(
        default=60.0,
        ge=10,
        le=3600,
        description="How long whoever drives a restart may be silent until another one carries it on.",
    )
    timeout_seconds: Seconds = Field(
        default=5.0, ge=0.1, le=60, description="How long one reading or writing may take until it counts as failed."
    )
    bucket: BucketName = Field(
        default="",
        description='With "gcs": the bucket. Whatever restarts nodes by this ledger has to name the same, and the same '
        "prefix.",
    )
    prefix: Prefix = Field(default="tpuwatch/", description="What the names of the ledger's objects begin with.")
    endpoint: Endpoint = Field(
        default="", description="Another server of Cloud Storage's JSON API; empty means Google's own."
    )
    insecure: YesNo = Field(
        default=False, description="Talk to that endpoint without TLS and without credentials. Only for simulators."
    )
