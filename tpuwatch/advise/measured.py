"""What a profile showed, as advice, and estimates held against it: what was measured counts, and it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.advise.advice import passage
from tpuwatch.core import format_seconds
from tpuwatch.libtpu import generation
from tpuwatch.model import Gain, ProgramAdvice
from tpuwatch.program import profile_findings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.advise.subject import Subject
    from tpuwatch.model import ProfileFigures

_WAITS: Final = 0.05  # of the steps' time: below it the input is fast enough
_CALLS: Final = 0.01  # passing values to the host
_FASTER: Final = 0.95  # of the least time: a shorter step contradicts it
_FULLER: Final = 1.1  # times the use of the matrix units that an estimate allows
_INPUT: Final = frozenset({"input_rate", "prefetch", "cache", "parallel_calls", "parallel_reads", "python_input"})
_CALLBACKS: Final = frozenset({"callback", "host_callback"})
_BY_BYTES: Final = frozenset({"memory_bound", "larger_batch"})  # they rest on what a step moves through HBM
_BY_ROOFLINE: Final = frozenset({*_BY_BYTES, "matrix_shape", "depthwise", "precision"})
PASSAGES: Final = {
    "waits_for_input": (Gain.INPUT, passage("performance", "Model is input bound")),
    "device_idle": (Gain.TIME, passage("performance", "Batch size")),
    "between_steps": (Gain.TIME, passage("troubleshooting", "Improve training speed")),
    "host_transfers": (Gain.TIME, passage("jax", "performance")),
    "collectives": (Gain.TIME, passage("sharding", "sharded computation")),
    "data_formatting": (Gain.TIME, passage("layout", "tiles")),
    "low_mxu": (Gain.TIME, passage("performance", "Tensor dimensions; Matrix units")),
    "compiles": (Gain.TIME, passage("troubleshooting", "Dynamic shapes")),
    "uneven_steps": (Gain.TIME, passage("profiling", "steps")),
    "no_steps": (Gain.TIME, passage("profiling", "steps")),
}


def of_profile(subject: Subject) -> Iterator[ProgramAdvice]:
    """What the profile's figures say by themselves."""
    figures = subject.profile
    for one in () if figures is None else profile_findings(figures):
        of, source = PASSAGES[one.name]
        where, change = _where(figures, one.name), one.remedy[0].do
        yield ProgramAdvice(one.name, one.number, of, one.summary, where, change, source, figures={"measured": 1})


def held_against(subject: Subject, found: Iterable[ProgramAdvice]) -> tuple[list[ProgramAdvice], list[str]]:
    """The estimates that the profile does not contradict, their gains as it has them, and a sentence for each change.

    A profile of another chip, or of none, says nothing of a step here.
    """
    figures, estimates = subject.profile, list(found)
    if figures is None:
        return estimates, []
    if figures.idle_share is None or generation(figures.hardware) not in ("", subject.generation):
        return estimates, [f"The profile is of {figures.hardware}: estimates for {subject.generation} stand."]
    kept, said = [], []
    for one in estimates:
        reason, gain = _measured(one, subject, figures)
        if reason:
            said.append(f"{one.id} is left out: {reason}")
        else:
            kept.append(one if gain is None else replace(one, gain=min(one.gain or 1.0, gain)))
    line = subject.roofline
    if line is not None and figures.step_seconds:
        said.insert(
            0,
            f"A step took {format_seconds(figures.step_seconds)}, {figures.step_seconds / line.seconds:.1f} times the "
            "least time by the estimate; gains are shares of the measured step.",
        )
    return kept, said


def _measured(one: ProgramAdvice, subject: Subject, figures: ProfileFigures) -> tuple[str, float | None]:
    """Why the profile contradicts an estimate, or "", and the most that the change can gain by it."""
    idle, line = figures.idle_share or 0.0, subject.roofline
    waits = idle + (figures.input_share or 0.0)  # in JAX input is no operation: the device is idle
    if one.id in _INPUT:
        return ("", waits) if waits >= _WAITS else (f"the device waits for {waits:.0%} of the time.", None)
    if one.id == "steps_per_execution":
        between = max(idle, figures.other_share or 0.0)
        return ("", between) if between >= _WAITS else (f"between steps {between:.0%} of the time passes.", None)
    if one.id in _CALLBACKS and figures.transfer_share is not None:
        share = figures.transfer_share + idle
        return ("", share) if share >= _CALLS else (f"values go to the host in {share:.0%} of the time.", None)
    if one.id not in _BY_ROOFLINE or line is None or not line.seconds:
        return "", None
    if one.id in _BY_BYTES and figures.step_seconds and figures.step_seconds < _FASTER * line.seconds:
        return "the step takes less than moving the estimated bytes would.", None
    if one.id in _BY_BYTES and (figures.mxu_share or 0.0) > _FULLER * line.compute_seconds / line.seconds:
        return f"the matrix units are used for {figures.mxu_share:.0%}, more than the estimate allows.", None
    return "", one.gain * min(1.0, line.seconds / figures.step_seconds) if figures.step_seconds else None


def _where(figures: ProfileFigures | None, name: str) -> str:
    """On what it was measured, and the operations that took longest."""
    if figures is None:
        return ""
    shown = {"waits_for_input": figures.input_operations, "low_mxu": figures.operations}.get(name, ())
    named = ", ".join(f"{one.name} {one.share:.0%}" for one in shown[:3])
    return f"Measured over {figures.steps} steps on {figures.hardware}." + (f" The longest: {named}." if named else "")
