"""What a probe of the TPU came to: plain data. Times are seconds since the Unix epoch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ProbeVerdict(str, Enum):
    """What is at fault. The value is what users see."""

    WORKS = "works"  # the TPU computes right: what fails here is the program's own
    TPU_FAULT = "tpu_fault"
    STACK_FAULT = "stack_fault"  # the software or the host
    PROGRAM_FAULT = "program_fault"  # the pipeline or the model
    WRONG_BUILD = "wrong_build"  # a framework without support for TPUs
    NO_TPU = "no_tpu"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe, as it is left for the daemon."""

    id: str
    began: float
    ended: float
    boot_id: str
    verdict: ProbeVerdict
    summary: str  # a sentence
    framework: str = ""
    objection: str = ""  # why it is no evidence, a sentence; "": it is
