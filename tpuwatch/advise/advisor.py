"""All advice on a subject, in the order of gain, and its document."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.advise import host, measured, memory, operations, padding, products
from tpuwatch.advise.advice import ProgramAdvice, in_order
from tpuwatch.program import laid_out, without_waste

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tpuwatch.advise.subject import Subject

RULES: Final[tuple[Callable[[Subject], Iterator[ProgramAdvice]], ...]] = (
    padding.padding,
    padding.batch,
    products.products,
    products.depthwise,
    products.narrow_dense,
    products.precision,
    products.bound,
    memory.memory,
    memory.larger_batch,
    host.global_batch,
    host.input_rate,
    operations.kernels,
    operations.callbacks,
    operations.broadcasts,
    operations.types,
    operations.problem,
)


# What a compiled program has answered, whatever its code looks like: it has none of these in its steps.
_COMPILED: Final = frozenset({"host_python", "text_op", "dynamic_shape"})


@dataclass(frozen=True, slots=True)
class Advised:
    """All that there is to say, the most important first; `corrected`: what a profile changed of the estimates."""

    found: list[ProgramAdvice]
    corrected: list[str] = field(default_factory=list)


def advise(subject: Subject, code: Iterable[ProgramAdvice] = ()) -> Advised:
    """What the rules say of a subject, of its code and of its profile. What is known more exactly counts: a compiled
    program before its code, sizes before a line that may be large, a profile before an estimate."""
    computed = [one for rule in RULES for one in rule(subject)]
    answered = set() if subject.graph is None or subject.problem is not None else set(_COMPILED)
    if answered and all(one.id != "host_callback" for one in computed):
        answered.add("callback")
    if host.input_bytes(subject):
        answered.add("global_input")
    lines = [one for one in code if one.id not in answered - {one.id for one in computed}]
    estimates, corrected = measured.held_against(subject, [*computed, *lines])
    return Advised(in_order([*measured.of_profile(subject), *estimates]), corrected)


def advice_document(subject: Subject, advice: Advised) -> dict[str, Any]:
    """Advice on one target, fit for JSON. Bytes are of one device."""
    line, graph = subject.roofline, subject.graph
    return {
        "generation": subject.generation,
        "chips": subject.chips,
        "batch": subject.batch,
        "available_bytes": subject.available,
        "memory": memory.composition(subject),
        "roofline": None if line is None else asdict(line),
        "flops": None if graph is None else {name: graph[name] for name in ("matrix_flops", "vector_flops")},
        "unknown_loops": 0 if graph is None else graph["unknown_loops"],
        "not_compiled": [
            {"change": one.change or f"batch {one.batch}", "reason": one.problem}
            for one in subject.changed
            if one.problem is not None
        ],
        "profile": None if subject.profile is None else asdict(subject.profile),
        "corrected": advice.corrected,
        "tensors": [
            {
                "name": one.name,
                "part": one.part,
                "shape": str(one.layout.tensor),
                "count": one.count,
                "bytes": one.layout.bytes,
                "padded_bytes": one.layout.padded,
                "expansion": one.layout.expansion,
                "order": list(one.layout.order),  # of its sides, the minor ones last
                "padded_bytes_as_written": laid_out(one.layout.tensor).padded,
                "nearest": [str(tensor) for tensor in without_waste(one.layout)] if one.layout.waste else [],
            }
            for one in sorted(subject.tensors, key=lambda one: -one.layout.padded * one.count)
        ],
        "findings": [
            {
                "id": one.id,
                "gain": one.gain,
                "of": one.of.value,
                "number": one.number,
                "reason": one.reason,
                "change": one.change,
                "source": {"title": one.source.title, "url": one.source.url},
                "place": one.place,
                "figures": dict(one.figures),
            }
            for one in advice.found
        ],
    }
