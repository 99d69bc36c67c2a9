"""From what a TPU and the CPU did with the same computation to what is at fault. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import listed
from tpuwatch.model import Cause, ProbeVerdict, Remedy, Whose

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpuwatch.model import Holder
    from tpuwatch.program.attempt import ProbeAttempt

STARVED_SECONDS: Final = 3.0  # without a look at the child: the machine is too busy for a deadline to mean anything
TOLERANCE: Final = 0.02  # of the largest value: a TPU multiplies in bfloat16 by default
_MAX_DIFFERENCES: Final = 20
_HOST_STAGES: Final = frozenset({"start", "import"})
_NAMES: Final = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}

_GUIDE: Final = "https://docs.cloud.google.com/tpu/docs/troubleshooting/troubleshooting"
_DESCRIBE: Final = Remedy(
    "See what the cloud says of the node: `tpuwatch nodes`. Where it calls it unhealthy too, restart it: `tpuwatch "
    "restart NODE --probe`",
    _GUIDE,
)
_AGAIN: Final = Remedy("Probe once more, to see whether it comes again: `sudo tpuwatch probe`", _GUIDE)
_DOCTOR: Final = Remedy("Check what a TPU job needs of the machine: `sudo tpuwatch doctor`", _GUIDE)
_NEW_ENVIRONMENT: Final = Remedy(
    "Install the framework and its libtpu, of versions that belong together, into an environment of their own, and "
    "probe with it: `tpuwatch probe --python PATH`",
    "https://docs.jax.dev/en/latest/installation.html",
)
_BUILDS: Final = {
    "jax": Remedy("Install JAX with libtpu: `pip install 'jax[tpu]'`", _NEW_ENVIRONMENT.source),
    "tensorflow": Remedy(
        "Install the build for TPUs in place of the stock one: `pip uninstall tensorflow tensorflow-cpu`, then `pip "
        "install tensorflow-tpu -f https://storage.googleapis.com/libtpu-tf-releases/index.html`",
        "https://www.tensorflow.org/install/pip",
    ),
    "torch": Remedy("Install torch_xla with libtpu: `pip install 'torch_xla[tpu]'`", "https://github.com/pytorch/xla"),
}
_OWN_PROGRAM: Final = Remedy(
    "Look at the program itself: `tpuwatch diagnose FILE` reads its output; `tpuwatch probe --step MODULE:FUNCTION` "
    "runs its own step on the TPU and on the CPU",
    _GUIDE,
)
_INTERPRETER: Final = Remedy(
    "Name the interpreter that runs the program: `tpuwatch probe --python PATH`", _NEW_ENVIRONMENT.source
)
_FREE: Final = Remedy(
    "Probe when the program that holds the TPU has ended; `sudo tpuwatch status` names it",
    "https://github.com/jax-ml/jax/issues/22070",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A result of the user's step that is not the same on the TPU and on the CPU."""

    place: str  # "result[0]['loss']"
    what: str  # a clause


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
    differences: tuple[Difference, ...] = ()


def blame(scene: ProbeScene) -> Blame:
    """What is at fault. What is not known is inconclusive, never a fault of the TPU."""
    tpu, cpu = scene.tpu, scene.cpu
    if tpu.kind == "interpreter":
        return Blame(ProbeVerdict.INCONCLUSIVE, f"There is nothing to probe with: {_words(tpu)}", (_INTERPRETER,))
    if tpu.kind == "wrong_build":
        name = str(tpu.facts.get("framework"))
        summary = f"This {_NAMES.get(name, name)} has no support for TPUs, so it would fail on a healthy one too."
        return Blame(ProbeVerdict.WRONG_BUILD, summary, (_BUILDS.get(name, _NEW_ENVIRONMENT),))
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
        return Blame(ProbeVerdict.WORKS, summary, (_OWN_PROGRAM,))
    if cpu is None or cpu.kind:
        summary = f"{works}, and the step ran on it; on the CPU it did not, so nothing is compared."
        return Blame(ProbeVerdict.WORKS, summary, ())
    found = tuple(differences(tpu.facts["results"], cpu.facts.get("results", ())))
    if not found:
        return Blame(ProbeVerdict.WORKS, f"{works}, and the step gave the same results on it as on the CPU.", ())
    summary = f"The TPU computes right, but the step gives other results on it than on the CPU: {found[0].what}."
    step = Remedy(
        "Compare in float32 throughout, with `jax.default_matmul_precision('float32')` in JAX; what still differs "
        "depends on random numbers, on an order of sums, or on values that overflow",
        "https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html",
    )
    return Blame(ProbeVerdict.PROGRAM_FAULT, summary, (step,), found)


