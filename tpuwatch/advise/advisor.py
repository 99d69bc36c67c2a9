"""All advice on a subject, in the order of gain, and its document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tpuwatch.advise import host, measured, memory, operations, padding, products
from tpuwatch.advise.advice import in_order
from tpuwatch.advise.code import CodeAdvice
from tpuwatch.model import AdviceResultDocument, Gain, NotChecked, NotCompiled, ProgramAdvice, TensorDocument
from tpuwatch.program import flops_of, laid_out, without_waste

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.advise.subject import Placed, Subject
    from tpuwatch.program import CompileTarget


@dataclass(frozen=True, slots=True)
class ProgramRule:
    """A rule on figures: the findings that it makes, and why a subject has not what it looks at ("" where it has)."""

    names: tuple[str, ...]
    find: Callable[[Subject], Iterator[ProgramAdvice]]
    lacks: Callable[[Subject], str]


def _no_shapes(subject: Subject) -> str:
    return "" if subject.tensors else "no shapes are known"


def _no_batch(subject: Subject) -> str:
    return "" if subject.batch is not None else "no batch is given (--batch)"


def _no_program(subject: Subject) -> str:
    counts = subject.trial.graph if subject.trial is not None else None
    if counts is None:
        return "no program was compiled"
    return f"the program could not be counted: {counts['problem']}" if "problem" in counts else ""


def _no_flops(subject: Subject) -> str:
    names = subject.graph["not_counted"] if subject.graph is not None else ()
    return _no_program(subject) or (f"FLOPs are not counted of {', '.join(names)}" if names else "")


def _no_inputs(subject: Subject) -> str:
    return "" if host.input_bytes(subject) else "no argument is known as input data"


def _no_trial(subject: Subject) -> str:
    return "" if subject.trial is not None else "no program was compiled"


def _no_step(subject: Subject) -> str:
    return "" if subject.trains else "the program is no training step that fits: it returns no weights"


def _no_changes(subject: Subject) -> str:
    if subject.changed or subject.trial is None:
        return _no_trial(subject)
    if any(memory.changes(subject.trial)):
        return "no change of the program was compiled (--quick, or the time was up)"
    return "less than half of the HBM is used, or no change would help"


def _no_operations(subject: Subject) -> str:
    return "" if subject.kernels is not None else "no graph of TensorFlow was made"


def _any(*reasons: Callable[[Subject], str]) -> Callable[[Subject], str]:
    """The first reason of several."""
    return lambda subject: next(filter(None, (one(subject) for one in reasons)), "")


RULES: Final = (
    ProgramRule(("padding",), padding.padding, _no_shapes),
    ProgramRule(("batch_multiple",), padding.batch, _no_batch),
    ProgramRule(("matrix_shape",), products.products, _no_flops),
    ProgramRule(("depthwise",), products.depthwise, _no_flops),
    ProgramRule(("narrow_layers",), products.narrow_dense, _no_flops),
    ProgramRule(("precision",), products.precision, _no_flops),
    ProgramRule(("memory_bound",), products.bound, _no_flops),
    ProgramRule(("no_batch_fits",), memory.no_batch_fits, _no_trial),
    ProgramRule(("memory_*",), memory.memory, _no_changes),
    ProgramRule(("larger_batch",), memory.larger_batch, _any(_no_flops, _no_batch)),
    ProgramRule(("global_batch",), host.global_batch, _any(_no_batch, _no_inputs)),
    ProgramRule(("input_rate",), host.input_rate, _any(_no_flops, _no_inputs, _no_step)),
    ProgramRule(("no_kernel", "dynamic_op"), operations.kernels, _no_operations),
    ProgramRule(("host_callback",), operations.callbacks, _no_program),
    ProgramRule(("broadcast",), operations.broadcasts, _no_program),
    ProgramRule(("wide_types",), operations.types, _no_shapes),
    ProgramRule(
        ("dynamic_shape",), operations.problem, lambda subject: "" if subject.problem else _no_program(subject)
    ),
)


# What a compiled program has answered, whatever its code looks like: it has none of these in its steps.
_COMPILED: Final = frozenset({"host_python", "text_op", "dynamic_shape"})


@dataclass(frozen=True, slots=True)
class Advised:
    """All that there is to say, the most important first; `corrected`: what a profile changed of the estimates;
    `checked`: the rules that looked, `not_checked`: those that could not, by the reason."""

    found: list[ProgramAdvice]
    corrected: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    not_checked: dict[str, list[str]] = field(default_factory=dict)


def advise(subject: Subject, code: CodeAdvice | None = None) -> Advised:
    """What the rules say of a subject, of its code and of its profile. What is known more exactly counts: a compiled
    program before its code, sizes before a line that may be large, a profile before an estimate."""
    read = code or CodeAdvice()
    computed, checked, not_checked = (
        [],
        list(read.checked),
        {key: list(names) for key, names in read.not_checked.items()},
    )
    for rule in RULES:
        if reason := rule.lacks(subject):
            not_checked.setdefault(reason, []).extend(rule.names)
        else:
            checked += rule.names
            computed += list(rule.find(subject))
    if subject.profile is not None:
        checked += measured.PASSAGES
    answered = set() if subject.graph is None or subject.problem is not None else set(_COMPILED)
    if answered and all(one.id != "host_callback" for one in computed):
        answered.add("callback")
    if host.input_bytes(subject):
        answered.add("global_input")
    lines = [one for one in read.found if one.id not in answered - {one.id for one in computed}]
    estimates, corrected = measured.held_against(subject, [*computed, *lines])
    if any(one.id == "no_batch_fits" for one in estimates):  # how fast a step would be does not matter
        estimates = [one for one in estimates if one.of in (Gain.RUNS, Gain.HBM)]
    found = in_order([*measured.of_profile(subject), *estimates])
    # A rule that looks at lines and at figures has looked where it saw one of them.
    unseen = {reason: [name for name in names if name not in checked] for reason, names in not_checked.items()}
    left = {reason: names for reason, names in unseen.items() if names or not not_checked[reason]}
    return Advised(found, corrected, list(dict.fromkeys(checked)), left)


def advice_document(
    target: CompileTarget, subject: Subject, advice: Advised, fits: bool | None = None
) -> AdviceResultDocument:
    """Advice on one target; `fits`: whether the program does, None where that is not known."""
    trial = subject.trial
    return AdviceResultDocument(
        tpu=target.name,
        topology=target.topology,
        fits=fits,
        code_made=None if trial is None else trial.unfinished is None,
        problem=subject.problem,
        generation=subject.generation,
        chips=subject.chips,
        batch=subject.batch,
        available_bytes=subject.available,
        memory=memory.composition(subject),
        memory_space=None if trial is None else trial.memory_space,
        roofline=subject.roofline,
        flops=None if trial is None else flops_of(trial.graph),
        not_compiled=tuple(
            NotCompiled(one.change or f"batch {one.batch}", one.problem)
            for one in subject.changed
            if one.problem is not None
        ),
        profile=subject.profile,
        corrected=tuple(advice.corrected),
        checked=tuple(advice.checked),
        not_checked=tuple(NotChecked(tuple(names), reason) for reason, names in advice.not_checked.items()),
        tensors=tuple(map(_tensor, sorted(subject.tensors, key=lambda one: -one.layout.padded * one.count))),
        findings=tuple(advice.found),
    )


def _tensor(one: Placed) -> TensorDocument:
    layout = one.layout
    return TensorDocument(
        name=one.name,
        part=one.part,
        shape=str(layout.tensor),
        count=one.count,
        bytes=layout.bytes,
        padded_bytes=layout.padded,
        expansion=layout.expansion,
        order=layout.order,
        padded_bytes_as_written=laid_out(layout.tensor).padded,
        nearest=tuple(map(str, without_waste(layout))) if layout.waste else (),
    )
