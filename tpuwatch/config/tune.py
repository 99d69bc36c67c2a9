"""[tune]: what the next launch's environment may be, and where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tpuwatch.config.types import (
    AbsolutePath,
    Count,
    Days,
    MaxMebibytes,
    Mebibytes,
    OptionalPath,
    Overrides,
    Percent,
    Section,
    YesNo,
)


class TuneConfig(Section):
    """The TPU_* variables of the next launch. [logs] says when a launch is slow."""

    mode: Literal["observe", "act"] = Field(
        default="observe",
        description='With "observe" the daemon decides and advises. With "act" it writes the environment files too. '
        "`tpuwatch exec` and `tpuwatch env` give what was decided in both.",
    )
    dir: OptionalPath = Field(
        default="",
        description="Where plans, environment files and the records of `tpuwatch exec` are. Empty: tune/ in the state "
        "directory.",
    )
    overrides: Overrides = Field(
        default_factory=dict, description="Variables that are not tuned, and what they are set to."
    )
    min_mib: Mebibytes = Field(default=256, ge=1, le=1_048_576, description="The smallest premapped buffer.")
    max_mib: MaxMebibytes = Field(default=65_536, ge=1, le=1_048_576, description="The largest premapped buffer.")
    memory_percent: Percent = Field(
        default=25.0,
        ge=1,
        le=90,
        description="The largest premapped buffer, as a share of the host's memory, or of what a cgroup leaves of it. "
        "It is pinned, and the input pipeline has to do without it.",
    )
    headroom_percent: Percent = Field(
        default=25.0, ge=0, le=400, description="What is added to the need that a failed transfer showed."
    )
    window_launches: Count = Field(
        default=50,
        ge=5,
        le=1000,
        description="How many of a workload's latest launches are looked at. Processes of one run, such as one for "
        "each chip, are one launch.",
    )
    pathways: YesNo = Field(
        default=False, description="Whether Pathways workers run here, whose buffer has to be a power of two."
    )
    log_dir: AbsolutePath = Field(
        default=Path("/tmp/tpu_logs"),  # noqa: S108 (where libtpu writes)
        description="TPU_LOG_DIR of the next launch.",
    )
    log_mib: Mebibytes = Field(
        default=1024,
        ge=1,
        le=1_048_576,
        description="TPU_MAX_LOG_SIZE_MB of the next launch, the size at which libtpu begins a new file; less where "
        "the disk has no room for it.",
    )
    stderr_level: Count = Field(
        default=-1,
        ge=-1,
        le=4,
        description="TPU_STDERR_LOG_LEVEL of the next launch: 0 for all that libtpu logs, to 3 for what ends it alone; "
        "-1 leaves it to libtpu.",
    )
    keep_log_days: Days = Field(
        default=14,
        ge=1,
        le=3650,
        description="libtpu's log files, which it never deletes, are pruned when they are older. Files that a process "
        "has open for writing are spared.",
    )
    keep_log_mib: Mebibytes = Field(
        default=4096, ge=1, le=1_048_576, description="They are pruned too, the oldest first, when they take more."
    )

    @field_validator("max_mib")
    @classmethod
    def _room_for_a_size(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("min_mib", value):
            raise ValueError("no size is between min_mib and max_mib")
        return value