def _step_failed(tpu: ProbeAttempt, cpu: ProbeAttempt | None) -> Blame:
    """The TPU has computed the checked value, and then the user's own step failed."""
    if cpu is not None and cpu.kind and cpu.stage == "step":
        where = "on the TPU and on the CPU alike"
    else:
        where = "on the TPU, and not on the CPU" if cpu is not None and not cpu.kind else "on the TPU"
    summary = f"The TPU computes right, and the step fails {where}: {_words(tpu)}"
    return Blame(ProbeVerdict.PROGRAM_FAULT, summary, (_OWN_PROGRAM,))


def _failed(scene: ProbeScene) -> Blame:
    tpu, cpu = scene.tpu, scene.cpu
    causes = {finding.cause for finding in tpu.findings}
    words = _words(tpu)
    if scene.holders or Cause.TPU_IN_USE in causes:
        who = listed(str(one.pid) for one in scene.holders[:3])
        summary = f"The TPU is held{f' by process {who}' if who else ''}, and the probe failed beside it: {words}"
        return Blame(ProbeVerdict.INCONCLUSIVE, summary, (_FREE,))
    if tpu.stage in _HOST_STAGES:
        summary = f"The framework fails before it comes to the TPU, in the stage {tpu.stage!r}: {words}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (_NEW_ENVIRONMENT, _DOCTOR))
    if not scene.devices and tpu.ended:
        summary = (
            f"This machine has no TPU: none of /dev/accel* and /dev/vfio/* is one, and the framework says: {words}"
        )
        return Blame(ProbeVerdict.NO_TPU, summary, (_DOCTOR,))
    if cpu is not None and cpu.kind:
        summary = f"The same computation fails on the CPU too, in the stage {cpu.stage!r}: {_words(cpu)}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (_NEW_ENVIRONMENT, _DOCTOR))
    if not tpu.ended:
        summary = f"The kernel does not let the probe's process end: a call on the TPU has blocked it. {words}"
        return Blame(ProbeVerdict.TPU_FAULT, summary, (_DESCRIBE,))
    if known := [finding.cause.value for finding in tpu.findings if finding.cause.row.whose is Whose.SETUP]:
        summary = f"The software or the host is at fault ({known[0]}), in the stage {tpu.stage!r}: {words}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (*tpu.findings[0].remedy, _DOCTOR))
    if tpu.kind == "limit" or tpu.stage == "compile":
        summary = f"The software or the host is at fault: the stage {tpu.stage!r} runs on the host. {words}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (_NEW_ENVIRONMENT, _DOCTOR))
    if tpu.kind == "absent":
        summary = f"The machine has {scene.devices[0]}, and the framework finds no TPU: {words}"
        return Blame(ProbeVerdict.STACK_FAULT, summary, (_DOCTOR, _NEW_ENVIRONMENT))
    return _on_tpu(scene)


def _on_tpu(scene: ProbeScene) -> Blame:
    """What works on the CPU fails on the TPU, in a stage that is the TPU's own."""
    tpu, words = scene.tpu, _words(scene.tpu)
    if tpu.kind == "timeout" and scene.hosts > 1:
        summary = (
            f"The stage {tpu.stage!r} was not done in time, and the node has {scene.hosts} hosts: each waits for all. "
            "Probe on all of them at the same time."
        )
        return Blame(ProbeVerdict.INCONCLUSIVE, summary, (_AGAIN,))
    if max(tpu.longest_pause, scene.cpu.longest_pause if scene.cpu else 0.0) >= STARVED_SECONDS:
        summary = (
            f"The machine was too busy for the probe to show anything; it failed in the stage {tpu.stage!r}: {words}"
        )
        return Blame(ProbeVerdict.INCONCLUSIVE, summary, (_AGAIN,))
    if scene.cpu is None:
        summary = f"It failed in the stage {tpu.stage!r}, and nothing shows whether the CPU does better: {words}"
        return Blame(ProbeVerdict.INCONCLUSIVE, summary, (_AGAIN,))
    summary = f"The TPU is at fault: it failed in the stage {tpu.stage!r}, where the CPU works: {words}"
    return Blame(ProbeVerdict.TPU_FAULT, summary, (_AGAIN, _DESCRIBE))


def differences(tpu: Any, cpu: Any) -> Iterator[Difference]:
    """Where two steps' results differ by more than TOLERANCE of the largest value."""
    on_cpu: Mapping[str, Any] = {one["place"]: one for one in cpu}
    places = [one["place"] for one in tpu]
    found = 0
    for one in tpu:
        other = on_cpu.get(one["place"])
        what = "is there on the TPU alone" if other is None else _difference(one, other)
        if what and found < _MAX_DIFFERENCES:
            found += 1
            yield Difference(one["place"], f"{one['place']} {what}")
    for place in on_cpu:
        if place not in places:
            yield Difference(place, f"{place} is there on the CPU alone")


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
