"""From what a TPU and the CPU did with the same computation to what is at fault. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import listed
from tpuwatch.model import ProbeDifference, ProbeStep, ProbeVerdict, Whose

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpuwatch.model import Holder, Remedy
    from tpuwatch.program.attempt import ProbeAttempt

STARVED_SECONDS: Final = 3.0  # without a look at the child: the machine is too busy for a deadline to mean anything
TOLERANCE: Final = 0.02  # of the largest value: a TPU multiplies in bfloat16 by default
_MAX_DIFFERENCES: Final = 20
_HOST_STAGES: Final = frozenset({"start", "import"})
_NAMES: Final = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}

_BUILDS: Final = {"jax": ProbeStep.JAX, "tensorflow": ProbeStep.TENSORFLOW, "torch": ProbeStep.TORCH}


@dataclass(frozen=True, slots=True)
class ProbeScene:
    """What was there when it was probed."""

    tpu: ProbeAttempt
    cpu: ProbeAttempt | None = None  # None: there was no need for it
    devices: tuple[str, ...] = ()  # the machine's device files of TPUs
    holders: tuple[Holder, ...] = ()  # who held the TPU, before or after
    hosts: int = 1  # of the node


@dataclass(frozen=True, slots=True)
class Blame:
    """What is at fault, why, and the next steps."""

    verdict: ProbeVerdict
    summary: str
    remedy: tuple[Remedy, ...]
    differences: tuple[ProbeDifference, ...] = ()


def blame(scene: ProbeScene) -> Blame:
    """What is at fault. What is not known is inconclusive, never a fault of the TPU."""
    tpu, cpu = scene.tpu, scene.cpu
    if tpu.kind == "interpreter":
        return Blame(
            ProbeVerdict.INCONCLUSIVE, f"There is nothing to probe with: {_words(tpu)}", (ProbeStep.INTERPRETER.value,)
        )
    if tpu.kind == "wrong_build":
        name = str(tpu.facts.get("framework"))
        summary = f"This {_NAMES.get(name, name)} has no support for TPUs, so it would fail on a healthy one too."
        return Blame(ProbeVerdict.WRONG_BUILD, summary, (_BUILDS.get(name, ProbeStep.NEW_ENVIRONMENT).value,))
    if tpu.kind == "":
        return _computed(tpu, cpu)
    if tpu.stage == "step":
        return _step_failed(tpu, cpu)
    return _failed(scene)


def _computed(tpu: ProbeAttempt, cpu: ProbeAttempt | None) -> Blame:
    """The TPU has computed what it should, and the user's step, if there is one."""
    count = len(tpu.facts.get("devices", ()))
    works = f"The TPU works: {'its device' if count == 1 else f'each of its {count} devices'} computed the right value"
    if "results" not in tpu.facts:
        summary = f"{works}. What fails here is the program's own, its pipeline or its model."
        return Blame(ProbeVerdict.WORKS, summary, (ProbeStep.OWN_PROGRAM.value,))
    if cpu is None or cpu.kind:
        summary = f"{works}, and the step ran on it; on the CPU it did not, so nothing is compared."
        return Blame(ProbeVerdict.WORKS, summary, ())
    found = tuple(differences(tpu.facts["results"], cpu.facts.get("results", ())))
    if not found:
        return Blame(ProbeVerdict.WORKS, f"{works}, and the step gave the same results on it as on the CPU.", ())
    summary = f"The TPU computes right, but the step gives other results on it than on the CPU: {found[0].what}."
    return Blame(ProbeVerdict.PROGRAM_FAULT, summary, (ProbeStep.FLOAT32.value,), found)


def _step_failed(tpu: ProbeAttempt, cpu: ProbeAttempt | None) -> Blame:
    """The TPU has computed the checked value, and then the user's own step failed."""
    if cpu is not None and cpu.kind and cpu.stage == "step":
        where = "on the TPU and on the CPU alike"
    else:
        where = "on the TPU, and not on the CPU" if cpu is not None and not cpu.kind else "on the TPU"
    summary = f"The TPU computes right, and the step fails {where}: {_words(tpu)}"
    return Blame(ProbeVerdict.PROGRAM_FAULT, summary, (ProbeStep.OWN_PROGRAM.value,))


