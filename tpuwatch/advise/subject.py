"""What advice is given on: a program that was compiled, shapes alone, or a compiler's report of too little memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuwatch.libtpu import GENERATIONS, chips_of_host
from tpuwatch.program import Layout, Tensor, best_layout, hlo_type, laid_out, layout_of_size, parse_tensor, roofline_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpuwatch.model import Finding, ProfileFigures, Roofline
    from tpuwatch.program import CompileTarget, Preflight, Trial

_OPTIMIZER = ("opt_state", "optimizer", "momentum", "velocity", ".mu", ".nu", "'mu'", "'nu'", "'m'", "'v'", "trace")
ASKED = "asked for"  # the part of a shape that the user gave
LOOKED_UP = "looked up"
_PARTS = ("weights", "optimizer", "state", "inputs")


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in HBM, so many of it, in the compiler's layout where that is known."""

    name: str
    part: str  # weights, optimizer, state, inputs; computed, reported, or asked for
    layout: Layout
    count: int = 1
    batch_side: int | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Bytes are of one device. What is not known is empty or None."""

    generation: str
    chips: int
    tensors: tuple[Placed, ...]
    batch: int | None = None  # of a device
    trial: Trial | None = None
    changed: tuple[Trial, ...] = ()
    kernels: Mapping[str, Any] | None = None
    problem: Mapping[str, Any] | None = None
    profile: ProfileFigures | None = None  # of the program's run
    slices: int = 1

    @property
    def devices_of_host(self) -> int:
        """The devices that one host feeds."""
        chips = chips_of_host(self.generation, self.chips // self.slices)
        return chips * GENERATIONS[self.generation].devices_per_chip

    @property
    def devices(self) -> int:
        return self.chips * GENERATIONS[self.generation].devices_per_chip

    @property
    def available(self) -> int:
        """The HBM of a device: what programs get, as the compiler says, else what the chip has."""
        known = GENERATIONS[self.generation]
        said = self.trial.available_bytes if self.trial is not None else None
        return said or (known.hbm_gib << 30) // known.devices_per_chip

    @property
    def matrix_side(self) -> int:
        return GENERATIONS[self.generation].matrix_side

    @property
    def graph(self) -> Mapping[str, Any] | None:
        return self.trial.counted if self.trial is not None else None

    @property
    def roofline(self) -> Roofline | None:
        """None where there is no program, or operations of it whose FLOPs are not counted."""
        trial = self.trial
        if trial is None:
            return None
        return roofline_of(self.graph, self.generation, trial.devices if trial.sharded else 1, trial)

    @property
    def trains(self) -> bool:
        """Whether the program is a training step that was compiled: it returns as much as it has of weights."""
        weights = self.parts().get("weights", 0)
        return self.trial is not None and 0 < weights <= (self.trial.outputs_bytes or 0)

    def parts(self) -> dict[str, int]:
        """The bytes of the arguments by what they are to the program."""
        found = dict.fromkeys(_PARTS, 0)
        for one in self.tensors:
            if one.part in found:
                found[one.part] += one.layout.bytes * one.count
        return {part: size for part, size in found.items() if size}


def of_program(result: Preflight) -> Subject:
    """A program, as the compiler saw it for one target. A batch that is spread over the devices is cut into shares."""
    trial, target = result.trial, result.target
    tensors: list[Placed] = []
    batch = None
    if trial is not None:
        reported = tuple(_reported(result.findings))
        known = {one.layout.tensor for one in reported}
        computed = (one for one in _computed(trial) if one.layout.tensor not in known)
        tensors = [*arguments(trial.tensors), *reported, *computed]
        share = trial.devices if trial.sharded else 1
        batch = None if trial.batch is None else max(1, trial.batch // share)
    return Subject(
        target.generation,
        target.chips,
        tuple(tensors),
        batch,
        trial,
        result.changed,
        result.kernels,
        result.problem,
        slices=target.slices,
    )


def of_shapes(shapes: Iterable[str], target: CompileTarget, batch: int | None) -> Subject:
    """Shapes by themselves, of one device. Raises ValueError for what is none."""
    tensors = []
    for text in shapes:
        tensor, order = parse_tensor(text)
        side = tensor.sides.index(batch) if batch in tensor.sides else None
        layout = best_layout(tensor) if order is None else laid_out(tensor, order)
        tensors.append(Placed(text, ASKED, layout, batch_side=side))
    return Subject(target.generation, target.chips, tuple(tensors), batch, slices=target.slices)


def of_report(findings: Iterable[Finding], target: CompileTarget) -> Subject:
    """The allocations that a compiler's report names, in the layouts that it chose."""
    return Subject(target.generation, target.chips, tuple(_reported(findings)))


def _reported(findings: Iterable[Finding]) -> Iterator[Placed]:
    """The allocations of a compiler's report, each once."""
    tensors = {}
    for finding in findings:
        for one in finding.details.get("allocations", ()):
            for text in _shapes(str(one.get("shape") or "")):
                tensor, order = parse_tensor(text)
                size = one.get("size_bytes")
                layout = laid_out(tensor, order) if order or not size else layout_of_size(tensor, int(size))
                tensors[text] = Placed(str(one.get("op") or text), "reported", layout)
    yield from tensors.values()


def _shapes(text: str) -> Iterator[str]:
    """A shape, or those of a tuple."""
    depth, start = 0, 0
    inner = text.strip().removeprefix("(").removesuffix(")") if text.startswith("(") else text
    for place, char in enumerate(f"{inner},"):
        depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0:
            part, start = inner[start:place].strip(), place + 1
            try:
                parse_tensor(part)
            except ValueError:
                continue
            yield part


def arguments(tensors: Sequence[Mapping[str, Any]]) -> Iterator[Placed]:
    """The arguments, alike ones together. What they are is what the framework says, else what their names say."""
    seen: dict[tuple[Any, ...], Placed] = {}
    for one in tensors:
        tensor = Tensor(hlo_type(one["dtype"]), tuple(one["shape"]))
        part = one["part"] or _part(one)
        key = (tensor, part, one["batch_side"])
        before = seen.get(key)
        count = before.count + 1 if before is not None else 1
        name = before.name if before is not None else str(one["path"])
        seen[key] = Placed(name, part, best_layout(tensor), count, one["batch_side"])
    yield from seen.values()


def _part(one: Mapping[str, Any]) -> str:
    path = str(one["path"])
    if one["batch_side"] is not None:
        return "inputs"
    if any(word in path for word in _OPTIMIZER):
        return "optimizer"
    return "weights" if one["dtype"].startswith(("float", "bfloat", "f", "bf")) else "state"


def _computed(trial: Trial) -> Iterator[Placed]:
    """What products and convolutions compute, and the tables that rows are looked up in.

    A row of a table lies as it is written, for it is taken as a whole.
    """
    seen = set()
    for row in (trial.counted or {"operations": ()})["operations"]:
        if row["op"] == "gather" and row["inputs"][0] not in seen:
            seen.add(row["inputs"][0])
            yield Placed("table", LOOKED_UP, laid_out(parse_tensor(row["inputs"][0])[0]), row["count"])
        if row["flops"] and row["output"] not in seen:
            seen.add(row["output"])
            yield Placed(row["op"], "computed", best_layout(parse_tensor(row["output"])[0]), row["count"])