def _failed(scene: ProbeScene) -> Blame:
    tpu, cpu = scene.tpu, scene.cpu
    words = _words(tpu)
    if scene.holders or any(finding.cause.row.whose is Whose.HOLDER for finding in tpu.findings):
        who = listed(str(one.pid) for one in scene.holders[:3])
        summary = f"The TPU is held{f' by process {who}' if who else ''}, and the probe failed beside it: {words}"
        return Blame(ProbeVerdict.INCONCLUSIVE, summary, (ProbeStep.FREE.value,))
    if tpu.stage in _HOST_STAGES:
        summary = f"The framework fails before it comes to the TPU, in the stage {tpu.stage!r}: {words}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (ProbeStep.NEW_ENVIRONMENT.value, ProbeStep.DOCTOR.value))
    if not scene.devices and tpu.ended:
        summary = (
            f"This machine has no TPU: none of /dev/accel* and /dev/vfio/* is one, and the framework says: {words}"
        )
        return Blame(ProbeVerdict.NO_TPU, summary, (ProbeStep.DOCTOR.value,))
    if cpu is not None and cpu.kind:
        summary = f"The same computation fails on the CPU too, in the stage {cpu.stage!r}: {_words(cpu)}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (ProbeStep.NEW_ENVIRONMENT.value, ProbeStep.DOCTOR.value))
    if not tpu.ended:
        summary = f"The kernel does not let the probe's process end: a call on the TPU has blocked it. {words}"
        return Blame(ProbeVerdict.TPU_FAULT, summary, (ProbeStep.DESCRIBE.value,))
    if known := [finding.cause.value for finding in tpu.findings if finding.cause.row.whose is Whose.SETUP]:
        summary = f"The software or the host is at fault ({known[0]}), in the stage {tpu.stage!r}: {words}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (*tpu.findings[0].remedy, ProbeStep.DOCTOR.value))
    if tpu.kind == "limit" or tpu.stage == "compile":
        summary = f"The software or the host is at fault: the stage {tpu.stage!r} runs on the host. {words}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (ProbeStep.NEW_ENVIRONMENT.value, ProbeStep.DOCTOR.value))
    if tpu.kind == "absent":
        summary = f"The machine has {scene.devices[0]}, and the framework finds no TPU: {words}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (ProbeStep.DOCTOR.value, ProbeStep.NEW_ENVIRONMENT.value))
    return _on_tpu(scene)


def _on_tpu(scene: ProbeScene) -> Blame:
    """What works on the CPU fails on the TPU, in a stage that is the TPU's own."""
    tpu, words = scene.tpu, _words(scene.tpu)
    if tpu.kind == "timeout" and scene.hosts > 1:
        summary = (
            f"The stage {tpu.stage!r} was not done in time, and the node has {scene.hosts} hosts: each waits for all. "
            "Probe on all of them at the same time."
        )
        return Blame(ProbeVerdict.INCONCLUSIVE, summary, (ProbeStep.AGAIN.value,))
    if max(tpu.longest_pause, scene.cpu.longest_pause if scene.cpu else 0.0) >= STARVED_SECONDS:
        summary = (
            f"The machine was too busy for the probe to show anything; it failed in the stage {tpu.stage!r}: {words}"
        )
        return Blame(ProbeVerdict.INCONCLUSIVE, summary, (ProbeStep.AGAIN.value,))
    if scene.cpu is None:
        summary = f"It failed in the stage {tpu.stage!r}, and nothing shows whether the CPU does better: {words}"
        return Blame(ProbeVerdict.INCONCLUSIVE, summary, (ProbeStep.AGAIN.value,))
    summary = f"The TPU is at fault: it failed in the stage {tpu.stage!r}, where the CPU works: {words}"
    return Blame(ProbeVerdict.TPU_FAULT, summary, (ProbeStep.AGAIN.value, ProbeStep.DESCRIBE.value))


def differences(tpu: Any, cpu: Any) -> Iterator[ProbeDifference]:
    """Where two steps' results differ by more than TOLERANCE of the largest value."""
    on_cpu: Mapping[str, Any] = {one["place"]: one for one in cpu}
    places = [one["place"] for one in tpu]
    found = 0
    for one in tpu:
        other = on_cpu.get(one["place"])
        what = "is there on the TPU alone" if other is None else _difference(one, other)
        if what and found < _MAX_DIFFERENCES:
            found += 1
            yield ProbeDifference(one["place"], f"{one['place']} {what}")
    for place in on_cpu:
        if place not in places:
            yield ProbeDifference(place, f"{place} is there on the CPU alone")


def _difference(tpu: Mapping[str, Any], cpu: Mapping[str, Any]) -> str:
    if tpu["shape"] != cpu["shape"]:
        return f"has the shape {tpu['shape']} on the TPU and {cpu['shape']} on the CPU"
    pairs = list(zip(_numbers(tpu["values"]), _numbers(cpu["values"]), strict=False))
    for left, right in pairs:
        if not (math.isfinite(left) and math.isfinite(right)) and str(left) != str(right):
            return f"is {left:g} on the TPU and {right:g} on the CPU"
    finite = [(left, right) for left, right in pairs if math.isfinite(left) and math.isfinite(right)]
    scale = max((abs(right) for _, right in finite), default=0.0)
    left, right = max(finite, key=lambda pair: abs(pair[0] - pair[1]), default=(0.0, 0.0))
    if abs(left - right) <= max(TOLERANCE * scale, 1e-6):
        return ""
    return f"is {left:g} on the TPU and {right:g} on the CPU, where it differs most"


def _numbers(values: Sequence[Any]) -> list[float]:
    return [float(value) for value in values]


def _words(attempt: ProbeAttempt) -> str:
    """Its problem's first line, as the end of a sentence."""
    message = str(attempt.problem["message"]).strip() if attempt.problem else ""
    first = message.splitlines()[0][:300] if message else "it says nothing"
    return first if first.endswith((".", "!", "?")) else f"{first}."
